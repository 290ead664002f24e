//! Routes requests of the `http` listener to their handlers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use spile_listener::{ClientBody, HttpHandler, RequestOrigin};

use super::host_check::HostCheck;
use super::is_unclear;
use super::problem::Problem;
use super::reply::HttpReply;
use super::{check, permit, ping, reservation};
use crate::auth;
use crate::decide::Decider;

/// The operations that callers can ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ApiCall {
    Check,
    Batch,
    Peek,
    Refund,
    Charge,
    Reserve,
    Settle,
    Acquire,
    Renew,
    Release,
    AuthByMatch,
    AuthByRule,
    Ping,
}

/// The call of each path, the most frequent first. A last part in braces stands for any text.
const ROUTES: [(&str, ApiCall); 13] = [
    ("/v1/check", ApiCall::Check),
    ("/v1/check/batch", ApiCall::Batch),
    ("/v1/peek", ApiCall::Peek),
    ("/v1/refund", ApiCall::Refund),
    ("/v1/charge", ApiCall::Charge),
    ("/v1/reserve", ApiCall::Reserve),
    ("/v1/settle", ApiCall::Settle),
    ("/v1/acquire", ApiCall::Acquire),
    ("/v1/renew", ApiCall::Renew),
    ("/v1/release", ApiCall::Release),
    ("/v1/auth", ApiCall::AuthByMatch),
    ("/v1/auth/{ruleId}", ApiCall::AuthByRule),
    ("/api/ping", ApiCall::Ping),
];

/// Finds a call and its route by its path.
fn call_at(path: &str) -> Option<(&'static str, ApiCall)> {
    let fits = |route: &str| {
        path == route || route.split_once('{').is_some_and(|(before, _)| path.starts_with(before))
    };
    ROUTES.iter().find(|(route, _)| fits(route)).copied()
}

/// The handler of the `http` listener.
///
/// It uses a short table instead of a router: the paths are few and fixed, and routing would take longer than a decision.
#[derive(Clone)]
pub(crate) struct Api {
    decider: Arc<Decider>,
    hosts: HostCheck,
}

impl Api {
    pub(crate) const fn new(decider: Arc<Decider>, hosts: HostCheck) -> Self {
        Self { decider, hosts }
    }

    /// The route of a path. `None` if there is no such path.
    pub(crate) fn route(path: &str) -> Option<&'static str> {
        call_at(path).map(|(route, _)| route)
    }

    async fn reply(&self, peer: SocketAddr, mut request: Request<ClientBody>) -> HttpReply {
        let decider = &*self.decider;
        if let Err(problem) = auth::exempt(decider, peer, &request, || self.hosts.check(&request, true)) {
            return problem.into_reply();
        }
        // All answers share one future, which is copied into its connection: rare calls are boxed to keep it small.
        let answer = match call_at(request.uri().path()).map(|(_, call)| call) {
            Some(ApiCall::Check) => check::check(decider, &mut request).await,
            Some(ApiCall::Batch) => Box::pin(check::batch(decider, &mut request)).await,
            Some(ApiCall::Peek) => Box::pin(check::peek(decider, &mut request)).await,
            Some(ApiCall::Refund) => Box::pin(check::refund(decider, &mut request)).await,
            Some(ApiCall::Charge) => Box::pin(check::charge(decider, &mut request)).await,
            Some(ApiCall::Reserve) => Box::pin(reservation::reserve(decider, &mut request)).await,
            Some(ApiCall::Settle) => Box::pin(reservation::settle(decider, &mut request)).await,
            Some(ApiCall::Acquire) => Box::pin(permit::acquire(decider, peer, &mut request)).await,
            Some(ApiCall::Renew) => Box::pin(permit::renew(decider, &mut request)).await,
            Some(ApiCall::Release) => Box::pin(permit::release(decider, &mut request)).await,
            Some(ApiCall::AuthByMatch) => Box::pin(auth::by_match(decider, peer, request)).await,
            Some(ApiCall::AuthByRule) => Box::pin(auth::by_rule(decider, peer, request)).await,
            Some(ApiCall::Ping) => Box::pin(ping::ping(decider, peer, request)).await,
            None => Err(Problem::no_such_path()),
        };
        answer.unwrap_or_else(Problem::into_reply)
    }
}

impl HttpHandler for Api {
    type Body = Full<Bytes>;

    async fn handle(self, origin: RequestOrigin, request: Request<ClientBody>) -> HttpReply {
        if is_unclear(origin, &request) {
            return Problem::ambiguous_length().into_reply();
        }
        self.reply(origin.peer, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_path_leads_to_its_call() {
        for (path, call) in ROUTES {
            assert_eq!(call_at(&path.replace("{ruleId}", "login")), Some((path, call)), "{path}");
        }
        for path in ["/", "/v1", "/v1/checks", "/v1/check/", "/v1/authority", "/api/ping/x", ""] {
            assert_eq!(call_at(path), None, "{path}");
        }
    }

    #[test]
    fn the_document_names_the_paths_that_are_served_and_no_others() {
        let served: BTreeSet<&str> = ROUTES.into_iter().map(|(path, _)| path).collect();
        let document = crate::openapi::decisions_document();
        assert_eq!(document.paths.paths.keys().map(String::as_str).collect::<BTreeSet<_>>(), served);
    }
}
