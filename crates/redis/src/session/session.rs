//! Scripts that run beside decisions, one at a time, over a connection of their own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spile_resp::{Value, write};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Finder, SessionError, Subscription};
use crate::connection::dialer::Dialer;
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::script::Script;
use crate::script::error_reply::ErrorReply;
use crate::topology::slot::slot_of;

/// The pause before a script that Redis did not run is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// Keys beside the buckets, all in one slot, and a connection to whoever serves it. It is opened when it is needed
/// and used by one script at a time. Decisions never wait for it.
pub struct Session {
    place: Arc<Place>,
    open: Mutex<Option<Connection>>,
}

/// Makes the places of one store.
pub(crate) type SideSetup = Box<dyn Fn() -> (Finder, Arc<Dialer>) + Send + Sync>;

/// Where a session's keys live.
pub(super) struct Place {
    pub(super) space: String,
    slot: u16,
    finder: Finder,
    dialer: Arc<Dialer>,
}

/// What to do about a reply.
enum Next {
    Done(Value),
    /// Connect anew: the slot, or the master, is elsewhere or will be.
    Elsewhere,
    /// This once, ask that node.
    Ask(Endpoint),
    /// Ask the same node once more: the slot is on its way, or the cluster is being repaired.
    Again(String),
    Refused(String),
}

impl Session {
    pub(crate) fn new(space: String, setup: &SideSetup) -> Self {
        let (finder, dialer) = setup();
        let place = Place { slot: slot_of(space.as_bytes()), space, finder, dialer };
        Self { place: Arc::new(place), open: Mutex::default() }
    }

    /// The Redis key of this name: `spile:{:registry}:entries`. No bucket ever has it.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.place.space)
    }

    /// The channel that [`subscribe`](Self::subscribe) listens to.
    pub fn channel(&self) -> &str {
        &self.place.space
    }

    /// Listens to the channel from now on, over another connection. Must be called within a tokio runtime.
    pub fn subscribe(&self) -> Subscription {
        Subscription::start(Arc::clone(&self.place))
    }

    /// Runs a script on keys of this session, and waits no longer than `within` for everything: its turn, a
    /// connection, the reply. Sends it again only where Redis says that it did not run it.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[&[u8]],
        within: Duration,
    ) -> Result<Value, SessionError> {
        let deadline = Instant::now() + within;
        let command = Command { script, keys, arguments };
        let Ok(mut open) = timeout_at(deadline, self.open.lock()).await else {
            return Err(SessionError::Unreachable("another call is under way".to_owned()));
        };
        let mut why = SessionError::Unreachable(format!("no connection within {within:?}"));
        while Instant::now() < deadline {
            let mut connection = match timeout_at(deadline, self.connected(open.take())).await {
                Ok(connected) => connected.map_err(|why| SessionError::Unreachable(why.to_string()))?,
                Err(_) => return Err(why),
            };
            let reply = timeout_at(deadline, command.exchange(&mut connection, false)).await;
            let reply = reply.map_err(|_| SessionError::TimedOut(within))?;
            match self.sort(reply.map_err(|why| broken(&why))?, &connection) {
                Next::Done(value) => {
                    *open = Some(connection);
                    return Ok(value);
                }
                Next::Refused(text) => {
                    *open = Some(connection);
                    return Err(SessionError::Refused(text));
                }
                Next::Ask(to) => {
                    *open = Some(connection);
                    match timeout_at(deadline, self.ask(&to, &command)).await {
                        Ok(Ok(Value::Error(text))) => why = SessionError::Refused(text),
                        Ok(answered) => return answered,
                        Err(_) => return Err(SessionError::TimedOut(within)),
                    }
                }
                Next::Again(text) => {
                    *open = Some(connection);
                    why = SessionError::Refused(text);
                }
                Next::Elsewhere => why = SessionError::Unreachable("nobody takes writes".to_owned()),
            }
            sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
        }
        // A node that has refused all along may be cut off from one that does not: the next call looks for it.
        *open = None;
        Err(why)
    }

    /// The connection that is open, unless the other side has hung up or spoken unasked, or the credentials have
    /// changed; else a new one.
    async fn connected(&self, open: Option<Connection>) -> Result<Connection, ConnectionError> {
        if let Some(mut connection) = open.filter(|open| !open.is_outdated()) {
            let alive = tokio::select! {
                biased;
                _ = connection.until_unasked() => false,
                () = std::future::ready(()) => true,
            };
            if alive {
                return Ok(connection);
            }
        }
        self.place.connect().await
    }

    fn sort(&self, reply: Value, connection: &Connection) -> Next {
        let Value::Error(text) = reply else { return Next::Done(reply) };
        match ErrorReply::read(&text, connection.endpoint()) {
            ErrorReply::Moved { to } => {
                self.place.finder.moved(to);
                Next::Elsewhere
            }
            ErrorReply::Ask { to } => Next::Ask(to),
            ErrorReply::TryAgain | ErrorReply::ClusterDown => Next::Again(text),
            ErrorReply::WrongNode => Next::Elsewhere,
            ErrorReply::Unreplicated if self.place.finder.may_move() => Next::Elsewhere,
            _ => Next::Refused(text),
        }
    }

    /// Asks the node that a slot is moving to.
    async fn ask(&self, to: &Endpoint, command: &Command<'_>) -> Result<Value, SessionError> {
        let opened = self.place.dialer.open(to).await;
        let mut connection = opened.map_err(|why| SessionError::Unreachable(why.to_string()))?;
        command.exchange(&mut connection, true).await.map_err(|why| broken(&why))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.place.space)
    }
}

impl Place {
    pub(super) async fn connect(&self) -> Result<Connection, ConnectionError> {
        self.finder.connect(self.slot, &self.dialer).await
    }
}

fn broken(why: &ConnectionError) -> SessionError {
    SessionError::Broken(why.to_string())
}

/// One call of a script.
struct Command<'a> {
    script: &'a Script,
    keys: &'a [String],
    arguments: &'a [&'a [u8]],
}

impl Command<'_> {
    /// Calls by name, and by text where the node does not know the name.
    async fn exchange(&self, connection: &mut Connection, asking: bool) -> Result<Value, ConnectionError> {
        let reply = self.send(connection, asking, b"EVALSHA", self.script.name()).await?;
        match &reply {
            Value::Error(text) if text.starts_with("NOSCRIPT") => {
                self.send(connection, asking, b"EVAL", self.script.text()).await
            }
            _ => Ok(reply),
        }
    }

    async fn send(
        &self,
        connection: &mut Connection,
        asking: bool,
        command: &[u8],
        script: &str,
    ) -> Result<Value, ConnectionError> {
        let mut out = Vec::new();
        if asking {
            write::command(&mut out, &[b"ASKING"]);
        }
        write::array(&mut out, 3 + self.keys.len() + self.arguments.len());
        write::bulk(&mut out, command);
        write::bulk(&mut out, script.as_bytes());
        write::bulk(&mut out, self.keys.len().to_string().as_bytes());
        for key in self.keys {
            write::bulk(&mut out, key.as_bytes());
        }
        for argument in self.arguments {
            write::bulk(&mut out, argument);
        }
        connection.send(&out).await?;
        if asking {
            // Where it is refused, so is what follows.
            connection.receive().await?;
        }
        connection.receive().await
    }
}
