//! The difference between two configurations, for the log.

use std::collections::BTreeSet;
use std::fmt;

use foldhash::HashMap;

use super::Config;

/// The most names that are listed per kind and sort of change.
const MOST_NAMED: usize = 5;

/// The difference between two configurations, by kind. Shown as a sentence, with counts and the first few names.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Difference {
    kinds: Vec<KindDifference>,
}

#[derive(Debug, Eq, PartialEq)]
struct KindDifference {
    kind: &'static str,
    added: BTreeSet<String>,
    changed: BTreeSet<String>,
    removed: BTreeSet<String>,
}

impl Difference {
    /// The entries that `next` adds to, changes in or removes from `before`.
    pub(crate) fn between(before: &Config, next: &Config) -> Self {
        let plans = |config: &Config| {
            config.plans.iter().map(|plan| (plan.name().to_string(), format!("{plan:?}"))).collect()
        };
        let rules = |config: &Config| {
            config.rules.iter().map(|rule| (rule.id.to_string(), format!("{rule:?}"))).collect()
        };
        let tenants = |config: &Config| {
            let text = |tenant: &spile_policy::Tenant| {
                let keys: String = tenant.api_keys.iter().map(ToString::to_string).collect();
                (tenant.id.to_string(), format!("{tenant:?}{keys}"))
            };
            config.tenants.iter().map(text).collect()
        };
        let routes = |config: &Config| {
            config.routes.iter().map(|route| (route.name.clone(), route.to_string())).collect()
        };
        let kinds = [
            KindDifference::new("plans", plans(before), plans(next)),
            KindDifference::new("rules", rules(before), rules(next)),
            KindDifference::new("tenants", tenants(before), tenants(next)),
            KindDifference::new("routes", routes(before), routes(next)),
        ];
        Self { kinds: kinds.into_iter().filter(|kind| !kind.is_empty()).collect() }
    }
}

impl KindDifference {
    /// Takes entries by name, with their whole content as text.
    fn new(kind: &'static str, before: HashMap<String, String>, next: HashMap<String, String>) -> Self {
        let mut before = before;
        let (mut added, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for (name, text) in next {
            let _new = match before.remove(&name) {
                Some(old) if old == text => true,
                Some(_) => changed.insert(name),
                None => added.insert(name),
            };
        }
        Self { kind, added, changed, removed: before.into_keys().collect() }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kinds.is_empty() {
            return f.write_str("plans, rules, tenants and routes have not changed");
        }
        for (index, kind) in self.kinds.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{kind}")?;
        }
        Ok(())
    }
}

impl fmt::Display for KindDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind)?;
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        for (index, (what, names)) in parts.iter().filter(|(_, names)| !names.is_empty()).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            // Names come from files and from the admin API. Debug escapes what is not printable.
            let first: Vec<String> = names.iter().take(MOST_NAMED).map(|name| shown(name)).collect();
            let more = if names.len() > MOST_NAMED { ", …" } else { "" };
            write!(f, "{separator}{} {what} ({}{more})", names.len(), first.join(", "))?;
        }
        Ok(())
    }
}

/// The name with everything escaped that is not printable.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("spile.toml"), text.to_owned(), []).expect("a sound file")
    }

    #[test]
    fn counts_and_the_first_names_of_what_changed_are_told() {
        let before = config(
            "[plans]\ngold = { capacity = 1, refill = \"1/s\" }\nold = { capacity = 1, refill = \"1/s\" }\n",
        );
        let tenants: String = (0..8).fold(String::new(), |text, at| {
            text + &format!("[[tenants]]\nid = \"t{at}\"\nplan = \"gold\"\n")
        });
        let next = config(&format!("[plans]\ngold = {{ capacity = 2, refill = \"1/s\" }}\n{tenants}"));
        assert_eq!(
            Difference::between(&before, &next).to_string(),
            "plans: 1 changed (gold), 1 removed (old); tenants: 8 added (t0, t1, t2, t3, t4, …)"
        );
        assert_eq!(
            Difference::between(&next, &next).to_string(),
            "plans, rules, tenants and routes have not changed"
        );
    }

    #[test]
    fn a_tenant_with_another_key_has_changed() {
        let tenant = |digit: &str| {
            config(&format!(
                "[[tenants]]\nid = \"a\"\nplan = \"free\"\napi_keys = [\"sha256:{}\"]\n",
                digit.repeat(64)
            ))
        };
        assert_eq!(Difference::between(&tenant("1"), &tenant("2")).to_string(), "tenants: 1 changed (a)");
    }
}
