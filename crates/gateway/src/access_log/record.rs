//! The log record of one request.

use std::net::IpAddr;

use http::header::{HeaderMap, REFERER, USER_AGENT};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use smol_str::SmolStr;
use spile_core::Micros;

use super::AccessLog;
use crate::forward::headers::RequestId;
use crate::limit::RateDecision;
use crate::upstream::UpstreamEndpoint;

/// The longest part of a path, a referrer or a user agent that is logged, in bytes.
const MAX_TEXT: usize = 1_024;
/// The status that nginx logs when the client closed the connection before the response.
const CLIENT_LEFT: u16 = 499;

/// The record of a request in flight. It is logged when this is dropped. Without an access log it is empty,
/// and does nothing.
#[derive(Debug, Default)]
pub(crate) struct AccessRecord(Option<Box<FinishedRecord>>);

/// The logged fields of a request.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    /// `None` once the request is over.
    log: Option<AccessLog>,
    /// By the monotonic clock.
    started: Micros,
    /// Whether it is logged although it is not part of the sample.
    is_always_logged: bool,
    pub(super) at: Micros,
    pub(super) client: IpAddr,
    pub(super) method: Method,
    pub(super) version: Version,
    /// Path, referrer and user agent, one after the other.
    texts: Vec<u8>,
    path_end: usize,
    referer_end: usize,
    pub(super) id: RequestId,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) duration_us: u64,
    pub(super) route: Option<SmolStr>,
    /// The last upstream that the request was sent to.
    pub(super) upstream: Option<SmolStr>,
    pub(super) tenant: Option<SmolStr>,
    pub(super) rule: Option<SmolStr>,
    /// The limit that binds.
    pub(super) limit: Option<SmolStr>,
    /// The reason of the decision. `None` if no limit applied.
    pub(super) decision: Option<&'static str>,
    /// Why the gateway itself responded. `None` if the response is an upstream's.
    pub(super) cause: Option<&'static str>,
}

impl AccessLog {
    /// The record of a request that has just arrived.
    pub(crate) fn record(
        &self,
        started: Micros,
        client: IpAddr,
        parts: &Parts,
        id: &RequestId,
    ) -> AccessRecord {
        let Parts { method, uri, version, headers, .. } = parts;
        let mut texts = Vec::new();
        let path = match uri.path_and_query() {
            Some(path) if self.0.settings.query => path.as_str(),
            _ => uri.path(),
        };
        texts.extend_from_slice(bounded(path.as_bytes()));
        let path_end = texts.len();
        texts.extend_from_slice(bounded(referer(headers)));
        let referer_end = texts.len();
        texts.extend_from_slice(bounded(
            headers.get(USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default(),
        ));
        AccessRecord(Some(Box::new(FinishedRecord {
            log: Some(self.clone()),
            started,
            is_always_logged: false,
            at: self.0.clock.wall(),
            client,
            method: method.clone(),
            version: *version,
            texts,
            path_end,
            referer_end,
            id: id.clone(),
            status: CLIENT_LEFT,
            bytes: 0,
            duration_us: 0,
            route: None,
            upstream: None,
            tenant: None,
            rule: None,
            limit: None,
            decision: None,
            cause: None,
        })))
    }
}

impl AccessRecord {
    /// Whether there is no access log.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn route(&mut self, name: &str) {
        if let Some(record) = &mut self.0 {
            record.route = Some(SmolStr::new(name));
        }
    }

    pub(crate) fn tenant(&mut self, id: Option<&SmolStr>) {
        if let Some(record) = &mut self.0 {
            record.tenant = id.cloned();
        }
    }

    pub(crate) fn decision(&mut self, decision: &RateDecision) {
        if let Some(record) = &mut self.0 {
            record.rule = decision.rule().map(SmolStr::new);
            record.limit = decision.limit().map(SmolStr::new);
            record.decision = Some(decision.reason());
        }
    }

    pub(crate) fn upstream(&mut self, endpoint: &UpstreamEndpoint) {
        if let Some(record) = &mut self.0 {
            record.upstream = Some(SmolStr::new(endpoint.label()));
        }
    }

    /// The status of the response, and why the gateway itself responded, if it did.
    pub(crate) fn answered(&mut self, status: StatusCode, refusal: Option<(StatusCode, &'static str)>) {
        if let Some(record) = &mut self.0 {
            record.status = status.as_u16();
            record.cause = refusal.map(|(_, cause)| cause);
            // A gRPC client gets a refusal with the status 200.
            let meant = refusal.map_or(status, |(meant, _)| meant);
            record.is_always_logged = meant == StatusCode::TOO_MANY_REQUESTS || meant.is_server_error();
        }
    }

    /// Counts bytes of the response's body.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(record) = &mut self.0 {
            record.bytes += bytes;
        }
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        if let Some(mut record) = self.0.take()
            && let Some(log) = record.log.take().filter(|log| record.is_always_logged || log.is_sampled())
        {
            record.duration_us = log.0.clock.now().since_us(record.started);
            log.send(record);
        }
    }
}

impl FinishedRecord {
    pub(super) fn path(&self) -> &[u8] {
        &self.texts[..self.path_end]
    }

    pub(super) fn referer(&self) -> &[u8] {
        &self.texts[self.path_end..self.referer_end]
    }

    pub(super) fn user_agent(&self) -> &[u8] {
        &self.texts[self.referer_end..]
    }
}

fn bounded(text: &[u8]) -> &[u8] {
    &text[..text.len().min(MAX_TEXT)]
}

/// The page that linked here, without its query and without a user name or password, which may be secret.
fn referer(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(REFERER).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let end = value.iter().position(|byte| b"?#".contains(byte)).unwrap_or(value.len());
    if value[..end].contains(&b'@') { &[] } else { &value[..end] }
}

#[cfg(test)]
impl FinishedRecord {
    /// A record whose texts are all the same.
    pub(super) fn with_text(text: &[u8]) -> Self {
        let text = bounded(text);
        let name = Some(SmolStr::new(String::from_utf8_lossy(text)));
        Self {
            log: None,
            started: Micros::new(0),
            is_always_logged: false,
            at: Micros::from_secs(1_000_000_000),
            client: IpAddr::from([203, 0, 113, 7]),
            method: Method::GET,
            version: Version::HTTP_11,
            texts: text.repeat(3),
            path_end: text.len(),
            referer_end: 2 * text.len(),
            id: RequestId::of(&HeaderMap::new(), false),
            status: 200,
            bytes: 512,
            duration_us: 1_234,
            route: name.clone(),
            upstream: name.clone(),
            tenant: name.clone(),
            rule: name.clone(),
            limit: name,
            decision: Some("ok"),
            cause: None,
        }
    }
}
