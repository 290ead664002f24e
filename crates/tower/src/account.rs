//! What one request owes, and the layer that it owes it to.

use std::sync::Arc;

use http::request::Parts;
use spile_core::{Decision, Micros, Store};
use spile_limiter::LimiterError;

use crate::due::{Dues, charges};
use crate::shared::{Shared, Undue};

/// One request's dues beside the layer that they are owed to, so that the decision and a later settlement share
/// them behind one pointer.
pub(crate) struct Account<S> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) dues: Dues,
}

/// What the limiter said about an account.
pub(crate) struct Verdict<S> {
    pub(crate) account: Arc<Account<S>>,
    pub(crate) ruling: Result<Ruling, LimiterError>,
}

/// A decision, and the time of day at which it was made.
pub(crate) struct Ruling {
    pub(crate) decision: Decision,
    pub(crate) now: Micros,
}

impl<S: Store> Account<S> {
    /// The account of a request. It is filled where it lies: what it holds is too large to be moved for nothing.
    pub(crate) fn of(request: &Parts, shared: Arc<Shared<S>>) -> Result<Arc<Self>, Undue> {
        let mut account = Arc::new(Self { shared, dues: Dues::default() });
        if let Some(Self { shared, dues }) = Arc::get_mut(&mut account) {
            shared.read(request, dues)?;
        }
        Ok(account)
    }

    /// Asks the limiter, and hands the account back with the answer.
    pub(crate) async fn decide(self: Arc<Self>) -> Verdict<S> {
        let ruling = self.ruling().await;
        Verdict { account: self, ruling }
    }

    /// A failing store is not an error: the failure policy makes it a decision.
    async fn ruling(&self) -> Result<Ruling, LimiterError> {
        let ask = self.shared.ask(charges(&self.dues, |due| due.cost)?, &self.dues);
        let decision = self.shared.limiter.decide(ask).await;
        Ok(Ruling { decision, now: self.shared.clock.now() })
    }
}
