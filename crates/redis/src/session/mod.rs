//! Scripts that run beside decisions, one at a time, over a separate connection.
//!
//! The registry and the analytics of a server live here. They never use the connections that decide, and never delay
//! them.

mod subscription;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spile_resp::{Value, write};
use spile_runtime::Runtime;
use tokio::sync::Mutex;

use crate::connection::dialer::{Dialer, NodeAddress};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::script::error_reply::ErrorReply;
use crate::script::{Script, ScriptRef};
use crate::store::StoreInner;
use crate::topology::slot::slot_of;

pub use self::subscription::Subscription;
pub(crate) use self::subscription::keep_subscribed;

/// The mean pause before a script that Redis did not run is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Keys beside the buckets, all in one slot, and a connection to the node that serves it. The connection is opened when
/// needed and runs one script at a time. Decisions never wait for it.
pub struct Session {
    space: Arc<KeySpace>,
    open: Mutex<Option<Connection>>,
}

/// The keys of a session and the way to their node.
pub(super) struct KeySpace {
    pub(super) prefix: String,
    /// Keeps the cluster's map up to date.
    store: Arc<StoreInner>,
    address: NodeAddress,
    pub(super) dialer: Dialer,
}

/// Why a session has no reply.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no connection, and none can be opened.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The script was sent, and no reply arrived.
    #[error("Redis gave no answer within {0:?}")]
    TimedOut(Duration),
    /// The script was sent, and the connection broke before the reply was complete.
    #[error("the connection to Redis broke: {0}")]
    Broken(String),
    /// Redis replied with an error: it did not run the script, or the script failed.
    #[error("Redis refused: {0}")]
    Refused(String),
}

impl SessionError {
    /// Whether the script may have run all the same. Then only an idempotent script may be sent again.
    pub const fn may_have_run(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Broken(_))
    }
}

impl Session {
    pub(crate) fn new(prefix: String, store: &Arc<StoreInner>) -> Self {
        let (address, dialer) = store.router.beside_decisions(slot_of(prefix.as_bytes()));
        let space = KeySpace { prefix, store: Arc::clone(store), address, dialer };
        Self { space: Arc::new(space), open: Mutex::default() }
    }

    /// The Redis key of this name, such as `spile:{:registry}:entries`. No bucket has this key.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.space.prefix)
    }

    /// The channel that [`subscribe`](Self::subscribe) listens to.
    pub fn channel(&self) -> &str {
        &self.space.prefix
    }

    /// Subscribes to the channel over another connection. Must be called within a tokio runtime.
    pub fn subscribe(&self) -> Subscription {
        Subscription::start(Arc::clone(&self.space))
    }

    /// Runs a script on keys of this session. `within` bounds everything: waiting for other calls, connecting, and the
    /// reply. The script is sent again only if Redis says that it did not run it.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[&[u8]],
        within: Duration,
    ) -> Result<Value, SessionError> {
        let runtime = self.space.runtime();
        let deadline = runtime.now() + within;
        let command = ScriptCommand { script, keys, arguments };
        let Ok(mut open) = runtime.timeout_at(deadline, self.open.lock()).await else {
            return Err(SessionError::Unreachable("another call is under way".to_owned()));
        };
        let mut why = SessionError::Unreachable(format!("no connection within {within:?}"));
        let no_master = || SessionError::Unreachable("no node takes writes".to_owned());
        // The node that the last reply named, and whether only this script is for it.
        let mut redirection = None;
        while runtime.now() < deadline {
            let (to, asking) = redirection.take().unzip();
            let asking = asking.unwrap_or(false);
            let kept = if asking { None } else { open.take() };
            // Boxed: connecting is large.
            let opened = Box::pin(self.connection_or_new(kept, to));
            let mut connection = match runtime.timeout_at(deadline, opened).await {
                Ok(opened) => opened.map_err(|why| SessionError::Unreachable(why.to_string()))?,
                Err(_) => return Err(why),
            };
            let reply = runtime.timeout_at(deadline, command.exchange(&mut connection, asking)).await;
            let reply = reply
                .map_err(|_| SessionError::TimedOut(within))?
                .map_err(|why| SessionError::Broken(why.to_string()))?;
            let here = connection.endpoint().clone();
            if !asking {
                *open = Some(connection);
            }
            let Value::Error(text) = reply else { return Ok(reply) };
            match ErrorReply::parse(&text, &here) {
                ErrorReply::Moved { to } => {
                    self.space.store.router.request_refresh();
                    (*open, redirection, why) = (None, Some((to, false)), no_master());
                }
                ErrorReply::Ask { to } if !asking => {
                    redirection = Some((to, true));
                    continue;
                }
                // The slot is moving, or the cluster is down for now.
                ErrorReply::Ask { .. } | ErrorReply::TryAgain | ErrorReply::ClusterDown => {
                    why = SessionError::Refused(text);
                }
                // The master is another node, or will be.
                ErrorReply::WrongNode => (*open, why) = (None, no_master()),
                ErrorReply::Unreplicated if self.space.address.may_move() => {
                    (*open, why) = (None, no_master());
                }
                _ => return Err(SessionError::Refused(text)),
            }
            runtime.sleep(RETRY_PAUSE.mul_f64(0.5 + runtime.random_share())).await;
        }
        // The node refused until the end and may be cut off. The next call looks for another one.
        *open = None;
        Err(why)
    }

    /// The open connection if it is still good and its credentials are current, otherwise a new one, to this node or to the slot's.
    async fn connection_or_new(
        &self,
        open: Option<Connection>,
        redirected_to: Option<Endpoint>,
    ) -> Result<Connection, ConnectionError> {
        if let Some(mut connection) = open.filter(|open| !open.is_outdated()) {
            let alive = tokio::select! {
                biased;
                _ = connection.until_closed() => false,
                () = std::future::ready(()) => true,
            };
            if alive {
                return Ok(connection);
            }
        }
        match redirected_to {
            Some(endpoint) => self.space.dialer.open(&endpoint).await,
            None => self.space.connect().await,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.space.prefix)
    }
}

impl KeySpace {
    pub(super) fn runtime(&self) -> &Runtime {
        &self.dialer.context.runtime
    }

    pub(super) async fn connect(&self) -> Result<Connection, ConnectionError> {
        let endpoint = self.address.resolve().await?;
        // A node that cannot be reached may have been replaced.
        self.dialer.open(&endpoint).await.inspect_err(|_| self.store.router.request_refresh())
    }
}

/// One call of a script.
struct ScriptCommand<'a> {
    script: &'a Script,
    keys: &'a [String],
    arguments: &'a [&'a [u8]],
}

impl ScriptCommand<'_> {
    /// Sends `EVALSHA`, and `EVAL` if the node has not cached the script.
    async fn exchange(&self, connection: &mut Connection, asking: bool) -> Result<Value, ConnectionError> {
        let mut reply = self.send(connection, asking, ScriptRef::Sha).await?;
        if matches!(&reply, Value::Error(text) if text.starts_with("NOSCRIPT")) {
            reply = self.send(connection, asking, ScriptRef::Source).await?;
        }
        Ok(reply)
    }

    async fn send(
        &self,
        connection: &mut Connection,
        asking: bool,
        script_ref: ScriptRef,
    ) -> Result<Value, ConnectionError> {
        let mut out = Vec::new();
        if asking {
            write::command(&mut out, &[b"ASKING"]);
        }
        self.script.write(script_ref, self.keys.iter().map(String::as_bytes), self.arguments, &mut out);
        connection.send(&out).await?;
        if asking {
            // If `ASKING` fails, the script's reply is an error too.
            connection.receive().await?;
        }
        connection.receive().await
    }
}
