//! A permit whose client may never receive it.

use spile_core::PermitId;
use spile_limiter::RateLimiter;
use spile_policy::{Enforced, Owed};
use tokio::runtime::Handle;

use super::{Decider, ServerStore};

/// A permit that has been taken and whose client may be gone. It is released if this is dropped before it is answered.
pub(crate) struct UnansweredPermit(Option<(RateLimiter<ServerStore>, Owed, PermitId)>);

impl UnansweredPermit {
    pub(crate) fn new(decider: &Decider, owed: Owed, id: PermitId) -> Self {
        Self(Some((decider.limiter(), owed, id)))
    }

    /// Leaves it to the client, which knows its id.
    pub(crate) fn answer(mut self) {
        self.0 = None;
    }
}

impl Drop for UnansweredPermit {
    fn drop(&mut self) {
        if let (Some((limiter, owed, id)), Ok(runtime)) = (self.0.take(), Handle::try_current())
            && let Enforced::Charged(chain) = owed.enforced
        {
            runtime.spawn(async move {
                // If the store does not answer, the permit ends with its hold time.
                let _released = limiter.release_permit(&chain, &id).await;
            });
        }
    }
}
