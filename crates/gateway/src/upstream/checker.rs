//! Asks an upstream again and again whether it is well.

use std::sync::Arc;

use http::uri::Uri;
use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::dial::Dialer;
use super::endpoint::Endpoint;
use super::health::HealthCheck;
use super::http1::Asked;
use super::lines::NewLine;
use crate::body::Upload;
use crate::route::Timeouts;

/// Checks the endpoint until dropped.
pub(crate) async fn check_forever(dialer: Dialer, endpoint: Arc<Endpoint>, check: HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = tokio::time::timeout(check.timeout, ask(&dialer, &endpoint, &check));
        let status = asked.await.ok().flatten();
        let well = status.is_some_and(|status| matches!(status.as_u16(), 200..400));
        endpoint.health.checked(well, &check);
    }
}

/// What the endpoint answers, over a connection of its own: one that is only kept alive proves little.
async fn ask(dialer: &Dialer, endpoint: &Endpoint, check: &HealthCheck) -> Option<StatusCode> {
    let upstream = &endpoint.upstream;
    match dialer.dial(upstream, check.timeout).await.ok()? {
        NewLine::Http1(line) => {
            let (host, waits, kept) =
                (upstream.authority.as_str(), Timeouts::all(check.timeout), Arc::default());
            let (method, path, headers) = (&Method::GET, &check.path, &HeaderMap::new());
            let asked = Asked { method, path, host, headers, read_at_most: usize::MAX, push_more: &|_| () };
            let answer = line.ask(asked, &mut Upload::none(), &waits, &kept).await;
            answer.ok().map(|answer| answer.status())
        }
        NewLine::Http2(connection) => {
            let mut request = Request::new(());
            let whole = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
            *request.uri_mut() = whole.path_and_query(check.path.clone()).build().ok()?;
            *request.version_mut() = Version::HTTP_2;
            let waits = Timeouts::all(check.timeout);
            let answer = connection.begin()?.ask(request, &mut Upload::none(), &waits).await;
            answer.ok().map(|answer| answer.status())
        }
    }
}
