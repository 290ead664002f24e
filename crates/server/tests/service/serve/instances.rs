//! Several instances on one Redis: together they admit what one would.

use std::collections::HashMap;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use spile_core::{Clock, Micros, SystemClock};
use spile_testkit::redis::RedisServer;

use crate::support::Process;

const CAPACITY: u64 = 500;
const PER_SECOND: u64 = 400;
/// Long enough for the refill to be most of what is admitted.
const SECONDS: u64 = 3;
/// Callers at once per instance: more than the limit lets through, so that it is always the limit that decides.
const CALLERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_admit_together_what_the_limit_allows_and_hardly_less() {
    let redis = RedisServer::start();
    let flags = ["--store", &redis.url(), "--on-failure", "deny"];
    let instances = [(); 3].map(|()| Process::serve_with(&flags, &[Process::PATIENT]));
    let clock = SystemClock::new();

    let started = clock.now();
    let until = Micros::from_secs(SECONDS).get() + started.get();
    let drivers: Vec<_> = instances
        .iter()
        .flat_map(|instance| std::iter::repeat_n(instance.address("http").to_owned(), CALLERS))
        .map(|address| tokio::spawn(drive(address, clock.clone(), Micros::new(until))))
        .collect();
    let mut statuses: HashMap<u16, u64> = HashMap::new();
    for driver in drivers {
        for (status, count) in driver.await.expect("a driver drives to its end") {
            *statuses.entry(status).or_default() += count;
        }
    }
    let elapsed_us = clock.now().since_us(started);

    let admitted = statuses.get(&200).copied().unwrap_or_default();
    let entitled = |us: u64| CAPACITY + PER_SECOND * us / 1_000_000;
    assert!(admitted <= entitled(elapsed_us) + 1, "{admitted} admitted of {}", entitled(elapsed_us));
    // The last answers came at `until` at the earliest, so that much was there to be had.
    let least = entitled(SECONDS * 1_000_000) * 98 / 100;
    assert!(admitted >= least, "{admitted} admitted, at least {least} were due: {statuses:?}");
    assert_eq!(statuses.get(&503), None, "Redis was there all the time: {statuses:?}");
}

/// Asks one after the other until the time is up, and counts the answers by status.
async fn drive(address: String, clock: SystemClock, until: Micros) -> HashMap<u16, u64> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let body = format!(
        r#"{{"ruleId":"shared","identity":"everybody","capacity":{CAPACITY},"refillPerSecond":{PER_SECOND}}}"#
    );
    let mut statuses = HashMap::new();
    while clock.now() < until {
        let request = Request::post(format!("http://{address}/v1/check"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.clone())))
            .expect("the request is well formed");
        let response = client.request(request).await.expect("the instance answers");
        *statuses.entry(response.status().as_u16()).or_default() += 1;
        response.into_body().collect().await.expect("the answer arrives whole");
    }
    statuses
}
