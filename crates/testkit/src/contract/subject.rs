//! A store under test, and the helpers that the promises are written with.

use std::sync::Arc;
use std::time::Duration;

use spile_core::{
    Amount, Charge, Charges, Clock, Cost, Decision, DecisionSource, FakeClock, Inspect, Key, Limit,
    LimitName, Micros, NamedLimit, PartialOutcome, PermitStep, RefundId, ReservationId, SettleOutcome,
    SpendTime, Store, StoreExt,
};

use super::permits::permit_id;

/// A store and its clock.
#[derive(Debug)]
pub struct StoreUnderTest<S> {
    /// The store under test.
    pub store: Arc<S>,
    /// Its only source of time.
    pub clock: FakeClock,
}

/// One charge of a test: key, name of the limit, limit, cost.
pub type ChargeSpec<'a> = (&'a str, &'a str, Limit, u64);

impl<S: Store> StoreUnderTest<S> {
    /// A store that was made with this clock.
    pub fn new(store: S, clock: FakeClock) -> Self {
        Self { store: Arc::new(store), clock }
    }

    /// Spends one charge.
    pub async fn spend(&self, key: &str, limit: Limit, cost: u64) -> Decision {
        self.spend_chain(&[(key, "limit", limit, cost)]).await
    }

    /// Spends a chain.
    pub async fn spend_chain(&self, lines: &[ChargeSpec<'_>]) -> Decision {
        let charges = charges(lines);
        let outcome = self.store.spend(&charges).await.expect("the store answers");
        Decision::from_outcome(&charges, &outcome, DecisionSource::Store)
    }

    /// Looks at one charge.
    pub async fn peek(&self, key: &str, limit: Limit, cost: u64) -> Decision {
        self.peek_chain(&[(key, "limit", limit, cost)]).await
    }

    /// Looks at a chain.
    pub async fn peek_chain(&self, lines: &[ChargeSpec<'_>]) -> Decision {
        let charges = charges(lines);
        let outcome = self.store.peek(&charges).await.expect("the store answers");
        Decision::from_outcome(&charges, &outcome, DecisionSource::Store)
    }

    /// Spends what is there of one charge.
    pub async fn spend_up_to(&self, lines: &[ChargeSpec<'_>]) -> PartialOutcome {
        self.store.spend_up_to(&charges(lines)).await.expect("the store answers")
    }

    /// Charges what has been used, and returns how much of it no debt covers.
    pub async fn charge<'a>(&self, lines: &[ChargeSpec<'a>]) -> Amount {
        let late = |&(key, name, limit, cost): &ChargeSpec<'a>| {
            let nothing = charge(key, name, limit, 0);
            Charge::late(
                nothing.key(),
                nothing.limit().clone(),
                Cost::new(cost).expect("the cost is within bounds"),
            )
        };
        let charges = Charges::new(lines.iter().map(late)).expect("the chain is sound");
        self.store.charge(&charges).await.expect("the store answers").uncovered
    }

    /// The tokens that a key owes, rounded up.
    pub async fn owed(&self, key: &str, limit: Limit) -> u64 {
        self.peek(key, limit, 0).await.binding().owed().rounded_up()
    }

    /// Gives one charge back that was spent in the window that holds now.
    pub async fn refund(&self, key: &str, limit: Limit, cost: u64) {
        self.refund_spent(key, limit, cost, SpendTime::ThisWindow).await;
    }

    /// Gives one charge back that was spent at this time.
    pub async fn refund_spent(&self, key: &str, limit: Limit, cost: u64, spent: SpendTime) {
        let charges = charges(&[(key, "limit", limit, cost)]);
        self.store.refund(&charges, spent).await.expect("the store answers");
    }

    /// Gives a chain back under an id, and says whether that was the first time.
    pub async fn refund_once(&self, lines: &[ChargeSpec<'_>], id: &str) -> bool {
        let id = RefundId::new(id).expect("the id is sound");
        let refund = self.store.refund_once(&charges(lines), SpendTime::ThisWindow, id).await;
        refund.expect("the store answers").given
    }

    /// Reserves a chain, and says whether that was allowed.
    pub async fn reserve(&self, lines: &[ChargeSpec<'_>], id: ReservationId) -> bool {
        self.store.reserve(&charges(lines), id).await.expect("the store answers").allowed
    }

    /// Settles a reservation at these tokens for each charge.
    pub async fn settle(&self, lines: &[ChargeSpec<'_>], id: ReservationId, tokens: &[u64]) -> SettleOutcome {
        let costs: Vec<Cost> =
            tokens.iter().map(|tokens| Cost::new(*tokens).expect("the cost is within bounds")).collect();
        self.store.settle(&charges(lines), id, &costs).await.expect("the store answers")
    }

    /// One step of the permit with this number.
    pub async fn permit(&self, charges: &Charges<'_>, number: u128, step: PermitStep) -> Decision {
        let id = permit_id(number);
        let outcome = self.store.permit(charges, &id, step).await.expect("the store answers");
        Decision::from_outcome(charges, &outcome, DecisionSource::Store)
    }

    /// Takes a permit that is new.
    pub async fn acquire(&self, lines: &[ChargeSpec<'_>], number: u128) -> bool {
        self.permit(&charges(lines), number, PermitStep::Acquire).await.allowed()
    }

    /// Takes a permit that may be held already.
    pub async fn retake(&self, lines: &[ChargeSpec<'_>], number: u128) -> bool {
        self.permit(&charges(lines), number, PermitStep::Retake).await.allowed()
    }

    /// Keeps a permit, and says whether it was held.
    pub async fn renew(&self, lines: &[ChargeSpec<'_>], number: u128) -> bool {
        self.permit(&charges(lines), number, PermitStep::Renew).await.allowed()
    }

    /// Ends a permit, and says whether it was held.
    pub async fn release(&self, lines: &[ChargeSpec<'_>], number: u128) -> bool {
        self.permit(&charges(lines), number, PermitStep::Release(SpendTime::Unknown)).await.allowed()
    }

    /// The time by the store's clock.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Forgets one bucket.
    pub async fn reset(&self, key: &str, limit: Limit) {
        self.store.reset(&charges(&[(key, "limit", limit, 0)])).await.expect("the store answers");
    }

    /// Whole tokens that a key has left.
    pub async fn left(&self, key: &str, limit: Limit) -> u64 {
        self.peek(key, limit, 0).await.remaining().whole_tokens()
    }

    /// Spends all that a key has.
    pub async fn drain(&self, key: &str, limit: Limit) {
        let left = self.left(key, limit).await;
        assert!(left == 0 || self.spend(key, limit, left).await.allowed(), "what is there can be spent");
    }

    /// Lets time pass.
    pub fn wait(&self, time: Duration) {
        self.clock.advance(time);
    }
}

impl<S: Inspect> StoreUnderTest<S> {
    /// The numbers of the permits that are held and when they end, per charge.
    pub async fn holders(&self, lines: &[ChargeSpec<'_>]) -> Vec<Vec<(u128, Micros)>> {
        let holders = self.store.holders(&charges(lines)).await.expect("the store answers");
        let number = |id: &spile_core::PermitId| {
            (0..1_000).find(|number| permit_id(*number) == *id).expect("a permit of this test")
        };
        let told = |held: Vec<spile_core::HeldPermit>| {
            held.iter().map(|permit| (number(&permit.id), permit.until)).collect()
        };
        holders.into_iter().map(told).collect()
    }
}

/// The limit, which is within bounds.
pub fn built<E: std::fmt::Debug>(limit: impl TryInto<Limit, Error = E>) -> Limit {
    limit.try_into().expect("the limit is within bounds")
}

/// The charges that these lines stand for.
pub fn charges<'a>(lines: &[ChargeSpec<'a>]) -> Charges<'a> {
    let charge = |&(key, name, limit, cost): &ChargeSpec<'a>| charge(key, name, limit, cost);
    Charges::new(lines.iter().map(charge)).expect("the chain is sound")
}

fn charge<'a>(key: &'a str, name: &str, limit: Limit, cost: u64) -> Charge<'a> {
    let name = LimitName::new(name).expect("the name is sound");
    let key = Key::new(key).expect("the key is sound");
    let cost = Cost::new(cost).expect("the cost is within bounds");
    Charge::new(key, NamedLimit::new(name, limit), cost).expect("the limit covers the cost")
}
