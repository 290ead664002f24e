//! The charges of a question as a ticket carries them, so that they can be settled or released whatever rules and plans say by then.

use serde::{Deserialize, Serialize};
use spile_core::{Amount, LimitName, NamedLimit};
use spile_policy::{Chain, Policy, identity};

use super::tokens::{Tokens, TypedTokens};
use super::typed::TypedQuestion;
use crate::config::LimitSpec;

/// The charges of a question.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedChain<'a> {
    /// Asked again to find the limits in force.
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

impl<'a> RecordedChain<'a> {
    /// Records the charges of a chain that are of concurrencies, or those that are not.
    pub(crate) fn new(chain: Option<&Chain>, of_permits: bool, question: TypedQuestion<'a>) -> Self {
        // A cost that the limits do not take any more must not hide them.
        let question = TypedQuestion { cost: Some(TypedTokens(Amount::ZERO)), ..question };
        let shadow = chain.is_some_and(Chain::is_shadow);
        let mut recorded = Self { question, shadow, keys: Vec::new(), buckets: Vec::new() };
        let charged = chain.into_iter().flat_map(Chain::charged);
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

    /// The chain, under the limits in force as far as there are. `None` if it has no charges, or is not a record.
    pub(crate) fn restore(&self, policy: &Policy) -> Option<Chain> {
        let now = self.question.owed(policy).ok().flatten();
        let now = now.as_ref();
        let mut chain = Chain::new(now.and_then(Chain::rule))
            .for_tenant(now.and_then(Chain::tenant))
            .on_failure(now.and_then(Chain::failure_policy))
            .shadow(self.shadow);
        for RecordedBucket { key, name, limit, cost, fixed } in &self.buckets {
            let key = identity(self.keys.get(*key)?).ok()?;
            let limit = NamedLimit::new(LimitName::new(name).ok()?, LimitSpec::recorded(limit)?);
            chain.restore(&key, limit, cost.0, *fixed).ok()?;
        }
        let chain = chain.settling(|key, name| now.and_then(|now| now.limit_of(key, name)));
        (!chain.is_empty()).then_some(chain)
    }

    /// True if nothing was charged, because no limit applied.
    pub(crate) const fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}
