//! The table of combinations: what a store answers to each operation, for each shape, cost, state of the bucket and set of keys.
//!
//! A cell is a short story: its state is prepared, its question is asked, and the buckets are looked at then and later. The store and
//! an [oracle] that calculates in plain integers are asked the same, and every reply is compared. Between the questions the store is
//! given reasons to forget what it may forget.

pub mod axes;
pub mod oracle;
mod subject;

use std::time::Duration;

use spile_calendar::CalendarLimit;
use spile_core::{
    Amount, Bucket, Charge, Charges, Clock, Cost, Decision, DecisionSource, FakeClock, Key, Limit, LimitName,
    NamedLimit, Operation, Outcome, RefundId, Reply, ReservationId, SpendTime, Store, Unit, Verdict,
};

pub use self::subject::TableSubject;

use self::axes::{CostKind, KeysKind, OperationKind, ShapeKind, StateKind};
use self::oracle::{
    Oracle, PlainCharge, PlainLimit, PlainQuestion, PlainReply, PlainShape, PlainStatus, RESERVATION_TTL,
    SECOND, TOKEN, permit_step,
};
use self::subject::InMemory;
use crate::contract::permit_id;

/// One combination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableCell {
    /// The operation.
    pub operation: OperationKind,
    /// The shape of the limit.
    pub shape: ShapeKind,
    /// The cost.
    pub cost: CostKind,
    /// The bucket before it.
    pub state: StateKind,
    /// The buckets that it is about.
    pub keys: KeysKind,
    /// True if a token divides: then amounts are compared exactly.
    pub is_even: bool,
}

/// How many cells were tried, and how many make no sense.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableSummary {
    /// Cells whose replies were compared.
    pub tried: usize,
    /// Cells that no caller can ask for.
    pub refused: usize,
}

/// Tries all cells on stores in memory that `make` builds. Panics with all cells that answer otherwise than the oracle.
pub async fn try_every_cell<S: Store>(make: impl Fn(FakeClock) -> S) -> TableSummary {
    try_every_cell_on(&mut InMemory::new(make)).await
}

/// Tries all cells on a subject. Panics with all cells that answer otherwise than the oracle.
pub async fn try_every_cell_on<T: TableSubject>(subject: &mut T) -> TableSummary {
    let (mut summary, mut wrong) = (TableSummary::default(), Vec::new());
    for cell in TableCell::all() {
        if cell.refusal(T::CAN_DAMAGE).or_else(|| subject.refusal(cell)).is_some() {
            summary.refused += 1;
            continue;
        }
        summary.tried += 1;
        if let Err(why) = Story::new(cell, subject).run().await {
            wrong.push(why);
        }
    }
    let shown = wrong.iter().take(10).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} cells are wrong:\n{shown}", wrong.len(), summary.tried);
    summary
}

/// A moment that starts a window of every length used here.
const START: i128 = 1_000_000_800 * SECOND;

impl TableCell {
    /// All of them, those that make no sense too.
    pub fn all() -> impl Iterator<Item = Self> {
        let shapes =
            || ShapeKind::ALL.iter().flat_map(|&shape| [true, false].map(|is_even| (shape, is_even)));
        OperationKind::ALL.iter().flat_map(move |&operation| {
            shapes().flat_map(move |(shape, is_even)| {
                CostKind::ALL.iter().flat_map(move |&cost| {
                    StateKind::ALL.iter().flat_map(move |&state| {
                        KeysKind::ALL.iter().map(move |&keys| Self {
                            operation,
                            shape,
                            cost,
                            state,
                            keys,
                            is_even,
                        })
                    })
                })
            })
        })
    }

    /// Why no caller can ask for it. `None` if one can. State can be damaged only where others can write it.
    fn refusal(self, can_damage: bool) -> Option<&'static str> {
        let is_late = matches!(self.operation, OperationKind::Charge | OperationKind::Settle);
        let is_permit = permit_step(self.operation).is_some();
        let takes_permits = self.shape == ShapeKind::Concurrency;
        match self {
            Self { state: StateKind::Broken | StateKind::Corrupt, .. } if !can_damage => {
                Some("a store in memory holds nothing that cannot be read")
            }
            Self { state: StateKind::Corrupt, .. } if takes_permits => {
                Some("a set of permits has no numbers")
            }
            Self { is_even: false, shape: ShapeKind::Quota | ShapeKind::Concurrency, .. } => {
                Some("only a rate divides time")
            }
            Self { cost: CostKind::Above, .. } if !is_late && !takes_permits => {
                Some("`Charge::new` refuses a cost above the capacity")
            }
            Self {
                cost: CostKind::Fraction | CostKind::Below | CostKind::Equal | CostKind::Above, ..
            } if takes_permits => {
                Some("a concurrency takes one permit, whatever the cost: the same cell as cost zero")
            }
            Self { state: StateKind::InDebt, .. } if takes_permits => Some("a concurrency has no debt"),
            _ if is_permit && !takes_permits => {
                Some("`Chain::with_permit` refuses a chain without a concurrency")
            }
            Self { operation: OperationKind::SpendUpTo, .. } if takes_permits => {
                Some("the limiter refuses a partial grant of permits")
            }
            Self { operation: OperationKind::Reserve | OperationKind::Settle, .. } if takes_permits => {
                Some("the limiter refuses to reserve permits")
            }
            _ => None,
        }
    }

    /// The limit that the question is asked under.
    const fn limit(self) -> PlainLimit {
        self.limit_of(10 * TOKEN, 1)
    }

    /// A limit of this capacity that refills more slowly by this factor.
    const fn limit_of(self, capacity: i128, slower: i128) -> PlainLimit {
        let shape = match (self.shape, self.is_even) {
            (ShapeKind::Rate, true) => PlainShape::Rate { refill: TOKEN, period: slower * SECOND },
            (ShapeKind::Rate, false) => PlainShape::Rate { refill: 3 * TOKEN, period: 7 * slower * SECOND },
            (ShapeKind::Quota, _) => PlainShape::Quota { window: 3_600 * SECOND },
            (ShapeKind::Concurrency, _) => PlainShape::Concurrency { hold: 30 * SECOND },
        };
        // The quota counts money, so that both quanta are met.
        let quantum = if matches!(self.shape, ShapeKind::Quota) { 1 } else { TOKEN };
        let capacity = if matches!(self.shape, ShapeKind::Concurrency) { capacity / 5 } else { capacity };
        let debt = match self.shape {
            // Deeper than any bucket is high, so that it is repaid long after the bucket would have been full.
            ShapeKind::Rate => 8 * capacity,
            ShapeKind::Quota => capacity,
            ShapeKind::Concurrency => 0,
        };
        PlainLimit { capacity, quantum, debt, shape }
    }

    const fn cost(self) -> i128 {
        match self.cost {
            CostKind::Zero => 0,
            CostKind::Fraction => 250_000,
            CostKind::Below => 3 * TOKEN,
            CostKind::Equal => self.limit().capacity,
            CostKind::Above => self.limit().capacity + 5 * TOKEN,
        }
    }

    /// The buckets that are prepared and asked about.
    const fn keys(self) -> &'static [&'static str] {
        if matches!(self.keys, KeysKind::Two) { &["ann", "bob"] } else { &["ann"] }
    }

    /// The name of the limit. A store may keep the limits of one plan together.
    const fn name(self) -> &'static str {
        if matches!(self.keys, KeysKind::Beside) { "plan/limit" } else { "limit" }
    }
}

/// The limit that a chain has beside the one that the cell is about.
const PLENTY: PlainLimit = PlainLimit {
    capacity: 1_000 * TOKEN,
    quantum: TOKEN,
    debt: 1_000 * TOKEN,
    shape: PlainShape::Rate { refill: 100 * TOKEN, period: SECOND },
};

/// Tells a cell to a store and to the oracle at once.
struct Story<'a, T> {
    cell: TableCell,
    subject: &'a mut T,
    oracle: Oracle,
}

type Told = Result<PlainReply, String>;

impl<'a, T: TableSubject> Story<'a, T> {
    fn new(cell: TableCell, subject: &'a mut T) -> Self {
        subject.clock().set(micros(START));
        subject.clear();
        Self { cell, subject, oracle: Oracle::new(START) }
    }

    async fn run(mut self) -> Result<(), String> {
        let TableCell { operation, keys, .. } = self.cell;
        self.prepare().await?;
        if keys == KeysKind::Beside {
            // Not full, so that a refund shows.
            let half = PlainCharge { cost: PLENTY.capacity / 2, ..self.question_charges(0)[0] };
            self.ask(OperationKind::Spend, vec![half], 1).await?;
        }
        if matches!(operation, OperationKind::Settle) {
            // Reserved under the state of the cell, if that allows it.
            self.ask(OperationKind::Reserve, self.question_charges(2 * TOKEN), 2).await?;
        }
        if matches!(operation, OperationKind::Renew | OperationKind::Release) {
            self.ask(OperationKind::Retake, self.question_charges(0), 2).await?;
        }
        let cost = if matches!(operation, OperationKind::Settle) { 2 * TOKEN } else { self.cell.cost() };
        let asked = self.ask(operation, self.question_charges(cost), 2).await?;
        // Asked again: what was denied is denied again, and what happens once does not happen twice.
        self.ask(operation, self.question_charges(cost), 3).await?;
        self.look().await?;
        // And around a question that may have spent something.
        self.ask(operation, self.question_charges(cost), 4).await?;
        self.ask(OperationKind::Spend, self.question_charges(TOKEN), 2).await?;
        self.ask(operation, self.question_charges(cost), 5).await?;
        self.look().await?;
        let wait = asked.buckets.iter().map(|bucket| bucket.retry_after).max().unwrap_or(0);
        for us in [wait, 1_500_000, 20 * SECOND, 3_600 * SECOND] {
            self.pass(us);
            self.subject.forget().await;
            self.look().await?;
            self.ask(OperationKind::Spend, self.question_charges(0), 2).await?;
            if matches!(operation, OperationKind::Reserve | OperationKind::Settle) {
                // In time, too late, and after the marker was forgotten.
                self.ask(OperationKind::Settle, self.question_charges(cost), 2).await?;
            }
        }
        // Each bucket is taken from, so that none is full: what a full bucket has after the clock stepped back depends on whether the store
        // had forgotten it.
        for charge in self.question_charges(TOKEN) {
            let takes_permits = charge.limit.shape.kind() == ShapeKind::Concurrency;
            let operation = if takes_permits { OperationKind::Retake } else { OperationKind::Spend };
            self.ask(operation, vec![charge], 2).await?;
        }
        // Into the window before, into one long past, and on.
        for us in [-1_800 * SECOND, -7_200 * SECOND, 2 * SECOND] {
            self.pass(us);
            self.look().await?;
            self.ask(OperationKind::Spend, self.question_charges(0), 2).await?;
        }
        Ok(())
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let cell = self.cell;
        let limit = cell.limit();
        match cell.state {
            StateKind::Absent => {}
            StateKind::Full => {
                self.take(limit, 4 * TOKEN, 0..1).await?;
                self.pass(3_600 * SECOND);
            }
            StateKind::Partial => self.take(limit, 4 * TOKEN, 0..1).await?,
            StateKind::Empty => self.drain(limit).await?,
            StateKind::InDebt => {
                self.drain(limit).await?;
                self.each(OperationKind::Charge, limit, limit.debt - 7 * TOKEN, 1).await?;
            }
            StateKind::InFuture => {
                self.pass(2 * 3_600 * SECOND);
                self.drain(limit).await?;
                self.pass(-2 * 3_600 * SECOND);
            }
            StateKind::Tightened => self.drain(cell.limit_of(20 * TOKEN, 1)).await?,
            StateKind::Widened => self.drain(cell.limit_of(5 * TOKEN, 4)).await?,
            StateKind::OtherShape => {
                let other = match cell.shape {
                    ShapeKind::Rate => ShapeKind::Quota,
                    ShapeKind::Quota => ShapeKind::Concurrency,
                    ShapeKind::Concurrency => ShapeKind::Rate,
                };
                let other = TableCell { shape: other, ..cell }.limit();
                self.take(limit, 4 * TOKEN, 0..1).await?;
                self.drain(other).await?;
                self.subject.forget().await;
            }
            StateKind::Lingering => {
                self.drain(cell.limit_of(10 * TOKEN, 1)).await?;
                let slow = cell.limit_of(10 * TOKEN, 3_600);
                self.ask(OperationKind::Spend, self.charges_under(slow, 0), 1).await?;
                self.pass(60 * SECOND);
                self.subject.forget().await;
                self.each(OperationKind::Peek, slow, TOKEN, 1).await?;
            }
            StateKind::Broken | StateKind::Corrupt => {
                for key in cell.keys() {
                    let charge = PlainCharge { key, name: cell.name(), limit, cost: 0 };
                    self.subject.damage(&charge, cell.state);
                }
            }
        }
        Ok(())
    }

    /// Takes all that a limit has, from each key.
    async fn drain(&mut self, limit: PlainLimit) -> Result<(), String> {
        let permits = u128::try_from(limit.capacity / TOKEN).unwrap_or(0);
        self.take(limit, limit.capacity, 0..permits).await
    }

    /// Spends from each key, or takes permits of each.
    async fn take(
        &mut self,
        limit: PlainLimit,
        cost: i128,
        permits: std::ops::Range<u128>,
    ) -> Result<(), String> {
        if limit.shape.kind() != ShapeKind::Concurrency {
            return self.each(OperationKind::Spend, limit, cost, 1).await;
        }
        for permit in permits {
            self.each(OperationKind::Acquire, limit, TOKEN, 10 + permit).await?;
        }
        Ok(())
    }

    async fn each(
        &mut self,
        operation: OperationKind,
        limit: PlainLimit,
        cost: i128,
        permit: u128,
    ) -> Result<(), String> {
        for key in self.cell.keys() {
            self.ask(operation, vec![PlainCharge { key, name: self.cell.name(), limit, cost }], permit)
                .await?;
        }
        Ok(())
    }

    fn question_charges(&self, cost: i128) -> Vec<PlainCharge> {
        self.charges_under(self.cell.limit(), cost)
    }

    fn charges_under(&self, limit: PlainLimit, cost: i128) -> Vec<PlainCharge> {
        let one = |key| PlainCharge { key, name: self.cell.name(), limit, cost };
        match self.cell.keys {
            KeysKind::One | KeysKind::Two => self.cell.keys().iter().map(|key| one(key)).collect(),
            KeysKind::Same => vec![one("ann"), PlainCharge { cost: cost / 2, ..one("ann") }],
            KeysKind::Beside => {
                let cost = if self.cell.shape == ShapeKind::Concurrency { 2 * TOKEN } else { cost };
                vec![PlainCharge { key: "ann", name: "plan/beside", limit: PLENTY, cost }, one("ann")]
            }
        }
    }

    /// Looks at every bucket, at cost zero and at the capacity.
    async fn look(&mut self) -> Result<(), String> {
        for cost in [0, self.cell.limit().capacity] {
            self.ask(OperationKind::Peek, self.question_charges(cost), 1).await?;
        }
        Ok(())
    }

    fn pass(&mut self, us: i128) {
        self.oracle.pass(us);
        let span = Duration::from_micros(u64::try_from(us.abs()).unwrap_or(0));
        let clock = self.subject.clock();
        if us < 0 {
            clock.step_back(span);
        } else {
            clock.advance(span);
        }
        self.subject.clock_moved();
    }

    /// Asks the store and the oracle, and compares.
    async fn ask(&mut self, operation: OperationKind, charges: Vec<PlainCharge>, permit: u128) -> Told {
        for _ in 0..self.subject.questions_before() {
            let free = charges.iter().map(|charge| PlainCharge { cost: 0, ..*charge }).collect();
            self.ask_once(OperationKind::Spend, free, permit).await?;
        }
        self.ask_once(operation, charges, permit).await
    }

    async fn ask_once(&mut self, operation: OperationKind, charges: Vec<PlainCharge>, permit: u128) -> Told {
        let actual = self.cell.cost();
        let question = PlainQuestion { operation, charges, permit, actual };
        let expected = self.oracle.answer(&question);
        let answered = self.answer_of_subject(&question).await;
        let is_right = self.subject.is_right(self.cell, &question, &answered, &expected);
        let checked = self.subject.check(&question, &expected);
        if is_right && checked.is_ok() {
            return Ok(answered);
        }
        let after = i128::from(self.subject.clock().now().get()) - START;
        Err(format!(
            "{:?}\n  after {after} us {question:?}\n  answer {answered:?} {checked:?}\n  oracle {expected:?}",
            self.cell
        ))
    }

    async fn answer_of_subject(&mut self, question: &PlainQuestion) -> PlainReply {
        let charges = core_charges(question);
        let id = permit_id(question.permit);
        let reservation = ReservationId::new(7, span(RESERVATION_TTL)).expect("a sound time to settle");
        // One cost per charge; two of one bucket are one.
        let costs = vec![cost(question.actual); charges.len()];
        let refund = |spent| Operation::Refund { spent, once: None };
        let operation = match question.operation {
            OperationKind::Spend => Operation::Spend,
            OperationKind::Peek => Operation::Peek,
            OperationKind::SpendUpTo => Operation::SpendUpTo,
            OperationKind::Charge => Operation::Charge,
            OperationKind::Refund => refund(SpendTime::Unknown),
            OperationKind::RefundThisWindow => refund(SpendTime::ThisWindow),
            OperationKind::RefundSpentAt => refund(SpendTime::At(micros(START))),
            OperationKind::RefundOnce => {
                let once = Some(RefundId::new("once").expect("a sound id"));
                Operation::Refund { spent: SpendTime::ThisWindow, once }
            }
            OperationKind::Reserve => Operation::Reserve(reservation),
            OperationKind::Settle => Operation::Settle(reservation, &costs),
            OperationKind::Acquire
            | OperationKind::Retake
            | OperationKind::Renew
            | OperationKind::Release => {
                let step = permit_step(question.operation).expect("it is about a permit");
                Operation::Permit(&id, step)
            }
            OperationKind::Reset => Operation::Reset,
        };
        debug_assert_eq!(OperationKind::of(&operation), question.operation);
        self.subject.ask(operation, &charges).await
    }
}

fn core_charges(question: &PlainQuestion) -> Charges<'static> {
    let charge = |charge: &PlainCharge| {
        let (key, limit) =
            (Key::new(charge.key).expect("a sound key"), named(charge.name, built(&charge.limit)));
        match question.operation {
            OperationKind::Charge | OperationKind::Settle => Charge::late(key, limit, cost(charge.cost)),
            _ => Charge::new(key, limit, cost(charge.cost)).expect("the cost is within the capacity"),
        }
    };
    Charges::new(question.charges.iter().map(charge)).expect("a sound chain")
}

fn plain_reply(charges: &Charges<'_>, reply: &Reply) -> PlainReply {
    let (verdict, amount, at) = (reply.verdict, i128::from(reply.amount.micro()), i128::from(reply.at.get()));
    let bucket = |(charge, bucket): (&Charge<'_>, &Bucket)| {
        // By way of a decision, as every caller reads it.
        let outcome = Outcome {
            allowed: verdict != Verdict::Denied,
            at: reply.at,
            buckets: spile_core::OneOrMany::one(*bucket),
        };
        let decision = Decision::from_outcome(&charge.clone().into(), &outcome, DecisionSource::Store);
        let status = decision.binding();
        let available = bucket.available(charge.limit().limit(), reply.at);
        assert_eq!(status.owed(), available.debt());
        assert_eq!(status.remaining(), available.floored_to(charge.limit().limit().quantum()));
        let us = |span: Duration| i128::try_from(span.as_micros()).unwrap_or(i128::MAX);
        PlainStatus {
            available: available.micro().into(),
            retry_after: us(status.retry_after()),
            reset_after: us(status.reset_after()),
        }
    };
    let buckets = charges.iter().zip(reply.buckets.iter()).map(bucket).collect();
    let settled = reply.settled.iter().map(|amount| amount.micro().into()).collect();
    PlainReply { verdict, amount, at, buckets, settled }
}

fn built(limit: &PlainLimit) -> Limit {
    let unit = if limit.quantum == TOKEN { Unit::Requests } else { "usd".parse().expect("a currency") };
    let built = match limit.shape {
        PlainShape::Rate { refill, period } => {
            let rate = Limit::per(amount(refill), span(period)).burst(amount(limit.capacity));
            rate.debt(amount(limit.debt)).unit(unit).build()
        }
        PlainShape::Quota { window } => {
            assert_eq!(window, 3_600 * SECOND, "the table has windows of an hour");
            Limit::quota(amount(limit.capacity)).per_hour().debt(amount(limit.debt)).unit(unit).build()
        }
        PlainShape::Concurrency { hold } => {
            Limit::concurrent(amount(limit.capacity).whole_tokens()).hold(span(hold)).build()
        }
    };
    let built = built.expect("the limit is within bounds");
    assert_eq!(ShapeKind::of(built.shape()), limit.shape.kind());
    built
}

fn named(name: &str, limit: Limit) -> NamedLimit {
    NamedLimit::new(LimitName::new(name).expect("a sound name"), limit)
}

fn amount(micro: i128) -> Amount {
    Amount::from_micro(i64::try_from(micro).expect("an amount fits"))
}

fn cost(micro: i128) -> Cost {
    Cost::new(amount(micro)).expect("a sound cost")
}

fn span(us: i128) -> Duration {
    Duration::from_micros(u64::try_from(us).expect("a span fits"))
}

fn micros(us: i128) -> spile_core::Micros {
    spile_core::Micros::new(u64::try_from(us).expect("a moment fits"))
}
