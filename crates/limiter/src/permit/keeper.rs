//! Keeps the permits of this process: renews them in time, and releases them.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use spile_core::{
    Charge, Charges, LimitName, Micros, PermitId, PermitStep, SpendTime, Store, StoreError, StoreExt,
};
use spile_runtime::{Runtime, Spawner};
use tokio::sync::Notify;

use super::lent::LentPermits;
use super::stats::{PermitStats, StatsTable};
use super::turns::Turns;
use super::{HeldPlaces, PlacesIn};
use crate::limiter::LimiterInner;

/// How often permits are looked at. Those that are due within this time are renewed together.
const TICK: Duration = Duration::from_millis(250);
/// The most renewals in flight at once. The store puts them into few calls.
const AT_ONCE: usize = 1_000;
/// The first pause before a release is tried again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How late a packet may be that was lost and sent again.
const LATE_PACKET: Duration = Duration::from_millis(400);
/// How soon a permit that the store does not know is entered there again.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// The step that ends a permit. Tokens that were spent with it stay spent.
pub(crate) const RELEASE: PermitStep = PermitStep::Release(SpendTime::Unknown);

/// The permits that this process holds.
#[derive(Debug, Default)]
pub(crate) struct PermitKeeper {
    /// In the order of their ids, so that renewals have one.
    held: Mutex<BTreeMap<(PermitId, usize), Arc<HeldPlaces>>>,
    /// The runtimes with a task that renews permits: each that takes them, so that renewals do not depend on one runtime.
    renewers: Mutex<Vec<Spawner>>,
    /// The places that are being released, and the number of permits of each.
    being_released: Mutex<HashMap<(String, LimitName), usize, foldhash::fast::RandomState>>,
    /// Notified after each release of this process.
    pub(crate) has_released: Notify,
    /// Those that callers keep.
    pub(crate) lent: LentPermits,
    pub(crate) stats: StatsTable,
    pub(crate) turns: Turns,
}

/// The part of a limiter that its permits need, without the type of its store.
pub(crate) trait ReleaseWork: Send + Sync {
    fn runtime(&self) -> &Runtime;

    /// Has permits renewed on the runtime of the caller, too.
    fn keep_here(self: Arc<Self>);

    /// The time by the clock of this machine.
    fn now(&self) -> Micros;

    /// Stops keeping places that their caller keeps from now on.
    fn leave(&self, places: &Arc<HeldPlaces>);

    /// Releases places in the background, and tries again until their hold time is over.
    fn release_later(self: Arc<Self>, places: Arc<HeldPlaces>);

    /// Releases places. If that fails, it is tried again in the background.
    fn release_now(self: Arc<Self>, places: Arc<HeldPlaces>) -> BoxFuture<'static, Result<(), StoreError>>;
}

impl<S: Store + 'static> ReleaseWork for LimiterInner<S> {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn keep_here(self: Arc<Self>) {
        if let Some(spawner) = self.runtime.spawner() {
            Renewer::start(&self, &spawner);
        }
    }

    fn now(&self) -> Micros {
        self.fallback.clock.now()
    }

    fn leave(&self, places: &Arc<HeldPlaces>) {
        let was_kept = self.permits.held.lock().remove(&number(places)).is_some();
        if let Some(charges) = places.charges().filter(|_| was_kept) {
            self.permits.stats.count(places, |counts| counts.held -= 1);
            self.permits.lent.note(&places.id, &charges, self.fallback.clock.now());
        }
    }

    fn release_later(self: Arc<Self>, places: Arc<HeldPlaces>) {
        self.permits.remove(&places);
        self.release_locally(&places);
        // The answer of a local store is there at once, so that no task is needed, nor a runtime.
        if !self.store.is_shared() && self.release(&places).now_or_never().is_some() {
            return;
        }
        let Some(spawner) = self.spawner_for(&places) else { return };
        let releasing = Releasing::new(Arc::clone(&self), Arc::clone(&places));
        spawner.spawn(async move {
            let was_held = self.release_until_done(&places).await;
            drop(releasing);
            if places.may_arrive_late(was_held) {
                self.release_late(&places).await;
            }
        });
    }

    fn release_now(self: Arc<Self>, places: Arc<HeldPlaces>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.permits.remove(&places);
        // Made before the future is polled: it may be dropped at any time.
        let mut unreleased = Unreleased { limiter: self, places: Some(places) };
        Box::pin(async move {
            let Some(places) = unreleased.places.clone() else { return Ok(()) };
            let was_held = unreleased.limiter.release(&places).await?;
            drop(unreleased.places.take());
            let limiter = Arc::clone(&unreleased.limiter);
            if places.may_arrive_late(was_held)
                && let Some(spawner) = limiter.spawner_for(&places)
            {
                spawner.spawn(async move { limiter.release_late(&places).await });
            }
            Ok(())
        })
    }
}

impl PermitKeeper {
    /// Keeps places until they end.
    pub(crate) fn add<S: Store + 'static>(&self, limiter: &Arc<LimiterInner<S>>, places: &Arc<HeldPlaces>) {
        self.stats.count(places, |counts| {
            counts.held += 1;
            counts.acquired += 1;
        });
        self.held.lock().insert(number(places), Arc::clone(places));
        if let Some(spawner) = &places.spawner {
            Renewer::start(limiter, spawner);
        }
    }

    /// Stops keeping places.
    fn remove(&self, places: &Arc<HeldPlaces>) {
        if self.held.lock().remove(&number(places)).is_some() {
            let was_lost = places.lost.is_set();
            self.stats.count(places, |counts| {
                counts.held -= 1;
                counts.released += u64::from(!was_lost);
            });
        }
    }

    /// All that are kept.
    pub(crate) fn all(&self) -> Vec<Arc<HeldPlaces>> {
        self.held.lock().values().cloned().collect()
    }

    /// Counts of permits, including those that callers keep.
    pub(crate) fn all_stats(&self, now: Micros) -> PermitStats {
        let mut stats = self.stats.snapshot();
        self.lent.each(now, |places| {
            for (_, limit) in places.places() {
                stats.entry(limit.clone()).or_default().held += 1;
            }
        });
        stats
    }

    /// The keys that hold most permits that were taken here, and how many: up to `count` of them.
    pub(crate) fn holding_most(&self, count: usize, now: Micros) -> Vec<(String, u64)> {
        let mut by_key: HashMap<String, u64, foldhash::fast::RandomState> = HashMap::default();
        let mut add = |places: &HeldPlaces| {
            for key in places.keys() {
                match by_key.get_mut(key) {
                    Some(held) => *held += 1,
                    None => drop(by_key.insert(key.to_owned(), 1)),
                }
            }
        };
        self.held.lock().values().for_each(|places| add(places));
        self.lent.each(now, add);
        let mut most: Vec<_> = by_key.into_iter().collect();
        most.sort_unstable_by(|(key, held), (other, theirs)| theirs.cmp(held).then_with(|| key.cmp(other)));
        most.truncate(count);
        most
    }

    /// True if this process is releasing permits of these places, or any if it is `None`.
    pub(crate) fn is_releasing(&self, of: Option<&Charges<'_>>) -> bool {
        let being_released = self.being_released.lock();
        let place = |charge: &Charge<'_>| (charge.key().as_str().to_owned(), charge.limit().name().clone());
        let concerns = |charges: &Charges<'_>| {
            let mut permits = charges.iter().filter(|charge| charge.needs_permit());
            permits.any(|charge| being_released.contains_key(&place(charge)))
        };
        !being_released.is_empty() && of.is_none_or(concerns)
    }

    /// Waits until this process has released these places, or all if it is `None`.
    pub(crate) async fn wait_for_releases(&self, of: Option<&Charges<'_>>) {
        loop {
            // Made before the look, so that no release in between is missed.
            let released = self.has_released.notified();
            if !self.is_releasing(of) {
                return;
            }
            released.await;
        }
    }

    /// The permits to renew now. Until it is known how that went, each is due again only after a while, so that the task of another
    /// runtime does not renew it at the same time, but does so if this runtime stops.
    fn due(&self, now: Micros) -> Vec<Arc<HeldPlaces>> {
        let held = self.held.lock();
        let due: Vec<_> = held.values().filter(|places| places.is_due(now + TICK)).cloned().collect();
        for places in &due {
            places.renew_after(now, TICK + SOON.min(places.hold / 9));
        }
        due
    }
}

/// Places of a caller that goes away if this is dropped: they are released in the background.
pub(crate) struct Unreleased<S: Store + 'static> {
    pub(crate) limiter: Arc<LimiterInner<S>>,
    /// `None` once that is not needed any more.
    pub(crate) places: Option<Arc<HeldPlaces>>,
}

impl<S: Store + 'static> Drop for Unreleased<S> {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            Arc::clone(&self.limiter).release_later(places);
        }
    }
}

/// Counts a release that is under way.
struct Releasing<S> {
    limiter: Arc<LimiterInner<S>>,
    places: Arc<HeldPlaces>,
}

impl<S> Releasing<S> {
    fn new(limiter: Arc<LimiterInner<S>>, places: Arc<HeldPlaces>) -> Self {
        let mut being_released = limiter.permits.being_released.lock();
        for (key, limit) in places.places() {
            *being_released.entry((key.to_owned(), limit.clone())).or_default() += 1;
        }
        drop(being_released);
        Self { limiter, places }
    }
}

impl<S> Drop for Releasing<S> {
    fn drop(&mut self) {
        let permits = &self.limiter.permits;
        let mut being_released = permits.being_released.lock();
        for (key, limit) in self.places.places() {
            let place = (key.to_owned(), limit.clone());
            if let Some(count) = being_released.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    being_released.remove(&place);
                }
            }
        }
        drop(being_released);
        permits.has_released.notify_waiters();
    }
}

/// Two permits that were taken by one id are kept apart.
fn number(places: &Arc<HeldPlaces>) -> (PermitId, usize) {
    (places.id.clone(), Arc::as_ptr(places) as usize)
}

/// A task that renews the permits that are due, as long as any are held.
struct Renewer<S: Store + 'static> {
    limiter: Weak<LimiterInner<S>>,
    /// The runtime of the task. `None` once it ends by itself.
    spawner: Option<Spawner>,
}

impl<S: Store + 'static> Renewer<S> {
    /// Starts a task on this runtime, unless it has one.
    fn start(limiter: &Arc<LimiterInner<S>>, spawner: &Spawner) {
        // The lock is released before the task is spawned: a runtime that has ended drops it at once.
        let is_new = {
            let mut renewers = limiter.permits.renewers.lock();
            let is_new = !renewers.iter().any(|other| other.is_same(spawner));
            renewers.extend(is_new.then(|| spawner.clone()));
            is_new
        };
        if is_new {
            let renewer = Self { limiter: Arc::downgrade(limiter), spawner: Some(spawner.clone()) };
            spawner.spawn(renewer.run(limiter.runtime.clone()));
        }
    }

    async fn run(mut self, runtime: Runtime) {
        loop {
            runtime.sleep(TICK).await;
            let Some(limiter) = self.limiter.upgrade() else { return };
            self.renew_due(&limiter).await;
            // Both locks are held until the end of this task is noted, so that a permit that is added then starts another.
            let held = limiter.permits.held.lock();
            if held.is_empty() {
                self.leave(&limiter);
                return;
            }
        }
    }

    /// Lets the next permit that is taken on this runtime start another task.
    fn leave(&mut self, limiter: &LimiterInner<S>) {
        if let Some(own) = self.spawner.take() {
            limiter.permits.renewers.lock().retain(|spawner| !spawner.is_same(&own));
        }
    }

    async fn renew_due(&self, limiter: &Arc<LimiterInner<S>>) {
        let due = limiter.permits.due(limiter.fallback.clock.now());
        for some in due.chunks(AT_ONCE) {
            let renewals = some.iter().map(|places| renew(Arc::clone(limiter), Arc::clone(places)));
            // A store that panics for one permit must not lose the others.
            join_all(renewals.map(|renewal| AssertUnwindSafe(renewal).catch_unwind())).await;
        }
    }
}

impl<S: Store + 'static> Drop for Renewer<S> {
    /// Also if its runtime ends.
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.upgrade() {
            self.leave(&limiter);
        }
    }
}

/// Renews one permit. One that is not held any more is taken again if there is a place: its holder is still at work.
async fn renew<S: Store + 'static>(limiter: Arc<LimiterInner<S>>, places: Arc<HeldPlaces>) {
    let Some(charges) = places.charges() else { return };
    let sent = limiter.fallback.clock.now();
    let answer = limiter.renew_places(&places, &charges).await;
    let now = limiter.fallback.clock.now();
    if places.ended.is_set() {
        // It was released while it was being renewed, and may have been taken again after that, also in one of two slots.
        limiter.release_later(places);
        return;
    }
    // A permit that was reported as lost stays lost, even if the store held it all the time.
    let mut is_lost = !places.is_held(now);
    let is_local = places.counted_in() == PlacesIn::Local
        && limiter.fallback.permit(&charges, &places.id, PermitStep::Renew);
    match answer {
        Ok(true) => places.renewed(sent, PlacesIn::Store),
        Err(_) if is_local && !is_lost => places.renewed(sent, PlacesIn::Local),
        // The store counts again, and has no place for it: it stays above the limit, and its holder is notified.
        Ok(false) => is_lost = true,
        Err(_) => {}
    }
    if !matches!(answer, Ok(true)) {
        // Several tries are left before its time is over. What the store does not know is entered soon after it is back.
        let pause = places.hold / 9;
        places.renew_after(now, if places.counted_in() == PlacesIn::Store { pause } else { pause.min(SOON) });
    }
    if is_lost && places.lose() {
        limiter.permits.stats.count(&places, |counts| counts.lost += 1);
    }
}

impl<S: Store + 'static> LimiterInner<S> {
    /// The runtime for work about a permit. The one that it was taken on may have ended.
    fn spawner_for(&self, places: &HeldPlaces) -> Option<Spawner> {
        self.runtime.spawner().or_else(|| places.spawner.clone())
    }

    /// Renews places in the store, or takes them again. True if they are held there now.
    async fn renew_places(&self, places: &HeldPlaces, charges: &Charges<'_>) -> Result<bool, StoreError> {
        // A node that hangs must not make the renewals of others late.
        let deadline = self.deadline.min(places.hold / 9);
        let step = async |step| self.in_time(deadline, self.store.permit(charges, &places.id, step)).await;
        if places.counted_in() == PlacesIn::Store && step(PermitStep::Renew).await?.allowed {
            return Ok(true);
        }
        if places.ended.is_set() {
            return Ok(false);
        }
        let was_held = places.is_held(self.fallback.clock.now());
        // Set before it is asked: it may be released meanwhile.
        let was_in_store = !places.in_store.set(true);
        places.asked_again.set(true);
        let retaken = step(PermitStep::Retake).await;
        if let Err(why) = &retaken {
            if why.may_have_run() {
                places.unanswered.set(true);
            } else {
                places.in_store.set(was_in_store);
            }
        }
        let taken = retaken?.allowed;
        if taken && !was_held && places.lose() {
            // The place counts again, but another may have had it meanwhile.
            self.permits.stats.count(places, |counts| counts.lost += 1);
        }
        if taken && places.counted_in() == PlacesIn::Local {
            self.fallback.permit(charges, &places.id, RELEASE);
        }
        Ok(taken)
    }

    /// Releases places that are counted in the embedded store of the policy `local`.
    fn release_locally(&self, places: &HeldPlaces) {
        if let Some(charges) = places.charges().filter(|_| places.counted_in() == PlacesIn::Local) {
            self.fallback.permit(&charges, &places.id, RELEASE);
        }
    }

    /// Releases places once. Returns whether the store held them.
    async fn release(&self, places: &HeldPlaces) -> Result<bool, StoreError> {
        self.release_locally(places);
        let Some(charges) = places.charges() else { return Ok(false) };
        // Also if they are counted elsewhere: the store may have got a question whose answer was lost.
        let mut was_held = false;
        if places.in_store.is_set() {
            let released = self.store.permit(&charges, &places.id, RELEASE);
            was_held = self.in_time(self.deadline, released).await?.allowed;
        }
        self.permits.has_released.notify_waiters();
        Ok(was_held)
    }

    /// Tries to release places until that is done, or their hold time is over. Returns whether the store held them.
    async fn release_until_done(&self, places: &HeldPlaces) -> bool {
        let give_up = self.fallback.clock.now() + places.hold;
        let mut pause = FIRST_PAUSE;
        let mut released = self.release(places).await;
        while released.is_err() && self.fallback.clock.now() < give_up {
            self.runtime.sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            released = self.release(places).await;
        }
        released.unwrap_or(false)
    }

    /// Releases places whose question may reach the store after their release: two questions on two connections may arrive in
    /// another order, and a lost packet is sent again after a while.
    async fn release_late(&self, places: &HeldPlaces) {
        for pause in [self.deadline, LATE_PACKET, 5 * LATE_PACKET] {
            self.runtime.sleep(pause).await;
            let was_held = matches!(self.release(places).await, Ok(true));
            if !places.may_arrive_late(was_held) {
                return;
            }
        }
    }
}
