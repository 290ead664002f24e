//! Which path does what.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request};
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

    pub(crate) async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> Reply {
        let answer = match request.uri().path() {
            "/v1/check" => self.check(request).await,
            "/v1/check/batch" => self.batch(request).await,
            "/v1/peek" => self.peek(request).await,
            "/v1/refund" => self.refund(request).await,
            "/api/ping" => self.ping(peer, request).await,
            "/v1/auth" => auth::by_match(&self.decider, peer, request).await,
            path if path.starts_with(auth::PREFIX) => auth::by_rule(&self.decider, peer, request).await,
            _ => Err(Problem::no_such_path()),
        };
        answer.unwrap_or_else(Problem::into_reply)
    }

    async fn check(&self, request: Request<Incoming>) -> Result<Reply, Problem> {
        only_post(request.method())?;
        check::check(&self.decider, request).await
    }

    async fn batch(&self, request: Request<Incoming>) -> Result<Reply, Problem> {
        only_post(request.method())?;
        check::batch(&self.decider, request).await
    }

    async fn peek(&self, request: Request<Incoming>) -> Result<Reply, Problem> {
        only_post(request.method())?;
        check::peek(&self.decider, request).await
    }

    async fn refund(&self, request: Request<Incoming>) -> Result<Reply, Problem> {
        only_post(request.method())?;
        check::refund(&self.decider, request).await
    }

    async fn ping(&self, peer: SocketAddr, request: Request<Incoming>) -> Result<Reply, Problem> {
        match *request.method() {
            Method::GET | Method::HEAD => ping::ping(&self.decider, peer, request).await,
            _ => Err(Problem::wrong_method("GET, HEAD")),
        }
    }
}

fn only_post(method: &Method) -> Result<(), Problem> {
    if *method == Method::POST { Ok(()) } else { Err(Problem::wrong_method("POST")) }
}
