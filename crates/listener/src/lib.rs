//! Accepts connections: one accept loop and one set of bounds for every listener.
//!
//! A [`Listener`] accepts a bounded number of connections, terminates TLS if it is configured, passes each connection
//! to a [`ListenerProtocol`], and drains when it is asked to stop. [`Http`] is the protocol for HTTP/1.1 and HTTP/2.
//! This crate must not know how requests are answered.

mod guess_limiter;
mod http;
mod http1;
mod http2;
mod listener;
mod timer;
mod tls;
mod watched_files;

pub use guess_limiter::{GuessLimiter, TooManyGuesses};
pub use http::{ClientBody, ClientBodyError, Http, HttpHandler, RequestMetrics, UnpacedBody};
pub use http1::is_only_chunked;
pub use http2::{FIRST_READ, MAX_WINDOW, PacedBody, ReceiveBody, SendBody, SendBodyError};
pub use listener::{
    AcceptedConnection, Bounds, ClientIo, ConnectionPermit, ConnectionPlace, DrainWatcher, HangUp, KeptPlace,
    Listener, ListenerProtocol, RequestOrigin,
};
pub use timer::{Deadline, IdleTimer};
pub use tls::{Tls, TlsFiles, certified_key};
pub use watched_files::{FileLoadError, WatchedFiles};
