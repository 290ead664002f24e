//! Settings at work: what one request sees of them, from its first byte to its last.

use std::sync::Arc;

use spile_tower::key::ClientIp;

use crate::auth::JwtVerifier;
use crate::builder::BuildError;
use crate::forward::Trust;
use crate::route::Table;
use crate::settings::Settings;

/// Settings at work.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) table: Table,
    pub(crate) jwt: Option<Arc<JwtVerifier>>,
    pub(crate) trust: Trust,
    /// By which those count in whom no rule finds a key.
    pub(crate) address: ClientIp,
}

impl Setup {
    /// Puts settings to work. What is known of upstreams that were served `before` stays known.
    pub(crate) fn new(settings: Settings, before: Option<&Self>) -> Result<Self, BuildError> {
        let Settings { routes, jwt, trusted, ipv6_prefix } = settings;
        if let Some(route) = routes.iter().find(|route| route.upstreams.is_empty()) {
            return Err(BuildError::NoUpstream(route.name.to_string()));
        }
        Ok(Self {
            table: Table::new(routes, before.map(|before| &before.table)),
            jwt,
            address: ClientIp::behind(trusted.clone()).ipv6_prefix(ipv6_prefix),
            trust: Trust::new(trusted),
        })
    }
}
