//! One step over a chain: all or nothing, and only what must be written is.

use proptest::prelude::*;
use spile_core::{
    Bucket, BucketSlot, Charge, Charges, Cost, Key, Limit, LimitName, MicroTokens, Micros, NamedLimit,
    charge, peek, refund, spend, spend_up_to,
};

const NOW: Micros = Micros::from_secs(1_700_000_000);

/// One charge's limit and cost, and the bucket it meets: none, or tokens written some time from now.
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
            Bucket::new(MicroTokens::new(held), Micros::new(NOW.get().saturating_add_signed(offset_us)))
        }))
    };
    links.iter().map(slot).collect()
}

fn there(charge: &Charge<'_>, slot: &BucketSlot) -> i64 {
    let limit = charge.limit().limit();
    slot.bucket
        .map_or(limit.capacity_micro(), |bucket| bucket.rebased(limit, NOW).available(limit, NOW))
        .get()
}

#[test]
fn a_bucket_may_be_written_a_second_from_now_and_goes_on_from_now_beyond_that() {
    let limit = Limit::per_second(1).build().unwrap();
    let bucket = |ahead_us| Bucket::new(MicroTokens::new(5), Micros::new(NOW.get() + ahead_us));
    for ahead_us in [0, 1, 1_000_000] {
        assert!(!bucket(ahead_us).lies_ahead_of(&limit, NOW), "{ahead_us}");
        assert_eq!(bucket(ahead_us).rebased(&limit, NOW), bucket(ahead_us));
    }
    assert!(bucket(1_000_001).lies_ahead_of(&limit, NOW));
    assert_eq!(bucket(1_000_001).rebased(&limit, NOW), bucket(0));
}

proptest! {
    #[test]
    fn every_charge_is_spent_or_none_is(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let outcome = spend(&charges, &mut after, NOW);
        let covered = charges.iter().zip(&before).all(|(c, s)| there(c, s) >= c.cost().asked().get());
        prop_assert_eq!(outcome.allowed, covered);
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            let taken = if covered { charge.cost().micro().get() } else { 0 };
            prop_assert_eq!(there(charge, after), there(charge, before) - taken);
            let ahead = before.bucket.is_some_and(|bucket| bucket.lies_ahead_of(charge.limit().limit(), NOW));
            let writes = charge.cost() > Cost::ZERO && (covered || ahead);
            prop_assert_eq!(after.dirty, writes);
        }
    }

    #[test]
    fn a_peek_agrees_with_a_spend_and_touches_nothing(links in links()) {
        let (charges, mut looked, mut spent) = (charges(&links), slots(&links), slots(&links));
        let outcome = peek(&charges, &mut looked, NOW);
        prop_assert_eq!(outcome.allowed, spend(&charges, &mut spent, NOW).allowed);
        prop_assert_eq!(looked, slots(&links));
    }

    #[test]
    fn a_partial_spend_takes_the_same_from_every_bucket(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let grant = spend_up_to(&charges, &mut after, NOW);
        let most = charges.iter().zip(&before).map(|(c, s)| (there(c, s).max(0) / 1_000_000).min(c.cost().get().into())).min();
        prop_assert_eq!(Some(i64::from(grant.tokens)), most);
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            prop_assert_eq!(there(charge, after), there(charge, before) - i64::from(grant.tokens) * 1_000_000);
            let ahead = before.bucket.is_some_and(|bucket| bucket.lies_ahead_of(charge.limit().limit(), NOW));
            prop_assert_eq!(after.dirty, grant.tokens > 0 || ahead);
        }
        prop_assert_eq!(grant.outcome.allowed, grant.tokens > 0);
        // What was granted nothing stands as it stood.
        let mut looked = before.clone();
        let standing = peek(&charges, &mut looked, NOW).buckets;
        prop_assert!(grant.tokens > 0 || grant.outcome.buckets == standing);
    }

    #[test]
    fn a_late_charge_takes_all_of_it_down_to_the_debt_and_tells_the_rest(links in links(), debt in 0u64..80) {
        let late = |(index, link): (usize, &Link)| {
            let limit = Limit::per_second(link.refill).burst(link.capacity).debt(debt).build().unwrap();
            let limit = NamedLimit::new(LimitName::new(&format!("limit{index}")).unwrap(), limit);
            Charge::late(Key::new("ann").unwrap(), limit, Cost::new(link.cost * 3).unwrap())
        };
        let charges = Charges::new(links.iter().enumerate().map(late)).unwrap();
        let before = slots(&links);
        let mut after = before.clone();
        let charged = charge(&charges, &mut after, NOW);
        let mut uncovered = 0;
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            let (had, cost, lowest) = (there(charge, before), charge.cost().micro().get(), -1_000_000 * debt.cast_signed());
            let left = (had - cost).max(lowest.min(had));
            prop_assert_eq!(there(charge, after), left);
            prop_assert_eq!(after.dirty, cost > 0);
            uncovered = uncovered.max((cost - (had - left)).max(0).unsigned_abs().div_ceil(1_000_000));
        }
        prop_assert_eq!(charged.uncovered, uncovered);
        prop_assert!(charged.outcome.allowed);
    }

    #[test]
    fn a_refund_adds_up_to_the_capacity_and_creates_nothing(links in links()) {
        let (charges, before) = (charges(&links), slots(&links));
        let mut after = before.clone();
        let _ = refund(&charges, &mut after, NOW);
        for ((charge, before), after) in charges.iter().zip(&before).zip(&after) {
            prop_assert_eq!(after.bucket.is_some(), before.bucket.is_some());
            let capacity = charge.limit().limit().capacity_micro().get();
            let full = (there(charge, before) + charge.cost().micro().get()).min(capacity);
            prop_assert_eq!(there(charge, after), full);
            prop_assert_eq!(after.dirty, before.bucket.is_some() && charge.cost() > Cost::ZERO);
        }
    }
}
