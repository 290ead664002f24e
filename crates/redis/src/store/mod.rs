//! The store: charges in, outcomes out. Everything between is bounded by one deadline.

pub(crate) mod builder;
mod refund_once;
mod split_chain;
pub(crate) mod stats;
pub(crate) mod time_source;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use spile_core::{Bucket, Charges, Outcome, PartialOutcome, RefundId, RefundOutcome, Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::login::{CredentialsError, Logins};
use crate::node::Node;
use crate::script::error_reply::{may_have_run, not_run};
use crate::script::key::KeyPrefix;
use crate::script::request::{PendingRequest, Request, ScriptOp, ScriptReply, WireCharge};
use crate::session::{Session, SessionFactory};
use crate::store::builder::RedisStoreBuilder;
use crate::store::split_chain::SplitChain;
use crate::store::stats::{Counter, Counters, NodeStats, Stats};
use crate::topology::{Attempt, RequestError, Router};

/// How much longer than its deadline a caller waits for an answer that may have come.
const GRACE: Duration = Duration::from_millis(2);

/// Buckets in Redis. Clones share the connections, which close when the last clone is dropped.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<StoreInner>,
}

impl RedisStore {
    /// A store at `url`, to be set up and built.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), spile_redis::RedisBuildError> {
    /// use spile_redis::RedisStore;
    ///
    /// let store = RedisStore::builder("redis://127.0.0.1:6379").prefix("shop").build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// What it has counted, and how it stands.
    pub fn stats(&self) -> Stats {
        let counters = &self.inner.counters;
        let NodeStats { nodes, breakers_open, connections } = self.inner.router.node_stats();
        Stats {
            answered: counters.answered.count(),
            calls: counters.calls.count(),
            repairs: counters.repairs.count(),
            dials: counters.dials.count(),
            connections_lost: counters.connections_lost.count(),
            waiting: self.inner.waiting.load(Ordering::Relaxed) as u64,
            breakers_open,
            nodes,
            connections,
            error_replies: counters.error_replies.each_ref().map(Counter::count),
        }
    }

    /// How long Redis keeps the bucket of each charge: nothing where there is none.
    pub async fn times_to_live(&self, charges: &Charges<'_>) -> Result<Vec<Option<Duration>>, StoreError> {
        let reply = self.step(ScriptOp::TimeToLive, charges).await?;
        // What a bucket holds is, to this question, two milliseconds more than is left of its time. One that somebody
        // else made and that never expires has one.
        let left = |bucket: &Bucket| match bucket.held().get() {
            0 => None,
            1 => Some(Duration::MAX),
            ms => Some(Duration::from_millis(ms - 2)),
        };
        Ok(reply.buckets.iter().map(left).collect())
    }

    /// What keeps it from reaching Redis, or Redis from writing, while something does: for logs and health pages.
    pub fn trouble(&self) -> Option<String> {
        self.inner.router.trouble()
    }

    /// What does not keep it from answering and should be looked into all the same: a sentinel that cannot be listened to.
    pub fn warning(&self) -> Option<String> {
        self.inner.counters.warnings.summary()
    }

    /// Takes the users and passwords of `url` for every connection from now on, and logs those that stand in anew; no
    /// decision is lost by it. Until Redis takes them, connections go on as they are, and [`warning`](Self::warning)
    /// says so. Refused where the URL differs in anything else.
    pub fn renew_credentials(&self, url: &str) -> Result<(), CredentialsError> {
        self.inner.logins.renew(url)
    }

    /// The pattern of every Redis key that it writes, as an ACL takes it after `~`.
    pub fn key_pattern(&self) -> String {
        self.inner.prefix.pattern()
    }

    /// Keys beside the buckets, for what else instances must agree on, and a connection of its own to them. All keys
    /// of one session share a slot. `name` is a word of letters, digits and dashes, and names the same keys everywhere.
    pub fn session(&self, name: &str) -> Session {
        Session::new(self.inner.prefix.key_space(name), &self.inner.sessions)
    }

    pub(crate) fn new(inner: StoreInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// One step. Chains whose keys are in several slots of a cluster are taken apart by [`SplitChain`].
    pub(crate) async fn step(
        &self,
        operation: ScriptOp,
        charges: &Charges<'_>,
    ) -> Result<ScriptReply, StoreError> {
        let _admission = self.inner.admit(charges.len())?;
        let deadline = self.inner.deadline();
        let wire: SmallVec<_> =
            charges.iter().map(|charge| WireCharge::new(&self.inner.prefix, charge)).collect();
        if self.inner.router.is_cluster() && charges.len() > 1 {
            return SplitChain::new(self.inner.clone(), operation, wire, deadline).run().await;
        }
        Ok(self.inner.ask(&Arc::new(Request::new(operation, wire)), deadline).await?)
    }
}

impl Store for RedisStore {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.step(ScriptOp::Spend, charges).await.map(outcome)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.step(ScriptOp::Peek, charges).await.map(outcome)
    }

    async fn spend_up_to(&self, charges: &Charges<'_>) -> Result<PartialOutcome, StoreError> {
        let reply = self.step(ScriptOp::SpendUpTo, charges).await?;
        Ok(PartialOutcome { tokens: reply.granted, outcome: outcome(reply) })
    }

    async fn refund(&self, charges: &Charges<'_>) -> Result<Outcome, StoreError> {
        self.step(ScriptOp::Refund, charges).await.map(outcome)
    }

    async fn refund_once(
        &self,
        charges: &Charges<'_>,
        id: RefundId<'_>,
    ) -> Result<RefundOutcome, StoreError> {
        if self.inner.router.is_cluster() {
            return self.refund_each_key_once(charges, id).await;
        }
        self.refund_marked(&id.mark(charges)).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.step(ScriptOp::Reset, charges).await.map(drop)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

pub(crate) fn outcome(reply: ScriptReply) -> Outcome {
    Outcome { allowed: reply.granted > 0, at: reply.at, buckets: reply.buckets }
}

/// What all clones of a store share.
pub(crate) struct StoreInner {
    pub(crate) router: Router,
    pub(crate) logins: Logins,
    pub(crate) sessions: SessionFactory,
    pub(crate) prefix: KeyPrefix,
    pub(crate) timeout: Duration,
    pub(crate) most_waiting: usize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) counters: Arc<Counters>,
}

impl StoreInner {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Asks until Redis has answered or said why not, but never again after it may have run.
    pub(crate) async fn ask(
        &self,
        request: &Arc<Request>,
        deadline: Instant,
    ) -> Result<ScriptReply, RequestError> {
        let slot = request.slot();
        let mut attempt = Attempt::default();
        loop {
            let node = self.router.node(slot, &attempt, deadline).await?;
            let (answer, answered) = oneshot::channel();
            let waiting = PendingRequest::new(Arc::clone(request), attempt.group, answer, Some(deadline));
            node.submit(waiting).inspect_err(|_| self.router.request_refresh())?;
            let refusal = match answer_in_time(answered, deadline).await {
                Ok(Ok(Ok(reply))) => return Ok(reply),
                Ok(Ok(Err(refusal))) => refusal,
                // A lane drops what it must not send any more, and what it has sent when it ends.
                Ok(Err(_)) | Err(_) if request.cancel() => return Err(self.unsent(&node).into()),
                Ok(Err(_)) => return Err(may_have_run("connection given up").into()),
                Err(_) => {
                    self.router.request_refresh();
                    return Err(StoreError::TimedOut(self.timeout).into());
                }
            };
            request.mark_unsent();
            attempt = match timeout_at(deadline, self.router.next_attempt(refusal, attempt)).await {
                Ok(attempt) => attempt?,
                Err(_) => return Err(StoreError::TimedOut(self.timeout).into()),
            };
        }
    }

    /// Why a request was not sent in its time: no connection stands, or too much was before it.
    fn unsent(&self, node: &Node) -> StoreError {
        if node.connections() > 0 {
            return StoreError::Overloaded(self.waiting.load(Ordering::Relaxed));
        }
        node.failed(1);
        self.router.request_refresh();
        not_run(format!("no connection within {:?}", self.timeout))
    }

    /// A place in the queue for so many charges. A chain always finds one while nothing else waits.
    fn admit(&self, charges: usize) -> Result<Admission<'_>, StoreError> {
        let admission = Admission { waiting: &self.waiting, charges };
        let before = self.waiting.fetch_add(charges, Ordering::AcqRel);
        let fits = before == 0 || before + charges <= self.most_waiting;
        if fits { Ok(admission) } else { Err(StoreError::Overloaded(before)) }
    }
}

/// Waits for an answer until the deadline, and then a moment more: a process that was not let run for a while finds that
/// its time is up before it finds the answers that came meanwhile.
async fn answer_in_time<T>(
    mut answered: oneshot::Receiver<T>,
    deadline: Instant,
) -> Result<Result<T, oneshot::error::RecvError>, tokio::time::error::Elapsed> {
    match timeout_at(deadline, &mut answered).await {
        Err(_) => timeout(GRACE, answered).await,
        answer => answer,
    }
}

/// A caller's place in the queue, given back when dropped: also by a caller who gives up.
struct Admission<'a> {
    waiting: &'a AtomicUsize,
    charges: usize,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.charges, Ordering::AcqRel);
    }
}
