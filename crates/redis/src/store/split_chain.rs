//! A chain whose keys one script cannot reach: they are in several cluster slots, or in one slot that is moving.
//!
//! The chain is spent part by part. If a later part denies, or fails without having run, the earlier parts are
//! refunded. So the chain never admits too much. Until the refund arrives it may admit too little, and a lost refund
//! stays lost until the bucket refills. A release that fails is sent again a few times. After a failure that may have run
//! nothing is refunded, because the caller may be admitted by the failure policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use spile_core::{Amount, Bucket, Micros, OneOrMany, PermitId, Reply, StoreError, Verdict};
use tokio::sync::oneshot;

use crate::script::error_reply::may_have_run;
use crate::script::request::{Request, ScriptOp, WireCharge};
use crate::store::StoreInner;
use crate::topology::RequestError;
use crate::topology::slot::slot_of;

/// The pauses before a release that failed is sent again. A node that failed may have been replaced after the last.
const RELEASE_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)];

/// One chain, split by slot, and by key if a slot is moving.
pub(crate) struct SplitChain {
    inner: Arc<StoreInner>,
    operation: ScriptOp,
    parts: Vec<ChainPart>,
    charges: usize,
    deadline: Instant,
}

/// The charges of one slot, or of one key of a moving slot.
#[derive(Default)]
struct ChainPart {
    /// Their positions in the chain.
    positions: Vec<usize>,
    charges: SmallVec<[WireCharge; 1]>,
    /// The permit that the operation is about.
    permit: Option<PermitId>,
}

impl ChainPart {
    fn request(&self, operation: ScriptOp) -> Arc<Request> {
        let permit = self.permit.clone().filter(|_| operation.is_about_permit());
        Arc::new(Request::new(operation, self.charges.clone()).about(permit))
    }

    fn takes_permit(&self) -> bool {
        self.charges.iter().any(|charge| charge.limit.limit.is_concurrency())
    }

    /// A request for the same charges at this cost each.
    fn request_at(&self, operation: ScriptOp, cost_micro: i64) -> Arc<Request> {
        let request_at = |charge: &WireCharge| WireCharge { cost_micro, ..charge.clone() };
        Arc::new(Request::new(operation, self.charges.iter().map(request_at).collect()))
    }

    /// Splits the part by key, in the order of the chain.
    fn by_key(self) -> Vec<Self> {
        let empty = || Self { permit: self.permit.clone(), ..Self::default() };
        let mut by_key: BTreeMap<Vec<u8>, Self> = BTreeMap::new();
        for (position, charge) in self.positions.into_iter().zip(self.charges) {
            by_key.entry(charge.key.hash().to_vec()).or_insert_with(empty).push(position, charge);
        }
        let mut parts: Vec<Self> = by_key.into_values().collect();
        // A release asks parts with permits first.
        parts.sort_by_key(|part| (part.permit.is_some() && !part.takes_permit(), part.positions[0]));
        parts
    }

    fn push(&mut self, position: usize, charge: WireCharge) {
        self.positions.push(position);
        self.charges.push(charge);
    }

    /// The same charges at other costs, none below zero, by their positions in the chain.
    fn priced(&self, cost_micro: impl Fn(usize, &WireCharge) -> i64) -> Self {
        let charge = |(&position, charge): (&usize, &WireCharge)| WireCharge {
            cost_micro: cost_micro(position, charge).max(0),
            ..charge.clone()
        };
        let charges = self.positions.iter().zip(&self.charges).map(charge).collect();
        Self { positions: self.positions.clone(), charges, permit: None }
    }

    fn has_cost(&self) -> bool {
        self.charges.iter().any(|charge| charge.cost_micro > 0)
    }

    /// The reply for a part that could not be read: its buckets are shown as full.
    fn assumed_full(&self, at: Micros) -> Reply {
        let buckets = self.charges.iter().map(|charge| Bucket::full(&charge.limit.limit, at)).collect();
        Reply::new(Verdict::Denied, at, buckets)
    }

    /// The most micro-tokens that all buckets of the part have, up to the cost.
    fn most(&self, reply: &Reply) -> i64 {
        let each = self.charges.iter().zip(&reply.buckets).map(|(charge, bucket)| {
            let available = bucket.available(&charge.limit.limit, reply.at).micro();
            available.clamp(0, charge.cost_micro)
        });
        each.min().unwrap_or(0)
    }
}

impl SplitChain {
    pub(crate) fn new(inner: Arc<StoreInner>, request: Request, deadline: Instant) -> Self {
        let Request { operation, charges, permit, .. } = request;
        let empty = || ChainPart { permit: permit.clone(), ..ChainPart::default() };
        let count = charges.len();
        let mut by_slot: BTreeMap<u16, ChainPart> = BTreeMap::new();
        for (position, charge) in charges.into_iter().enumerate() {
            by_slot.entry(slot_of(charge.key.hash())).or_insert_with(empty).push(position, charge);
        }
        Self { inner, operation, parts: by_slot.into_values().collect(), charges: count, deadline }
    }

    pub(crate) async fn run(mut self) -> Result<Reply, StoreError> {
        if let [only] = &self.parts[..] {
            match self.inner.ask(&only.request(self.operation), self.deadline).await {
                Err(RequestError::Split) => self.split_by_key(0),
                answered => return Ok(answered?),
            }
        }
        match self.operation {
            ScriptOp::Spend => self.spend(ScriptOp::Spend, ScriptOp::Refund).await,
            ScriptOp::Acquire => self.spend(ScriptOp::Acquire, ScriptOp::Release).await,
            ScriptOp::Release => self.release().await,
            ScriptOp::SpendUpTo => self.spend_up_to().await,
            ScriptOp::RefundOnce => self.refund_once().await,
            ScriptOp::Settle => self.settle().await,
            ScriptOp::Charge => {
                let replies = self.each(ScriptOp::Charge).await?;
                let uncovered = replies.iter().map(|reply| reply.amount).max();
                Ok(self.merged(&replies, Verdict::Done, uncovered.unwrap_or_default()))
            }
            ScriptOp::Peek | ScriptOp::Refund | ScriptOp::Reset | ScriptOp::Retake | ScriptOp::Renew => {
                self.each(self.operation).await.map(|replies| {
                    let done = replies.iter().all(|reply| reply.verdict == Verdict::Done);
                    self.merged(&replies, Verdict::done_if(done), Amount::ZERO)
                })
            }
        }
    }

    /// Runs an operation on each part, independently of the others. If one fails, it stays done on those before it.
    async fn each(&mut self, operation: ScriptOp) -> Result<Vec<Reply>, StoreError> {
        let mut replies = Vec::with_capacity(self.parts.len());
        while replies.len() < self.parts.len() {
            let reply = self.ask(replies.len(), |part| part.request(operation)).await;
            replies.push(reply.map_err(|why| failed_after(&replies, operation, why))?);
        }
        Ok(replies)
    }

    /// Ends a permit part by part. A part that takes none is refunded if the permit was held: parts with permits are asked first.
    async fn release(&mut self) -> Result<Reply, StoreError> {
        self.parts.sort_by_key(|part| !part.takes_permit());
        let (mut replies, mut released) = (Vec::with_capacity(self.parts.len()), Verdict::Denied);
        while replies.len() < self.parts.len() {
            let at = replies.len();
            let rest = if released == Verdict::Done { ScriptOp::Refund } else { ScriptOp::Peek };
            let operation = |part: &ChainPart| if part.takes_permit() { ScriptOp::Release } else { rest };
            let reply = self.ask(at, |part| part.request(operation(part))).await;
            let reply = reply.map_err(|why| failed_after(&replies, ScriptOp::Release, why))?;
            if self.parts[at].takes_permit() && reply.verdict == Verdict::Done {
                released = Verdict::Done;
            }
            replies.push(reply);
        }
        Ok(self.merged(&replies, released, Amount::ZERO))
    }

    async fn spend(&mut self, operation: ScriptOp, undone_by: ScriptOp) -> Result<Reply, StoreError> {
        let mut pending = PendingRefunds::new(self);
        let mut replies = Vec::with_capacity(self.parts.len());
        while replies.len() < self.parts.len() {
            let at = replies.len();
            let reply =
                pending.discard_if_may_have_run(self.ask(at, |part| part.request(operation)).await)?;
            let allowed = reply.verdict == Verdict::Done;
            replies.push(reply);
            if !allowed {
                return self.denied(pending, replies).await;
            }
            let part = &self.parts[at];
            // A release refunds nothing without a permit.
            let undone_by = if part.takes_permit() { undone_by } else { ScriptOp::Refund };
            pending.refunds.push(part.request(undone_by));
        }
        pending.discard();
        Ok(self.merged(&replies, Verdict::Done, Amount::ZERO))
    }

    /// Refunds the spent parts and peeks at the others, so that the denial shows every bucket.
    async fn denied(
        &mut self,
        pending: PendingRefunds,
        mut replies: Vec<Reply>,
    ) -> Result<Reply, StoreError> {
        for (reply, refunded) in replies.iter_mut().zip(pending.refund_now().await) {
            *reply = refunded.unwrap_or_else(|| reply.clone());
        }
        while replies.len() < self.parts.len() {
            // The decision is known, so a part that cannot be read is not an error.
            let seen = self.ask(replies.len(), |part| part.request(ScriptOp::Peek)).await;
            replies.push(seen.unwrap_or_else(|_| self.parts[replies.len()].assumed_full(replies[0].at)));
        }
        Ok(self.merged(&replies, Verdict::Denied, Amount::ZERO))
    }

    /// Peeks first, so that usually every part is asked for what all parts have.
    async fn spend_up_to(&mut self) -> Result<Reply, StoreError> {
        let mut replies = self.each(ScriptOp::Peek).await?;
        let most = self.parts.iter().zip(&replies).map(|(part, reply)| part.most(reply)).min();
        // A grant is a multiple of every quantum: a part that does not know the others' would grant more than they can.
        let limits = self.parts.iter().flat_map(|part| &part.charges).map(|charge| charge.limit.limit);
        let quantum = limits.map(|limit| limit.quantum()).max().unwrap_or(Amount::TOKEN);
        let mut tokens = Amount::from_micro(most.unwrap_or(0)).floored_to(quantum).micro();
        if tokens == 0 {
            return Ok(self.merged(&replies, Verdict::Denied, Amount::ZERO));
        }
        let mut pending = PendingRefunds::new(self);
        let mut granted: Vec<i64> = Vec::with_capacity(self.parts.len());
        while granted.len() < self.parts.len() {
            let at = granted.len();
            let reply = pending.discard_if_may_have_run(
                self.ask(at, |part| part.request_at(ScriptOp::SpendUpTo, tokens)).await,
            )?;
            tokens = tokens.min(reply.amount.micro());
            granted.push(reply.amount.micro());
            // If a slot began to move, its part was split by key.
            replies.truncate(at);
            replies.push(reply);
            pending.refunds = self.excess(&granted, 0);
        }
        pending.refunds = self.excess(&granted, tokens);
        let over: Vec<usize> = (0..granted.len()).filter(|&index| granted[index] > tokens).collect();
        for (index, refunded) in over.into_iter().zip(pending.refund_now().await) {
            if let Some(refunded) = refunded {
                replies[index] = refunded;
            }
        }
        Ok(self.merged(&replies, Verdict::done_if(tokens > 0), Amount::from_micro(tokens)))
    }

    /// A refund with an id has the charges of one key, and so of one slot. While that slot moves, the marker is spent
    /// before the refund: a failure in between loses the refund, but never gives it twice.
    async fn refund_once(&mut self) -> Result<Reply, StoreError> {
        let mut replies = vec![self.ask(0, |marker| marker.request(ScriptOp::Spend)).await?];
        let is_new = replies[0].verdict == Verdict::Done;
        let rest = if is_new { ScriptOp::Refund } else { ScriptOp::Peek };
        while replies.len() < self.parts.len() {
            replies.push(self.ask(replies.len(), |part| part.request(rest)).await?);
        }
        Ok(self.merged(&replies, if is_new { Verdict::Done } else { Verdict::Before }, Amount::ZERO))
    }

    /// A reservation is settled for one key, and so in one slot. While that slot moves, the marker is removed first: a failure
    /// after that leaves the reservation charged as it was, but never settles it twice.
    async fn settle(&mut self) -> Result<Reply, StoreError> {
        let actual = self.parts[0].charges[0].cost_micro;
        let mut replies = vec![self.ask(0, |marker| marker.request(ScriptOp::Settle)).await?];
        let (mut uncovered, now, reserved_at) =
            (replies[0].amount, replies[0].at, replies[0].buckets[0].moment());
        // What each charge costs more in the end. The second one is the count of open reservations.
        let more_micro = |position: usize, charge: &WireCharge| match position {
            1 => -charge.cost_micro,
            _ => charge.settled_micro(actual, reserved_at, now),
        };
        while replies.len() < self.parts.len() {
            let at = replies.len();
            let part = &self.parts[at];
            let less = part.priced(|position, charge| -more_micro(position, charge));
            let more = part.priced(more_micro);
            let mut reply = None;
            for (operation, part) in [(ScriptOp::Refund, less), (ScriptOp::Charge, more)] {
                if replies[0].verdict == Verdict::Done && part.has_cost() {
                    let done = self.ask(at, |_| part.request(operation)).await?;
                    if operation == ScriptOp::Charge {
                        uncovered = uncovered.max(done.amount);
                    }
                    reply = Some(done);
                }
            }
            replies.push(match reply {
                Some(reply) => reply,
                None => self.ask(at, |part| part.request(ScriptOp::Peek)).await?,
            });
        }
        let verdict = replies[0].verdict;
        Ok(self.merged(&replies, verdict, uncovered))
    }

    /// The refunds after which each part has granted `tokens`.
    fn excess(&self, granted: &[i64], tokens: i64) -> Vec<Arc<Request>> {
        let over = self.parts.iter().zip(granted).filter(|(_, granted)| **granted > tokens);
        over.map(|(part, granted)| part.request_at(ScriptOp::Refund, granted - tokens)).collect()
    }

    /// Sends the request of one part. If its keys are on two nodes, the part is split by key, and the first of them is
    /// sent.
    async fn ask(
        &mut self,
        at: usize,
        request: impl Fn(&ChainPart) -> Arc<Request>,
    ) -> Result<Reply, StoreError> {
        loop {
            // The next node must not count as failed because an earlier one took all the time.
            if self.inner.runtime.now() >= self.deadline {
                return Err(StoreError::TimedOut(self.inner.timeout));
            }
            let asked = request(&self.parts[at]);
            match self.inner.ask(&asked, self.deadline).await {
                Err(RequestError::Split) if asked.has_several_keys() => self.split_by_key(at),
                answered => return Ok(answered?),
            }
        }
    }

    /// Makes each key of a part a part of its own.
    fn split_by_key(&mut self, at: usize) {
        let part = std::mem::take(&mut self.parts[at]);
        self.parts.splice(at..=at, part.by_key());
    }

    /// Merges the replies, with the buckets in the order of the chain. The time is the latest of all. Each bucket is
    /// shown as its own node saw it: another node's clock must not refill it.
    fn merged(&self, replies: &[Reply], verdict: Verdict, amount: Amount) -> Reply {
        let at = replies.iter().map(|reply| reply.at).max().unwrap_or_default();
        let mut buckets: OneOrMany<Bucket> = OneOrMany::new();
        if self.operation != ScriptOp::Reset {
            let none = Bucket::new(Amount::ZERO, Micros::default());
            buckets = std::iter::repeat_n(none, self.charges).collect();
            for (part, reply) in self.parts.iter().zip(replies) {
                for (index, bucket) in reply.buckets.iter().enumerate() {
                    let limit = &part.charges[index].limit.limit;
                    buckets[part.positions[index]] =
                        Bucket::holding(limit, bucket.available(limit, reply.at), at);
                }
            }
        }
        Reply { verdict, amount, at, buckets }
    }
}

/// Why a chain failed, of which these parts have run before.
fn failed_after(replies: &[Reply], operation: ScriptOp, why: StoreError) -> StoreError {
    if operation == ScriptOp::Peek || replies.is_empty() || why.may_have_run() {
        why
    } else {
        may_have_run(why.to_string())
    }
}

/// Refunds for the parts that were spent so far. They are sent when this is dropped, also if the caller is cancelled.
struct PendingRefunds {
    inner: Arc<StoreInner>,
    deadline: Instant,
    refunds: Vec<Arc<Request>>,
}

impl PendingRefunds {
    fn new(chain: &SplitChain) -> Self {
        Self { inner: Arc::clone(&chain.inner), deadline: chain.deadline, refunds: Vec::new() }
    }

    fn discard(&mut self) {
        self.refunds.clear();
    }

    /// After a failure that may have run nothing is refunded.
    fn discard_if_may_have_run(&mut self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        if reply.as_ref().is_err_and(StoreError::may_have_run) {
            self.discard();
        }
        reply
    }

    /// Sends the refunds and waits for the replies until the deadline. One entry per refund, in order.
    async fn refund_now(mut self) -> Vec<Option<Reply>> {
        let tasks: Vec<_> = self.refunds.drain(..).map(|request| spawn_ask(&self.inner, request)).collect();
        let mut replies = Vec::with_capacity(tasks.len());
        for task in tasks.into_iter().flatten() {
            let reply = self.inner.runtime.timeout_at(self.deadline, task).await.ok().and_then(Result::ok);
            replies.push(reply.and_then(Result::ok));
        }
        replies
    }
}

impl Drop for PendingRefunds {
    fn drop(&mut self) {
        for request in self.refunds.drain(..) {
            spawn_ask(&self.inner, request);
        }
    }
}

/// Sends a request in its own task with its own deadline, so that it completes if the caller is cancelled.
fn spawn_ask(
    inner: &Arc<StoreInner>,
    request: Arc<Request>,
) -> Option<oneshot::Receiver<Result<Reply, RequestError>>> {
    let (inner, spawner) = (Arc::clone(inner), inner.runtime.spawner()?);
    let (answer, answered) = oneshot::channel();
    spawner.spawn(async move {
        let deadline = inner.deadline();
        let reply = inner.ask(&request, deadline).await;
        let failed = reply.as_ref().err().map(RequestError::may_have_run);
        let _heard = answer.send(reply);
        if let Some(may_have_run) = failed.filter(|_| request.operation == ScriptOp::Release) {
            release_again(inner, request, may_have_run).await;
        }
    });
    Some(answered)
}

/// Sends a release again that has failed: otherwise its place would be taken for the whole hold time. Tokens are given back only if
/// they cannot have been given back before.
async fn release_again(inner: Arc<StoreInner>, failed: Arc<Request>, mut may_have_run: bool) {
    let mut charges = failed.charges.clone();
    for pause in RELEASE_PAUSES {
        if may_have_run {
            charges.retain(|charge| charge.limit.limit.is_concurrency());
        }
        if charges.is_empty() {
            return;
        }
        inner.runtime.sleep(pause).await;
        let request = Request::new(ScriptOp::Release, charges.clone()).about(failed.permit.clone());
        let deadline = inner.deadline();
        match SplitChain::new(Arc::clone(&inner), request, deadline).run().await {
            Ok(_) => return,
            Err(why) => may_have_run = why.may_have_run(),
        }
    }
}
