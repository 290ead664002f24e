//! Which plans apply to a request.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;

use crate::key::Tenant;

/// Selects the plans that apply to a request. Plans are looked up at each decision, so that a replaced plan takes effect at once.
pub trait PlanResolver: Send + Sync {
    /// The names of the plans. If the list is empty, the rule does not limit the request.
    fn plans<'r>(&'r self, request: &'r Parts) -> PlanNames<'r>;

    /// Returns the plans that do not depend on the request, so that the layer can check when it is built that they exist. Empty by
    /// default.
    fn fixed_plans(&self) -> PlanNames<'_> {
        PlanNames::none()
    }
}

/// The names of the plans that apply to one request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanNames<'r>(NamesRepr<'r>);

/// A single plan, as most requests have, needs no allocation.
#[derive(Clone, Debug, Eq, PartialEq)]
enum NamesRepr<'r> {
    One(Cow<'r, str>),
    List(Vec<Cow<'r, str>>),
}

impl<'r> PlanNames<'r> {
    /// Names no plan: the request is not limited.
    pub const fn none() -> Self {
        Self(NamesRepr::List(Vec::new()))
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let names = match &self.0 {
            NamesRepr::One(name) => std::slice::from_ref(name),
            NamesRepr::List(names) => names,
        };
        names.iter().map(|name| &**name)
    }

    fn one(name: impl Into<Cow<'r, str>>) -> Self {
        Self(NamesRepr::One(name.into()))
    }
}

impl<'r> From<&'r str> for PlanNames<'r> {
    fn from(name: &'r str) -> Self {
        Self::one(name)
    }
}

impl From<String> for PlanNames<'_> {
    fn from(name: String) -> Self {
        Self::one(name)
    }
}

impl<'r, N: Into<Cow<'r, str>>, const COUNT: usize> From<[N; COUNT]> for PlanNames<'r> {
    fn from(names: [N; COUNT]) -> Self {
        names.into_iter().collect()
    }
}

impl<'r, N: Into<Cow<'r, str>>> From<Vec<N>> for PlanNames<'r> {
    fn from(names: Vec<N>) -> Self {
        names.into_iter().collect()
    }
}

impl<'r, N: Into<Cow<'r, str>>> FromIterator<N> for PlanNames<'r> {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        Self(NamesRepr::List(names.into_iter().map(Into::into).collect()))
    }
}

impl PlanResolver for &'static str {
    fn plans<'r>(&'r self, _request: &'r Parts) -> PlanNames<'r> {
        self.fixed_plans()
    }

    fn fixed_plans(&self) -> PlanNames<'_> {
        PlanNames::one(*self)
    }
}

impl PlanResolver for String {
    fn plans<'r>(&'r self, _request: &'r Parts) -> PlanNames<'r> {
        self.fixed_plans()
    }

    fn fixed_plans(&self) -> PlanNames<'_> {
        PlanNames::one(self.as_str())
    }
}

impl<const COUNT: usize> PlanResolver for [&'static str; COUNT] {
    fn plans<'r>(&'r self, _request: &'r Parts) -> PlanNames<'r> {
        self.fixed_plans()
    }

    fn fixed_plans(&self) -> PlanNames<'_> {
        self.iter().copied().collect()
    }
}

impl PlanResolver for Vec<String> {
    fn plans<'r>(&'r self, _request: &'r Parts) -> PlanNames<'r> {
        self.fixed_plans()
    }

    fn fixed_plans(&self) -> PlanNames<'_> {
        self.iter().map(String::as_str).collect()
    }
}

/// The plan of the [`Tenant`] in the request's extensions.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    otherwise: String,
}

impl TenantPlan {
    /// The tenant's plan, or `plan` if the tenant has no plan or the request has no tenant.
    pub fn or(plan: impl Into<String>) -> Self {
        Self { otherwise: plan.into() }
    }
}

impl PlanResolver for TenantPlan {
    fn plans<'r>(&'r self, request: &'r Parts) -> PlanNames<'r> {
        let tenant = request.extensions.get::<Tenant>();
        PlanNames::one(tenant.and_then(Tenant::plan).unwrap_or(&self.otherwise))
    }

    fn fixed_plans(&self) -> PlanNames<'_> {
        PlanNames::one(self.otherwise.as_str())
    }
}

/// The plans that a closure names. The layer cannot check when it is built that they exist.
#[derive(Clone)]
pub struct PlansBy<F>(F);

impl<F, N> PlansBy<F>
where
    F: Fn(&Parts) -> N + Send + Sync,
    N: Into<PlanNames<'static>>,
{
    /// Asks `find` for the names: a `&'static str`, a `String`, or a list of either.
    pub const fn new(find: F) -> Self {
        Self(find)
    }
}

impl<F, N> PlanResolver for PlansBy<F>
where
    F: Fn(&Parts) -> N + Send + Sync,
    N: Into<PlanNames<'static>>,
{
    fn plans<'r>(&'r self, request: &'r Parts) -> PlanNames<'r> {
        (self.0)(request).into()
    }
}

impl<F> fmt::Debug for PlansBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlansBy")
    }
}
