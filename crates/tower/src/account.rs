//! What one request owes, and the layer that it owes it to.

use std::sync::Arc;

use spile_core::Store;
use spile_limiter::LimiterError;

use crate::due::{Dues, charges};
use crate::shared::{Ruling, Shared};

/// One request's dues beside the layer that they are owed to, so that the decision and a later settlement share
/// them behind one pointer.
pub(crate) struct Account<S> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) dues: Dues,
}

impl<S: Store> Account<S> {
    /// Asks the limiter. A failing store is not an error: the failure policy makes it a decision.
    pub(crate) async fn decide(self: Arc<Self>) -> Result<Ruling, LimiterError> {
        let ask = self.shared.ask(charges(&self.dues, |due| due.cost)?, &self.dues);
        let decision = self.shared.limiter.decide(ask).await;
        Ok(Ruling { decision, now: self.shared.clock.now() })
    }
}
