//! A chain whose keys are in several slots of a cluster, where no script can touch them all.
//!
//! It is spent slot by slot, and what was taken is given back when a later slot denies or surely fails. So it never
//! admits too much. Until the refund arrives it may admit too little, and a refund that is lost stays lost until the
//! bucket refills. After a failure that may have run nothing is given back, for the caller may be let through.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use spile_core::{Bucket, Few, MicroTokens, Micros, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::request::{Operation, Reply, Request, WireCharge};
use crate::slot::slot_of;
use crate::store::Inner;

/// One chain, taken apart by slot.
pub(crate) struct Spread {
    inner: Arc<Inner>,
    operation: Operation,
    parts: Vec<Part>,
    charges: usize,
    deadline: Instant,
}

/// The charges of one slot.
struct Part {
    /// Where they stand in the chain.
    positions: Vec<usize>,
    charges: SmallVec<[WireCharge; 1]>,
}

impl Part {
    fn request(&self, operation: Operation) -> Arc<Request> {
        Arc::new(Request { operation, charges: self.charges.clone() })
    }

    /// The same charges, each at `tokens`.
    fn priced(&self, operation: Operation, tokens: u32) -> Arc<Request> {
        let cost_micro = MicroTokens::from_tokens(tokens).get();
        let priced = |charge: &WireCharge| WireCharge { cost_micro, ..charge.clone() };
        Arc::new(Request { operation, charges: self.charges.iter().map(priced).collect() })
    }

    /// How the slot shows where it could not be asked: its buckets full.
    fn unseen(&self, at: Micros) -> Reply {
        let buckets = self.charges.iter().map(|charge| Bucket::full(&charge.limit.limit, at)).collect();
        Reply { granted: 0, at, buckets }
    }

    /// The most whole tokens that every bucket of the slot could give, up to what was asked.
    fn most(&self, reply: &Reply) -> u32 {
        let each = self.charges.iter().zip(&reply.buckets).map(|(charge, bucket)| {
            let available = bucket.available(&charge.limit.limit, reply.at).get();
            (available.min(charge.cost_micro) / MicroTokens::PER_TOKEN) as u32
        });
        each.min().unwrap_or(0)
    }
}

impl Spread {
    pub(crate) fn new(inner: Arc<Inner>, request: Request, deadline: Instant) -> Self {
        let charges = request.charges.len();
        let mut by_slot: BTreeMap<u16, Part> = BTreeMap::new();
        for (position, charge) in request.charges.into_iter().enumerate() {
            let empty = || Part { positions: Vec::new(), charges: SmallVec::new() };
            let part = by_slot.entry(slot_of(&charge.key)).or_insert_with(empty);
            part.positions.push(position);
            part.charges.push(charge);
        }
        Self {
            inner,
            operation: request.operation,
            parts: by_slot.into_values().collect(),
            charges,
            deadline,
        }
    }

    pub(crate) async fn run(self) -> Result<Reply, StoreError> {
        match (self.operation, &self.parts[..]) {
            (operation, [only]) => self.ask(only.request(operation)).await,
            (Operation::Spend, _) => self.spend().await,
            (Operation::SpendUpTo, _) => self.spend_up_to().await,
            (Operation::Peek | Operation::Refund | Operation::Reset | Operation::TimeToLive, _) => {
                self.each().await
            }
        }
    }

    /// Steps that need no agreement between the slots.
    async fn each(&self) -> Result<Reply, StoreError> {
        let mut replies = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            replies.push(self.ask(part.request(self.operation)).await?);
        }
        let granted = replies.iter().map(|reply| reply.granted).min().unwrap_or(0);
        Ok(self.joined(&replies, granted))
    }

    async fn spend(&self) -> Result<Reply, StoreError> {
        let mut taken = Taken::new(self);
        let mut replies = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let reply = taken.or_keep(self.ask(part.request(Operation::Spend)).await)?;
            let allowed = reply.granted > 0;
            replies.push(reply);
            if !allowed {
                return self.denied(taken, replies).await;
            }
            taken.refunds.push(part.request(Operation::Refund));
        }
        taken.keep();
        Ok(self.joined(&replies, 1))
    }

    /// Gives back what was taken, and looks at what was not asked for, so that the denial shows every bucket.
    async fn denied(&self, taken: Taken<'_>, mut replies: Vec<Reply>) -> Result<Reply, StoreError> {
        for (reply, refunded) in replies.iter_mut().zip(taken.give_back().await) {
            *reply = refunded.unwrap_or_else(|| reply.clone());
        }
        for part in &self.parts[replies.len()..] {
            // The answer is known, so a slot that cannot be looked at does not make an error of it.
            let seen = self.ask(part.request(Operation::Peek)).await;
            replies.push(seen.unwrap_or_else(|_| part.unseen(replies[0].at)));
        }
        Ok(self.joined(&replies, 0))
    }

    /// Looks first, so that usually every slot is asked for what all of them have.
    async fn spend_up_to(&self) -> Result<Reply, StoreError> {
        let mut tokens = u32::MAX;
        let mut replies = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let reply = self.ask(part.request(Operation::Peek)).await?;
            tokens = tokens.min(part.most(&reply));
            replies.push(reply);
        }
        if tokens == 0 {
            return Ok(self.joined(&replies, 0));
        }
        let mut taken = Taken::new(self);
        let mut granted = Vec::with_capacity(self.parts.len());
        for (part, reply) in self.parts.iter().zip(&mut replies) {
            *reply = taken.or_keep(self.ask(part.priced(Operation::SpendUpTo, tokens)).await)?;
            tokens = tokens.min(reply.granted);
            granted.push(reply.granted);
            taken.refunds = self.excess(&granted, 0);
        }
        taken.refunds = self.excess(&granted, tokens);
        let over: Vec<usize> = (0..granted.len()).filter(|&index| granted[index] > tokens).collect();
        for (index, refunded) in over.into_iter().zip(taken.give_back().await) {
            if let Some(refunded) = refunded {
                replies[index] = refunded;
            }
        }
        Ok(self.joined(&replies, tokens))
    }

    /// What to give back so that each slot has granted `tokens`.
    fn excess(&self, granted: &[u32], tokens: u32) -> Vec<Arc<Request>> {
        let over = self.parts.iter().zip(granted).filter(|(_, granted)| **granted > tokens);
        over.map(|(part, granted)| part.priced(Operation::Refund, granted - tokens)).collect()
    }

    async fn ask(&self, request: Arc<Request>) -> Result<Reply, StoreError> {
        self.inner.ask(request, self.deadline).await
    }

    /// Asks in a task of its own and with time of its own, so that a caller who gives up does not stop it.
    fn in_background(
        &self,
        request: Arc<Request>,
    ) -> Option<tokio::task::JoinHandle<Result<Reply, StoreError>>> {
        let inner = self.inner.clone();
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            let deadline = inner.deadline();
            inner.ask(request, deadline).await
        }))
    }

    /// One reply of many, with the buckets back in the order of the chain. Its time is the latest of theirs, and
    /// each bucket is shown as its own node saw it: another node's clock must not fill it.
    fn joined(&self, replies: &[Reply], granted: u32) -> Reply {
        let at = replies.iter().map(|reply| reply.at).max().unwrap_or_default();
        let mut buckets: Few<Bucket> = Few::new();
        if self.operation != Operation::Reset {
            let none = Bucket::new(MicroTokens::default(), Micros::default());
            buckets = std::iter::repeat_n(none, self.charges).collect();
            for (part, reply) in self.parts.iter().zip(replies) {
                for (index, bucket) in reply.buckets.iter().enumerate() {
                    let there = bucket.available(&part.charges[index].limit.limit, reply.at);
                    buckets[part.positions[index]] = Bucket::new(there, at);
                }
            }
        }
        Reply { granted, at, buckets }
    }
}

/// What has been taken from slots so far. Unless it is kept, it is given back: also when the caller gives up.
struct Taken<'a> {
    spread: &'a Spread,
    refunds: Vec<Arc<Request>>,
}

impl<'a> Taken<'a> {
    fn new(spread: &'a Spread) -> Self {
        Self { spread, refunds: Vec::new() }
    }

    fn keep(&mut self) {
        self.refunds.clear();
    }

    /// After a failure that may have run, what was taken stays taken.
    fn or_keep(&mut self, reply: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        if reply.as_ref().is_err_and(StoreError::may_have_run) {
            self.keep();
        }
        reply
    }

    /// Gives everything back and waits for that, within the deadline. One entry per refund, in their order.
    async fn give_back(mut self) -> Vec<Option<Reply>> {
        let deadline = self.spread.deadline;
        let tasks: Vec<_> =
            self.refunds.drain(..).map(|request| self.spread.in_background(request)).collect();
        let mut replies = Vec::with_capacity(tasks.len());
        for task in tasks.into_iter().flatten() {
            replies.push(timeout_at(deadline, task).await.ok().and_then(Result::ok).and_then(Result::ok));
        }
        replies
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for request in self.refunds.drain(..) {
            self.spread.in_background(request);
        }
    }
}
