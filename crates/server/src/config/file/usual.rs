//! What holds where a file does not speak of plans or rules at all.

use super::Faults;
use super::node::{Node, Table, parse};

const USUAL: &str = r#"
[plans]
free = { capacity = 10, refill = "1/s" }
pro = { capacity = 100, refill = "50/s" }
enterprise = { capacity = 500, refill = "200/s" }

[[rules]]
id = "default"
key = ["tenant", "header:x-api-key", "ip"]
plans = "tenant"
anonymous_plan = "free"
"#;
/// The plan that the usual rule needs.
const ANONYMOUS: &str = "free";

/// Adds the usual plans where there is no table of plans, and the usual rule where there are no rules and its plan
/// is there.
pub(super) fn complete(table: &mut Table) {
    let usual = parse(USUAL, &mut Faults::default());
    for (key, value) in usual {
        let wanted = key.value != "rules" || has_anonymous_plan(table);
        if wanted && !table.iter().any(|(there, _)| there.value == key.value) {
            table.push((key, value));
        }
    }
}

fn has_anonymous_plan(table: &Table) -> bool {
    table.iter().any(|(key, value)| match &value.value {
        Node::Table(plans) if key.value == "plans" => plans.iter().any(|(name, _)| name.value == ANONYMOUS),
        _ => false,
    })
}
