//! Notices a Redis that has lost its buckets, or that may evict them.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use spile_resp::Value;

use crate::script::Script;
use crate::session::{Session, SessionError};
use crate::store::{RedisStore, StoreInner};

static EXAMINE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("examine.lua")));

/// How long a look may take.
const WITHIN: Duration = Duration::from_secs(1);
/// The mark expires if no instance has looked for this long.
const MARK_TTL_MS: &str = "86400000";
/// How long a loss is reported.
const REPORTED_FOR: Duration = Duration::from_secs(600);
/// The policies under which Redis keeps a bucket until it is full: the first evicts nothing, the second those that are full soonest.
const SAFE_POLICIES: [&str; 2] = ["noeviction", "volatile-ttl"];

const LOST: &str = "lost buckets";
const EVICTS: &str = "eviction";

/// Looks at a mark beside the buckets. If the mark disappears, so did buckets: Redis was restarted or flushed, failed over to an empty
/// replica, or evicted keys. In a cluster, the node of the mark stands for all.
pub struct StoreExaminer {
    inner: Arc<StoreInner>,
    session: Session,
    /// The mark as Redis last returned it. `None` until it has.
    mark: Option<String>,
    lost_at: Option<Instant>,
}

impl RedisStore {
    /// An examiner for this store, whose findings are part of [`warning`](Self::warning).
    pub fn examiner(&self) -> StoreExaminer {
        StoreExaminer {
            inner: Arc::clone(&self.inner),
            session: self.session("mark"),
            mark: None,
            lost_at: None,
        }
    }
}

impl StoreExaminer {
    /// Looks once.
    pub async fn look(&mut self) -> Result<(), SessionError> {
        let key = self.session.key("mark");
        let new = self.inner.context.runtime.random_id().to_string();
        let arguments = [new.as_bytes(), MARK_TTL_MS.as_bytes()];
        let reply = self.session.run(&EXAMINE, &[key], &arguments, WITHIN).await?;
        let texts: Vec<&str> = reply.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let [mark, policy] = texts[..] else { return Ok(()) };
        self.compare(mark);
        self.report_eviction(policy);
        Ok(())
    }

    fn compare(&mut self, mark: &str) {
        let now = self.inner.context.runtime.now();
        let warnings = &self.inner.context.counters.warnings;
        if self.mark.as_deref().is_some_and(|known| known != mark) {
            self.lost_at = Some(now);
            let causes = "a restart, FLUSHALL, a failover to an empty replica, or eviction";
            warnings
                .set(LOST, format!("Redis lost keys ({causes}), and the limits of those keys started full"));
        } else if self.lost_at.is_some_and(|lost_at| now.duration_since(lost_at) >= REPORTED_FOR) {
            self.lost_at = None;
            warnings.clear(LOST);
        }
        // An empty mark is a new one, which the next look reads.
        self.mark = (!mark.is_empty()).then(|| mark.to_owned());
    }

    fn report_eviction(&self, policy: &str) {
        let warnings = &self.inner.context.counters.warnings;
        if policy.is_empty() || SAFE_POLICIES.contains(&policy) {
            warnings.clear(EVICTS);
        } else {
            let better = "set maxmemory-policy to noeviction or volatile-ttl";
            warnings.set(
                EVICTS,
                format!("Redis may evict buckets before they are full (maxmemory-policy {policy}): {better}"),
            );
        }
    }
}

impl std::fmt::Debug for StoreExaminer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreExaminer").finish_non_exhaustive()
    }
}
