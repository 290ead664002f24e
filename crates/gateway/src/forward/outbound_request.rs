//! A request that is ready to be sent to an upstream.

use http::HeaderMap;
use http::request::Parts;

use super::headers::ForwardingHeaders;
use crate::route::HeaderChanges;

/// A request to an upstream, without its body.
pub(crate) struct OutboundRequest<'r> {
    pub(crate) parts: &'r mut Parts,
    /// The gateway's own fields. `None` once they are merged with the request's.
    forwarding: Option<ForwardingHeaders<'r>>,
}

impl<'r> OutboundRequest<'r> {
    /// A request whose fields are sanitized, with the route's changes. The gateway's own fields are kept apart until
    /// something needs all fields in one map.
    pub(crate) fn new(
        parts: &'r mut Parts,
        forwarding: ForwardingHeaders<'r>,
        changes: &HeaderChanges,
    ) -> Self {
        let mut outbound = Self { parts, forwarding: Some(forwarding) };
        if !changes.is_empty() || !forwarding.is_independent() {
            changes.apply_to_request(outbound.merged_headers());
        }
        outbound
    }

    /// All fields, in one map.
    pub(crate) fn merged_headers(&mut self) -> &mut HeaderMap {
        if let Some(forwarding) = self.forwarding.take() {
            forwarding.insert(&mut self.parts.headers);
        }
        &mut self.parts.headers
    }

    /// Writes the fields that are kept apart, as an HTTP/1.1 header.
    pub(crate) fn write_separate_fields(&self, lines: &mut Vec<u8>) {
        if let Some(forwarding) = &self.forwarding {
            forwarding.write_http1(lines);
        }
    }
}
