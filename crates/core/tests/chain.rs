//! One step over a chain: all or nothing, and only what must be written is.

use proptest::prelude::*;
use spile_core::{
    Amount, Bucket, BucketSlot, Charge, Charges, Cost, Key, Limit, LimitName, Micros, NamedLimit, Operation,
    Reply, Verdict, decide,
};

const NOW: Micros = Micros::from_secs(1_700_000_000);

/// The limit and cost of one charge, and its bucket: absent, or written some time from now.
#[derive(Clone, Debug)]
struct Link {
    capacity: u64,
    refill: u64,
    cost: u64,
    bucket: Option<(i64, i64)>,
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let link = (
        1u64..50,
        1u64..100,
        0u64..50,
        prop::option::of((-60_000_000i64..60_000_000, -5_000_000i64..5_000_000)),
    );
    let link = link.prop_map(|(capacity, refill, cost, bucket)| Link {
        capacity,
        refill,
        cost: cost.min(capacity),
        bucket,
    });
    prop::collection::vec(link, 1..6)
}

fn charges(links: &[Link]) -> Charges<'static> {
    let charge = |(index, link): (usize, &Link)| {
        let limit = Limit::per_second(link.refill).burst(link.capacity).build().unwrap();
        let limit = NamedLimit::new(LimitName::new(&format!("limit{index}")).unwrap(), limit);
        Charge::new(Key::new("ann").unwrap(), limit, Cost::new(link.cost).unwrap()).unwrap()
    };
    Charges::new(links.iter().enumerate().map(charge)).unwrap()
}

fn slots(links: &[Link]) -> Vec<BucketSlot> {
    let slot = |link: &Link| {
        BucketSlot::read(link.bucket.map(|(held, offset_us)| {
            Bucket::new(Amount::from_micro(held), Micros::new(NOW.get().saturating_add_signed(offset_us)))
        }))
    };
    links.iter().map(slot).collect()
}

fn there(charge: &Charge<'_>, slot: &BucketSlot) -> i64 {
    let limit = charge.limit().limit();
    slot.bucket.map_or(limit.capacity(), |bucket| bucket.rebased(limit, NOW).available(limit, NOW)).micro()
}

/// True if the bucket lies so far ahead of the clock that it is rebased.
fn lies_ahead(charge: &Charge<'_>, slot: &BucketSlot) -> bool {
    slot.bucket.is_some_and(|bucket| bucket.rebased(charge.limit().limit(), NOW) != bucket)
}

fn run(operation: Operation<'_>, charges: &Charges<'_>, slots: &mut [BucketSlot]) -> Reply {
    decide(&operation, charges, slots, NOW)
}

#[test]
fn a_bucket_may_be_written_a_second_from_now_and_goes_on_from_now_beyond_that() {
    let limit = Limit::per_second(1).build().unwrap();
    let bucket = |ahead_us| Bucket::new(Amount::from_micro(5), Micros::new(NOW.get() + ahead_us));
    for ahead_us in [0, 1, 1_000_000] {
        assert_eq!(bucket(ahead_us).rebased(&limit, NOW), bucket(ahead_us), "{ahead_us}");
    }
    assert_eq!(bucket(1_000_001).rebased(&limit, NOW), bucket(0));
}

proptest! {
    #[test]
    fn every_charge_is_spent_or_none_is(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let reply = run(Operation::Spend, &charges, &mut after);
        let asked = |charge: &Charge<'_>| charge.cost().amount().max(Amount::TOKEN).micro();
        let covered = charges.iter().zip(&before).all(|(c, s)| there(c, s) >= asked(c));
        prop_assert_eq!(reply.verdict, Verdict::done_if(covered));
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            let taken = if covered { charge.cost().amount().micro() } else { 0 };
            prop_assert_eq!(there(charge, after), there(charge, before) - taken);
            let spends = charge.cost() > Cost::ZERO && covered;
            prop_assert_eq!(after.dirty, spends || lies_ahead(charge, before));
        }
    }

    #[test]
    fn a_peek_agrees_with_a_spend_and_touches_nothing(links in links()) {
        let (charges, mut looked, mut spent) = (charges(&links), slots(&links), slots(&links));
        let reply = run(Operation::Peek, &charges, &mut looked);
        prop_assert_eq!(reply.verdict, run(Operation::Spend, &charges, &mut spent).verdict);
        prop_assert_eq!(looked, slots(&links));
    }

    #[test]
    fn a_partial_spend_takes_the_same_from_every_bucket(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let grant = run(Operation::SpendUpTo, &charges, &mut after);
        let granted = grant.amount.micro();
        let whole = |micro: i64| micro.max(0) / 1_000_000 * 1_000_000;
        let most = charges.iter().zip(&before).map(|(c, s)| whole(there(c, s)).min(c.cost().amount().micro())).min();
        prop_assert_eq!(Some(granted), most);
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            prop_assert_eq!(there(charge, after), there(charge, before) - granted);
            prop_assert_eq!(after.dirty, granted > 0 || lies_ahead(charge, before));
        }
        prop_assert_eq!(grant.verdict, Verdict::done_if(granted > 0));
        // A grant of zero leaves the buckets unchanged.
        let mut looked = before.clone();
        let standing = run(Operation::Peek, &charges, &mut looked).buckets;
        prop_assert!(granted > 0 || grant.buckets == standing);
    }

    #[test]
    fn a_late_charge_takes_all_of_it_down_to_the_debt_and_reports_the_rest(links in links(), debt in 0u64..80) {
        let late = |(index, link): (usize, &Link)| {
            let limit = Limit::per_second(link.refill).burst(link.capacity).debt(debt).build().unwrap();
            let limit = NamedLimit::new(LimitName::new(&format!("limit{index}")).unwrap(), limit);
            Charge::late(Key::new("ann").unwrap(), limit, Cost::new(link.cost * 3).unwrap())
        };
        let charges = Charges::new(links.iter().enumerate().map(late)).unwrap();
        let before = slots(&links);
        let mut after = before.clone();
        let charged = run(Operation::Charge, &charges, &mut after);
        let mut uncovered = 0;
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            let (had, cost, lowest) = (there(charge, before), charge.cost().amount().micro(), -1_000_000 * debt.cast_signed());
            let left = (had - cost).max(lowest.min(had));
            prop_assert_eq!(there(charge, after), left);
            prop_assert_eq!(after.dirty, cost > 0);
            uncovered = uncovered.max(cost - (had - left));
        }
        prop_assert_eq!(charged.amount.micro(), uncovered);
        prop_assert_eq!(charged.verdict, Verdict::Done);
    }

    #[test]
    fn a_refund_adds_up_to_the_capacity_and_creates_nothing(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let _ = run(Operation::Refund { spent: spile_core::SpendTime::Unknown, once: None }, &charges, &mut after);
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            prop_assert_eq!(after.bucket.is_some(), before.bucket.is_some());
            let capacity = charge.limit().limit().capacity().micro();
            let full = (there(charge, before) + charge.cost().amount().micro()).min(capacity);
            prop_assert_eq!(there(charge, after), full);
            prop_assert_eq!(after.dirty, before.bucket.is_some() && charge.cost() > Cost::ZERO);
        }
    }
}

#[test]
fn a_debt_that_a_slow_limit_took_over_waits_for_longer_than_microseconds_can_count() {
    let slow = Limit::per(1, Limit::MAX_FILL).build().expect("the slowest limit");
    let now = Micros::from_secs(1);
    let deepest = Bucket::new(Amount::from_micro(-1_000_000_000_000_000), now);
    let wait_us = deepest.wait_for_us(&slow, Amount::TOKEN, now);
    assert!(wait_us > Limit::MAX_FILL.as_micros() as u64, "{wait_us}");
}
