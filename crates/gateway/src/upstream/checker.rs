//! Asks an upstream again and again whether it is well.

use std::sync::Arc;

use http::uri::Uri;
use http::{Request, Version, header};

use super::dial::Dialer;
use super::endpoint::Endpoint;
use super::health::HealthCheck;
use crate::body::Upload;

/// Checks the endpoint until dropped.
pub(crate) async fn check_forever(dialer: Dialer, endpoint: Arc<Endpoint>, check: HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = tokio::time::timeout(check.timeout, ask(&dialer, &endpoint, &check));
        endpoint.health.checked(asked.await.unwrap_or(false), &check);
    }
}

/// Whether the endpoint answers well, over a connection of its own: one that is only kept alive proves little.
async fn ask(dialer: &Dialer, endpoint: &Endpoint, check: &HealthCheck) -> bool {
    let upstream = &endpoint.upstream;
    let Ok(mut line) = dialer.dial(upstream, check.timeout).await else { return false };
    let mut request = Request::new(Upload::none());
    if line.is_http2() {
        let whole = Uri::builder().scheme(upstream.scheme()).authority(upstream.authority.clone());
        *request.uri_mut() = whole.path_and_query(check.path.clone()).build().unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
    } else {
        *request.uri_mut() = Uri::from(check.path.clone());
        if let Ok(host) = header::HeaderValue::from_str(upstream.authority.as_str()) {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    line.send(request).await.is_ok_and(|answer| matches!(answer.status().as_u16(), 200..400))
}
