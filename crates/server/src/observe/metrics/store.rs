//! Shows the state of the store.

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use spile_limiter::{LeaseStats, PermitStats};
use spile_memory::Usage;
use spile_redis::{RedisErrorKind, Stats};

use super::Telemetry;

const REFUSALS: &str = "ratelimit_store_refusals_total";
const REPAIRS: &str = "ratelimit_store_repairs_total";

/// The state of a Redis store, updated whenever metrics are read.
#[derive(Clone)]
pub(crate) struct RedisGauges {
    breaker: Gauge,
    queue: Gauge,
    refusals: [Counter; RedisErrorKind::ALL.len()],
    repairs: Counter,
}

impl RedisGauges {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        telemetry.register(|| {
            describe_counter!(REFUSALS, "Requests that Redis received and refused to run, by kind.");
            describe_counter!(REPAIRS, "Buckets that could not be read and were made full.");
            Self {
                breaker: gauge!("ratelimit_breaker_state"),
                queue: gauge!("ratelimit_queue_depth"),
                refusals: RedisErrorKind::ALL.map(|kind| counter!(REFUSALS, "kind" => kind.as_str())),
                repairs: counter!(REPAIRS),
            }
        })
    }

    /// The breaker's state is the number of nodes whose circuit breaker is open.
    pub(crate) fn show(&self, stats: Stats) {
        self.breaker.set(stats.breakers_open as f64);
        self.queue.set(stats.waiting as f64);
        for (counter, count) in self.refusals.iter().zip(stats.error_replies) {
            counter.absolute(count);
        }
        self.repairs.absolute(stats.repairs);
    }
}

/// The buckets in the memory of this process, updated whenever metrics are read.
#[derive(Clone)]
pub(crate) struct EmbeddedMetrics {
    keys: Gauge,
    evictions: Counter,
}

impl EmbeddedMetrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        const KEYS: &str = "ratelimit_embedded_keys";
        const EVICTIONS: &str = "ratelimit_embedded_evictions_total";
        telemetry.register(|| {
            describe_gauge!(KEYS, "Buckets in the memory of this process.");
            describe_counter!(EVICTIONS, "Buckets evicted at the bound before they were full again.");
            Self { keys: gauge!(KEYS), evictions: counter!(EVICTIONS) }
        })
    }

    pub(crate) fn show(&self, usage: Usage) {
        self.keys.set(usage.keys as f64);
        self.evictions.absolute(usage.evicted);
    }
}

/// The tokens that this process has taken from Redis in advance, updated whenever metrics are read.
#[derive(Clone)]
pub(crate) struct LeaseMetrics {
    buckets: Gauge,
    tokens: Gauge,
    portions: Counter,
    taken: Counter,
    returned: Counter,
}

impl LeaseMetrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        const BUCKETS: &str = "ratelimit_leased_buckets";
        const TOKENS: &str = "ratelimit_leased_tokens";
        const PORTIONS: &str = "ratelimit_lease_portions_total";
        const TAKEN: &str = "ratelimit_lease_taken_tokens_total";
        const RETURNED: &str = "ratelimit_lease_returned_tokens_total";
        telemetry.register(|| {
            describe_gauge!(BUCKETS, "Buckets of which this instance has taken tokens in advance.");
            describe_gauge!(TOKENS, "Tokens that this instance has taken in advance and not spent yet.");
            describe_counter!(PORTIONS, "Portions of tokens that were taken from the store in advance.");
            describe_counter!(TAKEN, "Tokens that were taken from the store in advance.");
            describe_counter!(RETURNED, "Tokens that were taken in advance and given back to the store.");
            Self {
                buckets: gauge!(BUCKETS),
                tokens: gauge!(TOKENS),
                portions: counter!(PORTIONS),
                taken: counter!(TAKEN),
                returned: counter!(RETURNED),
            }
        })
    }

    pub(crate) fn show(&self, stats: LeaseStats) {
        self.buckets.set(stats.buckets as f64);
        self.tokens.set(stats.tokens as f64);
        self.portions.absolute(stats.portions);
        self.taken.absolute(stats.taken);
        self.returned.absolute(stats.returned);
    }
}

/// The permits that this process took, updated whenever metrics are read.
#[derive(Clone)]
pub(crate) struct PermitMetrics {
    telemetry: Telemetry,
    expired: Counter,
}

impl PermitMetrics {
    const HELD: &str = "ratelimit_permits_held";
    const EVENTS: &str = "ratelimit_permits_total";

    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        const EXPIRED: &str = "ratelimit_permits_expired_total";
        let expired = telemetry.register(|| {
            describe_gauge!(Self::HELD, "Permits that are held through this instance.");
            describe_counter!(Self::EVENTS, "Permits that this instance was asked for, by event.");
            describe_counter!(
                EXPIRED,
                "Permits that ended because they were not renewed, as far as this instance saw."
            );
            counter!(EXPIRED)
        });
        Self { telemetry: telemetry.clone(), expired }
    }

    /// The limits are those of the configuration, so that their number is bounded.
    pub(crate) fn show(&self, stats: &PermitStats, expired: u64) {
        self.expired.absolute(expired);
        self.telemetry.register(|| {
            for (limit, counts) in stats {
                let limit = limit.to_string();
                gauge!(Self::HELD, "limit" => limit.clone()).set(counts.held as f64);
                for (event, count) in [
                    ("acquired", counts.acquired),
                    ("released", counts.released),
                    ("lost", counts.lost),
                    ("waited", counts.waited),
                ] {
                    counter!(Self::EVENTS, "limit" => limit.clone(), "event" => event).absolute(count);
                }
            }
        });
    }
}
