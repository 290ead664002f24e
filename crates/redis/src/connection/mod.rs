//! One socket to one node: opened, introduced and checked, then command by command.
//!
//! It knows neither queues nor topologies. Whoever holds it must not use it again after an error: the bytes that
//! come next would answer an earlier command.

pub(crate) mod dial_limiter;
pub(crate) mod dialer;
pub(crate) mod endpoint;
pub(crate) mod login;
pub(crate) mod tls;
pub(crate) mod url;

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use spile_resp::{InvalidReply, Value, parse, write};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;

use crate::connection::endpoint::Endpoint;
use crate::connection::login::Login;
use crate::connection::tls::TlsClient;
use crate::connection::url::Credentials;
use crate::script::call::BadReply;

/// More than any reply to a batch; the slot map of a large cluster fits too.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// What a node must be for a connection to be of use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RoleCheck {
    /// Nothing is asked: redirections will tell.
    None,
    /// A replica is refused, but a user who may not ask is let through.
    IfAllowed,
    /// Only a node that says that it is a master will do.
    Master,
}

/// Everything that opening a connection takes besides the address.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) tls: Option<TlsClient>,
    pub(crate) role: RoleCheck,
}

/// Why a connection is of no use, or no more.
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
    #[error(transparent)]
    Foreign(#[from] BadReply),
    #[error("{0}")]
    Refused(String),
    #[error("node is a {0}, not a master")]
    NotMaster(String),
}

/// An open connection.
pub(crate) struct Connection {
    stream: Box<dyn ByteStream>,
    endpoint: Endpoint,
    /// The credentials that it was opened with, and those that have come since.
    login: watch::Receiver<Option<Credentials>>,
    /// Bytes that have come and are not read yet.
    unread: Vec<u8>,
}

/// Any byte stream that a node can be reached by.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl Connection {
    /// Connects and introduces itself. Takes as long as the network does: the caller bounds it.
    pub(crate) async fn open(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Self, ConnectionError> {
        let stream = open_stream(endpoint, options.tls.as_ref()).await?;
        let (endpoint, login) = (endpoint.clone(), options.login.subscribe());
        let mut connection = Self { stream, endpoint, login, unread: Vec::with_capacity(1_024) };
        connection.handshake(options).await?;
        Ok(connection)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The credentials that it is logged in with, and those to come.
    pub(crate) fn login(&self) -> watch::Receiver<Option<Credentials>> {
        self.login.clone()
    }

    /// Whether it is logged in with credentials that have been replaced.
    pub(crate) fn is_outdated(&self) -> bool {
        self.login.has_changed().unwrap_or(false)
    }

    /// Logs in with the credentials of now. Where Redis refuses them, the connection stays as it was.
    pub(crate) async fn reauthenticate(&mut self) -> Result<(), ConnectionError> {
        let Some(credentials) = self.login.borrow_and_update().clone() else {
            // There is no way back to a user without a password but a new connection.
            return Err(ConnectionError::Closed);
        };
        let mut command = Vec::new();
        credentials.push_auth(&mut command);
        self.send(&command).await?;
        match self.receive().await? {
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            _ => Ok(()),
        }
    }

    /// Sends bytes that hold whole commands.
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

    /// One command and its reply, whatever it is.
    pub(crate) async fn command(&mut self, parts: &[&[u8]]) -> Result<Value, ConnectionError> {
        let mut command = Vec::new();
        write::command(&mut command, parts);
        self.send(&command).await?;
        self.receive().await
    }

    /// Waits until the other side speaks or hangs up while nobody has asked it anything; either ends the
    /// connection. May be dropped at any time.
    pub(crate) async fn until_closed(&mut self) -> ConnectionError {
        if !self.unread.is_empty() {
            return InvalidReply.into();
        }
        match self.read_more().await {
            Ok(()) => InvalidReply.into(),
            Err(why) => why,
        }
    }

    /// The next reply, if one is `expected`; else what [ends the connection](Self::until_unasked). May be dropped at any
    /// time.
    pub(crate) async fn receive_if(&mut self, expected: bool) -> Result<Value, ConnectionError> {
        if expected { self.receive().await } else { Err(self.until_closed().await) }
    }

    async fn read_more(&mut self) -> Result<(), ConnectionError> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(ConnectionError::Closed),
            _ => Ok(()),
        }
    }

    /// All of it goes in one write, so that a new connection costs one round trip more than a socket.
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
            if let Value::Error(refusal) = self.receive().await? {
                return Err(ConnectionError::Refused(refusal));
            }
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

async fn open_stream(endpoint: &Endpoint, tls: Option<&TlsClient>) -> io::Result<Box<dyn ByteStream>> {
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((&**host, *port)).await?;
            set_socket_options(&stream)?;
            match tls {
                Some(tls) => Ok(Box::new(tls.connect(host, stream).await?)),
                None => Ok(Box::new(stream)),
            }
        }
    }
}

/// Small writes go at once, and a peer that vanished is noticed even while nothing is being said.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(2)))?;
    Ok(())
}
