//! What works, and may still not be what was meant.

use spile_policy::{HostPattern, PathPattern, Policy, RulePlans};

use super::{Config, Route};

impl Config {
    /// What is worth a second look, in a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let limits = self.routes.iter().flat_map(|route| &route.limits);
        for rule in self.rules.iter().chain(limits) {
            let charges = !matches!(rule.plans, RulePlans::Unlimited | RulePlans::Banned);
            let reads_key = charges && rule.matcher.descriptor.is_none();
            if reads_key && !rule.shadow && rule.key.may_find_nothing() {
                let words = rule.key.words().join(", ");
                warnings.push(format!(
                    "rule `{}`: requests without a key ({words}) are refused with 401; `ip` at the end of `key` \
                     limits them by address instead",
                    rule.id
                ));
            }
        }
        if self.unmatched_pass {
            warnings.push("unmatched = \"pass\": requests that no rule matches are not limited".to_owned());
            warnings.extend(self.unlimited_routes().into_iter().map(|route| {
                format!("route `{}`: no rule is for its requests, and they are not limited", route.name)
            }));
        }
        warnings
    }

    /// The routes whose requests no rule is for.
    pub(crate) fn unlimited_routes(&self) -> Vec<&Route> {
        let policy = self.policy();
        self.routes.iter().filter(|route| !is_limited(route, &policy)).collect()
    }
}

fn is_limited(route: &Route, policy: &Policy) -> bool {
    let hosts: Vec<HostPattern> = route.hosts.iter().filter_map(|host| host.parse().ok()).collect();
    PathPattern::prefix(&route.path).is_ok_and(|path| policy.limits_route(&route.name, &path, &hosts))
}
