//! The facts that rules need of a request, and those that the log lacks.

use http::HeaderName;
use smol_str::SmolStr;
use spile_policy::{Rule, RulePlans};

use super::line::LogRecord;
use super::tally::ReplayTally;
use super::text::grouped;

/// The most facts of one configuration: more than a rule file ever names.
const MOST: usize = 64;

/// A fact that a log may not have.
#[derive(Clone, Debug, Eq, PartialEq)]
enum NeededFact {
    Tenant,
    Principal,
    Address,
    Host,
    Header(HeaderName),
}

/// The facts that the rules of one configuration need, and which of them the log has at least once.
#[derive(Debug)]
pub(super) struct NeededFacts {
    facts: Vec<NeededFact>,
    rules: Vec<RuleNeeds>,
    /// A bit for each fact.
    seen: u64,
}

/// The facts that a rule needs.
#[derive(Debug)]
struct RuleNeeds {
    id: SmolStr,
    words: Vec<String>,
    hosts: bool,
    /// Whether it takes the plan of the tenant.
    plan_of_tenant: bool,
}

impl NeededFacts {
    /// The facts that these rules need. Without tenants in the configuration, tenants are not needed.
    pub(super) fn new<'r>(rules: impl IntoIterator<Item = &'r Rule>, has_tenants: bool) -> Self {
        let http = rules.into_iter().filter(|rule| rule.matcher.descriptor.is_none());
        let rules: Vec<RuleNeeds> = http.map(|rule| RuleNeeds::new(rule, has_tenants)).collect();
        let mut facts = Vec::new();
        for fact in rules.iter().flat_map(RuleNeeds::facts) {
            if !facts.contains(&fact) && facts.len() < MOST {
                facts.push(fact);
            }
        }
        Self { facts, rules, seen: 0 }
    }

    /// The header fields that rules key by.
    pub(super) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.facts.iter().filter_map(|fact| match fact {
            NeededFact::Header(name) => Some(name),
            _ => None,
        })
    }

    /// Records the facts that a line has.
    pub(super) fn note(&mut self, record: &LogRecord, has_tenant: bool, has_principal: bool) {
        for (at, fact) in self.facts.iter().enumerate() {
            let bit = 1 << at;
            if self.seen & bit == 0 {
                let there = match fact {
                    NeededFact::Tenant => has_tenant,
                    NeededFact::Principal => has_principal,
                    NeededFact::Address => record.peer.is_some(),
                    NeededFact::Host => !record.host.is_empty(),
                    NeededFact::Header(name) => record.headers.contains_key(name),
                };
                self.seen |= if there { bit } else { 0 };
            }
        }
    }

    /// The facts that the log lacked, for each rule that had requests, or would have had some.
    pub(super) fn notes(&self, tally: &ReplayTally) -> Vec<String> {
        let requests = |id: &SmolStr| {
            tally.rules.iter().find(|rule| rule.id == *id).map_or(0, |rule| rule.counts.total())
        };
        self.rules.iter().flat_map(|rule| self.notes_of(rule, requests(&rule.id))).collect()
    }

    fn notes_of(&self, rule: &RuleNeeds, requests: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let id = &rule.id;
        if rule.hosts && !self.has(&NeededFact::Host) {
            notes.push(format!(
                "rule `{id}` is for certain hosts, and the log has none: `--host NAME` says which it is"
            ));
        }
        if requests == 0 {
            return notes;
        }
        let count = grouped(requests);
        let instead = rule.words.iter().find(|word| parts(word).all(|fact| self.has(&fact)));
        let instead = match instead {
            Some(word) => format!("{count} requests were keyed by {}", described(word)),
            None => format!("{count} requests were refused, because they have no key"),
        };
        let missing = rule.words.iter().take_while(|word| parts(word).any(|fact| !self.has(&fact)));
        for fact in missing.flat_map(|word| parts(word)).filter(|fact| !self.has(fact)) {
            if fact == NeededFact::Tenant && !rule.plan_of_tenant {
                continue;
            }
            let how = fact.how_to_tell();
            let note = format!(
                "rule `{id}` keys by {}, which the log does not have: {instead}{how}",
                fact.described()
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }

    fn has(&self, fact: &NeededFact) -> bool {
        let at = self.facts.iter().position(|own| own == fact);
        at.is_none_or(|at| self.seen & (1 << at) != 0)
    }
}

impl RuleNeeds {
    fn new(rule: &Rule, has_tenants: bool) -> Self {
        let of_tenant = matches!(rule.plans, RulePlans::Tenant { .. });
        let keyed = rule.key.words().iter().any(|word| word.split('+').any(|part| part.trim() == "tenant"));
        Self {
            id: rule.id.clone(),
            words: rule.key.words().to_vec(),
            hosts: !rule.matcher.hosts.is_empty(),
            plan_of_tenant: has_tenants && (of_tenant || keyed),
        }
    }

    fn facts(&self) -> impl Iterator<Item = NeededFact> {
        let host = self.hosts.then_some(NeededFact::Host);
        self.words.iter().flat_map(|word| parts(word)).chain(host)
    }
}

impl NeededFact {
    fn described(&self) -> String {
        match self {
            Self::Tenant => "tenant".to_owned(),
            Self::Principal => "principal".to_owned(),
            Self::Address => "address".to_owned(),
            Self::Host => "host".to_owned(),
            Self::Header(name) => format!("header {name}"),
        }
    }

    /// How a JSON log can provide it.
    fn how_to_tell(&self) -> String {
        match self {
            Self::Tenant => {
                " (`--field tenant=NAME` or `--header x-api-key=NAME` takes it from a JSON field)".to_owned()
            }
            Self::Principal => " (`--field user=NAME` takes it from a JSON field)".to_owned(),
            Self::Address => " (`--field address=NAME` takes it from a JSON field)".to_owned(),
            Self::Host => String::new(),
            Self::Header(name) => format!(" (`--header {name}=NAME` takes it from a JSON field)"),
        }
    }
}

/// The facts that a word of a key list stands for.
fn parts(word: &str) -> impl Iterator<Item = NeededFact> {
    word.split('+').filter_map(|part| match part.trim() {
        "tenant" => Some(NeededFact::Tenant),
        "principal" => Some(NeededFact::Principal),
        "ip" => Some(NeededFact::Address),
        part => part.strip_prefix("header:").and_then(|name| name.parse().ok()).map(NeededFact::Header),
    })
}

fn described(word: &str) -> String {
    if word == "ip" { "address".to_owned() } else { format!("`{word}`") }
}
