//! The charges of a question as a ticket carries them, so that they can be settled or released even if rules and plans have changed.

use serde::{Deserialize, Serialize};
use spile_core::{Amount, Charges, Limit, LimitName, NamedLimit};
use spile_policy::{Chain, Owed, Policy, identity};

use super::tokens::{Tokens, TypedTokens};
use super::typed::TypedQuestion;
use crate::config::LimitSpec;

/// The charges of a question.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedChain<'a> {
    /// Evaluated again to find the limits in force.
    #[serde(borrow)]
    question: TypedQuestion<'a>,
    /// Whether its rule was in shadow mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    keys: Vec<String>,
    buckets: Vec<RecordedBucket>,
}

/// One charge.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RecordedBucket {
    /// The index of its key.
    key: usize,
    name: String,
    limit: serde_json::Value,
    cost: Tokens,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fixed: bool,
}

impl RecordedBucket {
    /// The limit under which it is settled or held. `asked` is the limit that the question leads to; `in_force` is that limit or the
    /// plan's, which may differ for a tenant. `None` if the record is not a limit.
    fn limit_now(&self, asked: Option<Limit>, in_force: Option<Limit>) -> Option<Limit> {
        // A record is not trusted, so a limit is read from it only if it has to be.
        match in_force {
            Some(now) if now.is_concurrency() && self.limit.get("concurrency").is_some() => return Some(now),
            Some(now) if now.windows().is_some() && self.limit.get("quota").is_some() => return Some(now),
            _ => {}
        }
        let recorded = LimitSpec::recorded(&self.limit)?;
        Some(match (asked, in_force) {
            (Some(asked), _) => asked.settling(&recorded),
            (None, Some(of_plan)) => recorded.settling(&of_plan),
            (None, None) => recorded,
        })
    }
}

impl<'a> RecordedChain<'a> {
    /// Records the charges of a question: either those of concurrencies or all others. It has at most one chain.
    pub(crate) fn new(owed: &Owed, of_permits: bool, question: TypedQuestion<'a>) -> Self {
        // A cost that the limits no longer accept must not hide them.
        let question = TypedQuestion { cost: Some(TypedTokens(Amount::ZERO)), ..question };
        let shadow = owed.chains().any(Chain::is_shadow);
        let mut recorded = Self { question, shadow, keys: Vec::new(), buckets: Vec::new() };
        let charged = owed.chains().take(1).flat_map(Chain::charged);
        for (key, bucket) in
            charged.filter(|(_, bucket)| bucket.limit().limit().is_concurrency() == of_permits)
        {
            let known = recorded.keys.iter().position(|known| known == key.as_str());
            let key = known.unwrap_or_else(|| {
                recorded.keys.push(key.as_str().to_owned());
                recorded.keys.len() - 1
            });
            recorded.buckets.push(RecordedBucket {
                key,
                name: bucket.limit().name().unshadowed().to_owned(),
                limit: LimitSpec::record(bucket.limit()),
                cost: bucket.cost().into(),
                fixed: bucket.is_fixed(),
            });
        }
        recorded
    }

    /// Restores the chain, under limits in force where they exist, and returns whether all do. `None` if it has no charges, or is not a
    /// record.
    pub(crate) fn restore(&self, policy: &Policy) -> Option<(Chain, bool)> {
        if self.buckets.len() > Charges::MAX {
            return None;
        }
        let now = self.question.owed(policy).unwrap_or_default();
        let now = now.chains().next();
        let mut chain = Chain::new(now.and_then(Chain::rule))
            .for_tenant(now.and_then(Chain::tenant))
            .on_failure(now.and_then(Chain::failure_policy))
            .shadow(self.shadow);
        let mut all_in_force = true;
        for bucket in &self.buckets {
            let key = identity(self.keys.get(bucket.key)?).ok()?;
            let name = LimitName::new(&bucket.name).ok()?;
            let asked = now.and_then(|now| now.limit_of(&key, &name));
            let in_force = asked.or_else(|| policy.limit(&name));
            let limit = bucket.limit_now(asked, in_force)?;
            all_in_force &= in_force.is_some_and(|now| now.shape().code() == limit.shape().code());
            chain.charge_limit(&key, NamedLimit::new(name, limit), bucket.cost.0, bucket.fixed).ok()?;
        }
        (!chain.is_empty()).then_some((chain, all_in_force))
    }

    /// The record of a question that charged nothing.
    pub(crate) fn without_charges(self) -> Self {
        Self { keys: Vec::new(), buckets: Vec::new(), ..self }
    }

    /// True if nothing was charged.
    pub(crate) const fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}
