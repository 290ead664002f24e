//! Where plans are looked up by name.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use foldhash::HashMap;
use thread_local::ThreadLocal;

use super::{Plan, PlanName};

/// Answers which limits a plan has. Asked on every decision, so it must answer from memory.
pub trait PlanRegistry: Send + Sync {
    /// The plan of that name, if there is one.
    fn plan(&self, name: &str) -> Option<Plan>;

    /// The names of all plans, for messages. Empty if the registry cannot tell.
    fn names(&self) -> Vec<PlanName> {
        Vec::new()
    }

    /// Shows the plan of that name, and says whether there is one. A registry that can show a plan in place
    /// saves every decision a copy.
    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        self.plan(name).inspect(visit).is_some()
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
}

/// Plans held in memory, replaceable while decisions are being made.
///
/// A replaced plan takes effect on the next decision. Buckets keep their tokens, up to the new capacity.
#[derive(Default)]
pub struct InMemoryPlans {
    plans: Arc<ArcSwap<Table>>,
    seen: ThreadLocal<RefCell<Seen>>,
}

/// The plans, each by its place, and the places by name.
#[derive(Clone, Default)]
struct Table {
    /// With the bare text of each name: it is compared on every decision.
    plans: Vec<(Box<str>, Plan)>,
    places: HashMap<Box<str>, usize>,
}

/// The plans as one thread saw them last, so that threads which only look share nothing that is written to.
struct Seen {
    plans: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    /// Where the plan lies that was asked for last; it is mostly the next one too.
    last: usize,
}

impl InMemoryPlans {
    /// A registry of these plans. Of two with one name the later counts.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        let plans = Arc::new(ArcSwap::from_pointee(plans.into_iter().collect()));
        Self { plans, seen: ThreadLocal::new() }
    }

    /// Puts these plans in place of all there are, in one step.
    pub fn replace_all(&self, plans: impl IntoIterator<Item = Plan>) {
        self.plans.store(Arc::new(plans.into_iter().collect()));
    }

    /// Adds the plan, or puts it in place of the one with its name.
    pub fn put(&self, plan: &Plan) {
        self.plans.rcu(|table| table.plans().chain([plan]).cloned().collect::<Table>());
    }

    /// Takes the plan away. Its buckets stay in the store until they are full again.
    pub fn remove(&self, name: &str) {
        let others = |plan: &&Plan| plan.name().as_str() != name;
        self.plans.rcu(|table| table.plans().filter(others).cloned().collect::<Table>());
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
        let seen = self.seen.get_or(|| RefCell::new(Seen::of(&self.plans)));
        match seen.try_borrow_mut() {
            Ok(mut seen) => seen.find(name).map(visit).is_some(),
            // Somebody who visits a plan visits another.
            Err(_) => self.plan(name).as_ref().map(visit).is_some(),
        }
    }
}

impl Seen {
    fn of(plans: &Arc<ArcSwap<Table>>) -> Self {
        Self { plans: Cache::new(Arc::clone(plans)), last: 0 }
    }

    #[inline]
    fn find(&mut self, name: &str) -> Option<&Plan> {
        let table = self.plans.load();
        if let Some((last, plan)) = table.plans.get(self.last)
            && **last == *name
        {
            return Some(plan);
        }
        let (place, plan) = table.find(name)?;
        self.last = place;
        Some(plan)
    }
}

impl Table {
    fn find(&self, name: &str) -> Option<(usize, &Plan)> {
        let &place = self.places.get(name)?;
        Some((place, &self.plans[place].1))
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter().map(|(_, plan)| plan)
    }
}

impl FromIterator<Plan> for Table {
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
