//! Warnings about valid configurations that may not be intended.

use spile_core::{Charges, Cost};
use spile_gateway::Estimate;
use spile_policy::{HostPattern, Matcher, PathPattern, Policy, Rule, RulePlans};

use super::source::near_misses;
use super::{Config, RouteConfig};

impl Config {
    /// Settings that are worth a second look, in a sentence each.
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
        let policy = self.policy();
        for (rule, most) in policy.most_limits() {
            if rule.cost == Cost::ZERO {
                warnings.push(format!(
                    "rule `{}`: a cost of 0 spends nothing, and denies only a key that has no token left",
                    rule.id
                ));
            }
            if most > Charges::MAX {
                warnings.push(format!(
                    "rule `{}`: with `also` and tenants' plans it may have {most} limits; a decision takes at most {}, \
                     and such requests are refused",
                    rule.id,
                    Charges::MAX
                ));
            }
        }
        if self.unmatched_pass {
            warnings.push("unmatched = \"pass\": requests that no rule matches are not limited".to_owned());
        }
        warnings.extend(
            self.routes
                .iter()
                .filter(|route| !route.is_limited(&policy))
                .map(|route| format!("route `{}`: no rule limits its requests", route.name)),
        );
        warnings.extend(self.routes.iter().filter(|route| route.says_needless_tls()).map(|route| {
            format!("route `{}`: `upstream_tls` does nothing without an https:// upstream", route.name)
        }));
        warnings.extend(self.routes.iter().flat_map(RouteConfig::idle_limits));
        warnings.extend(self.routes.iter().flat_map(|route| route.estimate_warnings(&policy)));
        if self.forward_auth.proxy.is_some() && self.clients.trusted_words.is_empty() {
            let proxy = "forward_auth.proxy: no proxy is trusted, and what it says of requests is ignored";
            warnings.push(format!("{proxy}; add its address to `clients.trusted_proxies`"));
        }
        if self.observe.shows_headers() {
            let clear = "observe.otlp: the header fields for the collector cross the network in clear";
            warnings.push(format!("{clear}; use https://, or a collector on this machine"));
        }
        warnings.extend(near_misses(&self.origin.variables).map(|(name, meant)| {
            format!("environment variable `{name}` is not read: did you mean `{meant}`?")
        }));
        warnings
    }
}

impl RouteConfig {
    /// A sentence for each limit of the route that no request of the route can match.
    fn idle_limits(&self) -> Vec<String> {
        let hosts = self.host_patterns();
        let Ok(path) = PathPattern::prefix(&self.path) else { return Vec::new() };
        let outside = |matcher: &Matcher| {
            let elsewhere = matcher.path.as_ref().is_some_and(|own| !own.overlaps(&path));
            let shares_host = |own: &HostPattern| hosts.iter().any(|host| host.overlaps(own));
            elsewhere
                || (!hosts.is_empty() && !matcher.hosts.is_empty() && !matcher.hosts.iter().any(shares_host))
        };
        let idle = self.limits.iter().filter(|limit| outside(&limit.matcher));
        let words = |limit: &Rule| {
            format!(
                "limit `{}`: what it matches lies outside its route `{}` ({}), and it limits nothing",
                limit.id, self.name, self.path
            )
        };
        idle.map(words).collect()
    }

    /// A sentence for an estimate that is never settled, and for one that no request can pay.
    fn estimate_warnings(&self, policy: &Policy) -> Vec<String> {
        let (name, mut warnings) = (&self.name, Vec::new());
        let Some(estimate) = self.estimate() else { return warnings };
        if !self.has_late_cost() {
            warnings.push(format!(
                "route `{name}`: without `cost_from_response` the `estimate` stays charged, and costs of answers are not read"
            ));
        }
        let smallest = PathPattern::prefix(&self.path)
            .ok()
            .and_then(|path| policy.smallest_limit_of_route(name, &path, &self.host_patterns()));
        if let (Estimate::Tokens(tokens), Some((rule, limit))) = (estimate, smallest)
            && tokens.amount() > limit.limit().capacity()
        {
            warnings.push(format!(
                "route `{name}`: the `estimate` of {} is above the capacity of limit `{}` ({}): requests that rule `{}` \
                 charges are refused with 403",
                tokens.amount(),
                limit.name(),
                limit.limit().capacity(),
                rule.id
            ));
        }
        warnings
    }

    fn host_patterns(&self) -> Vec<HostPattern> {
        self.hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }

    /// Whether some rule, or a limit of the route, limits its requests.
    pub(crate) fn is_limited(&self, policy: &Policy) -> bool {
        let hosts = self.host_patterns();
        PathPattern::prefix(&self.path).is_ok_and(|path| policy.limits_route(&self.name, &path, &hosts))
    }
}
