//! A store that the table is tried on.

use spile_core::{Charge, Charges, Cost, FakeClock, Key, Operation, Store, StoreExt};

use super::axes::StateKind;
use super::oracle::{PlainCharge, PlainLimit, PlainQuestion, PlainReply, PlainShape, TOKEN};
use super::{PLENTY, TableCell, built, named, plain_reply};

/// A store with what a cell does to it that no caller can: time passes, state is lost and damaged.
pub trait TableSubject {
    /// The type of the store.
    type Store: Store;

    /// Whether stored state can be damaged. If not, the cells about damaged state are refused.
    const CAN_DAMAGE: bool;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Asks a question.
    fn ask(&mut self, operation: Operation<'_>, charges: &Charges<'_>) -> impl Future<Output = PlainReply> {
        async move {
            plain_reply(charges, &self.store().ask(operation, charges).await.expect("the store answers"))
        }
    }

    /// True if the reply is right for this cell.
    fn is_right(
        &mut self,
        cell: TableCell,
        _: &PlainQuestion,
        reply: &PlainReply,
        expected: &PlainReply,
    ) -> bool {
        if cell.is_even { reply == expected } else { reply.is_near(expected) }
    }

    /// The number of questions of cost 0 that are asked before each question.
    fn questions_before(&self) -> usize {
        0
    }

    /// Why the subject cannot be asked about this cell. `None` if it can.
    fn refusal(&self, _: TableCell) -> Option<&'static str> {
        None
    }

    /// The clock of the store.
    fn clock(&self) -> &FakeClock;

    /// Empties the store. Its clock was set to another time.
    fn clear(&mut self);

    /// Follows the clock, which has moved within a cell.
    fn clock_moved(&mut self) {}

    /// Makes the store forget every bucket that it may forget.
    fn forget(&mut self) -> impl Future<Output = ()>;

    /// Damages a bucket as [`StateKind::Broken`] or [`StateKind::Corrupt`] says.
    fn damage(&mut self, _: &PlainCharge, _: StateKind) {}

    /// Checks what a reply does not show. Returns what is wrong.
    fn check(&mut self, _: &PlainQuestion, _: &PlainReply) -> Result<(), String> {
        Ok(())
    }
}

/// A store in memory, which is made anew for each cell.
pub(super) struct InMemory<S, F> {
    make: F,
    store: S,
    clock: FakeClock,
    fillers: u64,
}

impl<S: Store, F: Fn(FakeClock) -> S> InMemory<S, F> {
    pub(super) fn new(make: F) -> Self {
        let clock = FakeClock::default();
        Self { store: make(clock.clone()), make, clock, fillers: 0 }
    }
}

impl<S: Store, F: Fn(FakeClock) -> S> TableSubject for InMemory<S, F> {
    type Store = S;

    const CAN_DAMAGE: bool = false;

    fn store(&self) -> &S {
        &self.store
    }

    fn clock(&self) -> &FakeClock {
        &self.clock
    }

    fn clear(&mut self) {
        self.store = (self.make)(self.clock.clone());
    }

    /// Spends from enough other keys that the store forgets every bucket that it may forget.
    async fn forget(&mut self) {
        let limit =
            built(&PlainLimit { shape: PlainShape::Rate { refill: 1_000 * TOKEN, period: 1 }, ..PLENTY });
        for _ in 0..64 {
            self.fillers += 1;
            let key = format!("filler-{}", self.fillers);
            let key = Key::new(&key).expect("a sound key");
            let charge = Charge::new(key, named("filler", limit), Cost::ONE).expect("one covers one");
            self.store.spend(&charge.into()).await.expect("the store answers");
        }
    }
}
