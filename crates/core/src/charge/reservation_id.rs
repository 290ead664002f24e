//! The id of a reservation, and how long it can be settled.

use std::time::Duration;

use crate::{Amount, Charge, Charges, Cost, Limit, LimitName, NamedLimit};

/// Identifies a reservation, and sets how long it can be settled.
///
/// The store keeps a [marker](crate::Operation::markers) beside the buckets, which is written in the step that charges them, and
/// remembers for an hour more at which amounts the reservation was settled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReservationId {
    id: u128,
    ttl: Duration,
}

impl ReservationId {
    /// The shortest and the longest `ttl`.
    pub const TTLS: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

    /// The most reservations of a key that can be open at once, in addition to those that expire meanwhile. Reservations are
    /// counted separately for each `ttl`, rounded up to a power of two in seconds.
    pub const MOST_OPEN: u32 = 5_000;

    /// A reservation that can be settled for `ttl`. No two reservations may have the same id.
    pub fn new(id: u128, ttl: Duration) -> Result<Self, ReservationTtlError> {
        let is_whole = ttl.subsec_nanos().is_multiple_of(1_000);
        if is_whole && Self::TTLS.contains(&ttl) {
            Ok(Self { id, ttl })
        } else {
            Err(ReservationTtlError(ttl))
        }
    }

    /// How long the reservation can be settled.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Adds a charge that counts the open reservations of the first key, so that their number is bounded. It is reserved with the other
    /// charges, and settled at zero.
    ///
    /// # Panics
    /// Never: the limit of the count is within bounds.
    pub fn counted<'k>(&self, charges: &Charges<'k>) -> Charges<'k> {
        let seconds = self.ttl.as_secs().next_power_of_two();
        let limit = Limit::per(Amount::from_tokens(Self::MOST_OPEN), Duration::from_secs(seconds));
        let limit = limit.build().expect("some thousand tokens in a day or two are within bounds");
        let name = LimitName::reserved(&format!("reservations:{seconds}s"));
        charges.with_others([], [Charge::late(charges[0].key(), NamedLimit::new(name, limit), Cost::ONE)])
    }

    /// The name of its marker.
    pub(crate) fn marker(&self) -> String {
        format!("reservation:{:032x}", self.id)
    }
}

/// A `ttl` that is too short, too long, or finer than a microsecond.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a reservation can be settled for {0:?}; it takes 1 second to 1 day, in whole microseconds")]
pub struct ReservationTtlError(pub Duration);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Operation};

    #[test]
    fn a_time_to_settle_has_bounds_that_its_error_names() {
        let day = Duration::from_secs(86_400);
        assert!(ReservationId::new(7, Duration::from_secs(1)).is_ok());
        assert!(ReservationId::new(7, day).is_ok());
        for ttl in [
            Duration::ZERO,
            Duration::from_millis(999),
            day + Duration::from_micros(1),
            Duration::from_nanos(1_000_000_001),
        ] {
            let why = ReservationId::new(7, ttl).expect_err("it is out of bounds").to_string();
            assert!(why.contains("1 second to 1 day"), "{why}");
        }
    }

    #[test]
    fn a_reservation_has_a_marker_and_a_count_that_no_limit_is_called_like() {
        let limit = NamedLimit::new(
            LimitName::new("gold").expect("a name"),
            Limit::per_second(9).build().expect("a limit"),
        );
        let charge =
            |key| Charge::new(Key::new(key).expect("a key"), limit.clone(), Cost::ONE).expect("a charge");
        let charges = Charges::new([charge("ann"), charge("acme")]).expect("two charges");
        let id = ReservationId::new(7, Duration::from_secs(60)).expect("a minute");
        let counted = id.counted(&charges);
        let all = Operation::Reserve(id).with_markers(&counted);
        let names: Vec<_> =
            all.iter().map(|charge| (charge.key().as_str(), charge.limit().name().as_str())).collect();
        let marker = ("ann", "reservation:00000000000000000000000000000007");
        assert_eq!(names, [marker, ("ann", "gold"), ("acme", "gold"), ("ann", "reservations:64s")]);
        assert!([names[0].1, names[3].1].iter().all(|name| LimitName::new(name).is_err()));
    }
}
