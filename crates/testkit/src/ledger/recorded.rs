//! A store whose answers are written down.

use spile_core::{
    Answer, Charges, Cost, HeldPermit, Inspect, Kept, Key, NamedLimit, Operation, Reply, Spent, Store,
    StoreError, StoreExt, Verdict,
};

use super::Ledger;

/// Forwards every call to the store under test, and records what it admitted.
///
/// A failed call is not recorded: if it did run, its tokens were admitted to no caller, which breaks no bound.
#[derive(Clone, Debug)]
pub struct Recorded<S> {
    store: S,
    ledger: Ledger,
}

impl<S> Recorded<S> {
    /// `store`, with its answers entered in `ledger`.
    pub const fn new(store: S, ledger: Ledger) -> Self {
        Self { store, ledger }
    }

    /// The store itself.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Store> Store for Recorded<S> {
    fn call<'a>(
        &'a self,
        operation: Operation<'a>,
        charges: &'a Charges<'a>,
    ) -> Answer<impl Future<Output = Result<Reply, StoreError>> + Send + 'a> {
        Answer::Later(async move {
            let reply = self.store.ask(operation, charges).await?;
            for charge in charges.iter() {
                let is_done = reply.verdict == Verdict::Done;
                match operation {
                    Operation::Spend | Operation::Reserve(_) => {
                        let spent = if is_done { charge.cost() } else { Cost::ZERO };
                        self.ledger.admitted(charge, spent.amount(), reply.at);
                    }
                    Operation::SpendUpTo => self.ledger.admitted(charge, reply.amount, reply.at),
                    _ => {}
                }
            }
            Ok(reply)
        })
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Not forwarded: each answer is recorded.
    fn spend_one(&self, _: Key<'_>, _: &NamedLimit, _: Cost) -> Option<Spent> {
        None
    }
}

impl<S: Inspect> Inspect for Recorded<S> {
    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        self.store.holders(charges).await
    }

    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        self.store.kept(charges).await
    }
}
