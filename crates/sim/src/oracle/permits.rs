//! Permits: at most as many holders as there are places, and no place that is kept without a holder.

use std::collections::{BTreeMap, BTreeSet};

use spile_core::Decision;

use super::script::{BucketId, Executed, Op, Shape, Verdict};
use super::{Asked, Broken};
use crate::fleet::report::Owed;
use crate::scenario::{Fault, LimitSpec, PLAN_NAMES, Scenario};
use crate::scheduler::{MS, Nanos, SECOND};

/// How long a place stays taken without a holder, and how long after the last fault.
const FREED_AFTER: Nanos = SECOND;
const FREED_AFTER_FAULT: Nanos = 3 * SECOND;

/// A permit that the store holds.
struct Stored {
    instance: usize,
    places: Vec<BucketId>,
    /// Since when no caller has held it.
    idle_since: Option<Nanos>,
}

pub(crate) struct Permits {
    stored: BTreeMap<String, Stored>,
    /// When the last fault ended.
    healed: Nanos,
    has_faults: bool,
    taken: BTreeMap<String, Taken>,
    /// Instances that were killed. What they had sent is still executed.
    dead: BTreeSet<usize>,
    /// The most places that each set ever has, by the name of its limit.
    most: BTreeMap<String, u64>,
    /// Plans that have changed.
    changed: BTreeSet<&'static str>,
    /// When a runtime last ended.
    ended: Nanos,
    /// Nodes whose clock stepped: what ends then is unknown.
    stepped: BTreeSet<usize>,
    /// When the permits of all sets may have been lost. Those asked for later are there.
    lost: Nanos,
    /// Sets that were reset.
    resets: BTreeMap<String, Resets>,
    /// A node may lose what it has answered, at any time.
    forgets: bool,
}

/// Resets of a set.
#[derive(Clone, Copy, Default)]
struct Resets {
    /// When the last one was answered.
    answered: Nanos,
    /// Those that may still run.
    open: u32,
}

struct Taken {
    instance: usize,
    places: Vec<BucketId>,
    /// The store said that it has the places.
    in_store: bool,
    is_killed: bool,
    /// When it was asked for.
    since: Nanos,
}

impl Permits {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut most = BTreeMap::new();
        for (plan, name) in scenario.plans.iter().zip(PLAN_NAMES) {
            for limits in &plan.versions {
                for (limit, own) in limits.iter().zip('a'..) {
                    let LimitSpec::Concurrency { permits, .. } = *limit else { continue };
                    let name = if limits.len() == 1 { name.to_owned() } else { format!("{name}/{own}") };
                    let most = most.entry(name).or_insert(0);
                    *most = permits.max(*most);
                }
            }
        }
        Self {
            stored: BTreeMap::new(),
            healed: 0,
            has_faults: false,
            taken: BTreeMap::new(),
            dead: BTreeSet::new(),
            most,
            changed: BTreeSet::new(),
            ended: 0,
            stepped: BTreeSet::new(),
            lost: 0,
            resets: BTreeMap::new(),
            forgets: false,
        }
    }

    pub(crate) fn failed(&mut self, now: Nanos, fault: Fault) {
        self.has_faults |= !matches!(fault, Fault::EndRuntime(_));
        self.healed = self.healed.max(now + Nanos::from(fault.lasts_ms()) * MS);
        if let Fault::StepNode(node, _) = fault {
            self.stepped.insert(node.into());
        }
        self.forgets |= matches!(fault, Fault::FailOver(..) | Fault::Demote(_));
        if fault.loses_state() {
            self.lost = self.lost.max(now + Nanos::from(fault.lasts_ms()) * MS);
            // A release may be lost, too.
            self.stored.clear();
        }
    }

    pub(crate) fn plan_changed(&mut self, plan: &'static str) {
        self.changed.insert(plan);
    }

    /// True if nothing has happened that loses this permit: no fault, no reset, and no plan with another hold time.
    pub(crate) fn keeps(&self, id: &str) -> bool {
        let is_kept = |taken: &Taken| {
            taken.places.iter().all(|place| self.has_since(taken, place) && !self.has_changed(&place.key))
        };
        let is_later = |taken: &Taken| taken.since > self.ended + SECOND;
        !self.has_faults && self.taken.get(id).is_some_and(|taken| is_later(taken) && is_kept(taken))
    }

    /// True if the set has the permit since it was taken.
    fn has_since(&self, taken: &Taken, place: &BucketId) -> bool {
        let resets = self.resets.get(&place.key).copied().unwrap_or_default();
        !self.forgets && resets.open == 0 && taken.since >= self.lost.max(resets.answered)
    }

    /// Called when callers reset these buckets.
    pub(crate) fn resets(&mut self, charges: &[Owed]) {
        for owed in charges {
            self.resets.entry(owed.bucket.key.clone()).or_default().open += 1;
        }
    }

    /// Called when they have been reset.
    pub(crate) fn was_reset(&mut self, now: Nanos, charges: &[Owed]) {
        for owed in charges {
            let resets = self.resets.entry(owed.bucket.key.clone()).or_default();
            (resets.answered, resets.open) = (now, resets.open.saturating_sub(1));
        }
    }

    pub(crate) fn acquired(&mut self, id: &str, instance: usize, asked: &Asked, decision: &Decision) {
        let places = asked.charges.iter().filter(|owed| owed.bucket.shape == Shape::Concurrency);
        let places = places.map(|owed| owed.bucket.clone()).collect();
        let in_store = !decision.degraded();
        let taken = Taken { instance, places, in_store, is_killed: false, since: asked.since };
        self.taken.insert(id.to_owned(), taken);
    }

    /// Hears of what a script did.
    pub(crate) fn executed(&mut self, instance: usize, question: &Executed) {
        let takes =
            matches!(question.operation, Op::Acquire | Op::Retake) && question.verdict == Verdict::Done;
        let Some(id) = question.permit.as_deref().filter(|_| takes && !self.dead.contains(&instance)) else {
            return;
        };
        let places = question.charges.iter().filter(|charge| charge.bucket.shape == Shape::Concurrency);
        let places = places.map(|charge| charge.bucket.clone());
        let id = String::from_utf8_lossy(id).into_owned();
        let own = self.stored.entry(id).or_insert(Stored { instance, places: Vec::new(), idle_since: None });
        own.places.extend(places);
    }

    /// The places of permits that no caller has held for a while, which have to be free. Each is returned once.
    pub(crate) fn idle<'a>(
        &mut self,
        now: Nanos,
        held: impl Iterator<Item = &'a str>,
    ) -> Vec<(String, BucketId)> {
        let held: BTreeSet<&str> = held.collect();
        let (healed, after) = (self.healed, if self.has_faults { FREED_AFTER_FAULT } else { FREED_AFTER });
        let mut idle = Vec::new();
        self.stored.retain(|id, stored| {
            if held.contains(id.as_str()) {
                stored.idle_since = None;
                return true;
            }
            let since = (*stored.idle_since.get_or_insert(now)).max(healed);
            let is_over = since + after <= now;
            if is_over {
                idle.extend(stored.places.drain(..).map(|place| (id.clone(), place)));
            }
            !is_over
        });
        idle
    }

    /// Hears that the tasks of an instance were dropped. Permits that are taken later are renewed all the same, and released.
    pub(crate) fn runtime_ended(&mut self, now: Nanos, instance: usize) {
        self.stored.retain(|_, stored| stored.instance != instance);
        for taken in self.taken.values_mut().filter(|taken| taken.instance == instance) {
            taken.is_killed = true;
        }
        self.ended = now;
    }

    pub(crate) fn killed(&mut self, instance: usize) {
        self.dead.insert(instance);
        self.stored.retain(|_, stored| stored.instance != instance);
        for taken in self.taken.values_mut().filter(|taken| taken.instance == instance) {
            taken.is_killed = true;
        }
    }

    /// Judges the permits that callers hold at one moment.
    pub(crate) fn held<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<(), Broken> {
        let mut holders: BTreeMap<&BucketId, u64> = BTreeMap::new();
        for taken in ids.filter_map(|id| self.taken.get(id)).filter(|taken| taken.in_store) {
            for place in taken.places.iter().filter(|place| self.has_since(taken, place)) {
                *holders.entry(place).or_default() += 1;
            }
        }
        for (bucket, count) in holders {
            let name = limit_of(&bucket.key);
            let most = self.most.get(name).copied().unwrap_or(0);
            if count > most {
                let what = format!("{count} callers hold places of {}, which has {most}", bucket.key);
                let is_changed = self.has_changed(&bucket.key);
                let oracle = if is_changed { "permits held after a change" } else { "permits held" };
                return Err(Broken::new(oracle, what));
            }
        }
        Ok(())
    }

    /// True if the plan of a set has changed.
    pub(crate) fn has_changed(&self, set: &str) -> bool {
        self.changed.contains(limit_of(set).split('/').next().unwrap_or_default())
    }

    /// The places of a permit that was taken from the store.
    pub(crate) fn places_of(&self, id: &str) -> Option<Vec<BucketId>> {
        self.taken
            .get(id)
            .filter(|taken| taken.in_store && !taken.is_killed)
            .map(|taken| taken.places.clone())
    }

    /// The places of all permits that instances gave up, unless they were killed.
    pub(crate) fn all_places(&self) -> Vec<(String, BucketId)> {
        let alive = self.taken.iter().filter(|(_, taken)| !taken.is_killed);
        alive.flat_map(|(id, taken)| taken.places.iter().map(|place| (id.clone(), place.clone()))).collect()
    }

    /// True if the end of a permit is known at this node.
    pub(crate) fn tells_time(&self, node: usize) -> bool {
        !self.stepped.contains(&node)
    }
}

/// The limit of a set.
fn limit_of(set: &str) -> &str {
    set.split_once(":permits:").map_or("", |(_, name)| name.trim_start_matches("shadow:"))
}
