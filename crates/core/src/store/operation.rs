//! The operations of a store, as data that a queue, a trace or a simulation can hold.

use std::borrow::Cow;

use crate::{Charges, Cost, PermitId, RefundId, ReservationMarker};

/// One atomic step over the buckets of some charges.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Spends every charge, or none of them.
    ///
    /// A concurrency must have a free place, but no permit is taken, because that needs an id.
    Spend,
    /// Answers as [`Spend`](Self::Spend) would, and writes nothing. An allowed peek shows the buckets unspent.
    Peek,
    /// Spends what is available, up to the smallest cost. [`Reply::amount`](crate::Reply::amount) is the amount taken from each bucket.
    SpendUpTo,
    /// Takes every cost whether or not it is available, into debt if necessary. [`Reply::amount`](crate::Reply::amount) is the
    /// largest amount that exceeded the debt of a limit and was not charged.
    Charge,
    /// Returns every cost to its bucket, never above the capacity. A key without state still has none afterwards. With an id it
    /// happens at most once per id: the refund and the marker of the id are written in one step. It may be repeated with the same
    /// id after any error.
    Refund(Option<RefundId<'a>>),
    /// Settles charges of one key that were [reserved](ReservationMarker::reserve) at this cost, at most once per reservation:
    /// returns the rest, or charges the shortfall. [`Reply::amount`](crate::Reply::amount) is the largest amount that exceeded the
    /// debt of a limit and was not charged. It may be repeated with the same marker after any error.
    Settle(ReservationMarker, Cost),
    /// Takes, keeps or releases a permit of each concurrency of the chain, in one step with the other charges. Renew and release do
    /// not count places; the reply reports them as free.
    Permit(&'a PermitId, PermitStep),
    /// Removes the bucket of each charge, so that its key starts full, and releases all its permits. Costs are ignored.
    Reset,
}

impl Operation<'_> {
    /// The name, for metrics and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Peek => "peek",
            Self::SpendUpTo => "spend_up_to",
            Self::Charge => "charge",
            Self::Refund(_) => "refund",
            Self::Settle(..) => "settle",
            Self::Permit(_, PermitStep::Acquire) => "acquire",
            Self::Permit(_, PermitStep::Retake) => "retake",
            Self::Permit(_, PermitStep::Renew) => "renew",
            Self::Permit(_, PermitStep::Release) => "release",
            Self::Reset => "reset",
        }
    }

    /// Puts the charges of the operation's markers before the others. Markers are buckets that a store keeps for itself.
    pub fn with_markers<'c, 'k>(&self, charges: &'c Charges<'k>) -> Cow<'c, Charges<'k>> {
        match self {
            Self::Refund(Some(id)) => Cow::Owned(id.mark(charges)),
            Self::Settle(marker, actual) => Cow::Owned(marker.settle(charges, *actual)),
            _ => Cow::Borrowed(charges),
        }
    }
}

/// A step of a permit. A permit expires when the hold time of its limit has passed since it was taken or last renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PermitStep {
    /// Spends every charge and takes a place of each concurrency for a permit with a new id, or does nothing. Done under the same
    /// conditions as [`Operation::Spend`]. Must not be repeated after an error that may have run.
    Acquire,
    /// Keeps a permit that is held, and takes one that is not held if a place is free. Otherwise like `Acquire`.
    Retake,
    /// Keeps a permit for another hold time. Done if it is held in every concurrency of the chain; otherwise nothing happens.
    /// Spends no tokens.
    Renew,
    /// Releases a permit. Done if it was held in any concurrency of the chain; otherwise nothing happens. The charges that take no
    /// permit are refunded with it: leave them out if their tokens were used.
    Release,
}
