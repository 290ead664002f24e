//! The gateway's promises, over real sockets: a client, the gateway and upstreams that misbehave on command.

mod answers;
mod auth;
mod guide;
mod health;
mod http2;
mod limits;
mod nginx;
mod overload;
mod proxying;
mod refusals;
mod reload;
mod retries;
mod routes;
mod security;
mod smuggling;
mod streaming;
mod streams;
mod support;
mod tls;
mod tokens;
mod traces;
mod upgrades;
mod upstreams;
