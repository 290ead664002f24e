//! One socket to one node: opened, authenticated and checked, then used command by command.
//!
//! It must not know about queues and topologies. A connection must not be used after an error: the next bytes could be
//! the reply to an earlier command.

pub(crate) mod dial_limiter;
pub(crate) mod dialer;
pub(crate) mod endpoint;
pub(crate) mod login;
pub(crate) mod tls;
pub(crate) mod url;

use std::io;
use std::pin::pin;
use std::time::Duration;

use spile_resp::{InvalidReply, Value, parse, write};
use spile_runtime::{ByteStream, DialTarget, Runtime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::connection::endpoint::Endpoint;
use crate::connection::login::Login;
use crate::connection::tls::TlsClient;
use crate::connection::url::Credentials;

/// More than any reply to a call. The slot map of a large cluster fits too.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// Which role of a node is accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RoleCheck {
    /// Any: in a cluster, redirections lead to the master.
    None,
    /// A replica is rejected. If the user may not run `ROLE`, any node is accepted.
    IfAllowed,
    /// Only a node that says that it is a master.
    Master,
}

/// How a connection is opened, besides its address.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) tls: Option<TlsClient>,
    pub(crate) role: RoleCheck,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("connection closed")]
    Closed,
    #[error("no reply within {0:?}")]
    Stalled(Duration),
    #[error(transparent)]
    InvalidReply(#[from] InvalidReply),
    #[error("reply to another request")]
    Foreign,
    #[error("reply of an unexpected shape")]
    WrongShape,
    #[error("{0}")]
    Refused(String),
    #[error("node is a {0}, not a master")]
    NotMaster(String),
}

/// An open connection.
pub(crate) struct Connection {
    stream: Box<dyn ByteStream>,
    endpoint: Endpoint,
    /// The credentials that it uses, and newer ones.
    login: watch::Receiver<Option<Credentials>>,
    /// Bytes that have arrived and are not parsed yet.
    unread: Vec<u8>,
}

impl Connection {
    /// Connects, authenticates and checks the role. The caller bounds its time.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        options: &ConnectOptions,
        runtime: &Runtime,
    ) -> Result<Self, ConnectionError> {
        let stream = open_stream(endpoint, options.tls.as_ref(), runtime).await?;
        let (endpoint, login) = (endpoint.clone(), options.login.subscribe());
        let mut connection = Self { stream, endpoint, login, unread: Vec::with_capacity(1_024) };
        connection.handshake(options).await?;
        Ok(connection)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The credentials that it uses, and newer ones.
    pub(crate) fn login(&self) -> watch::Receiver<Option<Credentials>> {
        self.login.clone()
    }

    /// Whether the credentials have changed since it authenticated.
    pub(crate) fn is_outdated(&self) -> bool {
        self.login.has_changed().unwrap_or(false)
    }

    /// Authenticates with the newest credentials. If Redis rejects them, the connection keeps its user.
    pub(crate) async fn reauthenticate(&mut self) -> Result<(), ConnectionError> {
        let Some(credentials) = self.login.borrow_and_update().clone() else {
            // Only a new connection can return to the user without a password.
            return Err(ConnectionError::Closed);
        };
        let mut command = Vec::new();
        credentials.push_auth(&mut command);
        self.send(&command).await?;
        accepted(self.receive().await?).map(drop)
    }

    /// Sends whole commands.
    pub(crate) async fn send(&mut self, commands: &[u8]) -> Result<(), ConnectionError> {
        self.stream.write_all(commands).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The next reply.
    pub(crate) async fn receive(&mut self) -> Result<Value, ConnectionError> {
        loop {
            if let Some((value, used)) = parse(&self.unread)? {
                self.unread.drain(..used);
                return Ok(value);
            }
            if self.unread.len() > MAX_REPLY_BYTES {
                return Err(InvalidReply.into());
            }
            self.read_more().await?;
        }
    }

    /// Sends one command and returns its reply, which may be an error.
    pub(crate) async fn command(&mut self, parts: &[&[u8]]) -> Result<Value, ConnectionError> {
        let mut command = Vec::new();
        write::command(&mut command, parts);
        self.send(&command).await?;
        self.receive().await
    }

    /// Sends one command and returns its reply, which has to arrive within this time. A reply that is an error fails.
    pub(crate) async fn ask(
        &mut self,
        parts: &[&[u8]],
        within: Duration,
        runtime: &Runtime,
    ) -> Result<Value, ConnectionError> {
        accepted(in_time(runtime, within, self.command(parts)).await?)
    }

    /// Waits until the server closes the connection or sends bytes unasked. Both end the connection. Cancel safe.
    pub(crate) async fn until_closed(&mut self) -> ConnectionError {
        if !self.unread.is_empty() {
            return InvalidReply.into();
        }
        match self.read_more().await {
            Ok(()) => InvalidReply.into(),
            Err(why) => why,
        }
    }

    /// The next reply if one is `expected`, otherwise why the [connection ended](Self::until_closed). Cancel safe.
    pub(crate) async fn receive_if(&mut self, expected: bool) -> Result<Value, ConnectionError> {
        if expected { self.receive().await } else { Err(self.until_closed().await) }
    }

    async fn read_more(&mut self) -> Result<(), ConnectionError> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(ConnectionError::Closed),
            _ => Ok(()),
        }
    }

    /// Sends all commands in one write, so that a new connection costs one round trip.
    async fn handshake(&mut self, options: &ConnectOptions) -> Result<(), ConnectionError> {
        let mut commands = Vec::new();
        let mut expected = 0;
        if let Some(credentials) = &*self.login.borrow() {
            credentials.push_auth(&mut commands);
            expected += 1;
        }
        if options.database != 0 {
            write::command(&mut commands, &[b"SELECT", options.database.to_string().as_bytes()]);
            expected += 1;
        }
        if options.role != RoleCheck::None {
            write::command(&mut commands, &[b"ROLE"]);
        }
        if !commands.is_empty() {
            self.send(&commands).await?;
        }
        for _ in 0..expected {
            accepted(self.receive().await?)?;
        }
        if options.role == RoleCheck::None { Ok(()) } else { self.check_role(options.role).await }
    }

    async fn check_role(&mut self, check: RoleCheck) -> Result<(), ConnectionError> {
        match self.receive().await? {
            Value::Error(refusal) if check == RoleCheck::Master || !refusal.starts_with("NOPERM") => {
                Err(ConnectionError::Refused(refusal))
            }
            Value::Error(_) => Ok(()),
            reply => match reply.as_array().and_then(|parts| parts.first()?.as_str()) {
                Some("master") => Ok(()),
                Some(role) => Err(ConnectionError::NotMaster(role.to_owned())),
                None => Err(InvalidReply.into()),
            },
        }
    }
}

/// Bounds the time of work on a connection.
pub(crate) async fn in_time<T>(
    runtime: &Runtime,
    within: Duration,
    work: impl Future<Output = Result<T, ConnectionError>>,
) -> Result<T, ConnectionError> {
    runtime.timeout(within, work).await.unwrap_or(Err(ConnectionError::Stalled(within)))
}

/// Waits for work, and calls `late` if it takes longer than this.
pub(crate) async fn reporting_delay<T>(
    runtime: &Runtime,
    within: Duration,
    work: impl Future<Output = T>,
    late: impl FnOnce(),
) -> T {
    let mut work = pin!(work);
    if let Ok(done) = runtime.timeout(within, &mut work).await {
        return done;
    }
    late();
    work.await
}

/// Makes an error reply an error.
pub(crate) fn accepted(reply: Value) -> Result<Value, ConnectionError> {
    if let Value::Error(refusal) = reply { Err(ConnectionError::Refused(refusal)) } else { Ok(reply) }
}

/// TLS is for TCP only.
async fn open_stream(
    endpoint: &Endpoint,
    tls: Option<&TlsClient>,
    runtime: &Runtime,
) -> io::Result<Box<dyn ByteStream>> {
    match endpoint {
        Endpoint::Unix(path) => runtime.connect(DialTarget::Unix(path)).await,
        Endpoint::Tcp { host, port } => {
            let stream = runtime.connect(DialTarget::Tcp(host, *port)).await?;
            match tls {
                Some(tls) => Ok(Box::new(tls.connect(host, stream).await?)),
                None => Ok(stream),
            }
        }
    }
}
