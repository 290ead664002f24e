//! The operations of a store, as data that a queue, a trace or a simulation can hold.

use std::borrow::Cow;

use crate::{Charge, Charges, Cost, Key, Micros, PermitId, RefundId, ReservationId};

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
    /// Returns every cost to its bucket, never above the capacity. A key without state still has none afterwards, and a quota takes
    /// nothing back from another window.
    Refund {
        /// When the costs were spent.
        spent: SpendTime,
        /// With an id it happens at most once per id: the refund and the marker of the id are written in one step. It may be
        /// repeated with the same id after any error.
        once: Option<RefundId<'a>>,
    },
    /// Spends as [`Spend`](Self::Spend) does, and writes a marker by which the charges can be settled. Denied also if the id was used
    /// before.
    Reserve(ReservationId),
    /// Settles charges that were reserved together at their costs, once per reservation: each charge costs the amount at its position
    /// in the end. Returns the rest, or charges the shortfall. [`Reply::amount`](crate::Reply::amount) is the largest amount that
    /// exceeded the debt of a limit and was not charged. It may be repeated with the same id after any error.
    Settle(ReservationId, &'a [Cost]),
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
            Self::Refund { .. } => "refund",
            Self::Reserve(_) => "reserve",
            Self::Settle(..) => "settle",
            Self::Permit(_, PermitStep::Acquire) => "acquire",
            Self::Permit(_, PermitStep::Retake) => "retake",
            Self::Permit(_, PermitStep::Renew) => "renew",
            Self::Permit(_, PermitStep::Release(_)) => "release",
            Self::Reset => "reset",
        }
    }

    /// Puts the operation's [markers](Self::markers) before the charges. They belong to the key of the first charge.
    pub fn with_markers<'c, 'k>(&self, charges: &'c Charges<'k>) -> Cow<'c, Charges<'k>> {
        let key: Key<'k> = charges[0].key();
        let markers: Vec<Charge<'k>> =
            self.markers().into_iter().map(|name| Charge::marker(key, &name)).collect();
        if markers.is_empty() { Cow::Borrowed(charges) } else { Cow::Owned(charges.with_others(markers, [])) }
    }

    pub(crate) const fn marker_count(&self) -> usize {
        match self {
            Self::Refund { once: Some(_), .. } | Self::Reserve(_) => 1,
            Self::Settle(_, costs) => 1 + costs.len(),
            _ => 0,
        }
    }

    /// The names of the operation's markers: values that a store keeps beside the buckets of a key, until a moment, each in the form of a
    /// quota's bucket.
    ///
    /// | marker | amount | moment |
    /// |---|---|---|
    /// | `refund:ID` | one token: the refund was given | an hour after the refund |
    /// | `reservation:ID` | the time to settle, in microseconds; zero once it was settled | an hour after the time to settle |
    /// | `reservation:ID/N` | the amount at which charge `N` was settled | as above |
    pub fn markers(&self) -> Vec<String> {
        match self {
            Self::Refund { once: Some(id), .. } => vec![id.marker()],
            Self::Reserve(id) => vec![id.marker()],
            Self::Settle(id, costs) => {
                let marker = id.marker();
                let amounts = (1..=costs.len()).map(|charge| format!("{marker}/{charge}"));
                std::iter::once(marker.clone()).chain(amounts).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// How long a marker is kept after the refund, or after the time to settle.
pub const MARKER_TIME: std::time::Duration = std::time::Duration::from_secs(3_600);

/// When the costs of a refund were spent, which decides whether a quota takes them back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SpendTime {
    /// Unknown: quotas take nothing back.
    #[default]
    Unknown,
    /// In the window that holds now.
    ThisWindow,
    /// At this moment, which the [reply](crate::Reply::at) of the store reported.
    At(Micros),
}

/// The time that a decision [reports](crate::Decision::charged_at).
impl From<Option<Micros>> for SpendTime {
    fn from(charged_at: Option<Micros>) -> Self {
        charged_at.map_or(Self::Unknown, Self::At)
    }
}

impl SpendTime {
    /// The moment, if the time is known.
    #[inline]
    pub(crate) const fn moment(self, now: Micros) -> Option<Micros> {
        match self {
            Self::Unknown => None,
            Self::ThisWindow => Some(now),
            Self::At(moment) => Some(moment),
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
    /// permit are refunded with it, as spent at this time: leave them out if their tokens were used.
    Release(SpendTime),
}
