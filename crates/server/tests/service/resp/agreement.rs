//! What comes over the wire is what the model says, for random traces on every store.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use spile_core::{Charges, Cost, FakeClock, Key, Limit, LimitName, NamedLimit};
use spile_limiter::RateLimiter;
use spile_server::StoreUrl;
use spile_testkit::redis::RedisServer;
use spile_testkit::store::ModelStore;

use super::{client, config};
use crate::support::Spile;

/// Each key has parameters of its own: burst, tokens, seconds.
const PARAMETERS: [(u64, u64, u64); 4] = [(15, 30, 60), (0, 1, 1), (999, 7, 13), (3, 1_000_000, 1)];
const STEPS: usize = 400;

#[derive(Clone, Copy, Debug)]
struct Step {
    wait_us: u64,
    key: usize,
    quantity: u64,
}

fn steps() -> Vec<Step> {
    let wait = prop_oneof![Just(0), 0..3_000_000_u64, Just(1), Just(2_000_000)];
    let step = (wait, 0..PARAMETERS.len(), 0..6_u64).prop_map(|(wait_us, key, quantity)| {
        let (max_burst, ..) = PARAMETERS[key];
        Step { wait_us, key, quantity: quantity.min(max_burst + 1) }
    });
    let tree = prop::collection::vec(step, STEPS).new_tree(&mut TestRunner::deterministic());
    tree.expect("steps are never refused").current()
}

#[tokio::test]
async fn memory_agrees_with_the_model() {
    assert_agrees(&Spile::start_with(config()).await).await;
}

#[tokio::test]
async fn redis_agrees_with_the_model() {
    let redis = RedisServer::start();
    let mut config = config();
    config.store.url = StoreUrl::Redis(redis.url());
    config.store.timeout = Duration::from_secs(5);
    assert_agrees(&Spile::start_with(config).await).await;
}

async fn assert_agrees(spile: &Spile) {
    let mut client = client(spile).await;
    let clock = FakeClock::at(Spile::START);
    let model = RateLimiter::builder().store(ModelStore::new(clock.clone())).clock(clock.clone()).build();
    for step in steps() {
        let pause = Duration::from_micros(step.wait_us);
        spile.advance(pause);
        clock.advance(pause);
        let (max_burst, count, period) = PARAMETERS[step.key];
        let arguments = format!("key:{} {max_burst} {count} {period} {}", step.key, step.quantity);
        assert_eq!(client.throttle(&arguments).await, expected(&model, step).await, "{step:?}");
    }
}

async fn expected(model: &RateLimiter<ModelStore<FakeClock>>, step: Step) -> String {
    let (max_burst, count, period) = PARAMETERS[step.key];
    let limit = Limit::per(count, Duration::from_secs(period)).burst(max_burst + 1).build();
    let name = LimitName::new("cl.throttle").expect("a name");
    let limit = NamedLimit::new(name, limit.expect("within bounds"));
    let key = format!("key:{}", step.key);
    let key = Key::new(&key).expect("a key");
    let charges = Charges::one(key, &limit, Cost::new(step.quantity).expect("a cost")).expect("it can pass");
    let decision = if step.quantity == 0 {
        model.peek_charges(charges).await
    } else {
        model.decide(charges).await.into_decision().expect("it has charges")
    };
    let seconds = |span: Duration| span.as_micros().div_ceil(1_000_000) as i64;
    let retry = if decision.allowed() { -1 } else { seconds(decision.retry_after()) };
    format!(
        "[{}, {}, {}, {retry}, {}]",
        u8::from(!decision.allowed()),
        max_burst + 1,
        decision.remaining(),
        seconds(decision.reset_after())
    )
}
