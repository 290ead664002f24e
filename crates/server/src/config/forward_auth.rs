//! How proxies describe the request that they ask about.

use serde::{Deserialize, Serialize};

/// `[forward_auth]`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardAuth {
    /// The proxy that asks, or `None` if its headers show it.
    pub proxy: Option<ProxyKind>,
}

/// A proxy that asks, by how it describes a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ProxyKind {
    /// `X-Original-Method` with `X-Original-URI` or `X-Original-URL`.
    Nginx,
    /// `X-Forwarded-Method` and `X-Forwarded-Uri`.
    Traefik,
    /// Like [`Traefik`](Self::Traefik).
    Caddy,
    /// The method of the question itself, and the path below `/v1/auth/{ruleId}`.
    Envoy,
}
