//! The target of a request: a host and a path that every server reads in the same way.

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Version};
use smol_str::SmolStr;
use spile_listener::Bounds;
use spile_policy::{CleanPath, canonical_host, is_misspelt};

use crate::refusal::GatewayRefusal;

/// The target of a request.
#[derive(Debug)]
pub(crate) struct RequestTarget {
    /// In lower case and without the port. Empty if an HTTP/1.0 client sent no host.
    pub(crate) host: SmolStr,
    /// The host as the client wrote it, with the port.
    pub(crate) authority: SmolStr,
    /// `/` for `OPTIONS *`.
    pub(crate) path: CleanPath,
    /// Whether the request is `OPTIONS *`.
    pub(crate) is_whole_server: bool,
}

impl RequestTarget {
    /// Reads the target of a request. Targets that only a forward proxy serves, and ambiguous ones, are refused.
    pub(crate) fn of(request: &Parts, bounds: &Bounds) -> Result<Self, GatewayRefusal> {
        // A response to TRACE would show the client the fields that the gateway adds for upstreams only.
        if matches!(request.method, Method::CONNECT | Method::TRACE) {
            return Err(GatewayRefusal::MethodNotAllowed);
        }
        if is_misspelt(&request.method) {
            return Err(GatewayRefusal::BadRequest("methods are written in capitals"));
        }
        // The listener counts the fields of HTTP/1, but only the bytes of those of HTTP/2.
        if request.headers.len() > bounds.header_fields {
            return Err(GatewayRefusal::TooManyFields);
        }
        let asked =
            request.uri.path_and_query().ok_or(GatewayRefusal::BadRequest("the request names no path"))?;
        if asked.as_str().len() > bounds.uri_bytes {
            return Err(GatewayRefusal::UriTooLong);
        }
        let authority = authority(request)?;
        let host = match authority {
            None => SmolStr::default(),
            Some(named) => {
                canonical_host(named).ok_or(GatewayRefusal::BadRequest("the host is not valid"))?
            }
        };
        let authority = SmolStr::new(authority.unwrap_or_default());
        let is_whole_server = request.method == Method::OPTIONS && asked.as_str() == "*";
        let path = if is_whole_server { path(&PathAndQuery::from_static("/"))? } else { path(asked)? };
        Ok(Self { host, authority, path, is_whole_server })
    }
}

fn path(asked: &PathAndQuery) -> Result<CleanPath, GatewayRefusal> {
    CleanPath::of(asked).map_err(|unclear| GatewayRefusal::BadRequest(unclear.0))
}

/// The authority of the request. `None` if an HTTP/1.0 client sent none. Two different ones are refused, because the
/// upstream might serve the host that was not checked.
fn authority(request: &Parts) -> Result<Option<&str>, GatewayRefusal> {
    let mut named = request.headers.get_all(HOST).iter();
    let header = named
        .next()
        .map(|value| value.to_str().map_err(|_| GatewayRefusal::BadRequest("the host is not valid")));
    if named.next().is_some() {
        return Err(GatewayRefusal::BadRequest("the request names two hosts"));
    }
    let header = header.transpose()?;
    let uri = request.uri.authority().map(http::uri::Authority::as_str);
    match (uri, header) {
        (Some(uri), Some(header)) if !uri.eq_ignore_ascii_case(header) => {
            Err(GatewayRefusal::BadRequest("the request target and the host header differ"))
        }
        (Some(named), _) | (None, Some(named)) => Ok(Some(named)),
        (None, None) if request.version == Version::HTTP_10 => Ok(None),
        (None, None) => Err(GatewayRefusal::BadRequest("the request names no host")),
    }
}
