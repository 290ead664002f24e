//! What holds until it is defined otherwise: three plans, and a rule for what no other rule matches.
//!
//! A file that adds a plan or a rule of its own loses none of these. Each goes when one of its name takes its place; the
//! rule also by `unmatched = "pass"`.

use super::Faults;
use super::node::{Node, Table, parse};
use super::place::Spot;

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
/// What leaves requests without a limit that no rule matches.
pub(in crate::config) const UNMATCHED: &str = "unmatched";
pub(in crate::config) const PASS: &str = "pass";

/// Adds the plans and the rule whose names the file does not define.
pub(super) fn complete(table: &mut Table) {
    let passes = text_of(table, UNMATCHED) == Some(PASS);
    for (key, usual) in parse(USUAL, &mut Faults::default()) {
        let Some((_, there)) = table.iter_mut().find(|(there, _)| there.value == key.value) else {
            if !(passes && matches!(usual.value, Node::List(_))) {
                table.push((key, usual));
            }
            continue;
        };
        match (&mut there.value, usual.value) {
            (Node::Table(plans), Node::Table(usual)) => {
                for (name, plan) in usual {
                    if !plans.iter().any(|(there, _)| there.value == name.value) {
                        plans.push((name, plan));
                    }
                }
            }
            (Node::List(rules), Node::List(usual)) if !passes => {
                let is_new = |rule: &Spot<Node>| !rules.iter().any(|there| id_of(there) == id_of(rule));
                let new: Vec<_> = usual.into_iter().filter(is_new).collect();
                rules.extend(new);
            }
            _ => {}
        }
    }
}

fn id_of(rule: &Spot<Node>) -> Option<&str> {
    match &rule.value {
        Node::Table(members) => text_of(members, "id"),
        _ => None,
    }
}

fn text_of<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.iter().find_map(|(there, value)| match &value.value {
        Node::Text(text) | Node::Raw(text) if there.value == key => Some(text.as_str()),
        _ => None,
    })
}
