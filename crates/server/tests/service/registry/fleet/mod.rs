//! Several instances on one Redis: what is changed at one holds at all, and what they count is summed.

mod instance;
mod minutes;
mod registry;

use std::time::Duration;

use instance::{Instance, SOON, becomes};
use spile_testkit::redis::RedisServer;

/// How long what is not promised to be quick may take on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// How often Redis has run a command.
fn calls(redis: &RedisServer, command: &str) -> u64 {
    let stats = redis.info("commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
    let calls = stats.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}
