//! Limits, plans and charges outside the bounds cannot be built, and the errors name the bound.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use spile_core::{
    Amount, Charge, ChargeError, Charges, Cost, CostError, InMemoryPlans, Key, KeyError, Limit, LimitError,
    LimitName, LimitTextError, Micros, NamedLimit, Plan, PlanError, PlanName, PlanRegistry, QuotaWindows,
    Window, Windows,
};

/// The refill of a rate in tokens per second.
fn per_second(limit: &Limit) -> f64 {
    limit.rate().expect("a rate").per_second()
}

/// Rebuilds a rate from the numbers that it reports.
fn rebuilt(limit: &Limit) -> Result<Limit, LimitError> {
    let rate = limit.rate().expect("a rate");
    Limit::per(rate.refill(), rate.period()).burst(limit.capacity()).build()
}

#[test]
fn limits_read_like_speech() {
    let limit = Limit::per_second(50).burst(100).build().unwrap();
    let rate = limit.rate().unwrap();
    assert_eq!((limit.capacity(), rate.refill()), (Amount::from(100), Amount::from(50)));
    assert_eq!(rate.period(), Duration::from_secs(1));
    assert_eq!(limit.to_string(), "100, 50/s");
    assert_eq!(Limit::per_day(10_000).build().unwrap().to_string(), "10000, 10000/day");
    let shown = |us| Limit::per(3, Duration::from_micros(us)).build().unwrap().to_string();
    assert_eq!([250_000, 1_500, 7_000_000].map(shown), ["3, 3/250ms", "3, 3/1500us", "3, 3/7s"]);
    assert!((per_second(&Limit::per_minute(90).build().unwrap()) - 1.5).abs() < f64::EPSILON);
}

#[test]
fn texts_are_limits_and_limits_are_texts() {
    for (text, same) in [
        ("100/min", Limit::per_minute(100)),
        ("1/s", Limit::per_second(1)),
        ("10, 1/s", Limit::per_second(1).burst(10)),
        ("5/10s", Limit::per(5, Duration::from_secs(10))),
        ("10000/day", Limit::per_day(10_000)),
        (" 7 / hour ", Limit::per_hour(7)),
        ("3/250ms", Limit::per(3, Duration::from_millis(250))),
        ("2/1500us", Limit::per(2, Duration::from_micros(1_500))),
        ("1.5/s", Limit::per_second(Amount::from_micro(1_500_000)).burst(Amount::from_micro(1_500_000))),
        ("1, 0.01/h", Limit::per_hour(Amount::from_micro(10_000)).burst(1)),
        ("7e2/min", Limit::per_minute(700)),
    ] {
        let limit: Limit = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(limit, same.build().unwrap(), "{text}");
        assert_eq!(limit.to_string().parse(), Ok(limit), "{text} and back");
    }
}

#[test]
fn texts_that_are_no_limits_are_quoted_with_what_would_be_right() {
    for text in [
        "",
        "100",
        "100/",
        "/s",
        "ten/s",
        "1/fortnight",
        "-1/s",
        "+1/s",
        "1.5.5/s",
        "0.0000001/s",
        ".5/s",
        "1/s/s",
        "1/99999999999999999999s",
    ] {
        let why = text.parse::<Limit>().unwrap_err();
        assert_eq!(why, LimitTextError::Unreadable(text.to_owned()), "{text}");
        assert!(why.to_string().contains("`100/min`"));
    }
    let why = "0, 1/s".parse::<Limit>().unwrap_err().to_string();
    assert_eq!(why, "`0, 1/s` is out of bounds: capacity 0 is outside 1 to 1000000000 tokens");
    let why = "0/s".parse::<Limit>().unwrap_err().to_string();
    assert_eq!(why, "`0/s` is out of bounds: refill 0 is outside 0.000001 to 1000000000 tokens per period");
}

#[test]
fn limits_outside_the_bounds_cannot_be_built() {
    let second = Duration::from_secs(1);
    let capacity = |capacity: u64| LimitError::Capacity { capacity: capacity.into(), least: Amount::TOKEN };
    let refill = |refill: u64| LimitError::Refill(refill.into());
    let half = Amount::from_micro(500_000);
    for (limit, why) in [
        (Limit::per_second(0), refill(0)),
        (Limit::per_second(0).burst(1), refill(0)),
        (Limit::per_second(1).burst(0), capacity(0)),
        (Limit::per_second(1).burst(1_000_000_001), capacity(1_000_000_001)),
        (Limit::per_second(half), LimitError::Capacity { capacity: half, least: Amount::TOKEN }),
        (Limit::per_second(Amount::from_micro(-1)), LimitError::Refill(Amount::from_micro(-1))),
        (Limit::per_second(u64::MAX), refill(u64::MAX)),
        (Limit::per(1, Duration::ZERO), LimitError::Period(Duration::ZERO)),
        (Limit::per(1, Duration::from_nanos(1_500)), LimitError::Period(Duration::from_nanos(1_500))),
        (Limit::per(1, Duration::MAX), LimitError::Period(Duration::MAX)),
        (Limit::per(2_000_000, second / 1_000), LimitError::Rate(2e9)),
        (
            Limit::per_day(1).burst(3_654),
            LimitError::FillTime { capacity: Amount::from(3_654), per_second: 1.0 / 86_400.0 },
        ),
    ] {
        assert_eq!(limit.build(), Err(why));
    }
    assert!(Limit::per(1, Limit::MAX_FILL).build().is_ok(), "the bound is within");
    assert_eq!(Limit::MAX_FILL, Duration::from_secs(3_653 * 86_400));
    assert!(Limit::per_day(1).burst(3_653).build().is_ok(), "ten years and their leap days are within");
}

#[test]
fn a_rate_may_have_six_decimals_but_not_be_nonsense() {
    for (refill, per_second_f64) in [
        ("1", 1.0),
        ("0.5", 0.5),
        ("2.5", 2.5),
        ("0.001", 0.001),
        ("12345.6789", 12_345.678_9),
        ("0.000001", 1e-6),
        ("1000000000", 1e9),
    ] {
        let limit = Limit::per_second(refill.parse::<Amount>().unwrap()).burst(10).build().unwrap();
        assert_eq!(limit.to_string(), format!("10, {refill}/s"));
        assert!((per_second(&limit) - per_second_f64).abs() <= per_second_f64 * 1e-12);
    }
    for refill in ["0", "-1", "NaN", "inf", "1e-7", "1.0000001", "2e9"] {
        assert!(format!("10, {refill}/s").parse::<Limit>().is_err(), "{refill}");
    }
}

#[test]
fn a_share_divides_the_capacity_and_the_rate() {
    let limit = Limit::per_second(50).burst(100).build().unwrap();
    let share = limit.share_of(3);
    assert_eq!(share.capacity(), 33);
    assert!((per_second(&share) - 50.0 / 3.0).abs() < 1e-9);
    assert_eq!(Limit::per_second(1).build().unwrap().share_of(8).capacity(), 1, "never less than one token");
}

/// Limits of every size that can be built, including those that take years to fill.
fn limits() -> impl Strategy<Value = Limit> {
    let exponent = |most| (0.0..=most).prop_map(|exponent: f64| 10f64.powf(exponent) as u64);
    (exponent(9.0), exponent(9.0), exponent(17.0))
        .prop_filter_map("out of bounds", |(capacity, refill, us)| {
            Limit::per(refill, Duration::from_micros(us)).burst(capacity).build().ok()
        })
}

proptest! {
    #[test]
    fn a_share_is_as_slow_as_asked_or_the_slowest_that_can_be_built(limit in limits(), replicas in 1u32..=u32::MAX) {
        let share = limit.share_of(replicas);
        prop_assert_eq!(rebuilt(&share), Ok(share), "a share is a limit like any other");
        prop_assert_eq!(share.capacity(), (limit.capacity().whole_tokens() / u64::from(replicas)).max(1));
        let (own, whole) = (per_second(&share), per_second(&limit));
        prop_assert!(own <= whole * (1.0 + 1e-5));
        let divided = own <= whole / f64::from(replicas) * (1.0 + 1e-12);
        let slowest = share.fill_time() >= Limit::MAX_FILL.mul_f64(1.0 - 1e-5);
        prop_assert!(divided || slowest, "{share} of {limit} for {replicas}");
    }
}

#[test]
fn a_share_that_would_take_too_long_to_fill_takes_ten_years() {
    let share = Limit::per_day(1).burst(3_650).build().unwrap().share_of(4_000);
    assert_eq!(share.capacity(), 1);
    let years = share.fill_time().as_secs_f64() / (365.25 * 86_400.0);
    assert!((9.99..=10.01).contains(&years), "{years}");
}

#[test]
fn a_share_that_is_too_slow_is_the_slowest_limit_whatever_its_refill() {
    for refill in 1..=60_000 {
        let Ok(limit) =
            Limit::per(refill, Duration::from_micros(refill * 300_000_000_000_000)).burst(1).build()
        else {
            continue;
        };
        let share = limit.share_of(10);
        assert_eq!(rebuilt(&share), Ok(share), "{refill}");
        let short = Limit::MAX_FILL.as_secs_f64() - share.fill_time().as_secs_f64();
        assert!((-1e-6..1e-3).contains(&short), "{refill}: {short}");
    }
}

#[test]
fn plans_name_what_is_wrong_with_them() {
    let sound = || Limit::per_second(1);
    assert!(matches!(Plan::new("no spaces", sound()), Err(PlanError::Name(_))));
    assert!(matches!(Plan::new("", sound()), Err(PlanError::Name(_))));
    assert!(matches!(Plan::new(&"x".repeat(65), sound()), Err(PlanError::Name(_))));
    let why = Plan::chain("gold", [("burst", sound()), ("daily", Limit::per_day(0))]).unwrap_err();
    assert_eq!(
        why.to_string(),
        "limit gold/daily: refill 0 is outside 0.000001 to 1000000000 tokens per period"
    );
    let why = Plan::chain("gold", [("burst", sound()), ("burst", sound())]).unwrap_err();
    assert_eq!(why.to_string(), "limit gold/burst is named twice");
    let none: [(&str, Limit); 0] = [];
    assert_eq!(
        Plan::chain("gold", none),
        Err(PlanError::Count { plan: PlanName::new("gold").unwrap(), count: 0 })
    );
}

fn is_cost_11_above_capacity_10(why: &ChargeError) -> bool {
    matches!(why, ChargeError::CostAboveCapacity { cost, capacity, .. } if *cost == 11 && *capacity == 10)
}

#[test]
fn a_cost_that_can_never_pass_is_an_error_of_its_own() {
    let plan = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let key = Key::new("ann").unwrap();
    let why = Charge::new(key, plan.limits()[0].clone(), Cost::new(11).unwrap()).unwrap_err();
    assert!(is_cost_11_above_capacity_10(&why));
    assert_eq!(why.to_string(), "cost 11 is above 10, the capacity of limit free: it can never pass");
    assert_eq!(Cost::new(1_000_000_001), Err(CostError(Amount::from(1_000_000_001))));
}

#[test]
fn a_chain_charges_each_bucket_once_and_has_a_bound() {
    let plan = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let charge = |key| Charge::new(Key::new(key).unwrap(), plan.limits()[0].clone(), Cost::ONE).unwrap();
    let dear =
        Charge::new(Key::new("ann").unwrap(), plan.limits()[0].clone(), Cost::new(3).unwrap()).unwrap();
    let chain = Charges::new([charge("ann"), dear, charge("ann")]).unwrap();
    assert_eq!((chain.len(), chain[0].cost()), (1, Cost::new(3).unwrap()), "once, at the higher cost");
    assert!(Charges::new([charge("ann"), charge("bob")]).is_ok());
    assert_eq!(Charges::new([]), Err(ChargeError::Empty));
    let keys: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    assert_eq!(Charges::new(keys.iter().map(|key| charge(key))), Err(ChargeError::TooMany));
}

#[test]
fn charges_that_are_known_to_be_distinct_have_the_same_bounds() {
    let plan = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let keys: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    let charges = |count: usize| {
        let key = |key: &'static str| Key::new(key).unwrap();
        let key = |text: &str| key(text.to_owned().leak());
        let charge = |text: &String| Charge::new(key(text), plan.limits()[0].clone(), Cost::ONE).unwrap();
        Charges::distinct(keys[..count].iter().map(charge))
    };
    assert_eq!(charges(0), Err(ChargeError::Empty));
    assert_eq!([1, 2, 32].map(|count| charges(count).map(|chain| chain.len())), [Ok(1), Ok(2), Ok(32)]);
    assert_eq!(charges(33), Err(ChargeError::TooMany));
}

#[test]
#[should_panic(expected = "two charges share a bucket")]
fn charges_that_are_not_distinct_are_noticed_in_tests() {
    let plan = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let charge = || Charge::new(Key::new("ann").unwrap(), plan.limits()[0].clone(), Cost::ONE).unwrap();
    let _ = Charges::distinct([charge(), charge()]);
}

#[test]
fn one_charge_is_made_or_refused_as_a_chain_of_one_would_be() {
    let plan = Plan::new("free", Limit::per_second(1).burst(10)).unwrap();
    let (key, limit) = (Key::new("ann").unwrap(), &plan.limits()[0]);
    for cost in [0, 1, 10] {
        let cost = Cost::new(cost).unwrap();
        let charge = Charge::new(key, limit.clone(), cost).unwrap();
        assert_eq!(Charges::one(key, limit, cost), Charges::new([charge]));
    }
    let dear = Charges::one(key, limit, Cost::new(11).unwrap());
    assert!(is_cost_11_above_capacity_10(&dear.unwrap_err()));
}

#[test]
fn of_two_charges_of_one_bucket_at_one_cost_the_first_stays() {
    let limit =
        |capacity| Plan::new("free", Limit::per_second(1).burst(capacity)).unwrap().limits()[0].clone();
    let charge = |capacity| Charge::new(Key::new("ann").unwrap(), limit(capacity), Cost::ONE).unwrap();
    let chain = Charges::new([charge(10), charge(20)]).unwrap();
    assert_eq!((chain.len(), chain[0].limit().limit().capacity()), (1, Amount::from(10)));
}

#[test]
fn keys_are_never_empty_nor_endless_and_never_shown() {
    assert_eq!(Key::new(""), Err(KeyError::Empty));
    assert_eq!(Key::new(&"x".repeat(1_025)), Err(KeyError::TooLong { bytes: 1_025 }));
    assert!(Key::new(&"x".repeat(1_024)).is_ok());
    assert_eq!(Key::new("4111-1111").unwrap().as_str(), "4111-1111");
    assert_eq!(format!("{:?}", Key::new("4111-1111").unwrap()), "Key(9 bytes)");
}

#[test]
fn plans_can_be_replaced_while_they_are_read() {
    let plans = InMemoryPlans::new([Plan::new("free", Limit::per_second(1)).unwrap()]);
    plans.put(&Plan::new("free", Limit::per_second(2)).unwrap());
    plans.put(&Plan::new("pro", Limit::per_second(50)).unwrap());
    assert_eq!(plans.plan("free").unwrap().limits()[0].limit().capacity(), 2);
    assert_eq!(
        plans.all().iter().map(|plan| plan.name().as_str().to_owned()).collect::<Vec<_>>(),
        ["free", "pro"]
    );
    assert!(format!("{plans:?}").contains("pro"), "{plans:?}");
    plans.remove("free");
    assert_eq!(plans.plan("free"), None);
}

#[test]
fn a_limit_is_replaced_under_its_own_name_and_no_other() {
    let plan = Plan::chain("gold", [("burst", Limit::per_second(1)), ("daily", Limit::per_day(9))]).unwrap();
    let slower = Limit::per_day(5).build().unwrap();
    let changed = plan.clone().with_limit("daily", slower).expect("it has such a limit");
    assert_eq!(changed.limits()[0], plan.limits()[0]);
    assert_eq!((changed.limits()[1].name(), changed.limits()[1].limit()), (plan.limits()[1].name(), &slower));
    assert_eq!(plan.clone().with_limit("hourly", slower), None);
    let [burst, daily] = plan.limits() else { panic!("two limits") };
    assert_ne!(burst.tag(), daily.tag(), "each name has a tag of its own");
    assert_eq!(daily.name().as_bytes(), b"gold/daily");
    assert_eq!((burst.own_name(), daily.own_name()), ("burst", "daily"));
}

/// A registry that can only hand out copies.
struct Copies(Plan);

impl PlanRegistry for Copies {
    fn plan(&self, name: &str) -> Option<Plan> {
        (self.0.name().as_str() == name).then(|| self.0.clone())
    }
}

#[test]
fn a_plan_is_shown_if_it_is_there_by_every_kind_of_registry() {
    let plan = Plan::new("free", Limit::per_second(1)).unwrap();
    let registries: [Box<dyn PlanRegistry>; 4] = [
        Box::new(InMemoryPlans::new([plan.clone()])),
        Box::new(Arc::new(InMemoryPlans::new([plan.clone()]))),
        Box::new(Copies(plan.clone())),
        Box::new(Arc::new(Copies(plan.clone()))),
    ];
    for registry in registries {
        let mut shown = Vec::new();
        assert!(registry.visit("free", &mut |plan| shown.push(plan.clone())));
        assert!(!registry.visit("pro", &mut |plan| shown.push(plan.clone())));
        assert_eq!(shown, std::slice::from_ref(&plan));
        assert_eq!((registry.plan("free"), registry.plan("pro")), (Some(plan.clone()), None));
    }
}

#[test]
fn every_thread_sees_a_replaced_plan_at_once() {
    let plan = |name: &str, tokens| Plan::new(name, Limit::per_second(tokens)).unwrap();
    let plans = InMemoryPlans::new([plan("free", 1), plan("pro", 10)]);
    let capacity = |name: &str| {
        let mut seen = None;
        plans.visit(name, &mut |plan| seen = Some(plan.limits()[0].limit().capacity().whole_tokens()));
        seen
    };
    let on_each_thread = |name: &str, expected| {
        assert_eq!(capacity(name), expected);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(capacity(name), expected)).join().unwrap());
    };
    on_each_thread("free", Some(1));
    plans.put(&plan("free", 2));
    on_each_thread("free", Some(2));
    on_each_thread("pro", Some(10));
    plans.remove("free");
    on_each_thread("free", None);
    on_each_thread("pro", Some(10));
    plans.replace_all([plan("pro", 20), plan("pro", 30)]);
    on_each_thread("pro", Some(30));
}

#[test]
fn who_is_shown_a_plan_can_look_at_another() {
    let plans =
        InMemoryPlans::new(["outer", "inner"].map(|name| Plan::new(name, Limit::per_second(1)).unwrap()));
    let mut names = Vec::new();
    plans.visit("outer", &mut |outer| {
        names.push(outer.name().to_string());
        plans.visit("inner", &mut |inner| names.push(inner.name().to_string()));
    });
    assert_eq!(names, ["outer", "inner"]);
}

#[test]
fn a_key_holds_every_character_but_those_of_category_cc() {
    for code in (0..=0x10_FFFF).filter_map(char::from_u32) {
        let text = format!("é{code}x");
        let expected = match u32::from(code) {
            code @ (0..=0x1F | 0x7F..=0x9F) => Err(KeyError::Control { at: 1, code }),
            _ => Ok(text.as_str()),
        };
        assert_eq!(Key::new(&text).map(|key| key.as_str()), expected);
    }
    let why = Key::new("ann\u{9F}").expect_err("a control character").to_string();
    assert_eq!(why, "character 3 of the key is U+009F; it takes 1 to 1024 bytes without control characters");
}

#[test]
fn a_control_character_is_found_wherever_it_is() {
    for length in 1..40 {
        for (at, control) in (0..length).flat_map(|at| ['\0', '\u{1F}', '\u{7F}', '\u{85}'].map(|c| (at, c)))
        {
            let text: String = (0..length).map(|index| if index == at { control } else { '~' }).collect();
            assert_eq!(Key::new(&text), Err(KeyError::Control { at, code: control.into() }));
        }
        assert!(Key::new(&"~".repeat(length)).is_ok() && Key::new(&"©".repeat(length)).is_ok());
    }
}

#[test]
fn a_lease_has_bounds_and_changes_nothing_else_about_a_limit() {
    let limit = Limit::per_second(50).burst(100);
    let leased = limit.lease(Duration::from_millis(100)).build().unwrap();
    assert_eq!(leased.lease(), Some(Duration::from_millis(100)));
    assert!(leased.fills_like(&limit.build().unwrap()));
    assert_eq!(leased.to_string(), "100, 50/s");
    let rate = leased.rate().unwrap();
    assert_eq!(leased.resized(leased.capacity(), rate.refill(), rate.period()), Ok(leased));
    for outside in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(10_001)] {
        let why = limit.lease(outside).build().unwrap_err();
        assert_eq!(why.to_string(), format!("a lease of {outside:?} is outside 1 ms to 10 s"));
    }
}

#[test]
fn a_concurrency_has_permits_and_a_hold_time_and_nothing_else() {
    let limit = Limit::concurrent(5).build().unwrap();
    assert_eq!((limit.capacity(), limit.hold()), (Amount::from(5), Some(Duration::from_secs(30))));
    assert_eq!((limit.rate(), limit.windows(), limit.lease()), (None, None, None));
    assert_eq!(limit.debt(), Amount::ZERO);
    assert_eq!(limit.to_string(), "5 at once, held 30s");
    let long = Limit::concurrent(1).hold(Duration::from_millis(90_500)).build().unwrap();
    assert_eq!(long.to_string(), "1 at once, held 90500ms");
    assert_eq!(long.fill_time(), Duration::from_millis(90_500));
    assert!(Limit::per_second(5).build().unwrap().hold().is_none());
    let hold = |hold| Limit::concurrent(1).hold(hold);
    for (built, why) in [
        (Limit::concurrent(0), "concurrency 0 is outside 1 to 1000000 permits"),
        (Limit::concurrent(1_000_001), "concurrency 1000001 is outside 1 to 1000000 permits"),
        (
            hold(Duration::from_millis(999)),
            "a hold time of 999ms is outside 1 s to 1 day in whole milliseconds",
        ),
        (
            hold(Duration::from_micros(1_000_001)),
            "a hold time of 1.000001s is outside 1 s to 1 day in whole milliseconds",
        ),
    ] {
        assert_eq!(built.build().unwrap_err().to_string(), why);
    }
}

#[test]
fn a_share_of_a_concurrency_has_at_least_one_permit() {
    let limit = Limit::concurrent(7).build().unwrap();
    let shares = [1, 2, 7, 100].map(|replicas| limit.share_of(replicas).capacity().whole_tokens());
    assert_eq!(shares, [7, 3, 1, 1]);
    assert_eq!(limit.share_of(3).hold(), limit.hold());
    let resized = limit.resized(Amount::from(9), Amount::TOKEN, Duration::from_secs(1)).unwrap();
    assert_eq!((resized.capacity(), resized.hold()), (Amount::from(9), limit.hold()));
}

#[test]
fn a_permit_is_one_whatever_the_request_costs() {
    let jobs = NamedLimit::new(LimitName::new("jobs").unwrap(), Limit::concurrent(2).build().unwrap());
    let key = Key::new("ann").unwrap();
    for cost in [0, 1, 1_000] {
        let cost = Cost::new(cost).unwrap();
        assert_eq!(Charge::new(key, jobs.clone(), cost).unwrap().cost(), Cost::ONE);
        assert_eq!(Charge::late(key, jobs.clone(), cost).cost(), Cost::ONE);
        assert_eq!(Charges::one(key, &jobs, cost).unwrap()[0].cost(), Cost::ONE);
    }
}

/// Windows of a day.
#[derive(Debug)]
struct Days;

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("day")
    }
}

impl Windows for Days {
    fn window_at(&self, now: Micros) -> Window {
        let start = now.get() - now.get() % 86_400_000_000;
        Window { start: Micros::new(start), end: Micros::new(start + 86_400_000_000) }
    }

    fn period(&self) -> Duration {
        Duration::from_secs(86_400)
    }

    fn longest(&self) -> Duration {
        self.period()
    }
}

/// Options of different shapes do not compile together: see [`Limit`].
#[test]
fn each_shape_has_its_own_options_and_none_of_the_others() {
    let (windows, hold) = (QuotaWindows::new(Days), Duration::from_secs(9));
    let rate = Limit::per_second(1).burst(3).build().unwrap();
    let quota = Limit::per_window(5, windows).build().unwrap();
    let concurrency = Limit::concurrent(5).hold(hold).build().unwrap();
    let options = |limit: &Limit| (limit.rate().is_some(), limit.windows(), limit.hold());
    assert_eq!(options(&rate), (true, None, None));
    assert_eq!(options(&quota), (false, Some(windows), None));
    assert_eq!(options(&concurrency), (false, None, Some(hold)));
    let codes = [rate, quota, concurrency].map(|limit| limit.shape().code());
    assert_eq!(codes, [1, 2, 3], "stores keep these numbers");
    assert_eq!([rate, quota, concurrency].map(|limit| limit.is_concurrency()), [false, false, true]);
    assert_eq!([rate, quota, concurrency].map(|limit| limit.debt().whole_tokens()), [3, 5, 0]);
}

#[test]
fn a_limit_in_a_currency_may_be_as_small_as_a_micro_token() {
    let usd = "usd".parse().unwrap();
    let micro = Amount::from_micro(1);
    assert_eq!(Limit::per_day(micro).unit(usd).build().unwrap().capacity(), micro);
    let quota = Limit::per_window(micro, QuotaWindows::new(Days));
    assert_eq!(quota.unit(usd).build().unwrap().capacity(), micro);
    let why = quota.build().unwrap_err().to_string();
    assert_eq!(why, "capacity 0.000001 is outside 1 to 1000000000 tokens");
}
