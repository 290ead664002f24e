//! The audit log: a line for each requested change before it takes effect, and a second line with its outcome.
//!
//! Both lines have the number of the change, its initiator and its target. A change is completed even if the client hangs up, so only the
//! end of the process can leave a first line without a second. No line contains a caller's key.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::RequestExt;
use axum::extract::{ConnectInfo, FromRequestParts, Query, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Deserialize;

use crate::admin::AdminState;

/// The longest part of a name that is logged.
const MAX_NAME: usize = 200;

/// A requested change. Clones refer to the same change.
#[derive(Clone)]
pub(crate) struct Audit(Arc<AuditedChange>);

struct AuditedChange {
    /// Identifies the two lines of a change.
    number: u64,
    by: Initiator,
    action: &'static str,
    kind: String,
    plan: Option<String>,
    /// Unset until the body is read, if the body contains the name of the entry.
    name: OnceLock<String>,
}

/// The initiator of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Initiator {
    /// A client of the admin listener.
    Peer(SocketAddr),
    /// A SIGHUP to the process.
    Hangup,
    /// A change of the file.
    File,
}

impl fmt::Display for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => peer.fmt(f),
            Self::Hangup => f.write_str("SIGHUP"),
            Self::File => f.write_str("file"),
        }
    }
}

impl Audit {
    /// A reload of the configuration.
    pub(crate) fn reload(by: Initiator) -> Self {
        let audit = Self::new(by, "reload", "config".to_owned(), None);
        audit.name(String::new());
        audit
    }

    fn new(by: Initiator, action: &'static str, kind: String, plan: Option<String>) -> Self {
        static CHANGES: AtomicU64 = AtomicU64::new(1);
        let number = CHANGES.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(AuditedChange { number, by, action, kind, plan, name: OnceLock::new() }))
    }

    /// Sets the name of the entry, and writes the first line.
    pub(crate) fn name(&self, name: impl Into<String>) {
        let name: String = name.into().chars().take(MAX_NAME).collect();
        if self.0.name.set(name).is_ok() {
            let AuditedChange { number, by, action, kind, plan, .. } = &*self.0;
            let name = self.0.name.get();
            tracing::info!(target: "spile::audit", change = number, peer = %by, action, kind, name, plan, "asked for");
        }
    }

    /// Writes the second line, with the outcome.
    pub(crate) fn ended(&self, status: StatusCode) {
        // A request that was refused before its name was known has a first line, too.
        self.name("");
        let AuditedChange { number, by, action, kind, plan, name } = &*self.0;
        let (name, code) = (name.get(), status.as_u16());
        if status.is_success() {
            tracing::info!(target: "spile::audit", change = number, peer = %by, action, kind, name, plan, "changed");
        } else if status.is_client_error() {
            tracing::warn!(target: "spile::audit", change = number, peer = %by, action, kind, name, plan, status = code, "refused");
        } else {
            tracing::warn!(
                target: "spile::audit",
                change = number, peer = %by, action, kind, name, plan, status = code,
                "failed, and may have been made in part"
            );
        }
    }
}

/// The change that a request asks for, if [`record`] recognized one.
impl<S: Sync> FromRequestParts<S> for Audit {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, StatusCode> {
        parts.extensions.get().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Writes both lines for every request that asks for a change. The request is handled in a separate task, which continues if the client
/// disconnects.
pub(crate) async fn record(State(state): State<AdminState>, mut request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let audit = asked_by(&mut request, &state).await;
    request.extensions_mut().insert(audit.clone());
    let changing = tokio::spawn(async move {
        let response = next.run(request).await;
        audit.ended(response.status());
        response
    });
    match changing.await {
        Ok(response) => response,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The initiator of a change.
fn peer_of(request: &Request) -> Initiator {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    Initiator::Peer(request.extensions().get().map_or(unknown, |ConnectInfo(peer)| *peer))
}

/// The change that a request asks for: `/admin/v1/{kind}`, and the name in the path if there is one.
async fn asked_by(request: &mut Request, state: &AdminState) -> Audit {
    /// The selection that a reset is restricted to.
    #[derive(Deserialize)]
    struct Narrowed {
        plan: Option<String>,
    }
    let mut segments = request.uri().path().split('/').skip(3);
    let kind = segments.next().unwrap_or_default().to_owned();
    let is_key = segments.nth(1) == Some("keys");
    let action = match (request.method(), kind.as_str()) {
        (&Method::PUT, _) => "put",
        (&Method::DELETE, "buckets") => "reset",
        (&Method::DELETE, _) => "delete",
        (&Method::POST, "config") => "reload",
        (&Method::POST, "tenants") if is_key => "add key",
        (&Method::POST, _) => "create",
        _ => "other",
    };
    let plan = match action {
        "reset" => Query::<Narrowed>::try_from_uri(request.uri()).ok().and_then(|query| query.0.plan),
        _ => None,
    };
    let named = request.extract_parts::<RawPathParams>().await.ok();
    let named = named.and_then(|params| params.iter().next().map(|(_, name)| name.to_owned()));
    let audit = Audit::new(peer_of(request), action, kind, plan);
    match named {
        Some(key) if action == "reset" => audit.name(state.decider.mask(&key)),
        Some(name) => audit.name(name),
        None if action == "create" => {}
        None => audit.name(""),
    }
    audit
}
