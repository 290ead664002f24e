//! Asks an upstream again and again whether it is well.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::address::Upstream;
use super::connection_pool::NewLine;
use super::connector::{Dialer, Purpose};
use super::endpoint::Endpoint;
use super::health::HealthCheck;
use super::http1::Asked;
use crate::forward::body::Upload;
use crate::route::Timeouts;

/// Checks the endpoint until dropped.
pub(crate) async fn check_forever(dialer: Dialer, endpoint: Arc<Endpoint>, check: HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = tokio::time::timeout(check.timeout, ask(&dialer, &endpoint, &check));
        // A check that this machine had no room for says nothing.
        if let Some(well) = asked.await.unwrap_or(Some(false)) {
            endpoint.health.checked(well, &check);
        }
    }
}

/// Whether the endpoint is well. `None` if this machine could not ask.
async fn ask(dialer: &Dialer, endpoint: &Endpoint, check: &HealthCheck) -> Option<bool> {
    let status = match dialer.dial(&endpoint.upstream, Purpose::Request, check.timeout).await {
        Ok(line) => status_over(line, &endpoint.upstream, check).await,
        Err(why) if why.is_local() => return None,
        Err(_) => None,
    };
    Some(status.is_some_and(|status| matches!(status.as_u16(), 200..400)))
}

/// What the endpoint answers, over a connection of its own: one that is only kept alive proves little.
async fn status_over(line: NewLine, upstream: &Upstream, check: &HealthCheck) -> Option<StatusCode> {
    match line {
        NewLine::Http1(line) => {
            let (host, waits, kept) =
                (upstream.authority.as_str(), Timeouts::all(check.timeout), Arc::default());
            let (method, path, headers) = (&Method::GET, &check.path, &HeaderMap::new());
            let (read_at_most, push_more) = (usize::MAX, &|_: &mut _| ());
            let asked = Asked { method, path, host, headers, read_at_most, push_more, await_answer: false };
            let answer = line.ask(asked, &mut Upload::none(), &waits, &kept).await;
            answer.ok().map(|answer| answer.status())
        }
        NewLine::Http2(connection) => {
            let mut request = Request::new(());
            *request.uri_mut() = upstream.uri(&check.path);
            *request.version_mut() = Version::HTTP_2;
            let waits = Timeouts::all(check.timeout);
            let answer = connection.begin()?.ask(request, &mut Upload::none(), &waits, false).await;
            answer.ok().map(|answer| answer.status())
        }
    }
}
