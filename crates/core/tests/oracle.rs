//! The bucket against an independent oracle that calculates in exact 128-bit rationals.
//!
//! A bucket keeps whole micro-tokens and multiplies by a double, so each write may differ from the exact level by less than one
//! micro-token. Everything else is exact.

use proptest::prelude::*;
use spile_core::{Amount, Bucket, Cost, Limit, Micros};

/// An exact token bucket: its level is a fraction of a micro-token over the limit's period.
struct Oracle {
    capacity: u128,
    /// Level gained per microsecond, over `period_us`.
    gain: u128,
    period_us: u128,
    level: u128,
    at: u64,
}

impl Oracle {
    fn full(limit: &Limit, now: u64) -> Self {
        let rate = limit.rate().expect("a rate");
        let period_us = rate.period().as_micros();
        let micro = |amount: Amount| u128::from(amount.micro().unsigned_abs());
        let (capacity, gain) = (micro(limit.capacity()) * period_us, micro(rate.refill()));
        Self { capacity, gain, period_us, level: capacity, at: now }
    }

    fn advance(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.at));
        self.level = self.capacity.min(self.level + elapsed * self.gain);
        self.at = self.at.max(now);
    }

    fn micro_tokens(&self) -> u128 {
        self.level / self.period_us
    }

    /// Takes an admitted cost. `None` if even `slack` more micro-tokens would not cover it.
    fn take(&mut self, cost: u64, slack: u64) -> Option<()> {
        let cost = u128::from(cost) * 1_000_000 * self.period_us;
        let slack = u128::from(slack) * self.period_us;
        (self.level + slack >= cost).then(|| self.level = self.level.saturating_sub(cost))
    }
}

/// Limits of every size, including the extremes.
fn limits() -> impl Strategy<Value = Limit> {
    let tokens = prop_oneof![Just(1u64), Just(1_000_000_000), 1u64..20, 1u64..100_000, 1u64..1_000_000_000];
    let period = prop_oneof![
        Just(1_000u64),
        Just(1_000_000),
        Just(60_000_000),
        Just(86_400_000_000),
        1u64..100_000_000_000
    ];
    (tokens.clone(), tokens, period).prop_filter_map("in bounds", |(capacity, refill, period_us)| {
        Limit::per(refill, std::time::Duration::from_micros(period_us)).burst(capacity).build().ok()
    })
}

/// Microseconds between requests: zero, a few, about the time of a token, much more.
fn steps(limit: &Limit) -> BoxedStrategy<u64> {
    let token_us = (1e6 / limit.rate().expect("a rate").per_second()).ceil() as u64;
    let fill_us = limit.fill_time().as_micros() as u64;
    prop_oneof![
        Just(0u64),
        0u64..10,
        0..=token_us.saturating_mul(2),
        0..=fill_us.saturating_mul(2),
        Just(token_us)
    ]
    .boxed()
}

fn traces() -> impl Strategy<Value = (Limit, Vec<(u64, u64)>)> {
    limits().prop_flat_map(|limit| {
        let capacity = limit.capacity().whole_tokens();
        let cost =
            prop_oneof![Just(1u64), Just(0), Just(capacity), 0..=capacity].prop_map(move |c| c.min(capacity));
        (Just(limit), prop::collection::vec((steps(&limit), cost), 1..120))
    })
}

const START: u64 = 1_700_000_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn never_admits_more_than_capacity_and_refill_and_never_holds_back_a_whole_micro_token_more(
        (limit, trace) in traces(),
    ) {
        let mut oracle = Oracle::full(&limit, START);
        let mut bucket = Bucket::full(&limit, Micros::new(START));
        let (mut now, mut writes) = (START, 0);
        for (step, cost) in trace {
            now += step;
            oracle.advance(now);
            let here = u128::from(bucket.available(&limit, Micros::new(now)).micro().unsigned_abs());
            let exact = oracle.micro_tokens();
            prop_assert!(here <= exact + u128::from(writes) + 1, "{here} is more than {exact} after {writes} writes");
            prop_assert!(here + u128::from(writes) + 1 >= exact, "{here} is less than {exact} after {writes} writes");
            if let Some(spent) = bucket.spend(&limit, Cost::new(cost).unwrap(), Micros::new(now)) && cost > 0 {
                writes += 1;
                prop_assert!(oracle.take(cost, writes).is_some(), "admitted {cost} that was not there");
                bucket = spent;
            }
        }
    }

    #[test]
    fn whoever_waits_retry_after_is_let_in(
        (limit, trace) in traces(), wanted in 1u64..=1_000_000_000,
    ) {
        let wanted = Cost::new(wanted.min(limit.capacity().whole_tokens())).unwrap();
        let mut bucket = Bucket::full(&limit, Micros::new(START));
        let mut now = Micros::new(START);
        for (step, cost) in trace {
            now = now.plus_us(step);
            bucket = bucket.spend(&limit, Cost::new(cost).unwrap(), now).unwrap_or(bucket);
            let wait = bucket.wait_for_us(&limit, wanted.amount(), now);
            prop_assert!(bucket.spend(&limit, wanted, now.plus_us(wait)).is_some(), "waited {wait} us in vain");
            if wait > 1 {
                prop_assert!(bucket.spend(&limit, wanted, now.plus_us(wait - 2)).is_none(), "{wait} us is too long");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_anywhere_neither_mints_nor_locks_out(
        (limit, trace) in traces(),
        leaps in prop::collection::vec(prop_oneof![Just(0i64), -3_600_000_000..3_600_000_000i64, -900_000..900_000i64], 120),
    ) {
        let mut oracle = Oracle::full(&limit, START);
        let mut bucket = Bucket::full(&limit, Micros::new(START));
        let (mut now, mut forward, mut writes) = (START, START, 0);
        for ((step, cost), leap) in trace.into_iter().zip(leaps) {
            let next = (now + step).saturating_add_signed(leap);
            // Only the clock's forward movement may refill.
            forward += next.saturating_sub(now);
            now = next;
            oracle.advance(forward);
            let cost = Cost::new(cost).unwrap();
            let at = Micros::new(now);
            bucket = bucket.rebased(&limit, at);
            if let Some(spent) = bucket.spend(&limit, cost, at) && cost > Cost::ZERO {
                writes += 1;
                prop_assert!(oracle.take(cost.amount().whole_tokens(), writes).is_some(), "a leap minted tokens");
                bucket = spent;
            }
            let wait = bucket.wait_for_us(&limit, limit.capacity(), at);
            let most = limit.fill_time().as_micros() as u64 + 1_000_001;
            prop_assert!(wait <= most, "locked out for {wait} us");
        }
    }
}

#[test]
fn the_extremes_are_exact() {
    let at = Micros::new(START);
    for (limit, wait_us) in [
        (Limit::per_day(1), 86_400_000_000),
        (Limit::per_second(1_000_000_000), 1),
        (Limit::per_second(1), 1_000_000),
        (Limit::per_minute(5), 12_000_000),
        (Limit::per_minute(100), 600_000),
        (Limit::per_hour(7), 514_285_715),
        (Limit::per_second(3), 333_334),
        (Limit::per_second(1).burst(1_000_000_000 / 4), 1_000_000),
    ] {
        let limit = limit.build().unwrap();
        let all = Cost::new(limit.capacity().whole_tokens()).unwrap();
        let drained =
            Bucket::full(&limit, at).spend(&limit, all, at).expect("a full bucket covers its capacity");
        assert_eq!(drained.wait_for_us(&limit, Amount::TOKEN, at), wait_us, "{limit}");
        assert_eq!(drained.available(&limit, at), Amount::ZERO);
    }
}
