//! What the gateway forwards, and where to.

use std::time::Duration;

use http::Uri;
use spile_gateway::{PathPattern, Upstream};

use super::duration;
use super::file::{Faults, RouteFile, Spot};

/// A path prefix and the service behind it.
#[derive(Clone, Debug)]
pub struct Route {
    /// Requests whose path starts so are forwarded.
    pub path: String,
    /// The service that they go to.
    pub upstream: Uri,
    /// Whether the prefix is taken off on the way.
    pub strip_prefix: bool,
    /// How long the service may take.
    pub timeout: Duration,
    /// Whether callers without a known API key are turned away.
    pub require_api_key: bool,
}

impl Route {
    pub(super) fn check(file: RouteFile, faults: &mut Faults) -> Option<Self> {
        let path = file.path.and_then(|path| check_path(path, faults));
        let upstream = file.upstream.and_then(|upstream| check_upstream(&upstream, faults));
        let timeout = file.timeout.and_then(|timeout| duration::check(&timeout, duration::REQUEST, faults));
        Some(Self {
            path: path?,
            upstream: upstream?,
            strip_prefix: file.strip_prefix.is_some_and(|flag| flag.value),
            timeout: timeout.unwrap_or(Duration::from_secs(30)),
            require_api_key: file.require_api_key.is_some_and(|flag| flag.value),
        })
    }
}

fn check_path(Spot { value, place }: Spot<String>, faults: &mut Faults) -> Option<String> {
    let good = !value.contains(['*', ' ']) && PathPattern::prefix(&value).is_ok();
    if !good {
        faults.add(
            &place,
            format_args!("`{value}` is no path"),
            "a prefix that starts with `/`, as in `/scores`",
        );
    }
    good.then_some(value)
}

fn check_upstream(Spot { value, place }: &Spot<String>, faults: &mut Faults) -> Option<Uri> {
    let uri: Option<Uri> = value.parse().ok();
    let uri = uri.filter(|_| value.parse::<Upstream>().is_ok());
    if uri.is_none() {
        faults.add(place, format_args!("`{value}` is no upstream"), "a URL, as in `http://127.0.0.1:9000`");
    }
    uri
}
