//! A tenant: an id, a plan, limits that replace those of the plan, and the hashes of its API keys.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use spile_core::{Limit, NamedLimit, Plan, PlanName};

use crate::facts::CallerTenant;

const SCHEME: &str = "sha256:";

/// A customer of the operator.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub id: SmolStr,
    /// The plan that it holds.
    pub plan: PlanName,
    /// The hashes of its API keys.
    pub api_keys: Vec<ApiKeyHash>,
    /// Its plan with some limits replaced by its own, or `None` if none is replaced.
    own: Option<Plan>,
    /// The names of its own limits.
    own_names: Vec<SmolStr>,
}

impl Tenant {
    /// The tenant of that id on this plan, without API keys.
    pub fn new(id: &str, plan: PlanName) -> Self {
        Self { id: SmolStr::new(id), plan, api_keys: Vec::new(), own: None, own_names: Vec::new() }
    }

    /// Adds an API key.
    #[must_use]
    pub fn api_key(mut self, hash: ApiKeyHash) -> Self {
        self.api_keys.push(hash);
        self
    }

    /// Replaces the limits of these names in its plan. The buckets stay the same.
    pub fn with_limits<'n>(
        mut self,
        plan: &Plan,
        limits: impl IntoIterator<Item = (&'n str, Limit)>,
    ) -> Result<Self, OverrideError> {
        let mut own = self.own.take().unwrap_or_else(|| plan.clone());
        for (name, limit) in limits {
            own = own.with_limit(name, limit).ok_or_else(|| OverrideError {
                plan: plan.name().clone(),
                limit: name.to_owned(),
                known: plan.limits().iter().map(|limit| limit.own_name().to_owned()).collect(),
            })?;
            self.own_names.push(SmolStr::new(name));
        }
        self.own = Some(own);
        Ok(self)
    }

    /// The limits that are its own.
    pub fn own_limits(&self) -> impl Iterator<Item = &NamedLimit> {
        let limits = self.own.iter().flat_map(Plan::limits);
        limits.filter(|limit| self.own_names.iter().any(|name| name == limit.own_name()))
    }

    /// The tenant as part of a request's facts.
    pub(crate) fn caller(&self) -> CallerTenant {
        CallerTenant { id: self.id.clone(), plan: Some(self.plan.clone()) }
    }

    /// Its plan with its own limits, if it has any.
    pub const fn own(&self) -> Option<&Plan> {
        self.own.as_ref()
    }
}

/// A tenant's own limit whose name does not exist in its plan.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("plan `{plan}` has no limit called `{limit}`: it has {}", .known.join(", "))]
pub struct OverrideError {
    plan: PlanName,
    limit: String,
    known: Vec<String>,
}

/// The SHA-256 of an API key. Only the hash is stored. Keys are random, so that no slower hash is needed.
///
/// Finding a tenant compares hashes, and its duration may reveal something about a hash. That is harmless, because the
/// key cannot be computed from it.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ApiKeyHash([u8; 32]);

impl ApiKeyHash {
    /// The hash of this key.
    pub fn of(api_key: &[u8]) -> Self {
        Self(Sha256::digest(api_key).into())
    }
}

impl FromStr for ApiKeyHash {
    type Err = ApiKeyHashError;

    fn from_str(text: &str) -> Result<Self, ApiKeyHashError> {
        let digits = text.strip_prefix(SCHEME).ok_or(ApiKeyHashError)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(digits, &mut hash).map_err(|_| ApiKeyHashError)?;
        Ok(Self(hash))
    }
}

impl fmt::Display for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash(***)")
    }
}

/// A text that is not the hash of an API key. The error does not show the text, because it may be the key itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not the hash of an API key: write `sha256:` and 64 hexadecimal digits")]
pub struct ApiKeyHashError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_as_it_was_written() {
        let hash = ApiKeyHash::of(b"test");
        assert_eq!(
            hash.to_string(),
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        );
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }

    #[test]
    fn a_tenant_has_its_own_limits_in_the_places_of_its_plan() {
        let limit = |burst| Limit::per_second(1).burst(burst).build().expect("a limit");
        let gold = Plan::chain("gold", [("burst", limit(10)), ("day", limit(100))]).expect("a plan");
        let acme = Tenant::new("acme", gold.name().clone());
        let own = acme.clone().with_limits(&gold, [("burst", limit(50))]).expect("gold has a burst");
        let own = own.own().expect("limits of its own");
        let capacities: Vec<u64> =
            own.limits().iter().map(|one| one.limit().capacity().whole_tokens()).collect();
        assert_eq!(capacities, [50, 100]);
        let why = acme.with_limits(&gold, [("month", limit(1))]).expect_err("gold has no month");
        assert_eq!(why.to_string(), "plan `gold` has no limit called `month`: it has burst, day");
    }

    #[test]
    fn a_text_that_is_not_a_hash_is_refused() {
        for text in ["", "test", "sha256:", "sha256:9f86", &format!("sha256:{}", "+f".repeat(32))] {
            assert_eq!(text.parse::<ApiKeyHash>(), Err(ApiKeyHashError), "{text}");
        }
    }
}
