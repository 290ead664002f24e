//! What each descriptor of a request is about: who pays, by which rule, and how much.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};
use spile_core::{Charges, Key, Limit};
use tonic::Status;

use super::message::{Descriptor, Override, RateLimitRequest, Unit};
use crate::hex::Hex;
use crate::policies::Policies;
use crate::question::TENANT_KEY;
use crate::rule::{Rule, RulePlans};
use crate::tenant::Tenant;

/// The entry whose value is the id of a tenant.
const TENANT_ENTRY: &str = "tenant";

/// What one descriptor asks for.
#[derive(Debug)]
pub(super) struct Target<'p> {
    /// Who pays.
    pub(super) key: String,
    pub(super) rule: Option<&'p Rule>,
    pub(super) tenant: Option<&'p Tenant>,
    pub(super) limit: Option<OwnLimit>,
    pub(super) hits: Hits,
}

/// A limit that a descriptor brings along.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OwnLimit {
    Tokens(Limit),
    /// Not one request per unit.
    Nothing,
}

/// How often, and which way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hits {
    Spend(u64),
    GiveBack(u64),
}

/// The target of each descriptor, in order; nothing where no rule is for it.
pub(super) fn targets<'p>(
    request: &RateLimitRequest,
    policies: &'p Policies,
) -> Result<Vec<Option<Target<'p>>>, Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("domain: is empty; it takes the name of a set of rules"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("descriptors: there are none; a request takes 1 or more"));
    }
    if request.descriptors.len() > Charges::MAX {
        let (count, most) = (request.descriptors.len(), Charges::MAX);
        let why = format!("descriptors: there are {count}; a request takes at most {most}");
        return Err(Status::invalid_argument(why));
    }
    let each = request.descriptors.iter().enumerate();
    each.map(|(index, descriptor)| target(request, descriptor, index, policies)).collect()
}

fn target<'p>(
    request: &RateLimitRequest,
    descriptor: &Descriptor,
    index: usize,
    policies: &'p Policies,
) -> Result<Option<Target<'p>>, Status> {
    let wrong = |why: &str| Err(Status::invalid_argument(format!("descriptors[{index}].{why}")));
    if descriptor.entries.is_empty() {
        return wrong("entries: there are none; a descriptor takes 1 or more");
    }
    if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
        return wrong("entries: a key is empty");
    }
    let limit = match descriptor.limit.map(own_limit) {
        Some(None) => return wrong("limit.unit: is no unit of time, 1 (second) to 7 (week)"),
        Some(Some(limit)) => Some(limit),
        None => None,
    };
    let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
    let rule = policies.rule_for_descriptor(&request.domain, &entries);
    if rule.is_none() && limit.is_none() {
        return Ok(None);
    }
    // A tenant has one key, whichever way it comes; anybody else is known by the whole descriptor.
    let by_tenant = rule.is_some_and(|rule| matches!(rule.plans, RulePlans::Tenant { .. }));
    let tenant = entries.clone().find(|(key, _)| *key == TENANT_ENTRY && by_tenant);
    let tenant = tenant.and_then(|(_, id)| policies.tenant(id));
    let key = match tenant.filter(|_| limit.is_none()) {
        Some(tenant) => format!("{TENANT_KEY}{}", tenant.id),
        None => key(&request.domain, entries),
    };
    Ok(Some(Target { key, rule, tenant, limit, hits: hits(request, descriptor) }))
}

/// The descriptor's own count stands above the request's, of which nothing means one. Zero of its own only looks.
fn hits(request: &RateLimitRequest, descriptor: &Descriptor) -> Hits {
    let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
    if descriptor.is_negative_hits { Hits::GiveBack(hits) } else { Hits::Spend(hits) }
}

/// Nothing where there is no such unit.
fn own_limit(limit: Override) -> Option<OwnLimit> {
    let seconds = Unit::try_from(limit.unit).ok()?.seconds()?;
    // More than any limit can hold is as good as the most.
    let tokens = u64::from(limit.requests_per_unit.min(Limit::MAX_TOKENS));
    Some(Limit::per(tokens, Duration::from_secs(seconds)).build().map_or(OwnLimit::Nothing, OwnLimit::Tokens))
}

/// The domain and all entries as one text, in which no value can pass for another: whatever separates, and whatever
/// cannot be seen, is written by its number. What is too long is known by its hash, for values are callers' words, and
/// none of them may be an error that Envoy takes for "let it pass".
fn key<'e>(domain: &str, entries: impl Iterator<Item = (&'e str, &'e str)>) -> String {
    let mut text = String::new();
    push(&mut text, domain, b"=");
    for (key, value) in entries {
        text.push('|');
        push(&mut text, key, b"=");
        text.push('=');
        push(&mut text, value, b"");
    }
    if text.len() <= Key::MAX_BYTES {
        return text;
    }
    let hash: [u8; 32] = Sha256::digest(&text).into();
    format!("sha256:{}", Hex(&hash))
}

fn push(text: &mut String, part: &str, also: &[u8]) {
    for byte in part.bytes() {
        if matches!(byte, b' '..=b'~') && !b"%|".contains(&byte) && !also.contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _written = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(domain: &str, entries: &[(&str, &str)]) -> String {
        key(domain, entries.iter().copied())
    }

    #[test]
    fn a_key_reads_like_its_descriptor() {
        assert_eq!(of("edge", &[("path", "/a b?c=d"), ("ip", "::1")]), "edge|path=/a b?c=d|ip=::1");
        assert_eq!(of("e=|", &[("k=", "100%\n|é")]), "e%3D%7C|k%3D=100%25%0A%7C%C3%A9");
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
                key("edge", entries.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            };
            prop_assert_eq!(text(&one) == text(&other), one == other);
        }

        #[test]
        fn every_key_can_be_asked_for(domain in "\\PC{0,40}", value in "(?s).{0,2000}") {
            let key = of(&domain, &[("k", &value)]);
            prop_assert!(crate::identity::key(&key).is_ok(), "{}", key);
        }
    }

    #[test]
    fn a_limit_of_its_own_is_so_many_per_unit() {
        let own =
            |requests_per_unit, unit: Unit| own_limit(Override { requests_per_unit, unit: unit.into() });
        assert_eq!(
            own(5, Unit::Minute),
            Some(OwnLimit::Tokens(Limit::per_minute(5).build().expect("5/min")))
        );
        assert_eq!(own(0, Unit::Second), Some(OwnLimit::Nothing));
        assert_eq!(own(5, Unit::Unknown), None);
        let most = Limit::per_second(1_000_000_000).build().expect("the most there is");
        assert_eq!(own(u32::MAX, Unit::Second), Some(OwnLimit::Tokens(most)));
    }
}
