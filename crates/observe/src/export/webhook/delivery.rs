//! Delivers batches of events: each is posted again until the receiver accepts it or the attempts are used up.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use metrics::{Counter, counter, describe_counter};
use spile_core::SystemClock;
use tokio::time::sleep;

use super::signature::sign;
use super::{DeliveryError, Webhook};
use crate::events::{Event, unique_id};
use crate::export::batch::Delivery;
use crate::watch::Watch;

const EVENTS: &str = "ratelimit_webhook_events_total";
/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Posts batches of events to the receiver of one webhook.
pub(super) struct EventDelivery {
    pub(super) webhook: Webhook,
    pub(super) counters: DeliveryCounters,
}

/// Counts events by outcome.
#[derive(Clone)]
pub(super) struct DeliveryCounters {
    delivered: Counter,
    /// Events that the receiver did not accept after all attempts.
    dead: Counter,
    /// Events that were never posted because a queue was full or the server stopped.
    pub(super) dropped: Counter,
}

impl DeliveryCounters {
    pub(super) fn new(watch: &Watch) -> Self {
        let result = |result: &'static str| counter!(EVENTS, "result" => result);
        watch.register(|| {
            describe_counter!(EVENTS, "Events for webhooks, by result: delivered, dead or dropped.");
            Self { delivered: result("delivered"), dead: result("dead"), dropped: result("dropped") }
        })
    }
}

impl Delivery for EventDelivery {
    type Item = Event;

    async fn deliver(&self, events: &[Event]) {
        let count = events.len() as u64;
        match self.post_with_retries(events).await {
            Ok(()) => self.counters.delivered.increment(count),
            Err(why) => {
                self.counters.dead.increment(count);
                // The log names only the host: a path may contain a secret.
                let host = self.webhook.endpoint.host();
                tracing::warn!(target: "spile::webhook", host, events = count, "not delivered: {why}");
            }
        }
    }

    fn abandon(&self, events: usize) {
        self.counters.dropped.increment(events as u64);
        let host = self.webhook.endpoint.host();
        tracing::warn!(target: "spile::webhook", host, events, "not delivered: the webhook was stopped first");
    }
}

impl EventDelivery {
    async fn post_with_retries(&self, events: &[Event]) -> Result<(), DeliveryError> {
        // Every attempt has the same id. It is also in the body, which is signed, so that a receiver can check the
        // header.
        let id = unique_id();
        let body = Bytes::from(serde_json::json!({ "id": id, "events": events }).to_string());
        let mut backoff = self.webhook.backoff;
        for _ in 1..self.webhook.attempts {
            match self.post(&id, body.clone()).await {
                Err(why) if why.is_transient() => {}
                done => return done,
            }
            // Full jitter, so that a receiver that was down does not get all retries at once.
            sleep(backoff.mul_f64(fastrand::f64())).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
        self.post(&id, body).await
    }

    async fn post(&self, id: &str, body: Bytes) -> Result<(), DeliveryError> {
        let timestamp = SystemClock::wall_now().get() / 1_000_000;
        let headers = [
            ("spile-delivery", id.to_owned()),
            ("spile-timestamp", timestamp.to_string()),
            ("spile-signature", sign(&self.webhook.secret, timestamp, &body)),
        ];
        let field = |(name, value): (&'static str, String)| {
            (HeaderName::from_static(name), HeaderValue::try_from(value).expect("digits, letters and signs"))
        };
        let headers = headers.map(field).into_iter().collect();
        self.webhook.endpoint.post(&headers, body, self.webhook.timeout).await
    }
}
