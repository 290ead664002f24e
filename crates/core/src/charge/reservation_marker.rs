//! The marker of a reservation: a bucket that stays below full while the reservation can be settled.

use std::time::Duration;

use crate::{
    Amount, Bucket, Charge, Charges, Cost, Key, Limit, LimitName, Micros, NamedLimit, OneOrMany, Outcome,
};

/// Identifies a reservation of a key, and sets how long it can be settled.
///
/// A store keeps a reservation as a bucket of one token that refills within `ttl`. Reserving spends the token in the same step as
/// the cost, and the reservation is open until the bucket is full again. Settling removes the bucket. A second bucket counts the
/// open reservations of the key, so that their number is bounded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReservationMarker {
    id: u128,
    ttl: Duration,
}

impl ReservationMarker {
    /// The shortest and the longest `ttl`.
    pub const TTLS: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

    /// The most reservations of a key that can be open at once, in addition to those that expire meanwhile. Reservations are
    /// counted separately for each `ttl`, rounded up to a power of two in seconds.
    pub const MOST_OPEN: u32 = 5_000;

    /// The number of buckets that precede the charges to settle.
    pub(crate) const BUCKETS: usize = 2;

    /// The marker of a reservation that can be settled for `ttl`. The id has to be random: a second reservation with the id of an
    /// open one is denied until that has expired.
    pub fn new(id: u128, ttl: Duration) -> Result<Self, ReservationTtlError> {
        let is_whole = ttl.subsec_nanos().is_multiple_of(1_000);
        if is_whole && Self::TTLS.contains(&ttl) {
            Ok(Self { id, ttl })
        } else {
            Err(ReservationTtlError(ttl))
        }
    }

    /// The id.
    pub const fn id(&self) -> u128 {
        self.id
    }

    /// How long the reservation can be settled.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Appends the marker and the count of each key to the charges to spend.
    pub fn reserve<'k>(&self, charges: &Charges<'k>) -> Charges<'k> {
        let mut keys: Vec<Key<'k>> = Vec::new();
        for charge in charges.iter() {
            if !keys.contains(&charge.key()) {
                keys.push(charge.key());
            }
        }
        let own = keys.into_iter().flat_map(|key| [self.marker(key), self.count(key)]);
        charges.with_others([], own)
    }

    /// Removes the markers from an outcome. A marker that caused the denial, such as the count of open reservations, is kept as a
    /// limit of the chain.
    pub fn without_markers<'k>(&self, charges: &Charges<'k>, outcome: &Outcome) -> (Charges<'k>, Outcome) {
        let reserved = self.reserve(charges);
        let (at, asked) = (outcome.at, charges.len());
        let denies = |index: &usize| {
            let charge = &reserved[*index];
            !charge.is_covered_by(outcome.buckets[*index], at)
        };
        let refused = (asked..reserved.len()).find(denies).filter(|_| !outcome.allowed);
        let shown = (0..asked).chain(refused);
        let buckets: OneOrMany<Bucket> = shown.clone().map(|index| outcome.buckets[index]).collect();
        let others = shown.skip(asked).map(|index| reserved[index].clone());
        (charges.with_others([], others), Outcome { buckets, ..*outcome })
    }

    /// Puts the marker, at the actual cost, and the count before the charges to settle. All of the charges belong to one key.
    pub fn settle<'k>(&self, charges: &Charges<'k>, actual: Cost) -> Charges<'k> {
        let key = charges[0].key();
        let marker = Charge::late(key, self.marker(key).limit().clone(), actual);
        charges.with_others([marker, self.count(key)], [])
    }

    /// True if the reservation of a marker in this state can be settled.
    pub(crate) fn is_open(marker: &Charge<'_>, state: Bucket, now: Micros) -> bool {
        let limit = marker.limit().limit();
        state.available(limit, now) < limit.capacity()
    }

    fn marker<'k>(&self, key: Key<'k>) -> Charge<'k> {
        let limit =
            Limit::per(Amount::TOKEN, self.ttl).build().expect("one token in a day at most is within bounds");
        let name = LimitName::reserved(&format!("reservation:{:032x}", self.id));
        Charge::late(key, NamedLimit::new(name, limit), Cost::ONE)
    }

    fn count<'k>(&self, key: Key<'k>) -> Charge<'k> {
        let seconds = self.ttl.as_secs().next_power_of_two();
        let limit = Limit::per(Amount::from_tokens(Self::MOST_OPEN), Duration::from_secs(seconds));
        let limit = limit.build().expect("some thousand tokens in a day or two are within bounds");
        let name = LimitName::reserved(&format!("reservations:{seconds}s"));
        Charge::late(key, NamedLimit::new(name, limit), Cost::ONE)
    }
}

/// A `ttl` that is too short, too long, or finer than a microsecond.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a reservation can be settled for {0:?}; it takes 1 second to 1 day, in whole microseconds")]
pub struct ReservationTtlError(pub Duration);

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(ttl: Duration) -> ReservationMarker {
        ReservationMarker::new(7, ttl).expect("a sound time to settle")
    }

    #[test]
    fn a_time_to_settle_has_bounds_that_its_error_names() {
        let day = Duration::from_secs(86_400);
        assert!(ReservationMarker::new(7, Duration::from_secs(1)).is_ok());
        assert!(ReservationMarker::new(7, day).is_ok());
        for ttl in [
            Duration::ZERO,
            Duration::from_millis(999),
            day + Duration::from_micros(1),
            Duration::from_nanos(1_000_000_001),
        ] {
            let why = ReservationMarker::new(7, ttl).expect_err("it is out of bounds").to_string();
            assert!(why.contains("1 second to 1 day"), "{why}");
        }
    }

    #[test]
    fn a_marker_is_full_again_just_when_its_reservation_expires() {
        let key = Key::new("ann").expect("a key");
        for ttl_us in [1_000_000, 1_234_567, 59_999_999, 86_400_000_000] {
            let marker = marker(Duration::from_micros(ttl_us)).marker(key);
            let limit = marker.limit().limit();
            let made = Micros::from_secs(1_000);
            let spent = Bucket::full(limit, made).spend(limit, Cost::ONE, made).expect("it is full");
            assert!(ReservationMarker::is_open(&marker, spent, made.plus_us(ttl_us - 1)), "{ttl_us}");
            assert!(!ReservationMarker::is_open(&marker, spent, made.plus_us(ttl_us + 1)), "{ttl_us}");
        }
    }

    #[test]
    fn each_key_of_a_chain_has_a_marker_and_a_count_that_no_limit_is_called_like() {
        let limit = NamedLimit::new(
            LimitName::new("gold").expect("a name"),
            Limit::per_second(9).build().expect("a limit"),
        );
        let charge =
            |key| Charge::new(Key::new(key).expect("a key"), limit.clone(), Cost::ONE).expect("a charge");
        let charges = Charges::new([charge("ann"), charge("acme")]).expect("two charges");
        let reserved = marker(Duration::from_secs(60)).reserve(&charges);
        let names: Vec<_> =
            reserved.iter().map(|charge| (charge.key().as_str(), charge.limit().name().as_str())).collect();
        let id = "reservation:00000000000000000000000000000007";
        let own = |key| [(key, id), (key, "reservations:64s")];
        assert_eq!(names[2..], [own("ann"), own("acme")].concat());
        assert!(names[2..].iter().all(|(_, name)| LimitName::new(name).is_err()));
    }
}
