//! The last denials of a key, as itself and on each route.

use std::collections::BTreeSet;

use spile_observe::KeyDenial;
use spile_policy::{Policy, ResolvedKey, identity};

use super::Decider;

/// The most lines of denials that are shown.
const MOST: usize = 8;

/// The last denials of a key that this instance has seen.
pub(super) struct SeenDenials {
    /// The newest first.
    pub(super) newest: Vec<KeyDenial>,
    /// The route on which the newest one was, if the bucket that denied is of a route.
    pub(super) last_route: Option<String>,
}

impl SeenDenials {
    /// Collects the denials of the key, and of the key as a client of a route.
    pub(super) fn of(decider: &Decider, policy: &Policy, key: &str) -> Self {
        let of_key = ResolvedKey::split_route(key).map(|(_, route)| route.to_owned());
        let mut seen: Vec<_> =
            decider.denials_of(key).into_iter().map(|denial| (denial, of_key.clone())).collect();
        let routes: BTreeSet<&str> = policy.route_limits().map(|(route, _)| route).collect();
        for route in routes {
            let Ok(client) = identity(key) else { break };
            let denials = decider.denials_of(ResolvedKey::on_route(client, route).as_str());
            seen.extend(denials.into_iter().map(|denial| (denial, Some(route.to_owned()))));
        }
        seen.sort_by_key(|(denial, _)| std::cmp::Reverse(denial.last_at_ms));
        seen.truncate(MOST);
        let last_route = seen.first().and_then(|(_, route)| route.clone());
        Self { newest: seen.into_iter().map(|(denial, _)| denial).collect(), last_route }
    }
}
