//! Which path does what.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use super::problem::Problem;
use super::reply::Reply;
use super::{auth, check, ping};
use crate::decider::Decider;

/// Everything that callers can ask of the `http` listener.
///
/// A `match` in place of a router: the paths are few and fixed, and a decision takes less time than finding its
/// way through one.
#[derive(Clone)]
pub(crate) struct Api {
    decider: Arc<Decider>,
}

impl Api {
    pub(crate) const fn new(decider: Arc<Decider>) -> Self {
        Self { decider }
    }

    pub(crate) async fn answer(&self, peer: SocketAddr, mut request: Request<Incoming>) -> Reply {
        let decider = &*self.decider;
        // Every answer shares one future, which is copied into its connection: what is not asked all the time is
        // boxed to keep that small.
        let answer = match request.uri().path() {
            "/v1/check" => check::check(decider, &mut request).await,
            "/v1/check/batch" => Box::pin(check::batch(decider, &mut request)).await,
            "/v1/peek" => Box::pin(check::peek(decider, &mut request)).await,
            "/v1/refund" => Box::pin(check::refund(decider, &mut request)).await,
            "/v1/auth" => Box::pin(auth::by_match(decider, peer, request)).await,
            path if path.starts_with(auth::PREFIX) => Box::pin(auth::by_rule(decider, peer, request)).await,
            "/api/ping" => Box::pin(ping::ping(decider, peer, request)).await,
            _ => Err(Problem::no_such_path()),
        };
        answer.unwrap_or_else(Problem::into_reply)
    }
}
