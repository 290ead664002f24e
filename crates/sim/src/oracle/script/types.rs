//! The words in which the oracle reports executed questions.

use super::rate::PlainRate;

/// The script that was called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScriptKind {
    /// Decides operations 1 to 5 of rates.
    Rates,
    /// Decides everything.
    Everything,
}

/// The kind of a limit.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Shape {
    /// A token bucket.
    Rate,
    /// Tokens per calendar window. Markers have this shape, too.
    Quota,
    /// Permits held at once.
    Concurrency,
}

impl Shape {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Quota => "quota",
            Self::Concurrency => "concurrency",
        }
    }
}

/// Identifies the state of one key under one limit.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BucketId {
    /// The whole Redis key. Bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The prefix of its fields: empty or a name as in `burst`.
    pub name: String,
    /// The shape of its limit.
    pub shape: Shape,
}

/// A limit as it came in a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainLimit {
    /// The most that a bucket holds; of a concurrency its permits, in micro-tokens.
    pub capacity: i128,
    /// The refill of a rate.
    pub rate: Option<PlainRate>,
    /// The keep time, in milliseconds.
    pub keep_ms: i128,
    /// How far late charges may go below zero.
    pub debt: i128,
    /// The smallest amount that cost 0 asks for.
    pub quantum: i128,
    /// The hold time of a concurrency, in microseconds; zero for other shapes.
    pub hold: i128,
}

/// The window of a quota that holds the time of a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlainWindow {
    /// Its first microsecond.
    pub start: i128,
    /// The first microsecond after it.
    pub end: i128,
    /// The end of the window after it.
    pub next_end: i128,
}

/// An operation, with its number in a call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// Spends every cost, or none.
    Spend = 1,
    /// Answers like `Spend` and writes nothing.
    Peek = 2,
    /// Spends what every bucket has, up to the smallest cost.
    SpendUpTo = 3,
    /// Spends every cost, into debt if need be.
    Charge = 4,
    /// Refunds every cost, up to the capacity.
    Refund = 5,
    /// Removes the buckets and sets of permits.
    Reset = 6,
    /// Refunds unless there is the marker, and writes it.
    RefundOnce = 7,
    /// Spends unless there is the marker, and writes it.
    Reserve = 8,
    /// Makes the costs of a reservation exact, once.
    Settle = 9,
    /// Spends, and takes a permit.
    Acquire = 10,
    /// Spends, and takes a permit that may be held.
    Retake = 11,
    /// Holds a permit for longer.
    Renew = 12,
    /// Refunds, and releases the permit.
    Release = 13,
}

impl Op {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Spend,
        Self::Peek,
        Self::SpendUpTo,
        Self::Charge,
        Self::Refund,
        Self::Reset,
        Self::RefundOnce,
        Self::Reserve,
        Self::Settle,
        Self::Acquire,
        Self::Retake,
        Self::Renew,
        Self::Release,
    ];

    pub(super) const fn has_permit(self) -> bool {
        matches!(self, Self::Acquire | Self::Retake | Self::Renew | Self::Release)
    }

    pub(super) const fn has_spend_time(self) -> bool {
        matches!(self, Self::Refund | Self::RefundOnce | Self::Release)
    }

    pub(super) const fn has_markers(self) -> bool {
        matches!(self, Self::RefundOnce | Self::Reserve | Self::Settle)
    }

    pub(super) const fn has_amount(self) -> bool {
        matches!(self, Self::SpendUpTo | Self::Charge | Self::Settle)
    }

    /// True if the operation takes a permit, which removes ended ones.
    pub(super) const fn takes_permit(self) -> bool {
        matches!(self, Self::Acquire | Self::Retake)
    }

    /// True if all costs have to be covered.
    pub(super) const fn needs_cover(self) -> bool {
        matches!(self, Self::Spend | Self::Peek | Self::Reserve | Self::Acquire | Self::Retake)
    }
}

/// The answer to a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// A limit does not cover its cost, or the permit is not held.
    Denied,
    /// Done.
    Done,
    /// Done before.
    Before,
    /// The time to settle the reservation is over.
    Expired,
    /// There is no such reservation.
    Unknown,
    /// The time is outside the windows of a quota.
    OutsideWindows,
    /// A hash was written by a newer version.
    NewerFormat,
    /// Redis refused a command: its error, and whether anything was written before.
    Refused(String, bool),
}

impl Verdict {
    /// Those that have a number, in its order.
    pub(super) const NUMBERED: [Self; 7] = [
        Self::Denied,
        Self::Done,
        Self::Before,
        Self::Expired,
        Self::Unknown,
        Self::OutsideWindows,
        Self::NewerFormat,
    ];
}

/// A bucket as a question finds it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Found {
    /// Not stored.
    Absent,
    /// Stored, and full.
    Full,
    /// Between empty and full.
    Partial,
    /// Not a quantum is available.
    Empty,
    /// Below zero.
    InDebt,
    /// Written ahead of the clock.
    InFuture,
    /// Its last question came with a wider limit.
    Tightened,
    /// Its last question came with a tighter limit.
    Widened,
    /// Its key cannot be read.
    Broken,
}

impl Found {
    /// Of a stored bucket.
    pub(super) fn new(
        limit: &PlainLimit,
        former: Option<&PlainLimit>,
        is_ahead: bool,
        available: i128,
    ) -> Self {
        let slower = |one: &PlainLimit, other: &PlainLimit| one.keep_ms > other.keep_ms;
        match former {
            _ if is_ahead => Self::InFuture,
            Some(former) if limit.capacity < former.capacity => Self::Tightened,
            Some(former) if limit.capacity > former.capacity => Self::Widened,
            Some(former) if limit.rate.is_some() && slower(limit, former) => Self::Tightened,
            Some(former) if limit.rate.is_some() && slower(former, limit) => Self::Widened,
            _ if available < 0 => Self::InDebt,
            _ if available < limit.quantum => Self::Empty,
            _ if available >= limit.capacity => Self::Full,
            _ => Self::Partial,
        }
    }
}

/// The change of a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Tokens were spent, or a permit was taken.
    Take,
    /// Tokens were refunded, or a permit was released.
    Give,
    /// Tokens were spent, into debt if need be.
    Late,
    /// Neither.
    None,
}

/// A question that was executed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Executed {
    /// The operation.
    pub operation: Op,
    /// The answer.
    pub verdict: Verdict,
    /// The time of the decision.
    pub at: i128,
    /// The charges: rates, quotas, then concurrencies.
    pub charges: Vec<ExecutedCharge>,
    /// The id of the permit.
    pub permit: Option<Vec<u8>>,
    /// The grant of a partial charge, or the uncovered amount of a late one. Else zero.
    pub amount: i128,
    /// The amount at which each charge was settled, now or before.
    pub settled: Vec<i128>,
    /// The markers.
    pub markers: Vec<BucketId>,
    /// The amount that came with each marker.
    pub marker_amounts: Vec<i128>,
    /// When the refunded amounts were spent. `None` if that is unknown or the operation refunds nothing.
    pub spent: Option<i128>,
}

/// A charge of an executed question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExecutedCharge {
    /// The bucket.
    pub bucket: BucketId,
    /// The limit that the call brought for it.
    pub limit: PlainLimit,
    /// The cost. Of `Settle` a difference, below zero for a refund.
    pub cost: i128,
    /// The bucket as the question found it.
    pub found: Found,
    /// The amount available before.
    pub before: i128,
    /// The amount available afterwards.
    pub after: i128,
    /// The change of the bucket.
    pub step: Step,
    /// The window of a quota that holds the time. `None` for other shapes, and outside of the windows.
    pub window: Option<PlainWindow>,
}
