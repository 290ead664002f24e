//! Spends from leases, asks the store for what they do not cover, and keeps them filled in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use spile_core::{
    Amount, Bucket, Charge, Charges, Cost, Decision, DecisionSource, Key, Micros, NamedLimit, OneOrMany,
    Outcome, SpendTime, Store, StoreExt,
};
use spile_runtime::Runtime;

use super::RateLimiter;
use super::background::BackgroundWork;
use super::inner::LimiterInner;
use crate::ask::AskOptions;
use crate::bucket_note::BucketNote;
use crate::lease::{LeaseAnswer, LeaseStats, Leased, Leases, Portion, SetAside};

/// How long tokens are given back when the process ends.
const RETURN_TIME: Duration = Duration::from_secs(1);

/// What leases contribute to a question that the store has to be asked. Tokens that were set aside return to their leases
/// when it is dropped, unless the store allowed the rest.
pub(super) struct LeaseShare<'a, S: Store> {
    limiter: &'a Arc<LimiterInner<S>>,
    charges: Charges<'a>,
    parts: Vec<LeasePart>,
    is_spent: bool,
}

/// One charge of the chain.
enum LeasePart {
    /// The lease covers it by these tokens. The bucket afterwards.
    Covered(BucketNote, SetAside),
    /// The store is asked for the cost less these tokens.
    Asked(SetAside),
}

impl<S: Store> RateLimiter<S> {
    /// Gives all leased tokens back to the store, as far as it can be reached. To be called before the process ends: tokens
    /// that are still here then are lost to the other instances. It takes a second at most.
    pub async fn return_leases(&self) {
        let Some(leases) = &self.inner.leases else { return };
        let mut portions = leases.end_all(self.inner.fallback.clock.now());
        portions.retain(|portion| self.inner.is_in_force(&portion.limit));
        let returning = async {
            for some in portions.chunks(Charges::MAX) {
                self.inner.give_back(some).await;
            }
        };
        // A store that does not answer must not hold up the end of the process.
        let _done = self.inner.runtime.timeout(RETURN_TIME, returning).await;
    }

    /// What leases hold and have done.
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
    /// Decides by leases alone, or says what they contribute. `None` if no charge has a lease.
    pub(super) fn spend_leases<'a>(
        self: &'a Arc<Self>,
        charges: &Charges<'a>,
        options: &AskOptions<'_>,
        now: Micros,
    ) -> Option<Result<Decision, LeaseShare<'a, S>>> {
        let leases = self.leases.as_ref().filter(|_| Leases::concern(charges))?;
        let decide = |allowed, note: &BucketNote, buckets| {
            let outcome = Outcome { allowed, at: note.store_time(now), buckets };
            self.conclude(charges, options, Ok(outcome), DecisionSource::Lease, Some(now))
        };
        if let [charge] = &**charges {
            let Leased { answer, take, give_back } = leases.spend(charge, true, now)?;
            self.start(take, give_back);
            return Some(match answer {
                LeaseAnswer::Covers(note, _) => Ok(decide(true, &note, OneOrMany::one(note.bucket))),
                LeaseAnswer::Denies(note) => Ok(decide(false, &note, OneOrMany::one(note.bucket))),
                LeaseAnswer::Asks(aside) => {
                    Err(self.share_of(charges.clone(), vec![LeasePart::Asked(aside)]))
                }
            });
        }
        let part = |charge: &Charge<'_>| match leases.spend(charge, false, now) {
            None => LeasePart::Asked(SetAside::default()),
            Some(Leased { answer, take, give_back }) => {
                self.start(take, give_back);
                match answer {
                    LeaseAnswer::Covers(note, aside) => LeasePart::Covered(note, aside),
                    LeaseAnswer::Denies(_) => LeasePart::Asked(SetAside::default()),
                    LeaseAnswer::Asks(aside) => LeasePart::Asked(aside),
                }
            }
        };
        let mut share = self.share_of(charges.clone(), charges.iter().map(part).collect());
        let Some(LeasePart::Covered(first, _)) = share.parts.first().filter(|_| share.rest().is_none())
        else {
            return Some(Err(share));
        };
        let first = *first;
        let buckets = share.parts.iter().map(|part| part.bucket(&first)).collect();
        share.is_spent = true;
        Some(Ok(decide(true, &first, buckets)))
    }

    /// What the store shows of these buckets, and the tokens of them that are here.
    pub(super) fn with_leases(&self, charges: &Charges<'_>, shown: Outcome) -> Outcome {
        let Some(leases) = self.leases.as_ref().filter(|_| Leases::concern(charges)) else { return shown };
        let buckets: OneOrMany<Bucket> = charges
            .iter()
            .zip(shown.buckets.iter())
            .map(|(charge, bucket)| bucket.with_more(charge.limit().limit(), leases.amount_of(charge)))
            .collect();
        let covers = |(charge, bucket): (&Charge<'_>, &Bucket)| charge.is_covered_by(*bucket, shown.at);
        let allowed = charges.iter().zip(buckets.iter()).all(covers);
        Outcome { allowed, at: shown.at, buckets }
    }

    const fn share_of<'a>(
        self: &'a Arc<Self>,
        charges: Charges<'a>,
        parts: Vec<LeasePart>,
    ) -> LeaseShare<'a, S> {
        LeaseShare { limiter: self, charges, parts, is_spent: false }
    }

    /// Starts what is to be done for a lease, in the background.
    fn start(self: &Arc<Self>, take: Option<Portion>, give_back: Option<Portion>) {
        for work in
            [give_back.map(BackgroundWork::GiveBack), take.map(BackgroundWork::Take)].into_iter().flatten()
        {
            (self.start_work)(self, work);
        }
    }

    /// Takes a portion from the store. One that does not come in time may have been paid: it is lost.
    pub(super) async fn take(self: Arc<Self>, portion: Portion)
    where
        S: 'static,
    {
        let (Some(leases), Some(charges)) = (&self.leases, portion.charges()) else { return };
        let (question, sent) = (self.question(&charges), self.fallback.clock.now());
        let answer = self.in_time(self.deadline, self.store.spend_up_to(&charges)).await;
        question.answered(answer.as_ref().map(|granted| &granted.outcome));
        let heard = self.fallback.clock.now();
        match (answer, &charges[..]) {
            (Ok(answer), [charge]) => {
                let Some(&bucket) = answer.outcome.buckets.first() else { return };
                let note = BucketNote { bucket, store_heard: answer.outcome.at, sent, heard };
                if leases.granted(charge, answer.granted, portion.resets, note) {
                    self.keep(portion);
                }
                self.keep_orphans();
            }
            (_, [charge]) => leases.failed(charge, heard),
            _ => {}
        }
    }

    /// Starts a task that returns what is left of this lease when it ends.
    fn keep(self: &Arc<Self>, portion: Portion)
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
        let name = limit.name().as_str();
        let plan = name.split_once('/').map_or(name, |(plan, _)| plan);
        let mut is_same = true;
        self.plans.visit(plan, &mut |plan| {
            let same = |own: &NamedLimit| own.name() == limit.name() && own.limit().fills_like(limit.limit());
            is_same = plan.limits().iter().any(same);
        });
        is_same
    }

    /// Gives tokens back to the store. If it cannot be reached, they are lost.
    pub(super) async fn give_back(&self, portions: &[Portion]) {
        let Some(charges) = Portion::charges_of(portions) else { return };
        let question = self.question(&charges);
        let answer = self.in_time(self.deadline, self.store.refund(&charges, SpendTime::Unknown)).await;
        question.changed(answer.as_ref());
        if let (Ok(_), Some(leases)) = (answer, &self.leases) {
            leases.gave_back(portions.iter().map(|portion| portion.amount).sum());
        }
    }
}

/// Waits until a lease ends, and gives back what is left of it.
struct LeaseKeeper<S: Store + 'static> {
    limiter: Weak<LimiterInner<S>>,
    /// `None` once the lease has ended.
    portion: Option<Portion>,
}

impl<S: Store + 'static> LeaseKeeper<S> {
    async fn run(mut self, runtime: Runtime) {
        while let Some(portion) = &self.portion {
            let wait_us = {
                let Some(limiter) = self.limiter.upgrade() else { return };
                let (Some(leases), Some(charges)) = (&limiter.leases, portion.charges()) else { return };
                match leases.end(&charges[0], limiter.fallback.clock.now()) {
                    Ok(returned) => {
                        drop(charges);
                        self.portion = None;
                        let Some(returned) = returned.filter(|returned| limiter.is_in_force(&returned.limit))
                        else {
                            return;
                        };
                        return limiter.give_back(&[returned]).await;
                    }
                    Err(wait_us) => wait_us,
                }
            };
            runtime.sleep(Duration::from_micros(wait_us)).await;
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
    /// What the store has to be asked for. `None` if leases cover everything.
    pub(super) fn rest(&self) -> Option<Charges<'a>> {
        let asked = |(charge, part): (&Charge<'a>, &LeasePart)| match part {
            LeasePart::Covered(..) => None,
            LeasePart::Asked(aside) => {
                let cost = Cost::new(charge.cost().amount().above(aside.amount())).ok()?;
                Charge::new(charge.key(), charge.limit().clone(), cost).ok()
            }
        };
        Charges::distinct(self.charges.iter().zip(&self.parts).filter_map(asked)).ok()
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
            let (bucket, aside) = match part {
                LeasePart::Covered(_, aside) => (part.bucket(&clock), aside),
                LeasePart::Asked(aside) => (asked.next().copied().unwrap_or(clock.bucket), aside),
            };
            // What a denial leaves over is still here.
            let kept = if rest.allowed { Amount::ZERO } else { aside.amount() };
            bucket.with_more(charge.limit().limit(), kept)
        };
        let buckets = self.charges.iter().zip(&self.parts).map(bucket).collect();
        self.is_spent = rest.allowed;
        Outcome { allowed: rest.allowed, at: rest.at, buckets }
    }
}

impl LeasePart {
    fn bucket(&self, clock: &BucketNote) -> Bucket {
        match self {
            Self::Covered(note, _) => note.bucket_by_clock_of(clock),
            Self::Asked(_) => clock.bucket,
        }
    }
}

impl<S: Store> Drop for LeaseShare<'_, S> {
    fn drop(&mut self) {
        let Some(leases) = self.limiter.leases.as_ref().filter(|_| !self.is_spent) else { return };
        for (charge, part) in self.charges.iter().zip(&self.parts) {
            let (LeasePart::Covered(_, aside) | LeasePart::Asked(aside)) = part;
            leases.put_back(charge, aside);
        }
    }
}

impl Portion {
    /// The charge of these tokens.
    pub(super) fn charges(&self) -> Option<Charges<'_>> {
        self.charge().map(Charges::from)
    }

    /// The charges of several. No two are of one bucket.
    fn charges_of(portions: &[Self]) -> Option<Charges<'_>> {
        Charges::distinct(portions.iter().filter_map(Self::charge)).ok()
    }

    fn charge(&self) -> Option<Charge<'_>> {
        let (key, cost) = (Key::new(&self.key).ok()?, Cost::new(self.amount).ok()?);
        Charge::new(key, self.limit.clone(), cost).ok()
    }
}
