//! One operation on its way to Redis, in the numbers that the script takes, and its waiting caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use spile_core::{
    Amount, Charge, Charges, Limit, Micros, Operation, PermitId, PermitStep, Reply, Shape, SpendTime,
};
use tokio::sync::oneshot;

use crate::script::call::LAST_US;
use crate::script::error_reply::Rejection;
use crate::script::key::{BucketKey, KeyPrefix};
use crate::topology::slot::slot_of;

/// An operation of the script, with its number in the call.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ScriptOp {
    Spend = 1,
    Peek = 2,
    SpendUpTo = 3,
    Charge = 4,
    Refund = 5,
    Reset = 6,
    /// The last three before the steps of permits have a marker.
    RefundOnce = 7,
    Reserve = 8,
    /// Charges and refunds differences.
    Settle = 9,
    Acquire = 10,
    Retake = 11,
    Renew = 12,
    Release = 13,
}

impl ScriptOp {
    /// True if the reply has an amount.
    pub(crate) const fn has_amount(self) -> bool {
        matches!(self, Self::SpendUpTo | Self::Charge | Self::Settle)
    }

    /// True if it takes, keeps or releases a permit.
    pub(crate) const fn is_about_permit(self) -> bool {
        matches!(self, Self::Acquire | Self::Retake | Self::Renew | Self::Release)
    }

    /// True if it reads and writes a marker.
    pub(crate) const fn has_marker(self) -> bool {
        matches!(self, Self::RefundOnce | Self::Reserve | Self::Settle)
    }

    /// True if it may refund an amount that was spent at some time.
    pub(crate) const fn has_spend_time(self) -> bool {
        matches!(self, Self::Refund | Self::RefundOnce | Self::Release)
    }

    /// True if it needs commands that the others do without. A user may lack the right to one of them.
    pub(crate) const fn needs_other_commands(self) -> bool {
        matches!(self, Self::Reset) || self.is_about_permit()
    }
}

/// One atomic operation on buckets of one node.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: ScriptOp,
    pub(crate) charges: SmallVec<[WireCharge; 1]>,
    pub(crate) details: RequestDetails,
    state: AtomicU8,
}

/// The parts of a request that few operations have.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestDetails {
    /// The permit that it is about.
    pub(crate) permit: Option<PermitId>,
    /// When the amounts that it refunds were spent.
    pub(crate) spent: SpendTime,
    pub(crate) marker: Option<Marker>,
}

/// The marker of a refund or a reservation.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    pub(crate) key: BucketKey,
    /// The amount that it begins with.
    pub(crate) amount: i64,
    /// The amount at which each charge is settled.
    pub(crate) settled: Vec<i64>,
}

impl RequestDetails {
    /// The details of a part of the chain, whose marker belongs to its first key.
    pub(crate) fn beside(&self, charge: &WireCharge) -> Self {
        let moved =
            |marker: &Marker| Marker { key: charge.key.beside(marker.key.suffix()), ..marker.clone() };
        Self { marker: self.marker.as_ref().map(moved), ..self.clone() }
    }
}

/// The state of a request: not sent, sent by a lane, or cancelled by its caller before that. Lane and caller race for
/// the transition, and exactly one wins.
const UNSENT: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

impl Request {
    /// An operation on the buckets of these charges. Quotas need [`at_time`](Self::at_time) as well.
    pub(crate) fn encode(prefix: &KeyPrefix, operation: &Operation<'_>, charges: &Charges<'_>) -> Self {
        let wire = charges.iter().map(|charge| WireCharge::new(prefix, charge));
        let mut wire: SmallVec<[WireCharge; 1]> = wire.collect();
        let (mut permit, mut spent, mut amount, mut settled) = (None, SpendTime::Unknown, 0, Vec::new());
        let script_op = match *operation {
            Operation::Spend => ScriptOp::Spend,
            Operation::Peek => ScriptOp::Peek,
            Operation::SpendUpTo => ScriptOp::SpendUpTo,
            Operation::Charge => ScriptOp::Charge,
            Operation::Reset => ScriptOp::Reset,
            Operation::Refund { spent: at, once } => {
                (spent, amount) = (at, Amount::MICRO_PER_TOKEN);
                if once.is_some() { ScriptOp::RefundOnce } else { ScriptOp::Refund }
            }
            Operation::Reserve(id) => {
                amount = id.ttl().as_micros() as i64;
                ScriptOp::Reserve
            }
            Operation::Settle(_, costs) => {
                settled = costs.iter().map(|cost| cost.amount().micro()).collect();
                for (charge, actual) in wire.iter_mut().zip(&settled) {
                    charge.cost_micro = actual - charge.cost_micro;
                }
                ScriptOp::Settle
            }
            Operation::Permit(id, step) => {
                permit = Some(id.clone());
                match step {
                    PermitStep::Acquire => ScriptOp::Acquire,
                    PermitStep::Retake => ScriptOp::Retake,
                    PermitStep::Renew => ScriptOp::Renew,
                    PermitStep::Release(at) => {
                        spent = at;
                        ScriptOp::Release
                    }
                }
            }
        };
        let key = operation.markers().first().map(|name| wire[0].key.beside(name.as_bytes()));
        let marker = key.map(|key| Marker { key, amount, settled });
        Self::new(script_op, wire).with(RequestDetails { permit, spent, marker })
    }

    pub(crate) fn new(operation: ScriptOp, charges: SmallVec<[WireCharge; 1]>) -> Self {
        Self { operation, charges, details: RequestDetails::default(), state: AtomicU8::new(UNSENT) }
    }

    /// A question about a rate that is full again soon, and shares its hash with no other.
    pub(crate) fn probe(operation: ScriptOp, hash: Vec<u8>, cost_micro: i64) -> Option<Self> {
        let limit = WireLimit::from(&Limit::per_second(1_000).build().ok()?);
        Some(Self::new(operation, smallvec![WireCharge { key: BucketKey::alone(hash), limit, cost_micro }]))
    }

    pub(crate) fn with(self, details: RequestDetails) -> Self {
        Self { details, ..self }
    }

    /// True if a limit is a quota, whose windows around its time the script needs.
    pub(crate) fn has_quotas(&self) -> bool {
        self.charges.iter().any(|charge| charge.limit.limit.windows().is_some())
    }

    /// Returns the request with the windows of quotas around `now`.
    pub(crate) fn at_time(&self, now: Micros) -> Self {
        let mut charges = self.charges.clone();
        for charge in &mut charges {
            charge.limit.set_time(now);
        }
        Self::new(self.operation, charges).with(self.details.clone())
    }

    /// True if it only asks about rates, so that the shorter script can decide it.
    pub(crate) fn is_about_rates(&self) -> bool {
        self.operation <= ScriptOp::Refund && self.charges.iter().all(|charge| charge.limit.shape() == 0)
    }

    /// How many charges it has of each shape.
    pub(crate) fn counts(&self) -> [usize; SHAPES] {
        let count = |shape| self.charges.iter().filter(|charge| charge.limit.shape() == shape).count();
        [count(0), count(1), count(2)]
    }

    /// The charges with their positions, sorted by shape, as the script takes them.
    pub(crate) fn by_shape(&self) -> impl Iterator<Item = (usize, &WireCharge)> {
        let of =
            |shape| self.charges.iter().enumerate().filter(move |(_, charge)| charge.limit.shape() == shape);
        // Most requests are about rates alone, which come first.
        let shapes = if self.is_about_rates() { 1 } else { SHAPES };
        (0..shapes).flat_map(of)
    }

    /// The cluster slot of all its keys.
    pub(crate) fn slot(&self) -> u16 {
        self.keys().next().map_or(0, |key| slot_of(key.hash()))
    }

    /// The keys of its charges and its marker.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &BucketKey> {
        self.charges
            .iter()
            .map(|charge| &charge.key)
            .chain(self.details.marker.iter().map(|marker| &marker.key))
    }

    /// Whether it has more than one key. While a slot moves, its keys may be on two nodes.
    pub(crate) fn has_several_keys(&self) -> bool {
        let mut keys = self.keys();
        let first = keys.next();
        keys.any(|key| Some(key.hash()) != first.map(BucketKey::hash))
    }

    /// Marks it as not sent, because Redis said that it did not run it.
    pub(crate) fn mark_unsent(&self) {
        self.state.store(UNSENT, Ordering::Release);
    }

    /// Cancels it unless it was sent. Returns whether it was cancelled.
    pub(crate) fn cancel(&self) -> bool {
        self.transition(CANCELLED)
    }

    /// Marks it as sent, unless its caller has cancelled it.
    fn mark_sent(&self) -> bool {
        self.transition(SENT)
    }

    fn transition(&self, state: u8) -> bool {
        self.state.compare_exchange(UNSENT, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A charge in the numbers that the script takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WireCharge {
    pub(crate) key: BucketKey,
    pub(crate) limit: WireLimit,
    /// Settling has differences, which may be below zero.
    pub(crate) cost_micro: i64,
}

/// A limit, and the windows of a quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WireLimit {
    pub(crate) limit: Limit,
    /// For a quota: the starts of the window before the one that holds the store's time, of that one and of the next two, and
    /// the end of the last.
    pub(crate) windows: Option<[u64; WINDOW_BOUNDS]>,
}

impl WireCharge {
    pub(crate) fn new(prefix: &KeyPrefix, charge: &Charge<'_>) -> Self {
        let (key, name) = (charge.key(), charge.limit().name());
        let key =
            if charge.needs_permit() { prefix.permits_key(key, name) } else { prefix.bucket_key(key, name) };
        let limit = WireLimit::from(charge.limit().limit());
        Self { key, limit, cost_micro: charge.cost().amount().micro() }
    }
}

/// The number of shapes.
pub(crate) const SHAPES: usize = 3;

impl WireLimit {
    /// The position of its shape in a question: rates come first, then quotas, then concurrencies.
    pub(crate) const fn shape(&self) -> usize {
        match self.limit.shape() {
            Shape::Rate(_) => 0,
            Shape::Quota(_) => 1,
            Shape::Concurrency(_) => 2,
        }
    }

    /// The time to live of its buckets: twice the fill time of an empty bucket in whole seconds, rounded up. A key that is written at
    /// least once per fill time then needs a new `PEXPIRE` only once per fill time.
    ///
    /// For a concurrency it is the hold time itself, which the script has to know.
    pub(crate) fn ttl_ms(&self) -> u64 {
        if let Some(hold) = self.limit.hold() {
            return hold.as_millis() as u64;
        }
        let fill = self.limit.fill_time();
        let whole_seconds = fill.as_secs() + u64::from(fill.subsec_nanos() > 0);
        2_000 * whole_seconds.max(1)
    }

    /// The windows of a quota around `now`.
    fn set_time(&mut self, now: Micros) {
        self.windows = self.limit.windows().map(|windows| {
            let window = windows.window_at(now);
            let before = windows.window_at(Micros::new(window.start.get().saturating_sub(1)));
            let next = windows.window_at(window.end);
            let last = windows.window_at(next.end);
            [before.start, window.start, window.end, next.end, last.end]
                .map(|bound| bound.get().min(LAST_US as u64))
        });
    }
}

impl From<&Limit> for WireLimit {
    fn from(limit: &Limit) -> Self {
        Self { limit: *limit, windows: None }
    }
}

/// The number of bounds of four windows.
pub(crate) const WINDOW_BOUNDS: usize = 5;

/// Which other requests may share its script call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum BatchGroup {
    /// Any of the same slot, apart from those that need other commands.
    #[default]
    Any,
    /// None, so that an error or a redirection is about this request only.
    Alone,
    /// None, and `ASKING` is sent first: the slot is moving to this node.
    Asking,
}

/// A request and the channel to its waiting caller.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: Arc<Request>,
    pub(crate) group: BatchGroup,
    pub(crate) answer: oneshot::Sender<Result<Reply, Rejection>>,
    /// It must not be sent after this. `None` for probes.
    pub(crate) deadline: Option<Instant>,
}

impl PendingRequest {
    /// Whether its caller is gone. Sending it would charge for nothing.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Marks it as sent, unless its caller is gone or its deadline has passed.
    pub(crate) fn mark_sent(&self, now: Instant) -> bool {
        !self.is_abandoned()
            && self.deadline.is_none_or(|deadline| now < deadline)
            && self.request.mark_sent()
    }

    /// Sends the answer to the caller, if it still waits.
    pub(crate) fn answer(self, answer: Result<Reply, Rejection>) {
        let _heard = self.answer.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_kept_for_twice_the_whole_seconds_it_takes_to_fill() {
        let ttl = |text: &str| WireLimit::from(&text.parse().unwrap()).ttl_ms();
        assert_eq!(ttl("10, 1/s"), 20_000);
        assert_eq!(ttl("10, 3/s"), 8_000);
        assert_eq!(ttl("1, 1000000/s"), 2_000);
        assert_eq!(ttl("100, 100/day"), 2 * 86_400_000);
    }
}
