//! Plans by name.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
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

    /// Calls `visit` with the plan of that name, and returns whether there is one. A registry that can pass a reference to a stored plan
    /// saves a copy in every decision.
    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        self.plan(name).inspect(visit).is_some()
    }

    /// Returns a reference to the plan of that name if this thread has cached it. `None` does not mean that there is no such plan:
    /// [`visit`](Self::visit) decides that. Decisions on a lent plan copy no part of it.
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

/// The plans by name, sorted. Each name is stored beside its plan as a plain string, because it is compared on every decision.
type PlanTable = Vec<(Box<str>, Plan)>;

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
        Self { plans: ArcSwap::from_pointee(sorted(plans)), ..Self::default() }
    }

    /// Replaces all plans in one step.
    pub fn replace_all(&self, plans: impl IntoIterator<Item = Plan>) {
        let plans = sorted(plans);
        self.change(|_| plans.clone());
    }

    /// Adds the plan, or replaces the one of the same name.
    pub fn put(&self, plan: &Plan) {
        self.change(|plans| sorted(plans.iter().map(|(_, plan)| plan).chain([plan]).cloned()));
    }

    /// Removes the plan. Its buckets stay in the store until they are full again.
    pub fn remove(&self, name: &str) {
        self.change(|plans| plans.iter().filter(|(known, _)| **known != *name).cloned().collect());
    }

    fn change(&self, change: impl Fn(&PlanTable) -> PlanTable) {
        self.plans.rcu(|plans| change(plans));
        self.version.fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn seen(&self) -> &RefCell<ThreadCache> {
        // The version is read before the plans, so that plans that are newer than it are read again.
        self.seen.get_or(|| {
            let version = self.version.load(Ordering::Acquire);
            RefCell::new(ThreadCache { version, plans: self.plans.load_full(), last: 0 })
        })
    }

    /// Every plan, by name.
    pub fn all(&self) -> Vec<Plan> {
        self.plans.load().iter().map(|(_, plan)| plan.clone()).collect()
    }
}

impl PlanRegistry for InMemoryPlans {
    fn plan(&self, name: &str) -> Option<Plan> {
        let plans = self.plans.load();
        position(&plans, name).map(|position| plans[position].1.clone())
    }

    fn names(&self) -> Vec<PlanName> {
        self.plans.load().iter().map(|(_, plan)| plan.name().clone()).collect()
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
        if self.plans.get(self.last).is_none_or(|(last, _)| **last != *name) {
            self.last = position(&self.plans, name)?;
        }
        self.last()
    }

    /// The plan that was found last.
    fn last(&self) -> Option<&Plan> {
        self.plans.get(self.last).map(|(_, plan)| plan)
    }
}

/// Of two plans with the same name, the later one is kept.
fn sorted(plans: impl IntoIterator<Item = Plan>) -> PlanTable {
    let by_name: BTreeMap<_, _> = plans.into_iter().map(|plan| (plan.name().as_str().into(), plan)).collect();
    by_name.into_iter().collect()
}

fn position(plans: &PlanTable, name: &str) -> Option<usize> {
    plans.binary_search_by(|(known, _)| (**known).cmp(name)).ok()
}

impl fmt::Debug for InMemoryPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InMemoryPlans").field(&self.all()).finish()
    }
}
