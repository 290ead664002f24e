//! Spends from leases, asks the store for what they do not cover, and keeps them filled in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use spile_core::{
    Amount, Bucket, Charge, Charges, Cost, Decision, DecisionSource, Key, Limit, LimitName, Micros,
    NamedLimit, OneOrMany, Operation, Outcome, SpendTime, Store,
};
use spile_runtime::Runtime;
use tokio::sync::oneshot;

use super::RateLimiter;
use super::background::BackgroundWork;
use super::inner::LimiterInner;
use crate::ask::AskOptions;
use crate::bucket_note::BucketNote;
use crate::lease::{LeaseAnswer, LeaseQuestion, LeaseStats, Leases, Portion, SetAside};

/// How long tokens are returned when the process ends.
const RETURN_TIME: Duration = Duration::from_secs(1);

/// The share of leases in a question that the store has to be asked. Tokens that were set aside return to their leases when it is
/// dropped, unless the store allowed the rest.
pub(super) struct LeaseShare<'a, S: Store> {
    limiter: &'a Arc<LimiterInner<S>>,
    charges: Charges<'a>,
    parts: Vec<LeasePart>,
    is_spent: bool,
    /// Ready when the portion has come that the question waits for.
    pub(super) portion: Option<oneshot::Receiver<()>>,
}

/// One charge of the chain.
#[derive(Default)]
struct LeasePart {
    /// The tokens of the lease that pay for it, or for a part of it.
    aside: SetAside,
    /// The bucket afterwards, if they cover it. Otherwise the store is asked for the rest of the cost.
    covered: Option<BucketNote>,
}

impl<S: Store> RateLimiter<S> {
    /// Returns all leased tokens to the store, as far as it can be reached. To be called before the process ends: tokens that it
    /// still holds then are lost to the other instances. It takes at most a second.
    pub async fn return_leases(&self) {
        let Some(leases) = &self.inner.leases else { return };
        let mut portions = leases.end_all(self.inner.fallback.clock.now());
        portions.retain(|portion| self.inner.is_in_force(&portion.limit));
        // All at once: each has the whole time, however far away the store is.
        let returning = join_all(portions.iter().map(|portion| self.inner.give_back(portion)));
        // A store that does not answer must not hold up the end of the process.
        let _done = self.inner.runtime.timeout(RETURN_TIME, returning).await;
    }

    /// The number of tokens that leases hold, and what they have done.
    pub fn lease_stats(&self) -> LeaseStats {
        self.inner.leases.as_ref().map(Leases::stats).unwrap_or_default()
    }
}

impl<S> RateLimiter<S> {
    /// To be called after limits that do not come from the limiter's registry have changed. Tokens that were leased under a limit
    /// are then not returned to the store unless a question confirms that the limit is still in force.
    pub fn limits_changed(&self) {
        if let Some(leases) = &self.inner.leases {
            leases.limits_changed();
        }
    }
}

impl<S: Store> LimiterInner<S> {
    /// Decides by leases alone, or returns their share in a question to the store. `None` if no charge has a lease.
    pub(super) fn spend_leases<'a>(
        self: &'a Arc<Self>,
        charges: &Charges<'a>,
        options: &AskOptions<'_>,
        asked: LeaseQuestion,
        now: Micros,
    ) -> Option<Result<Decision, LeaseShare<'a, S>>> {
        let leases = self.leases.as_ref().filter(|_| Leases::concern(charges))?;
        let decide = |allowed, note: &BucketNote, buckets| {
            let outcome = Outcome { allowed, at: note.store_time(now), buckets };
            self.conclude(charges, options, Ok(outcome), DecisionSource::Lease, Some(now))
        };
        let share = |parts, portion| LeaseShare {
            limiter: self,
            charges: charges.clone(),
            parts,
            is_spent: false,
            portion,
        };
        if let [charge] = &**charges {
            let (answer, portion) = leases.spend(charge, asked, now)?;
            return Some(match answer {
                LeaseAnswer::Covers(note, _) => {
                    self.start_taking(portion, None);
                    Ok(decide(true, &note, OneOrMany::one(note.bucket)))
                }
                LeaseAnswer::Denies(note) => Ok(decide(false, &note, OneOrMany::one(note.bucket))),
                LeaseAnswer::Waits => {
                    let (taken, waits) = oneshot::channel();
                    self.start_taking(portion, Some(taken));
                    Err(share(vec![LeasePart::default()], Some(waits)))
                }
                LeaseAnswer::Asks(aside) => Err(share(vec![LeasePart { aside, covered: None }], None)),
            });
        }
        let part = |charge: &Charge<'_>| match leases.spend(charge, LeaseQuestion::InChain, now) {
            Some((LeaseAnswer::Covers(note, aside), portion)) => {
                self.start_taking(portion, None);
                LeasePart { aside, covered: Some(note) }
            }
            Some((LeaseAnswer::Asks(aside), _)) => LeasePart { aside, covered: None },
            _ => LeasePart::default(),
        };
        let mut share = share(charges.iter().map(part).collect(), None);
        let notes: Option<Vec<_>> = share.parts.iter().map(|part| part.covered).collect();
        let Some([first, ..]) = notes.as_deref() else { return Some(Err(share)) };
        let buckets = notes.iter().flatten().map(|note| note.bucket_by_clock_of(first)).collect();
        share.is_spent = true;
        Some(Ok(decide(true, first, buckets)))
    }

    /// The buckets as the store shows them, with the tokens that leases hold of them.
    pub(super) fn with_leases(&self, charges: &Charges<'_>, shown: Outcome) -> Outcome {
        let Some(leases) = self.leases.as_ref().filter(|_| Leases::concern(charges)) else { return shown };
        let with_lease = |(charge, bucket): (&Charge<'_>, &Bucket)| {
            let lent = leases.amount_of(charge);
            let all = bucket.with_more(charge.limit().limit(), lent);
            let is_covered = charge.is_covered_by(all, shown.at);
            if is_covered { all } else { with_lent(*bucket, charge.limit(), lent, shown.at) }
        };
        let buckets: OneOrMany<_> = charges.iter().zip(shown.buckets.iter()).map(with_lease).collect();
        let covers = |(charge, bucket): (&Charge<'_>, &Bucket)| charge.is_covered_by(*bucket, shown.at);
        let allowed = charges.iter().zip(buckets.iter()).all(covers);
        Outcome { allowed, at: shown.at, buckets }
    }

    /// Starts to take a portion in the background, where no caller that goes away can lose it. `taken` is notified or dropped when that
    /// has ended.
    fn start_taking(self: &Arc<Self>, portion: Option<Portion>, taken: Option<oneshot::Sender<()>>) {
        if let Some(portion) = portion {
            (self.start_work)(self, BackgroundWork::Take(portion, taken));
        }
    }

    /// Takes a portion from the store. One that does not come in time may have been paid: it is lost.
    pub(super) async fn take(self: Arc<Self>, portion: Portion, _taken: Option<oneshot::Sender<()>>)
    where
        S: 'static,
    {
        let (Some(leases), Some(charges)) = (&self.leases, portion.charges()) else { return };
        let sent = self.fallback.clock.now();
        let answer = self.ask(Operation::SpendUpTo, &charges, self.deadline).await;
        let heard = self.fallback.clock.now();
        let Some(charge) = charges.first() else { return };
        let Ok(reply) = answer else { return leases.failed(charge, heard) };
        let Some(&bucket) = reply.buckets.first() else { return };
        let note = BucketNote { bucket, store_heard: reply.at, sent, heard };
        if leases.granted(charge, reply.amount, portion.epoch, note) {
            self.keep(portion.clone());
        }
        self.keep_orphans();
    }

    /// Starts a task that returns the rest of this lease when it ends.
    pub(super) fn keep(self: &Arc<Self>, portion: Portion)
    where
        S: 'static,
    {
        let keeper = LeaseKeeper { limiter: Arc::downgrade(self), portion: Some(portion) };
        if let Some(spawner) = self.runtime.spawner() {
            spawner.spawn(keeper.run(self.runtime.clone()));
        }
    }

    /// Starts the tasks again that ended with their runtime before their leases did.
    pub(super) fn keep_orphans(self: &Arc<Self>)
    where
        S: 'static,
    {
        if let Some(leases) = self.leases.as_ref().filter(|_| self.runtime.spawner().is_some()) {
            leases.take_orphans().into_iter().for_each(|portion| self.keep(portion));
        }
    }

    /// False if the registry has another limit of this name by now: returning tokens under the former one would refill the bucket at
    /// the former rate.
    fn is_in_force(&self, limit: &NamedLimit) -> bool {
        let (has_plan, now) = self.limit_in_force(limit.name());
        !has_plan || now.is_some_and(|now| now.fills_like(limit.limit()))
    }

    /// Whether the registry has the plan of this limit, and the limit of this name now.
    pub(super) fn limit_in_force(&self, name: &LimitName) -> (bool, Option<Limit>) {
        let plan = name.as_str().split('/').next().unwrap_or_default();
        let mut found = None;
        let has_plan = self.plans.visit(plan, &mut |plan| {
            let limit = plan.limits().iter().find(|limit| limit.name() == name);
            found = limit.map(|limit| *limit.limit());
        });
        (has_plan, found)
    }

    /// Returns tokens to the store. If it cannot be reached, they are lost.
    pub(super) async fn give_back(&self, portion: &Portion) {
        let Some(charges) = portion.charges() else { return };
        let refund = Operation::Refund { spent: SpendTime::Unknown, once: None };
        let answer = self.ask(refund, &charges, self.deadline).await;
        if let (Ok(_), Some(leases)) = (answer, &self.leases) {
            leases.gave_back(portion.amount);
        }
    }
}

/// Waits until the lots of a lease end, and returns their tokens.
struct LeaseKeeper<S: Store + 'static> {
    limiter: Weak<LimiterInner<S>>,
    /// `None` once all lots have ended.
    portion: Option<Portion>,
}

impl<S: Store + 'static> LeaseKeeper<S> {
    async fn run(mut self, runtime: Runtime) {
        while let Some(portion) = &self.portion {
            let (ended, next_us) = {
                let Some(limiter) = self.limiter.upgrade() else { return };
                let (Some(leases), Some(charges)) = (&limiter.leases, portion.charges()) else { return };
                leases.end(&charges[0], limiter.fallback.clock.now())
            };
            if next_us.is_none() {
                self.portion = None;
            }
            for portion in ended {
                let Some(limiter) = self.limiter.upgrade() else { return };
                if limiter.is_in_force(&portion.limit) {
                    limiter.give_back(&portion).await;
                }
            }
            if let Some(wait_us) = next_us {
                runtime.sleep(Duration::from_micros(wait_us)).await;
            }
        }
    }
}

impl<S: Store + 'static> Drop for LeaseKeeper<S> {
    /// If the runtime ends before the lease, another one goes on.
    fn drop(&mut self) {
        if let (Some(portion), Some(limiter)) = (self.portion.take(), self.limiter.upgrade())
            && let Some(leases) = &limiter.leases
        {
            leases.add_orphan(portion);
        }
    }
}

impl<'a, S: Store> LeaseShare<'a, S> {
    /// The charges that the store has to be asked for. `None` if leases cover everything.
    pub(super) fn rest(&self) -> Option<Charges<'a>> {
        let asked = self.charges.iter().zip(&self.parts).filter(|(_, part)| part.covered.is_none());
        let rest = |(charge, part): (&Charge<'a>, &LeasePart)| {
            let cost = Cost::new(charge.cost().amount().above(part.aside.amount())).ok()?;
            Charge::new(charge.key(), charge.limit().clone(), cost).ok()
        };
        Charges::distinct(asked.filter_map(rest)).ok()
    }

    /// The outcome for the whole chain, by the store's outcome for the [rest](Self::rest).
    pub(super) fn outcome(mut self, rest: &Outcome, now: Micros) -> Outcome {
        let clock = BucketNote {
            bucket: Bucket::new(Amount::ZERO, rest.at),
            store_heard: rest.at,
            sent: now,
            heard: now,
        };
        let mut asked = rest.buckets.iter();
        let bucket = |(charge, part): (&Charge<'_>, &LeasePart)| {
            // After a denial the tokens are still in the lease.
            let kept = if rest.allowed { Amount::ZERO } else { part.aside.amount() };
            match &part.covered {
                Some(note) => note.bucket_by_clock_of(&clock).with_more(charge.limit().limit(), kept),
                None => with_lent(*asked.next().unwrap_or(&clock.bucket), charge.limit(), kept, rest.at),
            }
        };
        let buckets = self.charges.iter().zip(&self.parts).map(bucket).collect();
        self.is_spent = rest.allowed;
        Outcome { allowed: rest.allowed, at: rest.at, buckets }
    }

    /// Takes the next portions of the leased buckets from the store, which has allowed the question.
    pub(super) fn take_portions(&self, now: Micros) {
        let Some(leases) = &self.limiter.leases else { return };
        for charge in self.charges.iter().filter(|charge| charge.limit().limit().lease().is_some()) {
            self.limiter.start_taking(leases.next_portion(charge, now), None);
        }
    }
}

/// A bucket that did not cover a charge, with the tokens that a lease holds of it. They may have ended when its caller asks again, so
/// the wait does not count on them.
fn with_lent(bucket: Bucket, limit: &NamedLimit, lent: Amount, at: Micros) -> Bucket {
    if lent == Amount::ZERO {
        return bucket;
    }
    let limit = limit.limit();
    let regained_us = Bucket::new(Amount::ZERO, at).wait_for_us(limit, lent, at);
    let moment = bucket.moment().max(at).plus_us(regained_us);
    Bucket::new(bucket.available(limit, at) + lent, moment)
}

impl<S: Store> Drop for LeaseShare<'_, S> {
    fn drop(&mut self) {
        let Some(leases) = self.limiter.leases.as_ref().filter(|_| !self.is_spent) else { return };
        for (charge, part) in self.charges.iter().zip(&self.parts) {
            if leases.put_back(charge, &part.aside) {
                (self.limiter.start_work)(self.limiter, BackgroundWork::Keep(Portion::of(charge)));
            }
        }
    }
}

impl Portion {
    /// The cost of a charge under its limit.
    pub(super) fn of(charge: &Charge<'_>) -> Self {
        let (key, limit) = (charge.key().as_str().into(), charge.limit().clone());
        Self { key, limit, amount: charge.cost().amount(), epoch: 0 }
    }

    /// The charge of these tokens.
    pub(super) fn charges(&self) -> Option<Charges<'_>> {
        let (key, cost) = (Key::new(&self.key).ok()?, Cost::new(self.amount).ok()?);
        Charge::new(key, self.limit.clone(), cost).ok().map(Charges::from)
    }
}
