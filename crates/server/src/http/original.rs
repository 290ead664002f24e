//! The request that a proxy asks about, as the proxy describes it.

use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use spile_tower::client::{Networks, peer_of};

const METHODS: [&str; 2] = ["x-forwarded-method", "x-original-method"];
const URIS: [&str; 2] = ["x-forwarded-uri", "x-original-uri"];

/// Puts the method and the target of the original request in place of those of the question about it. Only a
/// trusted proxy is believed; from anybody else the headers count for nothing.
pub(crate) fn restore(question: &mut Parts, trusted: &Networks) {
    if !peer_of(question).is_some_and(|peer| trusted.contain(peer)) {
        return;
    }
    if let Some(method) = first(&question.headers, METHODS).and_then(|text| text.parse::<Method>().ok()) {
        question.method = method;
    }
    if let Some(uri) = first(&question.headers, URIS).and_then(|text| text.parse::<Uri>().ok()) {
        question.uri = uri;
    }
}

fn first<'h>(headers: &'h HeaderMap, names: [&str; 2]) -> Option<&'h str> {
    names.iter().find_map(|name| headers.get(*name)?.to_str().ok())
}
