//! Built-in entries: three plans, and a rule for requests that no other rule matches.
//!
//! A file that adds a plan or a rule keeps these. Each is replaced by an entry of its name; the
//! rule also by `unmatched = "pass"`.

use serde_json::Value;

use super::Faults;
use super::tree::{Table, from_toml};

const USUAL: &str = r#"
[plans]
free = { capacity = 10, refill = "1/s" }
pro = { capacity = 100, refill = "50/s" }
enterprise = { capacity = 500, refill = "200/s" }

[[rules]]
id = "default"
key = ["tenant", "ip"]
plans = "tenant"
anonymous_plan = "free"
"#;
/// The plan of anonymous callers under the built-in rule.
pub(in crate::config) const BUILT_IN_PLAN: &str = "free";
/// The key that leaves unmatched requests without a limit.
pub(in crate::config) const UNMATCHED: &str = "unmatched";
pub(in crate::config) const PASS: &str = "pass";

/// Adds the plans and the rule whose names the file does not define.
pub(super) fn complete(table: &mut Table) {
    let passes = table.get(UNMATCHED).is_some_and(|word| *word == PASS);
    for (key, usual) in from_toml(USUAL, &mut Faults::default()) {
        match (table.get_mut(&key), usual) {
            (_, Value::Array(_)) if passes => {}
            (None, usual) => drop(table.insert(key, usual)),
            (Some(Value::Object(plans)), Value::Object(usual)) => {
                for (name, plan) in usual {
                    plans.entry(name).or_insert(plan);
                }
            }
            (Some(Value::Array(rules)), Value::Array(usual)) => {
                for rule in usual {
                    if !rules.iter().any(|own| own.get("id") == rule.get("id")) {
                        rules.push(rule);
                    }
                }
            }
            _ => {}
        }
    }
}
