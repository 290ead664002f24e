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
    /// Refunds for the parts that were spent so far, by their index. They are sent when the chain is dropped, also if the caller is
    /// cancelled.
    refunds: Vec<(usize, Arc<Request>)>,
}

/// The charges of one slot, or of one key of a moving slot.
#[derive(Default)]
struct ChainPart {
    /// Their positions in the chain.
    positions: Vec<usize>,
    charges: SmallVec<[WireCharge; 1]>,
    details: RequestDetails,
    /// The last reply. `None` until the part is asked.
    reply: Option<Reply>,
}

impl ChainPart {
    /// A request with the parts of the details that this operation has. A part without a marker has it in another part.
    fn request(&self, operation: ScriptOp) -> Arc<Request> {
        let operation = match operation {
            ScriptOp::Reserve if !self.has_marker() => ScriptOp::Spend,
            ScriptOp::RefundOnce if !self.has_marker() => ScriptOp::Refund,
            operation => operation,
        };
        self.request_with(operation, self.details.spent, |cost| cost)
    }

    /// A request for the same charges at other costs, which refunds them as spent then.
    fn request_with(&self, operation: ScriptOp, spent: SpendTime, cost: impl Fn(i64) -> i64) -> Arc<Request> {
        let charge =
            |charge: &WireCharge| WireCharge { cost_micro: cost(charge.cost_micro), ..charge.clone() };
        let RequestDetails { permit, marker, .. } = self.details.clone();
        let permit = permit.filter(|_| operation.is_about_permit());
        let marker = marker.filter(|_| operation.has_marker());
        let details = RequestDetails { permit, spent, marker };
        Arc::new(Request::new(operation, self.charges.iter().map(charge).collect()).with(details))
    }

    /// Takes back what the operation has spent at that time.
    fn undo(&self, operation: ScriptOp, spent: SpendTime) -> Arc<Request> {
        match operation {
            // Every charge is settled at zero.
            ScriptOp::Reserve if self.has_marker() => {
                self.request_with(ScriptOp::Settle, SpendTime::Unknown, |cost| -cost)
            }
            // A release refunds nothing without a permit.
            ScriptOp::Acquire if self.takes_permit() => {
                self.request_with(ScriptOp::Release, spent, |cost| cost)
            }
            _ => self.request_with(ScriptOp::Refund, spent, |cost| cost),
        }
    }

    fn has_marker(&self) -> bool {
        self.details.marker.is_some()
    }

    fn takes_permit(&self) -> bool {
        self.charges.iter().any(|charge| charge.limit.limit.is_concurrency())
    }

    fn is_done(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.verdict == Verdict::Done)
    }

    /// Splits the part by key, in the order of the chain. The marker becomes a part without charges.
    fn by_key(self) -> Vec<Self> {
        let details = RequestDetails { marker: None, ..self.details.clone() };
        let charges = self.positions.into_iter().zip(self.charges);
        let mut parts = grouped(charges, |charge| charge.key.hash().to_vec(), |_| details.clone());
        // A release asks parts with permits first.
        parts.sort_by_key(|part| (part.details.permit.is_some() && !part.takes_permit(), part.positions[0]));
        if self.details.marker.is_some() {
            parts.insert(0, Self { details: self.details, ..Self::default() });
        }
        parts
    }

    /// The reply for a part that could not be read: its buckets are shown as full.
    fn assumed_full(&self, at: Micros) -> Reply {
        let buckets = self.charges.iter().map(|charge| Bucket::full(&charge.limit.limit, at)).collect();
        Reply::new(Verdict::Denied, at, buckets)
    }

    /// The most micro-tokens that all buckets of the part have, up to the cost.
    fn most(&self) -> Option<i64> {
        let reply = self.reply.as_ref()?;
        let each = self.charges.iter().zip(&reply.buckets).map(|(charge, bucket)| {
            let available = bucket.available(&charge.limit.limit, reply.at).micro();
            available.clamp(0, charge.cost_micro)
        });
        each.min()
    }
}

impl SplitChain {
    pub(crate) fn new(inner: Arc<StoreInner>, request: Request, deadline: Instant) -> Self {
        let Request { operation, charges, details, .. } = request;
        let count = charges.len();
        let slot = |charge: &WireCharge| slot_of(charge.key.hash());
        let mut parts = grouped(charges.into_iter().enumerate(), slot, |charge| details.beside(charge));
        // The marker of the first key decides about the others.
        parts.sort_by_key(|part| part.positions[0]);
        if operation == ScriptOp::Reserve {
            // It alone decides whether the time to settle is over, so the others can be settled for as long as it is remembered.
            let others = parts.iter_mut().skip(1).flat_map(|part| &mut part.details.marker);
            others.for_each(|marker| marker.amount += MARKER_TIME.as_micros() as i64);
        }
        Self { inner, operation, parts, charges: count, deadline, refunds: Vec::new() }
    }

    pub(crate) async fn run(mut self) -> Result<Reply, StoreError> {
        if let [only] = &self.parts[..] {
            match self.inner.ask(&only.request(self.operation), self.deadline).await {
                Err(Rejection::Split) => self.split_by_key(0),
                answered => return Ok(answered?),
            }
        }
        let operation = self.operation;
        let verdict = match operation {
            ScriptOp::Spend | ScriptOp::Acquire | ScriptOp::Reserve => self.spend().await?,
            ScriptOp::Release => self.release().await?,
            ScriptOp::SpendUpTo => return self.spend_up_to().await,
            ScriptOp::RefundOnce => self.refund_once().await?,
            ScriptOp::Settle => self.settle().await?,
            ScriptOp::Charge
            | ScriptOp::Peek
            | ScriptOp::Refund
            | ScriptOp::Reset
            | ScriptOp::Retake
            | ScriptOp::Renew => {
                self.each(|_, _| operation).await?;
                Verdict::done_if(self.parts.iter().all(ChainPart::is_done))
            }
        };
        // Only late charges have an amount here: what they left uncovered.
        let amount = self.replies().map(|(_, reply)| reply.amount).max();
        Ok(self.merged(verdict, amount.unwrap_or_default()))
    }

    /// Runs an operation on each part without a reply, independently of the others. If one fails, it stays done on those before it.
    async fn each(
        &mut self,
        operation: impl Fn(&[ChainPart], &ChainPart) -> ScriptOp,
    ) -> Result<(), StoreError> {
        let mut has_changed = self.replies().next().is_some();
        while let Some(at) = self.next_part() {
            let operation = operation(&self.parts, &self.parts[at]);
            let reply = self.ask(at, operation).await.map_err(|why| {
                if has_changed && !why.may_have_run() { may_have_run(why.to_string()) } else { why }
            })?;
            has_changed |= operation != ScriptOp::Peek;
            self.parts[at].reply = Some(reply);
        }
        Ok(())
    }

    /// Ends a permit part by part. A part that takes none is refunded if the permit was held: parts with permits are asked first.
    async fn release(&mut self) -> Result<Verdict, StoreError> {
        let released = |parts: &[ChainPart]| parts.iter().any(|part| part.takes_permit() && part.is_done());
        self.parts.sort_by_key(|part| !part.takes_permit());
        self.each(|parts, part| match part.takes_permit() {
            true => ScriptOp::Release,
            false if released(parts) => ScriptOp::Refund,
            false => ScriptOp::Peek,
        })
        .await?;
        Ok(Verdict::done_if(released(&self.parts)))
    }

    async fn spend(&mut self) -> Result<Verdict, StoreError> {
        while let Some(at) = self.next_part() {
            let reply = self.spend_part(at).await?;
            let (allowed, spent) = (reply.verdict == Verdict::Done, SpendTime::At(reply.at));
            self.parts[at].reply = Some(reply);
            if !allowed {
                self.show_denial().await;
                return Ok(Verdict::Denied);
            }
            self.refunds.push((at, self.parts[at].undo(self.operation, spent)));
        }
        self.refunds.clear();
        Ok(Verdict::Done)
    }

    /// Spends from one part. After a failure that may have run nothing is refunded.
    async fn spend_part(&mut self, at: usize) -> Result<Reply, StoreError> {
        let reply = self.ask(at, self.operation).await;
        if reply.as_ref().is_err_and(StoreError::may_have_run) {
            self.refunds.clear();
        }
        reply
    }

    /// Refunds the spent parts and peeks at the others, so that the denial shows every bucket.
    async fn show_denial(&mut self) {
        self.refund_now().await;
        while let Some(at) = self.next_part() {
            // The decision is known, so a part that cannot be read is not an error.
            let seen = self.ask(at, ScriptOp::Peek).await;
            let first_at = self.replies().next().map(|(_, reply)| reply.at).unwrap_or_default();
            self.parts[at].reply = Some(seen.unwrap_or_else(|_| self.parts[at].assumed_full(first_at)));
        }
    }

    /// Peeks first, so that usually every part is asked for what all parts have.
    async fn spend_up_to(&mut self) -> Result<Reply, StoreError> {
        self.each(|_, _| ScriptOp::Peek).await?;
        // A grant is a multiple of every quantum: a part that does not know the others' would grant more than they can.
        let limits = self.parts.iter().flat_map(|part| &part.charges).map(|charge| charge.limit.limit);
        let quantum = limits.map(|limit| limit.quantum()).max().unwrap_or(Amount::TOKEN);
        let most = self.parts.iter().filter_map(ChainPart::most).min();
        let mut tokens = Amount::from_micro(most.unwrap_or(0)).floored_to(quantum).micro();
        if tokens == 0 {
            return Ok(self.merged(Verdict::Denied, Amount::ZERO));
        }
        let mut at = 0;
        // If a slot begins to move, its part is split by key.
        while at < self.parts.len() {
            for charge in self.parts.iter_mut().flat_map(|part| &mut part.charges) {
                charge.cost_micro = tokens;
            }
            let reply = self.spend_part(at).await?;
            tokens = tokens.min(reply.amount.micro());
            self.parts[at].reply = Some(reply);
            self.refunds = self.excess(0);
            at += 1;
        }
        self.refunds = self.excess(tokens);
        self.refund_now().await;
        Ok(self.merged(Verdict::done_if(tokens > 0), Amount::from_micro(tokens)))
    }

    /// Refunds each part with markers once. While the slot of a part moves, its marker is written before the refund: a failure in between
    /// loses the refund, but never gives it twice.
    async fn refund_once(&mut self) -> Result<Verdict, StoreError> {
        let operation = |parts: &[ChainPart], part: &ChainPart| {
            if part.has_marker() || follows_done(parts) { ScriptOp::RefundOnce } else { ScriptOp::Peek }
        };
        self.each(operation).await?;
        let is_given = self.parts.iter().any(|part| part.has_marker() && part.is_done());
        Ok(if is_given { Verdict::Done } else { Verdict::Before })
    }

    /// Settles each part with markers once, at the amounts by which the first part is or was settled. While the slot of a part moves, its
    /// marker is written first: a failure after that leaves its charges as they were reserved, but never settles them twice.
    async fn settle(&mut self) -> Result<Verdict, StoreError> {
        let first = self.ask(0, ScriptOp::Settle).await?;
        let verdict = first.verdict;
        self.decide_amounts(&first.settled);
        self.parts[0].reply = Some(first);
        // Without a reservation the other parts are looked at only.
        let is_known = !matches!(verdict, Verdict::Unknown | Verdict::Expired);
        self.each(|parts, part| {
            let settles = is_known && (part.has_marker() || follows_done(parts));
            if settles { ScriptOp::Settle } else { ScriptOp::Peek }
        })
        .await?;
        Ok(verdict)
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
    fn excess(&self, tokens: i64) -> Vec<(usize, Arc<Request>)> {
        let refund = |(index, part): (usize, &ChainPart)| {
            let reply = part.reply.as_ref()?;
            let excess = reply.amount.micro() - tokens;
            let request = || part.request_with(ScriptOp::Refund, SpendTime::At(reply.at), |_| excess);
            (excess > 0).then(|| (index, request()))
        };
        self.parts.iter().enumerate().filter_map(refund).collect()
    }

    /// Sends the operation of one part.
    async fn ask(&mut self, at: usize, operation: ScriptOp) -> Result<Reply, StoreError> {
        if (operation, self.operation) == (ScriptOp::Peek, ScriptOp::Settle) {
            // The costs of a settlement are differences, which are no costs to look at.
            return self.send(at, |part| part.request_with(operation, SpendTime::Unknown, |_| 0)).await;
        }
        if operation != ScriptOp::Settle || self.parts[at].has_marker() {
            return self.send(at, |part| part.request(operation)).await;
        }
        // The time of the reservation is not known here, so that quotas take nothing back.
        let back =
            |part: &ChainPart| part.request_with(ScriptOp::Refund, SpendTime::Unknown, |cost| (-cost).max(0));
        self.send(at, back).await?;
        self.send(at, |part| part.request_with(ScriptOp::Charge, SpendTime::Unknown, |cost| cost.max(0)))
            .await
    }

    /// Sends the request of one part. If its keys are on two nodes, the part is split by key, and the first of them is
    /// sent.
    async fn send(
        &mut self,
        at: usize,
        request: impl Fn(&ChainPart) -> Arc<Request>,
    ) -> Result<Reply, StoreError> {
        loop {
            // The next node must not count as failed because an earlier one took all the time.
            if self.inner.context.runtime.now() >= self.deadline {
                return Err(StoreError::TimedOut(self.inner.context.timeout));
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

    fn next_part(&self) -> Option<usize> {
        self.parts.iter().position(|part| part.reply.is_none())
    }

    fn replies(&self) -> impl Iterator<Item = (&ChainPart, &Reply)> {
        self.parts.iter().filter_map(|part| Some((part, part.reply.as_ref()?)))
    }

    /// Sends the refunds and waits until the deadline for how they leave the parts.
    async fn refund_now(&mut self) {
        let send = |(index, request)| Some((index, spawn_ask(&self.inner, request)?));
        let tasks: Vec<_> = self.refunds.drain(..).filter_map(send).collect();
        for (index, task) in tasks {
            if let Ok(Ok(Ok(reply))) = self.inner.context.runtime.timeout_at(self.deadline, task).await {
                self.parts[index].reply = Some(reply);
            }
        }
    }

    /// Merges the replies, with the buckets in the order of the chain. The time is the earliest of all, so that a refund of it returns
    /// nothing to a later window. Each bucket is moved by what its node's clock is ahead of that, so that it has the same available
    /// amount and the same wait as by its own clock. The amounts of a reservation are those of its first part.
    fn merged(&self, verdict: Verdict, amount: Amount) -> Reply {
        let at = self.replies().map(|(_, reply)| reply.at).min().unwrap_or_default();
        let mut buckets: OneOrMany<Bucket> = OneOrMany::new();
        if self.operation != ScriptOp::Reset {
            let none = Bucket::new(Amount::ZERO, Micros::default());
            buckets = std::iter::repeat_n(none, self.charges).collect();
            for (part, reply) in self.replies() {
                let ahead_us = reply.at.since_us(at);
                for (position, bucket) in part.positions.iter().zip(reply.buckets.iter()) {
                    let moment = bucket.moment().get().saturating_sub(ahead_us);
                    buckets[*position] = Bucket::new(bucket.amount(), Micros::new(moment));
                }
            }
        }
        let settled = self.replies().next().map(|(_, reply)| reply.settled.clone()).unwrap_or_default();
        Reply { amount, settled, ..Reply::new(verdict, at, buckets) }
    }
}

impl Drop for SplitChain {
    fn drop(&mut self) {
        for (_, request) in self.refunds.drain(..) {
            spawn_ask(&self.inner, request);
        }
    }
}

/// Parts of the charges with the same key, in no particular order.
fn grouped<K: Ord>(
    charges: impl Iterator<Item = (usize, WireCharge)>,
    key: impl Fn(&WireCharge) -> K,
    details: impl Fn(&WireCharge) -> RequestDetails,
) -> Vec<ChainPart> {
    let mut parts: BTreeMap<K, ChainPart> = BTreeMap::new();
    for (position, charge) in charges {
        let empty = || ChainPart { details: details(&charge), ..ChainPart::default() };
        let part = parts.entry(key(&charge)).or_insert_with(empty);
        part.positions.push(position);
        part.charges.push(charge);
    }
    parts.into_values().collect()
}

/// Whether the marker of the next part, which is that of the last part with one, was done.
fn follows_done(parts: &[ChainPart]) -> bool {
    let mut asked = parts.iter().rev().filter(|part| part.reply.is_some());
    asked.find(|part| part.has_marker()).is_some_and(ChainPart::is_done)
}

/// Sends a request in its own task with its own deadline, so that it completes if the caller is cancelled.
fn spawn_ask(
    inner: &Arc<StoreInner>,
    request: Arc<Request>,
) -> Option<oneshot::Receiver<Result<Reply, Rejection>>> {
    let (inner, spawner) = (Arc::clone(inner), inner.context.runtime.spawner()?);
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
        inner.context.runtime.sleep(pause).await;
        let request = Request::new(ScriptOp::Release, charges.clone()).with(failed.details.clone());
        let deadline = inner.deadline();
        match SplitChain::new(Arc::clone(&inner), request, deadline).run().await {
            Ok(_) => return,
            Err(why) => may_have_run = why.may_have_run(),
        }
    }
}
