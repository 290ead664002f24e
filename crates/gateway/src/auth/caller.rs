//! The caller of a request.

use spile_policy::CallerTenant;

/// The caller of a request. Anonymous by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) tenant: Option<CallerTenant>,
    /// The user that a signed token names.
    pub(crate) principal: Option<String>,
    /// True if the API key was sent as a bearer token.
    pub(crate) key_in_bearer: bool,
}

impl Caller {
    pub(crate) const fn is_anonymous(&self) -> bool {
        self.tenant.is_none() && self.principal.is_none()
    }

    /// The name of the tenant's plan, if it has one.
    pub(crate) fn plan(&self) -> Option<&str> {
        Some(self.tenant.as_ref()?.plan.as_ref()?.as_str())
    }
}
