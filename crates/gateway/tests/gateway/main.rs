//! The gateway's promises, over real sockets: a client, the gateway and upstreams that misbehave on command. Folders are
//! those of `src`.

mod access_log;
mod auth;
mod forward;
mod gateway;
mod limit;
mod refusal;
mod route;
mod support;
mod upstream;
