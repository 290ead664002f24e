//! Runs the health checks of an upstream.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, StatusCode, Version};

use super::address::Upstream;
use super::attempt_error::AttemptError;
use super::connection_pool::NewConnection;
use super::connector::{ConnectPurpose, Connector};
use super::endpoint::UpstreamEndpoint;
use super::health::HealthCheck;
use super::http1::Http1Request;
use crate::forward::body::Upload;
use crate::route::Timeouts;

/// Checks the endpoint until the future is dropped.
pub(crate) async fn check_forever(connector: Connector, endpoint: Arc<UpstreamEndpoint>, check: HealthCheck) {
    let mut ticks = tokio::time::interval(check.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let request = tokio::time::timeout(check.timeout, probe(&connector, &endpoint, &check));
        let timed_out = |_| Some(Err(format!("no answer came within {:?}", check.timeout)));
        // `None` means that this machine could not send the check, which says nothing about the upstream.
        if let Some(result) = request.await.unwrap_or_else(timed_out) {
            endpoint.health.record_check(result, &check);
        }
    }
}

/// Whether the endpoint is healthy, or why it is not. `None` if this machine could not connect for want of resources.
async fn probe(
    connector: &Connector,
    endpoint: &UpstreamEndpoint,
    check: &HealthCheck,
) -> Option<Result<(), String>> {
    let status = match connector.connect(&endpoint.upstream, ConnectPurpose::Request, check.timeout).await {
        Ok(connection) => probe_status(connection, &endpoint.upstream, check).await,
        Err(why) if why.is_local() => return None,
        Err(why) => return Some(Err(format!("no connection could be opened: {why}"))),
    };
    Some(match status {
        Ok(status) if matches!(status.as_u16(), 200..400) => Ok(()),
        Ok(status) => Err(format!("its status was {}", status.as_u16())),
        Err(why) => Err(why.cause().to_owned()),
    })
}

/// The status of the response, over a new connection. An old one that still works would prove less.
async fn probe_status(
    connection: NewConnection,
    upstream: &Upstream,
    check: &HealthCheck,
) -> Result<StatusCode, AttemptError> {
    match connection {
        NewConnection::Http1(connection) => {
            let (host, waits, kept) =
                (upstream.authority.as_str(), Timeouts::all(check.timeout), Arc::default());
            let (method, path, headers) = (&Method::GET, &check.path, &HeaderMap::new());
            let (read_at_most, write_more) = (usize::MAX, &|_: &mut _| ());
            let request =
                Http1Request { method, path, host, headers, read_at_most, write_more, await_answer: false };
            let answer = connection.send(request, &mut Upload::none(), &waits, &kept).await;
            answer.map(|answer| answer.status())
        }
        NewConnection::Http2(connection) => {
            let mut request = Request::new(());
            *request.uri_mut() = upstream.uri(&check.path);
            *request.version_mut() = Version::HTTP_2;
            let waits = Timeouts::all(check.timeout);
            let stream = connection.open_stream().ok_or(AttemptError::NotProcessed)?;
            let answer = stream.send(request, &mut Upload::none(), &waits, false).await;
            answer.map(|answer| answer.status())
        }
    }
}
