//! The attributes of spans: names and values of OpenTelemetry's semantic conventions.

use std::borrow::Cow;

use http::header::{HOST, HeaderMap};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Version};

use super::span::note;
use super::{SpanKind, kind};

pub(super) const METHOD: &str = "http.request.method";
pub(super) const ROUTE: &str = "http.route";
pub(super) const ERROR: &str = "error.type";
/// Replaces a method that the semantic conventions do not know.
pub(super) const OTHER_METHOD: &str = "_OTHER";
const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];

/// The value of an attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// Records the attributes of a request that a server received, except for the path and the query, which may contain keys.
pub fn note_request(request: &Parts, secure: bool) {
    note_method(&request.method);
    note("url.scheme", || if secure { "https" } else { "http" });
    note_version(request.version);
    if kind().is_some()
        && let Some(authority) = authority(request)
    {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        note_server(host, authority.port_u16().unwrap_or(if secure { 443 } else { 80 }));
    }
}

/// Records the method of a request. An unknown method becomes `_OTHER`, because a client can invent any number of them.
pub fn note_method(method: &Method) {
    let known = METHODS.iter().find(|known| *known == method);
    note(METHOD, || known.map_or_else(|| OTHER_METHOD.to_owned(), ToString::to_string));
}

/// Records the host and the port that a request is for.
pub fn note_server(host: &str, port: u16) {
    note("server.address", || host.to_owned());
    note("server.port", || port);
}

/// Records the version of HTTP.
pub fn note_version(version: Version) {
    let version = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    note("network.protocol.version", || version);
}

/// Records the pattern that the path of a request matches.
pub fn note_route(route: impl FnOnce() -> String) {
    note(ROUTE, route);
}

/// Records the status of a response, of HTTP and of gRPC. 5xx is a failure of a server span. In a client span, 4xx is one, too.
pub fn note_response(status: StatusCode, headers: &HeaderMap) {
    let Some(kind) = kind() else { return };
    note("http.response.status_code", || status.as_u16());
    let is_client = kind == SpanKind::Client;
    let failed = status.is_server_error() || (is_client && status.is_client_error());
    // If a gRPC call fails before its first message, its status is in the header.
    let code = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u16>().ok());
    if let Some(code) = code {
        note("rpc.system", || "grpc");
        note("rpc.grpc.status_code", || code);
    }
    let call_failed = code.filter(|code| if is_client { *code != 0 } else { is_servers_fault(*code) });
    match call_failed {
        _ if failed => note_error(|| status.as_str().to_owned()),
        Some(code) => note_error(|| code.to_string()),
        None => {}
    }
}

/// Records that the current span has failed, and why: one of a small set of words.
pub fn note_error(why: impl FnOnce() -> String) {
    note(ERROR, why);
}

/// The gRPC codes of server errors: UNKNOWN, `DEADLINE_EXCEEDED`, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and `DATA_LOSS`.
const fn is_servers_fault(code: u16) -> bool {
    matches!(code, 2 | 4 | 12..=15)
}

/// The authority that the request names. `None` if it names no valid one.
fn authority(request: &Parts) -> Option<Authority> {
    let in_header = || Authority::try_from(request.headers.get(HOST)?.as_bytes()).ok();
    // The part before an `@` may be a password.
    request.uri.authority().cloned().or_else(in_header).filter(|authority| !authority.as_str().contains('@'))
}
