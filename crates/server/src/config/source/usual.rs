//! What holds until it is defined otherwise: three plans, and a rule for what no other rule matches.
//!
//! A file that adds a plan or a rule of its own loses none of these. Each goes when one of its name takes its place; the
//! rule also by `unmatched = "pass"`.

use super::Faults;
use super::node::{Node, Table};

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
/// The key that leaves requests without a limit that no rule matches.
pub(in crate::config) const UNMATCHED: &str = "unmatched";
pub(in crate::config) const PASS: &str = "pass";

/// Adds the plans and the rule whose names the file does not define.
pub(super) fn complete(table: &mut Table<'_>) {
    let passes = table.iter().any(|(key, value)| key == UNMATCHED && value.text() == Some(PASS));
    for (key, usual) in Node::from_toml(USUAL, &mut Faults::default()) {
        let own = table.iter_mut().find(|(own, _)| *own == key).map(|(_, own)| own);
        match (own, usual) {
            (_, Node::List(_)) if passes => {}
            (None, usual) => table.push((key, usual)),
            (Some(Node::Table(plans)), Node::Table(usual)) => {
                for (name, plan) in usual {
                    if !plans.iter().any(|(own, _)| *own == name) {
                        plans.push((name, plan));
                    }
                }
            }
            (Some(Node::List(rules)), Node::List(usual)) => {
                for rule in usual {
                    if !rules.iter().any(|own| id_of(own) == id_of(&rule)) {
                        rules.push(rule);
                    }
                }
            }
            _ => {}
        }
    }
}

fn id_of<'n>(rule: &'n Node<'_>) -> Option<&'n str> {
    rule.get("id").and_then(Node::text)
}
