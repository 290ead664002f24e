//! Settings at work: what one request sees of them, from its first byte to its last.

use std::sync::Arc;

use http::request::Parts;
use spile_tower::key::ClientIp;

use crate::auth::{Authenticator, InMemoryTenants, TenantRegistry};
use crate::builder::BuildError;
use crate::forward::Trust;
use crate::limit::{Rule, Rulebook, Rules};
use crate::route::{Served, Table};
use crate::settings::Settings;

/// Settings at work.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) table: Arc<Table>,
    pub(crate) auth: Authenticator,
    pub(crate) trust: Trust,
    /// By which those count in whom no rule finds a key.
    pub(crate) address: ClientIp,
    rulebook: Arc<dyn Rulebook>,
}

impl Setup {
    /// Puts settings to work. What is known of upstreams that were served `before` stays known, and rules and tenants
    /// stay where the settings do not speak of them.
    pub(crate) fn new(settings: Settings, before: Option<&Self>) -> Result<Self, BuildError> {
        let Settings { routes, jwt, trusted, ipv6_prefix, rulebook, tenants } = settings;
        if let Some(route) = routes.iter().find(|route| route.upstreams.is_empty()) {
            return Err(BuildError::NoUpstream(route.name.to_string()));
        }
        let tenants = tenants.or_else(|| before.map(|before| Arc::clone(&before.auth.tenants)));
        let tenants = tenants.unwrap_or_else(|| Arc::new(InMemoryTenants::default()));
        let rulebook = rulebook.or_else(|| before.map(|before| Arc::clone(&before.rulebook)));
        Ok(Self {
            table: Arc::new(Table::new(routes, before.map(|before| &*before.table))),
            auth: Authenticator { tenants, jwt },
            address: ClientIp::behind(trusted.clone()).ipv6_prefix(ipv6_prefix),
            trust: Trust::new(trusted),
            rulebook: rulebook.unwrap_or_else(|| Arc::new(Vec::<Arc<Rule>>::new())),
        })
    }

    /// The same routes under other rules, for other tenants.
    pub(crate) fn under(&self, rulebook: Arc<dyn Rulebook>, tenants: Arc<dyn TenantRegistry>) -> Self {
        let auth = Authenticator { tenants, jwt: self.auth.jwt.clone() };
        Self { auth, rulebook, ..self.clone() }
    }

    /// The rules that a request on this route falls under: those of the rulebook, and the route's own.
    pub(crate) fn rules(&self, request: &Parts, path: &str, served: &Served) -> Rules {
        let mut rules = self.rulebook.rules(request, path);
        rules.extend(served.route.limits.iter().filter(|rule| rule.matches(request, path)).cloned());
        rules
    }
}
