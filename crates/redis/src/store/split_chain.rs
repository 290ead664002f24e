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
use spile_core::{Amount, Bucket, MARKER_TIME, Micros, OneOrMany, Reply, SpendTime, StoreError, Verdict};
use tokio::sync::oneshot;

use crate::script::error_reply::{Rejection, may_have_run};
use crate::script::request::{Request, RequestDetails, ScriptOp, WireCharge};
use crate::store::StoreInner;
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
    details: RequestDetails,
}

impl ChainPart {
    /// A request with the parts of the details that this operation has.
    fn request(&self, operation: ScriptOp) -> Arc<Request> {
        self.request_with(operation, self.details.spent, |charge| charge.cost_micro)
    }

    /// A request for the same charges at these costs, which refunds them as spent then.
    fn request_with(
        &self,
        operation: ScriptOp,
        spent: SpendTime,
        cost_micro: impl Fn(&WireCharge) -> i64,
    ) -> Arc<Request> {
        let charge = |charge: &WireCharge| WireCharge { cost_micro: cost_micro(charge), ..charge.clone() };
        let RequestDetails { permit, marker, .. } = self.details.clone();
        let permit = permit.filter(|_| operation.is_about_permit());
        let marker = marker.filter(|_| operation.has_marker());
        let details = RequestDetails { permit, spent, marker };
        Arc::new(Request::new(operation, self.charges.iter().map(charge).collect()).with(details))
    }

    /// Cancels what was reserved of this part: every charge is settled at zero.
    fn cancelled(&self) -> Arc<Request> {
        let mut part =
            Self { charges: self.charges.clone(), details: self.details.clone(), positions: Vec::new() };
        part.details.marker.iter_mut().for_each(|marker| marker.settled.clear());
        part.request_with(ScriptOp::Settle, SpendTime::Unknown, |charge| -charge.cost_micro)
    }

    /// The operation as a part without its marker has it: that is in another part.
    fn unmarked(&self, operation: ScriptOp) -> ScriptOp {
        match operation {
            ScriptOp::Reserve if self.details.marker.is_none() => ScriptOp::Spend,
            ScriptOp::RefundOnce if self.details.marker.is_none() => ScriptOp::Refund,
            operation => operation,
        }
    }

    fn takes_permit(&self) -> bool {
        self.charges.iter().any(|charge| charge.limit.limit.is_concurrency())
    }

    /// Splits the part by key, in the order of the chain. The marker becomes a part without charges.
    fn by_key(self) -> Vec<Self> {
        let details = RequestDetails { marker: None, ..self.details.clone() };
        let empty = || Self { details: details.clone(), ..Self::default() };
        let mut by_key: BTreeMap<Vec<u8>, Self> = BTreeMap::new();
        for (position, charge) in self.positions.into_iter().zip(self.charges) {
            by_key.entry(charge.key.hash().to_vec()).or_insert_with(empty).push(position, charge);
        }
        let mut parts: Vec<Self> = by_key.into_values().collect();
        // A release asks parts with permits first.
        parts.sort_by_key(|part| (part.details.permit.is_some() && !part.takes_permit(), part.positions[0]));
        if self.details.marker.is_some() {
            parts.insert(0, Self { details: self.details, ..Self::default() });
        }
        parts
    }

    fn push(&mut self, position: usize, charge: WireCharge) {
        self.positions.push(position);
        self.charges.push(charge);
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
        let Request { operation, charges, details, .. } = request;
        let count = charges.len();
        let mut by_slot: BTreeMap<u16, ChainPart> = BTreeMap::new();
        for (position, charge) in charges.into_iter().enumerate() {
            let part = by_slot
                .entry(slot_of(charge.key.hash()))
                .or_insert_with(|| ChainPart { details: details.beside(&charge), ..ChainPart::default() });
            part.push(position, charge);
        }
        let mut parts: Vec<_> = by_slot.into_values().collect();
        // The marker of the first key decides about the others.
        parts.sort_by_key(|part| part.positions[0]);
        if operation == ScriptOp::Reserve {
            // It alone decides whether the time to settle is over, so the others can be settled for as long as it is remembered.
            let others = parts.iter_mut().skip(1).flat_map(|part| &mut part.details.marker);
            others.for_each(|marker| marker.amount += MARKER_TIME.as_micros() as i64);
        }
        Self { inner, operation, parts, charges: count, deadline }
    }

    pub(crate) async fn run(mut self) -> Result<Reply, StoreError> {
        if let [only] = &self.parts[..] {
            match self.inner.ask(&only.request(self.operation), self.deadline).await {
                Err(Rejection::Split) => self.split_by_key(0),
                answered => return Ok(answered?),
            }
        }
        match self.operation {
            ScriptOp::Spend | ScriptOp::Acquire | ScriptOp::Reserve => self.spend().await,
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

    async fn spend(&mut self) -> Result<Reply, StoreError> {
        let operation = self.operation;
        let mut pending = PendingRefunds::new(self);
        let mut replies = Vec::with_capacity(self.parts.len());
        while replies.len() < self.parts.len() {
            let at = replies.len();
            let asked = self.ask(at, |part| part.request(part.unmarked(operation))).await;
            let reply = pending.discard_if_may_have_run(asked)?;
            let (allowed, spent) = (reply.verdict == Verdict::Done, SpendTime::At(reply.at));
            replies.push(reply);
            if !allowed {
                return self.denied(pending, replies).await;
            }
            let part = &self.parts[at];
            // A release refunds nothing without a permit.
            let undone_by = if part.takes_permit() && operation == ScriptOp::Acquire {
                ScriptOp::Release
            } else {
                ScriptOp::Refund
            };
            pending.refunds.push(match part.unmarked(operation) {
                ScriptOp::Reserve => part.cancelled(),
                _ => part.request_with(undone_by, spent, |charge| charge.cost_micro),
            });
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
                self.ask(at, |part| part.request_with(ScriptOp::SpendUpTo, SpendTime::Unknown, |_| tokens))
                    .await,
            )?;
            tokens = tokens.min(reply.amount.micro());
            granted.push(reply.amount.micro());
            // If a slot began to move, its part was split by key.
            replies.truncate(at);
            replies.push(reply);
            pending.refunds = self.excess(&granted, &replies, 0);
        }
        pending.refunds = self.excess(&granted, &replies, tokens);
        let over: Vec<usize> = (0..granted.len()).filter(|&index| granted[index] > tokens).collect();
        for (index, refunded) in over.into_iter().zip(pending.refund_now().await) {
            if let Some(refunded) = refunded {
                replies[index] = refunded;
            }
        }
        Ok(self.merged(&replies, Verdict::done_if(tokens > 0), Amount::from_micro(tokens)))
    }

    /// Refunds each part with markers once. While the slot of a part moves, its marker is written before the refund: a failure in between
    /// loses the refund, but never gives it twice.
    async fn refund_once(&mut self) -> Result<Reply, StoreError> {
        let (mut replies, mut is_given, mut any_given) = (Vec::new(), false, false);
        while replies.len() < self.parts.len() {
            let (at, follows) = (replies.len(), is_given);
            let operation = move |part: &ChainPart| match part.unmarked(ScriptOp::RefundOnce) {
                ScriptOp::Refund if !follows => ScriptOp::Peek,
                operation => operation,
            };
            let reply = self.ask(at, |part| part.request(operation(part))).await;
            let reply = reply.map_err(|why| failed_after(&replies, ScriptOp::RefundOnce, why))?;
            if self.parts[at].details.marker.is_some() {
                is_given = reply.verdict == Verdict::Done;
                any_given |= is_given;
            }
            replies.push(reply);
        }
        Ok(self.merged(&replies, if any_given { Verdict::Done } else { Verdict::Before }, Amount::ZERO))
    }

    /// Settles each part with markers once, at the amounts by which the first part is or was settled. While the slot of a part moves, its
    /// marker is written first: a failure after that leaves its charges as they were reserved, but never settles them twice.
    async fn settle(&mut self) -> Result<Reply, StoreError> {
        let (mut replies, mut uncovered): (Vec<Reply>, _) = (Vec::new(), Amount::ZERO);
        // The verdict of the marker of the first part, and of the part that the next one belongs to.
        let (mut first, mut own) = (None, Verdict::Unknown);
        while replies.len() < self.parts.len() {
            let at = replies.len();
            let reply = if self.parts[at].details.marker.is_some() {
                let reply = self.ask(at, |part| part.request(ScriptOp::Settle)).await;
                let reply = reply.map_err(|why| failed_after(&replies, ScriptOp::Settle, why))?;
                own = reply.verdict;
                if first.is_none() {
                    first = Some((reply.verdict, reply.settled.clone()));
                    self.decide_amounts(&reply.settled);
                }
                reply
            } else if own == Verdict::Done {
                // The time of the reservation is not known here, so that quotas take nothing back.
                let back = |charge: &WireCharge| (-charge.cost_micro).max(0);
                self.ask(at, |part| part.request_with(ScriptOp::Refund, SpendTime::Unknown, back)).await?;
                let more = |charge: &WireCharge| charge.cost_micro.max(0);
                self.ask(at, |part| part.request_with(ScriptOp::Charge, SpendTime::Unknown, more)).await?
            } else {
                self.ask(at, |part| part.request_with(ScriptOp::Peek, SpendTime::Unknown, |_| 0)).await?
            };
            uncovered = uncovered.max(reply.amount);
            let ends = matches!(first, Some((Verdict::Unknown | Verdict::Expired, _)));
            replies.push(reply);
            if ends {
                // The other parts are looked at only.
                self.parts.iter_mut().for_each(|part| part.details.marker = None);
            }
        }
        let (verdict, settled) = first.unwrap_or((Verdict::Unknown, Box::default()));
        Ok(Reply { settled, ..self.merged(&replies, verdict, uncovered) })
    }

    /// Has all parts settled at these amounts, by which the first was settled.
    fn decide_amounts(&mut self, settled: &[Amount]) {
        for part in &mut self.parts {
            let Some(marker) = &mut part.details.marker else { continue };
            for (&position, charge) in part.positions.iter().zip(part.charges.iter_mut()) {
                if let (Some(amount), Some(asked)) = (settled.get(position), marker.settled.get(position)) {
                    charge.cost_micro += amount.micro() - asked;
                }
            }
            for (asked, amount) in marker.settled.iter_mut().zip(settled) {
                *asked = amount.micro();
            }
        }
    }

    /// The refunds after which each part has granted `tokens`.
    fn excess(&self, granted: &[i64], replies: &[Reply], tokens: i64) -> Vec<Arc<Request>> {
        let parts =
            self.parts.iter().zip(granted).zip(replies).filter(|((_, granted), _)| **granted > tokens);
        parts
            .map(|((part, granted), reply)| {
                part.request_with(ScriptOp::Refund, SpendTime::At(reply.at), |_| granted - tokens)
            })
            .collect()
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
                Err(Rejection::Split) if asked.has_several_keys() => self.split_by_key(at),
                answered => return Ok(answered?),
            }
        }
    }

    /// Splits a part by key.
    fn split_by_key(&mut self, at: usize) {
        let part = std::mem::take(&mut self.parts[at]);
        self.parts.splice(at..=at, part.by_key());
    }

    /// Merges the replies, with the buckets in the order of the chain. The time is the earliest of all, so that a refund of it returns
    /// nothing to a later window. Each bucket is moved by what its node's clock is ahead of that, so that it has the same available
    /// amount and the same wait as by its own clock.
    fn merged(&self, replies: &[Reply], verdict: Verdict, amount: Amount) -> Reply {
        let at = replies.iter().map(|reply| reply.at).min().unwrap_or_default();
        let mut buckets: OneOrMany<Bucket> = OneOrMany::new();
        if self.operation != ScriptOp::Reset {
            let none = Bucket::new(Amount::ZERO, Micros::default());
            buckets = std::iter::repeat_n(none, self.charges).collect();
            for (part, reply) in self.parts.iter().zip(replies) {
                let ahead_us = reply.at.since_us(at);
                for (position, bucket) in part.positions.iter().zip(reply.buckets.iter()) {
                    let moment = bucket.moment().get().saturating_sub(ahead_us);
                    buckets[*position] = Bucket::new(bucket.amount(), Micros::new(moment));
                }
            }
        }
        Reply { amount, ..Reply::new(verdict, at, buckets) }
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
) -> Option<oneshot::Receiver<Result<Reply, Rejection>>> {
    let (inner, spawner) = (Arc::clone(inner), inner.runtime.spawner()?);
    let (answer, answered) = oneshot::channel();
    spawner.spawn(async move {
        let deadline = inner.deadline();
        let reply = inner.ask(&request, deadline).await;
        let failed = reply.as_ref().err().map(Rejection::may_have_run);
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
        let request = Request::new(ScriptOp::Release, charges.clone()).with(failed.details.clone());
        let deadline = inner.deadline();
        match SplitChain::new(Arc::clone(&inner), request, deadline).run().await {
            Ok(_) => return,
            Err(why) => may_have_run = why.may_have_run(),
        }
    }
}
