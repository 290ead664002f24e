//! The gateway's promises, over real sockets: a client, the gateway and upstreams that misbehave on command.

mod auth;
mod limits;
mod support;
