//! One operation on its way to Redis, in the numbers that the script takes, and its waiting caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use spile_core::{Bucket, Charge, Limit, Micros, OneOrMany, PermitId, PermitStep};
use tokio::sync::oneshot;

use crate::script::error_reply::Rejection;
use crate::script::key::{BucketKey, KeyPrefix};
use crate::topology::slot::slot_of;

/// An operation of the script, with the number that `spend.lua` knows it by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScriptOp {
    Spend = 1,
    Peek = 2,
    SpendUpTo = 3,
    Refund = 4,
    Reset = 5,
    TimeToLive = 6,
    /// The first charge is the marker.
    RefundOnce = 7,
    Charge = 8,
    /// The first charge is the marker of a reservation, the second the count of open ones.
    Settle = 9,
    Acquire = 10,
    Retake = 11,
    Renew = 12,
    Release = 13,
}

impl From<PermitStep> for ScriptOp {
    fn from(step: PermitStep) -> Self {
        match step {
            PermitStep::Acquire => Self::Acquire,
            PermitStep::Retake => Self::Retake,
            PermitStep::Renew => Self::Renew,
            PermitStep::Release => Self::Release,
        }
    }
}

/// One atomic operation on buckets of one node.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: ScriptOp,
    pub(crate) charges: SmallVec<[WireCharge; 1]>,
    /// The permit that the last four operations are about.
    pub(crate) permit: Option<PermitId>,
    state: AtomicU8,
}

/// The state of a request: not sent, sent by a lane, or cancelled by its caller before that. Lane and caller race for
/// the transition, and exactly one wins.
const UNSENT: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

impl Request {
    pub(crate) fn new(operation: ScriptOp, charges: SmallVec<[WireCharge; 1]>) -> Self {
        Self { operation, charges, permit: None, state: AtomicU8::new(UNSENT) }
    }

    /// The same request, about this permit.
    pub(crate) fn about(self, permit: Option<PermitId>) -> Self {
        Self { permit, ..self }
    }

    /// Whether a limit is a quota, so that the script must be told the windows around its time.
    pub(crate) fn has_quotas(&self) -> bool {
        self.charges.iter().any(|charge| charge.limit.limit.windows().is_some())
    }

    /// The same request, with the windows of quotas around `now`.
    pub(crate) fn at_time(&self, now: Micros) -> Self {
        let mut charges = self.charges.clone();
        for charge in &mut charges {
            charge.limit.set_time(now);
        }
        Self::new(self.operation, charges).about(self.permit.clone())
    }

    /// The cluster slot of all its keys.
    pub(crate) fn slot(&self) -> u16 {
        self.charges.first().map_or(0, |charge| slot_of(charge.key.hash()))
    }

    /// Whether it has more than one key. While a slot moves, its keys may be on two nodes.
    pub(crate) fn has_several_keys(&self) -> bool {
        let elsewhere = |charge: &WireCharge| charge.key.hash() != self.charges[0].key.hash();
        self.charges.iter().any(|charge| charge.carries_over || elsewhere(charge))
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
    pub(crate) cost_micro: i64,
    /// Whether the bucket may still be in the hash that it had before the limits of a plan shared one.
    pub(crate) carries_over: bool,
}

/// A limit, and the time to live of its buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WireLimit {
    pub(crate) limit: Limit,
    pub(crate) ttl_ms: u64,
    /// For a quota: the starts of the window before the one that holds the store's time, of that one and of the next two, and
    /// the end of the last.
    pub(crate) windows: Option<[u64; WINDOW_BOUNDS]>,
}

impl WireCharge {
    /// The charge, asked by a store that has been there for `uptime`. A bucket that was written before that has expired
    /// after its time to live.
    pub(crate) fn new(prefix: &KeyPrefix, charge: &Charge<'_>, uptime: Duration) -> Self {
        let (key, name) = (charge.key(), charge.limit().name());
        let key =
            if charge.needs_permit() { prefix.permits_key(key, name) } else { prefix.bucket_key(key, name) };
        let limit = WireLimit::from(charge.limit().limit());
        let carries_over = key.before_sharing().is_some() && uptime <= Duration::from_millis(limit.ttl_ms);
        Self { key, limit, cost_micro: charge.cost().amount().micro(), carries_over }
    }

    /// What a reserved charge costs more if it cost `actual` in the end; below zero if less. To a later window of a quota nothing
    /// is given back.
    pub(crate) fn settled_micro(&self, actual: i64, reserved_at: Micros, now: Micros) -> i64 {
        let windows = self.limit.limit.windows();
        let is_of_this_window = windows.is_none_or(|windows| reserved_at >= windows.window_at(now).start);
        let more = actual - self.cost_micro;
        if is_of_this_window { more } else { more.max(0) }
    }

    /// A charge of a bucket with a hash of its own.
    pub(crate) fn alone(hash: Vec<u8>, limit: &Limit, cost_micro: i64) -> Self {
        let (key, limit) = (BucketKey::alone(hash), WireLimit::from(limit));
        Self { key, limit, cost_micro, carries_over: false }
    }
}

impl WireLimit {
    /// The windows of a quota around `now`.
    fn set_time(&mut self, now: Micros) {
        self.windows = self.limit.windows().map(|windows| {
            let window = windows.window_at(now);
            let before = windows.window_at(Micros::new(window.start.get().saturating_sub(1)));
            let next = windows.window_at(window.end);
            let last = windows.window_at(next.end);
            [before.start, window.start, window.end, next.end, last.end].map(|bound| bound.get().min(LAST_US))
        });
    }
}

impl From<&Limit> for WireLimit {
    fn from(limit: &Limit) -> Self {
        Self { limit: *limit, ttl_ms: ttl_ms(limit), windows: None }
    }
}

/// How many numbers tell four windows.
pub(crate) const WINDOW_BOUNDS: usize = 5;

/// The last microsecond that a double represents exactly.
const LAST_US: u64 = (1 << 53) - 1;

/// Twice the fill time of an empty bucket in whole seconds, rounded up. A key that is written at least once per fill
/// time then needs a new `PEXPIRE` only once per fill time.
///
/// For a concurrency it is the hold time itself, which the script has to know.
fn ttl_ms(limit: &Limit) -> u64 {
    if let Some(hold) = limit.hold() {
        return hold.as_millis() as u64;
    }
    let fill = limit.fill_time();
    let whole_seconds = fill.as_secs() + u64::from(fill.subsec_nanos() > 0);
    2_000 * whole_seconds.max(1)
}

/// The script's answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScriptReply {
    /// 1 if allowed, 0 if denied; for a partial spend the micro-tokens granted, for a late charge those not covered, for a settled
    /// reservation one more than that;
    /// [`OUTSIDE_WINDOWS`](Self::OUTSIDE_WINDOWS) if nothing was done.
    pub(crate) granted: i64,
    pub(crate) at: Micros,
    pub(crate) buckets: OneOrMany<Bucket>,
}

impl ScriptReply {
    /// The node's time is outside the windows that a quota was asked with.
    pub(crate) const OUTSIDE_WINDOWS: i64 = -1;
}

/// Which other requests may share its script call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BatchGroup {
    /// Any of the same slot.
    Any,
    /// None: part of the slot is moving, and a redirection must be about this request's keys only.
    Alone,
    /// None, and `ASKING` is sent first: the slot is moving to this node.
    Asking,
}

/// A request and the channel to its waiting caller.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: Arc<Request>,
    pub(crate) group: BatchGroup,
    answer: oneshot::Sender<Result<ScriptReply, Rejection>>,
    /// It must not be sent after this. `None` for probes.
    deadline: Option<Instant>,
}

impl PendingRequest {
    pub(crate) const fn new(
        request: Arc<Request>,
        group: BatchGroup,
        answer: oneshot::Sender<Result<ScriptReply, Rejection>>,
        deadline: Option<Instant>,
    ) -> Self {
        Self { request, group, answer, deadline }
    }

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
    pub(crate) fn answer(self, answer: Result<ScriptReply, Rejection>) {
        let _heard = self.answer.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_kept_for_twice_the_whole_seconds_it_takes_to_fill() {
        let ttl = |text: &str| ttl_ms(&text.parse::<Limit>().unwrap());
        assert_eq!(ttl("10, 1/s"), 20_000);
        assert_eq!(ttl("10, 3/s"), 8_000);
        assert_eq!(ttl("1, 1000000/s"), 2_000);
        assert_eq!(ttl("100, 100/day"), 2 * 86_400_000);
    }
}
