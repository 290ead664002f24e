//! File descriptors: how many the process may open, and how its listeners share them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Kept for the store, files and webhooks.
const OWN: usize = 128;
/// Kept for connections of the admin listener.
const ADMIN: usize = 64;
/// A connection at the gateway has another one to an upstream.
const GATEWAY: usize = 2;

/// Lets the process open as many files as the system allows it to.
pub(crate) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Some systems reject a soft limit as high as the hard one. The limit then stays unchanged.
    let _raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many connections each listener may have open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ConnectionShares {
    pub(crate) admin: usize,
    pub(crate) http: usize,
    pub(crate) grpc: usize,
    pub(crate) resp: usize,
    pub(crate) gateway: usize,
    /// How many descriptors `max_connections` of all listeners need and how many there are, if those are too few.
    pub(crate) missing: Option<(usize, usize)>,
}

impl ConnectionShares {
    /// The shares of this process: `max_connections` of each listener. If there are too few descriptors for all of them, some are kept
    /// for the admin listener, and the others share the rest: clients that fill them cannot silence `/livez`.
    pub(crate) fn of(config: &Config) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        Self::within(config, limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    fn within(config: &Config, limit: usize) -> Self {
        let (listen, each) = (&config.listen, config.listen.bounds.connections);
        let gateway = config.gateway.bounds.connections;
        let count = |is_on: bool, connections: usize| if is_on { connections } else { 0 };
        let callers = each
            .saturating_add(count(listen.grpc.is_some(), each))
            .saturating_add(count(listen.resp.is_some(), each))
            .saturating_add(count(listen.gateway.is_some(), gateway.saturating_mul(GATEWAY)));
        let needed = callers.saturating_add(OWN).saturating_add(each.min(ADMIN));
        if needed <= limit {
            return Self { admin: each, http: each, grpc: each, resp: each, gateway, missing: None };
        }
        let admin = each.min(ADMIN).min(limit / 8).max(1);
        let rest = limit.saturating_sub(admin + OWN.min(limit / 4));
        // A listener without a share would answer no request at all.
        let share = |wanted: usize| (rest as f64 * wanted as f64 / callers as f64).floor().max(1.0) as usize;
        let (each, gateway) = (share(each), share(gateway));
        Self { admin, http: each, grpc: each, resp: each, gateway, missing: Some((needed, limit)) }
    }

    /// The warning if there are too few descriptors.
    pub(crate) fn warning(&self) -> Option<String> {
        let (needed, limit) = self.missing?;
        let Self { admin, http, gateway, .. } = self;
        Some(format!(
            "`max_connections` of all listeners need {needed} file descriptors, and this process may open {limit}: raise \
             the limit (`LimitNOFILE`, `ulimit -n`) or lower `max_connections`; until then the gateway takes {gateway} \
             connections, admin {admin} and every other listener {http}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shares(text: &str, limit: usize) -> ConnectionShares {
        let config = Config::parse(Path::new("spile.toml"), text.to_owned(), []).expect("it works");
        ConnectionShares::within(&config, limit)
    }

    const ALL: &str = "[listen]\nresp = \"127.0.0.1:1\"\ngrpc = \"127.0.0.1:2\"\ngateway = \"127.0.0.1:3\"\n";

    #[test]
    fn listeners_have_what_is_configured_if_there_are_enough_descriptors() {
        let all = ConnectionShares {
            admin: 10_000,
            http: 10_000,
            grpc: 10_000,
            resp: 10_000,
            gateway: 10_000,
            missing: None,
        };
        assert_eq!(shares(ALL, usize::MAX), all);
        assert_eq!(shares(ALL, 50_192), all);
        assert_eq!(shares("", 10_192), all);
        assert_eq!(shares("", 10_191).missing, Some((10_192, 10_191)));
        assert_eq!(shares(ALL, 50_191).missing, Some((50_192, 50_191)));
    }

    #[test]
    fn all_shares_together_leave_descriptors_for_admin_whatever_the_limit_is() {
        for limit in (32..2_000).chain([4_096, 20_000, 50_000]) {
            let ConnectionShares { admin, http, grpc, resp, gateway, missing } = shares(ALL, limit);
            assert!(missing.is_some() && admin >= 4, "{limit}");
            let open = admin + http + grpc + resp + GATEWAY * gateway;
            assert!(open + OWN.min(limit / 4) <= limit, "{open} of {limit}");
        }
    }
}
