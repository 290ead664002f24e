//! Plans by name.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use foldhash::HashMap;
use thread_local::ThreadLocal;

use super::{Plan, PlanName};

/// Looks up plans by name. Called on every decision, so it must answer from memory.
pub trait PlanRegistry: Send + Sync {
    /// Returns the plan of that name.
    fn plan(&self, name: &str) -> Option<Plan>;

    /// The names of all plans, for messages. Empty if the registry does not know them.
    fn names(&self) -> Vec<PlanName> {
        Vec::new()
    }

    /// Calls `visit` with the plan of that name, and returns whether there is one. A registry that can show a plan in place saves
    /// every decision a copy.
    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        self.plan(name).inspect(visit).is_some()
    }

    /// Lends the plan of that name if this thread has cached it. `None` does not mean that there is no such plan:
    /// [`visit`](Self::visit) decides that. A registry that lends plans allows decisions without a copy of any part of the plan.
    fn lend(&self, _name: &str) -> Option<Ref<'_, Plan>> {
        None
    }
}

impl<R: PlanRegistry + ?Sized> PlanRegistry for Arc<R> {
    fn plan(&self, name: &str) -> Option<Plan> {
        (**self).plan(name)
    }

    fn names(&self) -> Vec<PlanName> {
        (**self).names()
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        (**self).visit(name, visit)
    }

    #[inline]
    fn lend(&self, name: &str) -> Option<Ref<'_, Plan>> {
        (**self).lend(name)
    }
}

/// Plans held in memory, replaceable while decisions are being made.
///
/// A replaced plan takes effect on the next decision. Buckets keep their tokens, up to the new capacity.
#[derive(Default)]
pub struct InMemoryPlans {
    plans: ArcSwap<PlanTable>,
    /// Incremented whenever plans are replaced.
    version: AtomicU64,
    seen: ThreadLocal<RefCell<ThreadCache>>,
}

/// The plans, and their positions by name.
#[derive(Clone, Default)]
struct PlanTable {
    /// Each name is stored beside its plan as a plain string, because it is compared on every decision.
    plans: Vec<(Box<str>, Plan)>,
    places: HashMap<Box<str>, usize>,
}

/// A thread's cached copy of the plans, so that threads which only read share no memory that is written to.
struct ThreadCache {
    version: u64,
    plans: Arc<PlanTable>,
    /// The position of the plan that was found last, which the next decision usually needs again.
    last: usize,
}

impl InMemoryPlans {
    /// A registry of these plans. Of two plans with the same name, it keeps the later one.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        Self { plans: ArcSwap::from_pointee(plans.into_iter().collect()), ..Self::default() }
    }

    /// Replaces all plans in one step.
    pub fn replace_all(&self, plans: impl IntoIterator<Item = Plan>) {
        self.plans.store(Arc::new(plans.into_iter().collect()));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Adds the plan, or replaces the one of the same name.
    pub fn put(&self, plan: &Plan) {
        self.plans.rcu(|table| table.plans().chain([plan]).cloned().collect::<PlanTable>());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Removes the plan. Its buckets stay in the store until they are full again.
    pub fn remove(&self, name: &str) {
        let others = |plan: &&Plan| plan.name().as_str() != name;
        self.plans.rcu(|table| table.plans().filter(others).cloned().collect::<PlanTable>());
        self.version.fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn seen(&self) -> &RefCell<ThreadCache> {
        // The version is read first: plans that are newer than it are read once more.
        self.seen.get_or(|| {
            let version = self.version.load(Ordering::Acquire);
            RefCell::new(ThreadCache { version, plans: self.plans.load_full(), last: 0 })
        })
    }

    /// Every plan, by name.
    pub fn all(&self) -> Vec<Plan> {
        let mut plans: Vec<_> = self.plans.load().plans().cloned().collect();
        plans.sort_by(|a, b| a.name().cmp(b.name()));
        plans
    }
}

impl PlanRegistry for InMemoryPlans {
    fn plan(&self, name: &str) -> Option<Plan> {
        self.plans.load().find(name).map(|(_, plan)| plan.clone())
    }

    fn names(&self) -> Vec<PlanName> {
        self.all().iter().map(|plan| plan.name().clone()).collect()
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        match self.seen().try_borrow_mut() {
            Ok(mut seen) => seen.find(self, name).map(visit).is_some(),
            // The visitor of one plan looks up another, while the cache is borrowed.
            Err(_) => self.plan(name).as_ref().map(visit).is_some(),
        }
    }

    fn lend(&self, name: &str) -> Option<Ref<'_, Plan>> {
        let seen = self.seen();
        seen.try_borrow_mut().ok()?.find(self, name)?;
        Ref::filter_map(seen.try_borrow().ok()?, ThreadCache::last).ok()
    }
}

impl ThreadCache {
    #[inline]
    fn find(&mut self, registry: &InMemoryPlans, name: &str) -> Option<&Plan> {
        let version = registry.version.load(Ordering::Acquire);
        if self.version != version {
            *self = Self { version, plans: registry.plans.load_full(), last: 0 };
        }
        if self.plans.plans.get(self.last).is_none_or(|(last, _)| **last != *name) {
            self.last = self.plans.find(name)?.0;
        }
        self.last()
    }

    /// The plan that was found last.
    #[inline]
    fn last(&self) -> Option<&Plan> {
        self.plans.plans.get(self.last).map(|(_, plan)| plan)
    }
}

impl PlanTable {
    fn find(&self, name: &str) -> Option<(usize, &Plan)> {
        let &place = self.places.get(name)?;
        Some((place, &self.plans[place].1))
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter().map(|(_, plan)| plan)
    }
}

impl FromIterator<Plan> for PlanTable {
    fn from_iter<I: IntoIterator<Item = Plan>>(plans: I) -> Self {
        let mut table = Self::default();
        for plan in plans {
            let name: Box<str> = plan.name().as_str().into();
            let place = *table.places.entry(name.clone()).or_insert(table.plans.len());
            match table.plans.get_mut(place) {
                Some(earlier) => earlier.1 = plan,
                None => table.plans.push((name, plan)),
            }
        }
        table
    }
}

impl fmt::Debug for InMemoryPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InMemoryPlans").field(&self.all()).finish()
    }
}
