//! Who sends a request, as far as that is known.

use spile_policy::CallerTenant;

/// Who sends a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) tenant: Option<CallerTenant>,
    /// The user that a signed token names.
    pub(crate) principal: Option<String>,
    /// Whether its API key came as a bearer token.
    pub(crate) by_bearer: bool,
}

impl Caller {
    pub(crate) const fn is_anonymous(&self) -> bool {
        self.tenant.is_none() && self.principal.is_none()
    }

    /// The name of the plan that the caller holds, if it holds one.
    pub(crate) fn plan(&self) -> Option<&str> {
        Some(self.tenant.as_ref()?.plan.as_ref()?.as_str())
    }
}
