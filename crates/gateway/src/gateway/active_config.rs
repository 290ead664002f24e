//! Settings at work: what one request sees of them, from its first byte to its last.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};
use spile_policy::{Policy, only_value};

use crate::auth::Authenticator;
use crate::auth::{Hop, Trust};
use crate::gateway::BuildError;
use crate::gateway::Settings;
use crate::refusal::Refusal;
use crate::refusal::RefusalPages;
use crate::route::{Route, Table};

/// Settings at work.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) table: Arc<Table>,
    pub(crate) auth: Authenticator,
    pub(crate) trust: Trust,
    principal_header: HeaderName,
    refusals: Arc<RefusalPages>,
}

impl Setup {
    /// Puts settings to work. What is known of upstreams that were served `before` stays known, and the policy stays if
    /// the settings have none.
    pub(crate) fn new(settings: Settings, before: Option<&Self>) -> Result<Self, BuildError> {
        let Settings { routes, jwt, trusted, principal_header, refusals, policy } = settings;
        if let Some(route) = routes.iter().find(|route| route.upstreams.is_empty()) {
            return Err(BuildError::NoUpstream(route.name.to_string()));
        }
        let policy = policy.or_else(|| before.map(|before| Arc::clone(&before.auth.policy)));
        Ok(Self {
            table: Arc::new(Table::new(routes, before.map(|before| &*before.table))),
            auth: Authenticator { policy: policy.unwrap_or_default(), jwt },
            trust: Trust::new(trusted),
            principal_header,
            refusals: Arc::new(refusals),
        })
    }

    /// The same routes under another policy.
    pub(crate) fn under(&self, policy: Arc<Policy>) -> Self {
        Self { auth: Authenticator { policy, jwt: self.auth.jwt.clone() }, ..self.clone() }
    }

    /// A refusal, in the form that the route or all of them have for it. Those of gRPC have status 200, and so no other.
    pub(crate) fn refuse(&self, refusal: Refusal, route: Option<&Route>, grpc: bool) -> Response<Bytes> {
        let mut response = refusal.into_response(grpc);
        route.map_or(&*self.refusals, |route| &route.refusals).apply(&self.refusals, &mut response);
        response
    }

    /// Whom a trusted proxy says that it has authenticated. From any other peer the header counts for nothing.
    pub(crate) fn reported_principal<'h>(&self, hop: &Hop, headers: &'h HeaderMap) -> Option<&'h str> {
        if hop.trusted { only_value(headers, &self.principal_header) } else { None }
    }
}
