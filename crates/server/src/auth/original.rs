//! The request that a proxy asks about, as the proxy describes it.
//!
//! A proxy that sets one pair of headers forwards the other as the client sent it. Only one pair is therefore read: the configured one,
//! or the only one present. If two pairs differ, or one cannot be read, the question is refused, because the client may have written
//! either.

use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Uri};
use smol_str::SmolStr;
use spile_policy::{CleanPath, canonical_host, is_misspelt};

use crate::config::ProxyKind;

/// The headers by which a proxy describes a request.
struct Family {
    method: &'static str,
    uris: &'static [&'static str],
    host: &'static str,
}

const ORIGINAL: Family = Family {
    method: "x-original-method",
    uris: &["x-original-uri", "x-original-url"],
    host: "x-original-host",
};
const FORWARDED: Family =
    Family { method: "x-forwarded-method", uris: &["x-forwarded-uri"], host: "x-forwarded-host" };

/// A request that a proxy asks about.
#[derive(Debug)]
pub(crate) struct Original {
    pub(crate) method: Method,
    pub(crate) path: CleanPath,
    /// In lower case and without a port; empty if none is named.
    pub(crate) host: SmolStr,
    /// True if the proxy named both the method and the URI.
    pub(crate) is_whole: bool,
}

/// The request as one family of headers describes it.
#[derive(Debug, Eq, PartialEq)]
struct Description {
    method: Option<Method>,
    uri: Option<Uri>,
    host: Option<SmolStr>,
}

impl Original {
    /// The question itself, for peers that are not trusted to describe another request.
    pub(crate) fn itself(question: &Parts) -> Result<Self, String> {
        Self::new(question, Description { method: None, uri: None, host: None }, &question.uri)
    }

    /// The request below a rule's path: Envoy asks by the method and path of the request itself.
    pub(crate) fn below(question: &Parts, path: &str) -> Result<Self, String> {
        let path = if path.is_empty() { "/" } else { path };
        let uri: Uri = path.parse().map_err(|_| format!("path: `{}` cannot be read", shown(path)))?;
        let described =
            Description { method: Some(question.method.clone()), uri: Some(uri.clone()), host: None };
        Self::new(question, described, &uri)
    }

    /// The request that a trusted proxy describes, by the headers that this kind of proxy writes.
    pub(crate) fn described(question: &Parts, proxy: Option<ProxyKind>) -> Result<Self, String> {
        let headers = &question.headers;
        let described = match proxy {
            Some(ProxyKind::Nginx) => ORIGINAL.read(headers)?,
            Some(ProxyKind::Traefik | ProxyKind::Caddy) => FORWARDED.read(headers)?,
            Some(ProxyKind::Envoy) => return Self::itself(question),
            None => only(ORIGINAL.read(headers)?, FORWARDED.read(headers)?)?,
        };
        // The host of the question is Spile's own, and not that of the request.
        let path_alone = || question.uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        let uri = described.uri.clone().unwrap_or_else(path_alone);
        Self::new(question, described, &uri)
    }

    fn new(question: &Parts, described: Description, uri: &Uri) -> Result<Self, String> {
        let is_whole = described.method.is_some() && described.uri.is_some();
        let method = described.method.unwrap_or_else(|| question.method.clone());
        if is_misspelt(&method) {
            return Err(format!("method: `{method}` is not written in capitals"));
        }
        let slash = PathAndQuery::from_static("/");
        let path = CleanPath::of(uri.path_and_query().unwrap_or(&slash));
        let path = path.map_err(|unclear| format!("path: {unclear}"))?;
        let of_url = canonical(uri.authority().map(Authority::as_str))?;
        let host = match (of_url, described.host) {
            (Some(of_url), Some(named)) if of_url != named => {
                return Err("host: the URL names another than the header does".to_owned());
            }
            (of_url, named) => of_url.or(named),
        };
        let host = host.map_or_else(|| canonical(one(&question.headers, "host")?), |host| Ok(Some(host)))?;
        let host = host.unwrap_or_default();
        Ok(Self { method, path, host, is_whole })
    }
}

impl Family {
    fn read(&self, headers: &HeaderMap) -> Result<Description, String> {
        let method = one(headers, self.method)?.map(|text| {
            text.parse::<Method>().map_err(|_| format!("{}: `{}` is not a method", self.method, shown(text)))
        });
        let mut uri: Option<Uri> = None;
        for &name in self.uris {
            let Some(text) = one(headers, name)? else { continue };
            let read = text.parse().ok().filter(|_| has_path(text));
            let read: Uri = read.ok_or_else(|| format!("{name}: `{}` cannot be read", shown(text)))?;
            if uri.as_ref().is_some_and(|uri| *uri != read) {
                return Err(format!("{name}: differs from {}", self.uris[0]));
            }
            uri = Some(read);
        }
        let host = canonical(one(headers, self.host)?)?;
        Ok(Description { method: method.transpose()?, uri, host })
    }
}

impl Description {
    const fn is_nothing(&self) -> bool {
        self.method.is_none() && self.uri.is_none()
    }
}

/// Returns the only family that is present. Two families that agree count as one.
fn only(original: Description, forwarded: Description) -> Result<Description, String> {
    match (original.is_nothing(), forwarded.is_nothing()) {
        (true, _) => Ok(forwarded),
        (_, true) => Ok(original),
        _ if original == forwarded => Ok(original),
        _ => Err("X-Original-* and X-Forwarded-*: both describe the request, and differ; the proxy has to clear those \
                  that it does not write, or `forward_auth.proxy` says which it writes"
            .to_owned()),
    }
}

/// Whether the text is a path, or a URL with one. nginx builds a URL from the client's `Host` and the path: if the `Host` is `shop?`, the
/// path ends up in the query.
fn has_path(text: &str) -> bool {
    let after_host = || {
        let (_, rest) = text.split_once("://")?;
        rest.chars().find(|letter| matches!(letter, '/' | '?' | '#'))
    };
    text.starts_with('/') || after_host() == Some('/')
}

fn canonical(host: Option<&str>) -> Result<Option<SmolStr>, String> {
    host.map(|host| canonical_host(host).ok_or_else(|| "host: the host is not valid".to_owned())).transpose()
}

/// Returns the only value of a header. A second line that differs is refused, because it may be the client's.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, String> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|value| value != first) {
        return Err(format!("{name}: is sent twice, with different values"));
    }
    let text = first.to_str().map_err(|_| format!("{name}: is not text"))?;
    // nginx sends no header for an empty value, but others do.
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The first 64 characters of the text, for the error.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
