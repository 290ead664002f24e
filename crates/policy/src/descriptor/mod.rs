//! The charges of a request of Envoy: each descriptor is charged by itself, and costs for the same bucket add up.

mod pattern;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use smol_str::SmolStr;
use spile_core::{ChargeError, Limit, LimitName, NamedLimit, PlanName};

pub(crate) use self::pattern::{ANY, RawEntry};
pub use self::pattern::{DescriptorMatch, DescriptorMatchError, EntryPattern};
use crate::facts::CallerTenant;
use crate::key::ResolvedKey;
use crate::owed::{Chain, Enforced, PolicyRefusal};
use crate::policy::{OVERRIDE, Policy};
use crate::rule::{Rule, RulePlans};

/// The ids of rules that do not apply to a request, because another of its descriptors has a rule that replaces them.
type ReplacedRules<'p> = Vec<&'p SmolStr>;

/// The entry whose value is the id of a tenant.
const TENANT_ENTRY: &[u8] = b"tenant";

/// One descriptor of a request.
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    /// Its entries, in order: key and value, any bytes.
    pub entries: Vec<(&'a [u8], &'a [u8])>,
    /// The limit that the request contains, instead of the limits of a rule.
    pub limit: Option<DescriptorLimit>,
    /// How many tokens, and whether they are spent or refunded.
    pub hits: Hits,
}

/// A limit that is part of the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DescriptorLimit {
    /// The limit, or `None` if no request is allowed.
    pub limit: Option<Limit>,
    /// The unit of time. Limits of different units have different buckets.
    pub unit: &'static str,
}

/// How many hits a descriptor counts. Each costs as much as the rule says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hits {
    /// They are spent.
    Spend(u64),
    /// They are refunded.
    Refund(u64),
}

/// The charges of a request's descriptors.
#[derive(Clone, Debug, Default)]
pub struct DescriptorsOwed {
    /// The charges of all enforced descriptors together.
    pub enforced: Enforced,
    /// The charges of each descriptor, in order.
    pub each: Vec<DescriptorOwed>,
    /// The charges of descriptors under rules in shadow mode, with their indexes: each is decided by itself, if the request is allowed.
    pub shadow: Vec<(usize, DescriptorOwed)>,
}

/// The charges of one descriptor.
#[derive(Clone, Debug)]
pub enum DescriptorOwed {
    /// No rule matches it.
    Unmatched,
    /// Its rule does not limit it, or is replaced by another.
    Unlimited,
    /// Only a rule in shadow mode matches it.
    Shadow,
    /// The indexes of its buckets in the chain of all enforced descriptors.
    Enforced(Vec<usize>),
    /// Charges that are decided by themselves. Of those that are enforced, which are of rules in the mode `any`, one that passes is
    /// enough for the request.
    Any(Chain),
    /// Charges for what has been used already. They are taken whether or not it is there.
    Late(Chain),
    /// The charges to refund.
    Refund(Chain),
}

impl Policy {
    /// Returns the charges of these descriptors of a domain. Costs for the same bucket add up.
    pub fn owed_by_descriptors(
        &self,
        domain: &[u8],
        descriptors: &[Descriptor<'_>],
    ) -> Result<DescriptorsOwed, ChargeError> {
        let mut owed = DescriptorsOwed::default();
        let replaced = self.replaced_rules(domain, descriptors);
        for (at, descriptor) in descriptors.iter().enumerate() {
            let mut each = self.owed_by_descriptor(domain, descriptor, &replaced, &mut owed.enforced)?;
            let matched = self.rule_for_descriptor(&self.shadow, domain, &descriptor.entries);
            if let Some((rule, entries)) = matched {
                if matches!(each, DescriptorOwed::Unmatched) {
                    each = DescriptorOwed::Shadow;
                }
                let watched = self.shadowed_descriptor(rule, domain, &entries, descriptor);
                owed.shadow.extend(watched.map(|watched| (at, watched)));
            }
            owed.each.push(each);
        }
        Ok(owed)
    }

    /// Returns the charges of a descriptor under a rule in shadow mode. `None` if the rule cannot be applied, because it never blocks.
    fn shadowed_descriptor(
        &self,
        rule: &Rule,
        domain: &[u8],
        entries: &[RawEntry<'_>],
        descriptor: &Descriptor<'_>,
    ) -> Option<DescriptorOwed> {
        let chain = self.descriptor_chain(Some(rule), domain, entries, descriptor).ok();
        let chain = chain.filter(|chain| !chain.is_closed())?;
        match DescriptorOwed::alone(chain, Some(rule), descriptor.hits) {
            DescriptorOwed::Unlimited => None,
            DescriptorOwed::Any(chain) if chain.never_passes().is_some() => None,
            owed => Some(owed),
        }
    }

    /// The rules that are replaced by those of these descriptors. A limit that a descriptor brings along replaces none.
    fn replaced_rules<'p>(&'p self, domain: &[u8], descriptors: &[Descriptor<'p>]) -> ReplacedRules<'p> {
        if !self.has_replacing {
            return Vec::new();
        }
        let by_rules = descriptors.iter().filter(|descriptor| descriptor.limit.is_none());
        let rule_for = |one: &Descriptor<'p>| self.rule_for_descriptor(&self.enforced, domain, &one.entries);
        let matched = by_rules.filter_map(rule_for);
        matched.flat_map(|(rule, _)| &rule.descriptors.replaces).collect()
    }

    fn owed_by_descriptor(
        &self,
        domain: &[u8],
        descriptor: &Descriptor<'_>,
        replaced: &ReplacedRules<'_>,
        enforced: &mut Enforced,
    ) -> Result<DescriptorOwed, ChargeError> {
        let matched = self.rule_for_descriptor(&self.enforced, domain, &descriptor.entries);
        let (rule, entries) = match (matched, descriptor.limit) {
            (Some((rule, _)), None) if replaced.contains(&&rule.id) => return Ok(DescriptorOwed::Unlimited),
            (Some((rule, entries)), _) => (Some(rule), entries),
            (None, Some(_)) => (None, descriptor.entries.clone()),
            (None, None) => return Ok(DescriptorOwed::Unmatched),
        };
        let chain = self.descriptor_chain(rule, domain, &entries, descriptor)?;
        let chain = match DescriptorOwed::alone(chain, rule, descriptor.hits) {
            DescriptorOwed::Any(chain) if rule.is_none_or(|rule| !rule.descriptors.any) => chain,
            owed => return Ok(owed),
        };
        Ok(DescriptorOwed::Enforced(match enforced {
            Enforced::Unlimited { .. } => {
                let places = (0..chain.buckets().len()).collect();
                *enforced = chain.into();
                places
            }
            Enforced::Charged(all) => all.add(&chain)?,
        }))
    }

    /// Returns the charges of one descriptor under its own limit, or under its rule and the rules in its `also` list. A bucket that
    /// two of these rules share is charged once.
    fn descriptor_chain(
        &self,
        rule: Option<&Rule>,
        domain: &[u8],
        entries: &[RawEntry<'_>],
        descriptor: &Descriptor<'_>,
    ) -> Result<Chain, ChargeError> {
        let tenant = self.tenant_of_descriptor(&descriptor.entries);
        let tenant = tenant.as_ref();
        let pays_as_tenant = descriptor.limit.is_none()
            && rule.is_some_and(|rule| matches!(rule.plans, RulePlans::Tenant { .. }));
        // A tenant has the same key at every listener. Other callers are keyed by the descriptor.
        let key = &match tenant.filter(|_| pays_as_tenant) {
            Some(tenant) => ResolvedKey::tenant(&tenant.id),
            None => key(domain, entries),
        };
        let (Hits::Spend(hits) | Hits::Refund(hits)) = descriptor.hits;
        let mut chain = Chain::new(Some(rule.map_or(OVERRIDE, |rule| &rule.id)))
            .for_tenant(tenant.map(|tenant| tenant.id.as_str()))
            .shadow(rule.is_some_and(|rule| rule.shadow));
        if let Some(own) = descriptor.limit {
            chain.tighten_failure_policy(rule.map_or(self.on_failure, |rule| self.failure_policy_of(rule)));
            let name = override_name(own.unit);
            match own.limit {
                Some(limit) => chain.charge_limit(key, NamedLimit::new(name, limit), hits, false)?,
                None => chain.close(key, NamedLimit::new(name, smallest_limit()))?,
            }
            return Ok(chain);
        }
        let Some(rule) = rule else { return Ok(chain) };
        let payer = |rule: &Rule| Ok(rule.key.shared().unwrap_or(key).clone());
        let cost = |rule: &Rule| Some(rule.cost.amount() * hits);
        match self.charge_rules(&mut chain, rule, tenant, payer, cost) {
            Ok(()) => {}
            Err(PolicyRefusal::TooManyLimits(why)) => return Err(why),
            // Envoy is answered by a limit that denies.
            Err(_) => {
                chain.tighten_failure_policy(self.failure_policy_of(rule));
                chain.close(key, NamedLimit::new(banned_name(), smallest_limit()))?;
            }
        }
        Ok(chain)
    }

    /// The tenant that the entry `tenant` names.
    fn tenant_of_descriptor(&self, entries: &[RawEntry<'_>]) -> Option<CallerTenant> {
        let (_, id) = entries.iter().find(|(key, _)| *key == TENANT_ENTRY)?;
        Some(self.tenant(std::str::from_utf8(id).ok()?)?.caller())
    }
}

/// The name of the limit of a rule that denies everything.
fn banned_name() -> LimitName {
    LimitName::new("banned").expect("it is a name")
}

fn override_name(unit: &str) -> LimitName {
    let namespace = PlanName::new(OVERRIDE).expect("it is a name");
    LimitName::within(&namespace, unit).expect("a unit is a name")
}

/// A placeholder for a limit of zero. It is never spent.
fn smallest_limit() -> Limit {
    Limit::per_second(1).build().expect("one token per second is a limit")
}

/// The domain and the entries as one text that is different for different descriptors: separators and bytes that are
/// not printable are percent-encoded. A text that is too long is replaced by its hash. Values come from callers, and
/// none of them may cause an error, because Envoy would let the request pass.
fn key(domain: &[u8], entries: &[RawEntry<'_>]) -> ResolvedKey {
    const VALUE: &AsciiSet = &CONTROLS.add(b'%').add(b'|');
    const KEY: &AsciiSet = &VALUE.add(b'=');
    let mut text = String::new();
    text.extend(percent_encode(domain, KEY));
    for (key, value) in entries {
        text.push('|');
        text.extend(percent_encode(key, KEY));
        text.push('=');
        text.extend(percent_encode(value, VALUE));
    }
    ResolvedKey::of(&[&text])
}

impl DescriptorOwed {
    /// The charges of one descriptor, apart from the others.
    fn alone(chain: Chain, rule: Option<&Rule>, hits: Hits) -> Self {
        let late = rule.is_some_and(|rule| rule.descriptors.late);
        match hits {
            _ if chain.is_empty() => Self::Unlimited,
            Hits::Refund(_) => Self::Refund(chain),
            // Usage is charged in every mode. Without hits it is a question like any other.
            Hits::Spend(1..) if late && !chain.is_closed() => Self::Late(chain),
            Hits::Spend(_) => Self::Any(chain.asks(late)),
        }
    }
}

impl DescriptorsOwed {
    /// How many descriptors match no rule.
    pub fn unmatched(&self) -> usize {
        self.each.iter().filter(|owed| matches!(owed, DescriptorOwed::Unmatched)).count()
    }

    /// Whether there are descriptors of which one that passes is enough.
    pub fn has_alternatives(&self) -> bool {
        self.each.iter().any(|owed| matches!(owed, DescriptorOwed::Any(_)))
    }

    /// Whether the enforced descriptors could pass together.
    pub fn can_pass(&self) -> bool {
        match &self.enforced {
            Enforced::Charged(chain) => chain.never_passes().is_none(),
            Enforced::Unlimited { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(domain: &str, entries: &[(&str, &str)]) -> String {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        key(domain.as_bytes(), &entries).as_str().to_owned()
    }

    #[test]
    fn a_key_reads_like_its_descriptor() {
        assert_eq!(of("edge", &[("path", "/a b?c=d"), ("ip", "::1")]), "edge|path=/a b?c=d|ip=::1");
        assert_eq!(of("e=|", &[("k=", "100%\n|é")]), "e%3D%7C|k%3D=100%25%0A%7C%C3%A9");
        assert_eq!(key(b"edge", &[(b"user", b"bob\xff")]).as_str(), "edge|user=bob%FF");
        let long = of("edge", &[("path", &"x".repeat(5_000))]);
        assert!(long.starts_with("sha256:") && long.len() == 71, "{long}");
    }

    proptest! {
        #[test]
        fn two_descriptors_never_share_a_key(
            one in prop::collection::vec(("[a=|%]{1,3}", "[a=|%]{0,3}"), 1..3),
            other in prop::collection::vec(("[a=|%]{1,3}", "[a=|%]{0,3}"), 1..3),
        ) {
            let text = |entries: &[(String, String)]| {
                let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
                key(b"edge", &entries)
            };
            prop_assert_eq!(text(&one) == text(&other), one == other);
        }

        #[test]
        fn every_key_can_be_asked_for(domain in "\\PC{0,40}", value in prop::collection::vec(any::<u8>(), 0..2000)) {
            let key = key(domain.as_bytes(), &[(b"k", &value)]);
            prop_assert!(spile_core::Key::new(key.as_str()).is_ok(), "{}", key.as_str());
        }
    }
}
