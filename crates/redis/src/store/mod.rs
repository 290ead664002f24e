//! The store: operations in, replies out. One deadline bounds everything in between.

pub(crate) mod builder;
pub(crate) mod context;
pub(crate) mod examiner;
mod inspection;
mod split_chain;
pub(crate) mod stats;
pub(crate) mod time_source;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spile_core::{Answer, Charges, Micros, Operation, Reply, Store, StoreError};
use spile_runtime::Elapsed;
use tokio::sync::oneshot;

use crate::connection::login::{CredentialsError, Logins};
use crate::node::Node;
use crate::script::error_reply::{Rejection, may_have_run, not_run};
use crate::script::request::{PendingRequest, Request};
use crate::session::Session;
use crate::store::builder::RedisStoreBuilder;
use crate::store::context::StoreContext;
use crate::store::split_chain::SplitChain;
use crate::store::stats::{Counter, Stats};
use crate::store::time_source::TimeSource;
use crate::topology::{NodeAttempt, Router};

/// How long a caller waits past its deadline for a reply that may have arrived already.
const GRACE: Duration = Duration::from_millis(2);

/// Buckets in Redis. Clones and sessions share a store, whose connections close when the last of them is dropped.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<StoreInner>,
}

impl RedisStore {
    /// A builder for a store at `url`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), spile_redis::RedisBuildError> {
    /// # use spile_redis as spile;
    /// use spile::RedisStore;
    ///
    /// let store = RedisStore::builder("redis://127.0.0.1:6379").prefix("shop").build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// Counters and the current state.
    pub fn stats(&self) -> Stats {
        let counters = &self.inner.context.counters;
        let mut stats = Stats {
            answered: counters.answered.count(),
            calls: counters.calls.count(),
            repairs: counters.repairs.count(),
            expired_permits: counters.expired_permits.count(),
            dials: counters.dials.count(),
            connections_lost: counters.connections_lost.count(),
            waiting: self.inner.waiting.load(Ordering::Relaxed) as u64,
            error_replies: counters.error_replies.each_ref().map(Counter::count),
            ..Stats::default()
        };
        self.inner.router.for_each_node(|_, node| {
            stats.nodes += 1;
            stats.breakers_open += u64::from(node.breaker.is_open());
            stats.connections += node.connections() as u64;
        });
        stats
    }

    /// Why Redis cannot be reached or refuses to write, for logs and health pages. `None` if all is well.
    pub fn trouble(&self) -> Option<String> {
        self.inner.router.trouble()
    }

    /// How many requests each node of a cluster did not answer in time, since it was first used. Empty outside a cluster.
    pub fn late_by_node(&self) -> Vec<(String, u64)> {
        let mut late = Vec::new();
        self.inner.router.for_each_node(|member, node| {
            late.extend(member.map(|endpoint| (endpoint.to_string(), node.late.count())));
        });
        late
    }

    /// Problems that do not stop decisions but need attention, such as a sentinel that cannot be subscribed to. `None`
    /// without problems.
    pub fn warning(&self) -> Option<String> {
        self.inner.context.counters.warnings.summary()
    }

    /// Uses the users and passwords of `url` for new connections, and authenticates open connections again; no decision
    /// is lost. While Redis rejects them, open connections stay as they are and [`warning`](Self::warning) says so.
    /// Fails if the URL differs in anything else.
    pub fn renew_credentials(&self, url: &str) -> Result<(), CredentialsError> {
        self.inner.logins.renew(url)
    }

    /// A session: keys beside the buckets, for other data that instances share, and a separate connection. All keys
    /// of one session are in one slot. `name` consists of letters, digits and dashes; sessions of the same name use the
    /// same keys.
    pub fn session(&self, name: &str) -> Session {
        Session::new(self.inner.context.prefix.key_space(name), &self.inner)
    }

    pub(crate) fn new(inner: StoreInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Runs one operation. A chain whose keys are in several cluster slots is split by [`SplitChain`].
    async fn run(&self, operation: Operation<'_>, charges: &Charges<'_>) -> Result<Reply, StoreError> {
        let _admission = self.inner.admit(charges.len())?;
        let deadline = self.inner.deadline();
        let mut request = Request::encode(&self.inner.context.prefix, &operation, charges);
        if request.has_quotas() {
            request = request.at_time(self.inner.believed_time());
        }
        if self.inner.router.is_cluster() && request.has_several_keys() {
            // Rare and large: boxed, so that the future of every other call is small.
            return Box::pin(SplitChain::new(self.inner.clone(), request, deadline).run()).await;
        }
        Ok(self.inner.ask(&Arc::new(request), deadline).await?)
    }
}

impl Store for RedisStore {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        // Boxed when it is polled: the layers around a store each move its future, and some drop it unpolled.
        Answer::Later(async move { Box::pin(self.run(operation, charges)).await })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.inner.context.timeout)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// State that all clones of a store share.
pub(crate) struct StoreInner {
    pub(crate) context: Arc<StoreContext>,
    pub(crate) router: Router,
    pub(crate) logins: Logins,
    /// How far the clock of Redis is ahead of this machine's.
    pub(crate) ahead_us: AtomicI64,
    pub(crate) waiting: AtomicUsize,
}

impl StoreInner {
    pub(crate) fn deadline(&self) -> Instant {
        self.context.runtime.now() + self.context.timeout
    }

    /// The expected time of the next script, by the last answer about a quota.
    fn believed_time(&self) -> Micros {
        if let TimeSource::Client(clock) = &self.context.time {
            return clock.now();
        }
        let ahead_us = self.ahead_us.load(Ordering::Relaxed);
        Micros::new(self.wall_us().saturating_add_signed(ahead_us))
    }

    fn wall_us(&self) -> u64 {
        self.context.runtime.wall_time().as_micros() as u64
    }

    /// Sends a request until Redis answers it or it fails. If its quotas were asked with windows around another time than that
    /// of Redis, nothing was done, and it is sent once more with the right ones.
    pub(crate) async fn ask(&self, request: &Arc<Request>, deadline: Instant) -> Result<Reply, Rejection> {
        match self.ask_once(request, deadline).await {
            Err(Rejection::OutsideWindows { now }) => {
                let ahead_us = now.get().cast_signed() - self.wall_us().cast_signed();
                self.ahead_us.store(ahead_us, Ordering::Relaxed);
                self.ask_once(&Arc::new(request.at_time(now)), deadline).await
            }
            answered => answered,
        }
    }

    /// Sends a request until Redis answers it or it fails. It is never sent again once it may have run.
    async fn ask_once(&self, request: &Arc<Request>, deadline: Instant) -> Result<Reply, Rejection> {
        let slot = request.slot();
        let mut attempt = NodeAttempt::default();
        loop {
            let node = self.router.node(slot, &attempt, deadline).await?;
            let (answer, answered) = oneshot::channel();
            let waiting = PendingRequest {
                request: Arc::clone(request),
                group: attempt.group,
                answer,
                deadline: Some(deadline),
            };
            node.submit(waiting).inspect_err(|_| self.router.request_refresh())?;
            let refusal = match self.answer_in_time(answered, deadline).await {
                Ok(Ok(Ok(reply))) => return Ok(reply),
                Ok(Ok(Err(refusal))) => refusal,
                // A lane drops requests whose time is up, and on its end all that it has sent.
                Ok(Err(_)) | Err(_) if request.cancel() => return Err(self.unsent(&node).into()),
                Ok(Err(_)) => return Err(may_have_run("connection given up").into()),
                Err(_) => {
                    self.router.request_refresh();
                    return Err(StoreError::TimedOut(self.context.timeout).into());
                }
            };
            request.mark_unsent();
            let next = self.router.next_attempt(refusal, attempt, &self.context.runtime);
            attempt = match self.context.runtime.timeout_at(deadline, next).await {
                Ok(attempt) => attempt?,
                Err(_) => return Err(StoreError::TimedOut(self.context.timeout).into()),
            };
        }
    }

    /// Waits for an answer until the deadline, and then [`GRACE`] more: after the process was suspended, its timers fire
    /// before it reads the replies that arrived meanwhile.
    async fn answer_in_time<T>(
        &self,
        mut answered: oneshot::Receiver<T>,
        deadline: Instant,
    ) -> Result<Result<T, oneshot::error::RecvError>, Elapsed> {
        match self.context.runtime.timeout_at(deadline, &mut answered).await {
            Err(Elapsed) => self.context.runtime.timeout(GRACE, answered).await,
            answer => answer,
        }
    }

    /// Why a request was not sent in time: there is no connection, or the queue was too long.
    fn unsent(&self, node: &Node) -> StoreError {
        if node.connections() > 0 {
            return StoreError::Overloaded(self.waiting.load(Ordering::Relaxed));
        }
        node.failed(1);
        self.router.request_refresh();
        not_run(format!("no connection within {:?}", self.context.timeout))
    }

    /// Counts the charges as waiting, if they fit the bound. A chain always fits while nothing else waits.
    fn admit(&self, charges: usize) -> Result<StorePermit<'_>, StoreError> {
        let admission = StorePermit { waiting: &self.waiting, charges };
        let before = self.waiting.fetch_add(charges, Ordering::AcqRel);
        let fits = before == 0 || before + charges <= self.context.max_waiting;
        if fits { Ok(admission) } else { Err(StoreError::Overloaded(before)) }
    }
}

/// Waiting charges of one caller. Dropping it releases them, also if the caller was cancelled.
struct StorePermit<'a> {
    waiting: &'a AtomicUsize,
    charges: usize,
}

impl Drop for StorePermit<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.charges, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use spile_calendar::CalendarLimit;
    use spile_core::{Charge, Cost, Key, Limit, LimitName, NamedLimit, StoreExt};
    use spile_testkit::redis::RedisServer;

    use super::*;

    /// A store that takes Redis's clock to be so far ahead of this machine's.
    fn mistaken(server: &RedisServer, ahead: i64) -> RedisStore {
        let store = RedisStore::builder(server.url()).timeout(Duration::from_secs(5)).build().unwrap();
        store.inner.ahead_us.store(ahead, Ordering::Relaxed);
        store
    }

    #[tokio::test]
    async fn a_clock_that_is_years_off_lets_no_more_of_a_quota_pass_and_is_asked_only_once_more() {
        let server = RedisServer::start();
        let limit = Limit::quota(10).per_year().build().unwrap();
        let limit = NamedLimit::new(LimitName::new("year").unwrap(), limit);
        let charge = |cost| Charge::new(Key::new("ann").unwrap(), limit.clone(), Cost::new(cost).unwrap());
        let years = |count: i64| count * 365 * 86_400_000_000;
        let mut left = 10;
        for ahead in [0, years(5), years(-9), years(300)] {
            let store = mistaken(&server, ahead);
            let outcome = store.spend(&charge(2).unwrap().into()).await.unwrap();
            left -= 2;
            assert!(outcome.allowed, "{ahead}");
            assert_eq!(outcome.buckets[0].available(limit.limit(), outcome.at), left);
            let calls = store.stats().calls;
            assert_eq!(calls, if ahead == 0 { 1 } else { 2 }, "{ahead}");
            store.peek(&charge(1).unwrap().into()).await.unwrap();
            assert_eq!(store.stats().calls, calls + 1, "its time is known now");
        }
        let store = mistaken(&server, years(5));
        assert!(!store.spend(&charge(3).unwrap().into()).await.unwrap().allowed);
    }
}
