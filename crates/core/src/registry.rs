//! Where plans are looked up by name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::HashMap;

use crate::{Plan, PlanName};

/// Answers which limits a plan has. Asked on every decision, so it must answer from memory.
pub trait PlanRegistry: Send + Sync {
    /// The plan of that name, if there is one.
    fn plan(&self, name: &str) -> Option<Plan>;

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

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        (**self).visit(name, visit)
    }
}

/// Plans held in memory, replaceable while decisions are being made.
///
/// A replaced plan takes effect on the next decision. Buckets keep their tokens, up to the new capacity.
#[derive(Debug, Default)]
pub struct InMemoryPlans {
    plans: ArcSwap<HashMap<PlanName, Plan>>,
}

impl InMemoryPlans {
    /// A registry of these plans. Of two with one name the later counts.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        let plans = by_name(plans);
        Self { plans: ArcSwap::from_pointee(plans) }
    }

    /// Puts these plans in place of all there are, in one step.
    pub fn replace_all(&self, plans: impl IntoIterator<Item = Plan>) {
        self.plans.store(Arc::new(by_name(plans)));
    }

    /// Adds the plan, or puts it in place of the one with its name.
    pub fn put(&self, plan: &Plan) {
        self.plans.rcu(|plans| {
            let mut plans = HashMap::clone(plans);
            plans.insert(plan.name().clone(), plan.clone());
            plans
        });
    }

    /// Takes the plan away. Its buckets stay in the store until they are full again.
    pub fn remove(&self, name: &str) {
        self.plans.rcu(|plans| {
            let mut plans = HashMap::clone(plans);
            plans.remove(name);
            plans
        });
    }

    /// Every plan, by name.
    pub fn all(&self) -> Vec<Plan> {
        let mut plans: Vec<_> = self.plans.load().values().cloned().collect();
        plans.sort_by(|a, b| a.name().cmp(b.name()));
        plans
    }
}

impl PlanRegistry for InMemoryPlans {
    fn plan(&self, name: &str) -> Option<Plan> {
        self.plans.load().get(name).cloned()
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&Plan)) -> bool {
        self.plans.load().get(name).inspect(|plan| visit(plan)).is_some()
    }
}

fn by_name(plans: impl IntoIterator<Item = Plan>) -> HashMap<PlanName, Plan> {
    plans.into_iter().map(|plan| (plan.name().clone(), plan)).collect()
}
