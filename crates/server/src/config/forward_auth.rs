//! How proxies describe the request that they ask about.

use std::fmt;
use std::str::FromStr;

use super::file::{Faults, ForwardAuthFile};

/// `[forward_auth]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ForwardAuth {
    /// The proxy that asks, or `None` if its headers tell.
    pub proxy: Option<Proxy>,
}

/// A proxy that asks, by how it describes a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Proxy {
    /// `X-Original-Method` with `X-Original-URI` or `X-Original-URL`.
    Nginx,
    /// `X-Forwarded-Method` and `X-Forwarded-Uri`.
    Traefik,
    /// The same.
    Caddy,
    /// By the method of its own request, and by the path below `/v1/auth/{ruleId}`.
    Envoy,
}

const PROXIES: [(&str, Proxy); 4] =
    [("nginx", Proxy::Nginx), ("traefik", Proxy::Traefik), ("caddy", Proxy::Caddy), ("envoy", Proxy::Envoy)];

impl ForwardAuth {
    pub(super) fn check(file: ForwardAuthFile, faults: &mut Faults) -> Self {
        let proxy = file.proxy.and_then(|word| {
            let proxy = word.value.parse();
            proxy.map_err(|why| faults.add(&word.place, why, "`nginx`, `traefik`, `caddy` or `envoy`")).ok()
        });
        Self { proxy }
    }
}

impl FromStr for Proxy {
    type Err = UnknownProxy;

    fn from_str(text: &str) -> Result<Self, UnknownProxy> {
        let known = PROXIES.iter().find(|(name, _)| *name == text);
        known.map(|&(_, proxy)| proxy).ok_or_else(|| UnknownProxy(text.to_owned()))
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PROXIES.iter().find(|(_, proxy)| proxy == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// A word that is no proxy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no proxy that Spile knows")]
pub struct UnknownProxy(String);
