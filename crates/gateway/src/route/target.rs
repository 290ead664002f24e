//! What a request asks for: a host and a path, each with one reading.

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Version};
use smol_str::SmolStr;
use spile_listener::Bounds;
use spile_policy::{CleanPath, canonical_host, is_misspelt};

use crate::refusal::Refusal;

/// Where a request wants to go.
#[derive(Debug)]
pub(crate) struct Target {
    /// In lower case and without a port; empty where an HTTP/1.0 client named none.
    pub(crate) host: SmolStr,
    /// As the client wrote it, with the port.
    pub(crate) authority: SmolStr,
    /// `/` where the request is about the server as a whole.
    pub(crate) path: CleanPath,
    /// Whether the request is `OPTIONS *`.
    pub(crate) is_whole_server: bool,
}

impl Target {
    /// Reads the target, unless it is one that only a forward proxy would serve, or one of several readings.
    pub(crate) fn of(request: &Parts, bounds: &Bounds) -> Result<Self, Refusal> {
        // An upstream that traces shows the client what the gateway told it in confidence.
        if matches!(request.method, Method::CONNECT | Method::TRACE) {
            return Err(Refusal::Method);
        }
        if is_misspelt(&request.method) {
            return Err(Refusal::Unclear("methods are written in capitals"));
        }
        // Over HTTP/1 they have been counted; over HTTP/2 only their bytes have.
        if request.headers.len() > bounds.header_fields {
            return Err(Refusal::TooManyFields);
        }
        let asked = request.uri.path_and_query().ok_or(Refusal::Unclear("the request names no path"))?;
        if asked.as_str().len() > bounds.uri_bytes {
            return Err(Refusal::UriTooLong);
        }
        let authority = authority(request)?;
        let host = match authority {
            None => SmolStr::default(),
            Some(named) => canonical_host(named).ok_or(Refusal::Unclear("the host is not one"))?,
        };
        let authority = SmolStr::new(authority.unwrap_or_default());
        let is_whole_server = request.method == Method::OPTIONS && asked.as_str() == "*";
        let path = if is_whole_server { path(&PathAndQuery::from_static("/"))? } else { path(asked)? };
        Ok(Self { host, authority, path, is_whole_server })
    }
}

fn path(asked: &PathAndQuery) -> Result<CleanPath, Refusal> {
    CleanPath::of(asked).map_err(|unclear| Refusal::Unclear(unclear.0))
}

/// The one authority that the request names; `None` if an HTTP/1.0 client named none. Two that differ are how requests
/// get past a host's rules.
fn authority(request: &Parts) -> Result<Option<&str>, Refusal> {
    let mut named = request.headers.get_all(HOST).iter();
    let header =
        named.next().map(|value| value.to_str().map_err(|_| Refusal::Unclear("the host is not one")));
    if named.next().is_some() {
        return Err(Refusal::Unclear("the request names two hosts"));
    }
    let header = header.transpose()?;
    let uri = request.uri.authority().map(http::uri::Authority::as_str);
    match (uri, header) {
        (Some(uri), Some(header)) if !uri.eq_ignore_ascii_case(header) => {
            Err(Refusal::Unclear("the request target and the host header differ"))
        }
        (Some(named), _) | (None, Some(named)) => Ok(Some(named)),
        (None, None) if request.version == Version::HTTP_10 => Ok(None),
        (None, None) => Err(Refusal::Unclear("the request names no host")),
    }
}
