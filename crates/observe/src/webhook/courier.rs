//! Carries batches to the receiver, again and again until it takes them or patience ends.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http_body_util::Full;
use spile_core::SystemClock;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::error::WebhookError;
use super::signature::sign;
use super::{Counts, Webhook};
use crate::event::Event;
use crate::unique::unique_id;

/// The longest wait between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

pub(super) struct Courier {
    webhook: Webhook,
    to_send: mpsc::Receiver<Event>,
    /// Events that are being delivered.
    in_hand: usize,
    counts: Counts,
}

impl Courier {
    pub(super) const fn new(webhook: Webhook, to_send: mpsc::Receiver<Event>, counts: Counts) -> Self {
        Self { webhook, to_send, in_hand: 0, counts }
    }

    /// Delivers until nobody brings events any more.
    pub(super) async fn run(mut self) {
        while let Some(events) = self.next_batch().await {
            let delivered = self.deliver(&events).await;
            let count = std::mem::take(&mut self.in_hand) as u64;
            match delivered {
                Ok(()) => self.counts.delivered.increment(count),
                Err(why) => {
                    self.counts.dead.increment(count);
                    // The host alone: a path may be as good as a password.
                    let host = self.webhook.target.host();
                    tracing::warn!(target: "spile::webhook", host, events = count, "not delivered: {why}");
                }
            }
        }
    }

    /// The first event, and what comes while it waits for company.
    async fn next_batch(&mut self) -> Option<Vec<Event>> {
        let mut events = vec![self.to_send.recv().await?];
        self.in_hand = 1;
        let company = async {
            while events.len() < self.webhook.batch {
                let Some(event) = self.to_send.recv().await else { return };
                events.push(event);
                self.in_hand = events.len();
            }
        };
        // A batch that is not full when the time is up goes as it is.
        let _full_in_time = timeout(self.webhook.gather, company).await;
        Some(events)
    }

    async fn deliver(&self, events: &[Event]) -> Result<(), WebhookError> {
        // The same on every attempt. Signed with the body, so that the field beside it can be checked.
        let id = unique_id();
        let body = Bytes::from(serde_json::json!({ "id": id, "events": events }).to_string());
        let mut backoff = self.webhook.backoff;
        for _ in 1..self.webhook.attempts {
            match self.attempt(&id, body.clone()).await {
                Err(why) if why.may_pass() => {}
                done => return done,
            }
            // Full jitter: receivers that were down are not met by everybody at once.
            sleep(backoff.mul_f64(fastrand::f64())).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
        self.attempt(&id, body).await
    }

    async fn attempt(&self, id: &str, body: Bytes) -> Result<(), WebhookError> {
        let posted = timeout(self.webhook.timeout, self.webhook.target.send(self.signed(id, body))).await;
        let status = posted.unwrap_or(Err(WebhookError::TimedOut))?;
        match status.as_u16() {
            200..=299 => Ok(()),
            300..=399 => Err(WebhookError::Redirected(status.as_u16())),
            408 | 429 | 500..=599 => Err(WebhookError::Failed(status.as_u16())),
            refused => Err(WebhookError::Refused(refused)),
        }
    }

    fn signed(&self, id: &str, body: Bytes) -> Request<Full<Bytes>> {
        let timestamp = SystemClock::wall_now().get() / 1_000_000;
        Request::post(self.webhook.target.path())
            .header(HOST, self.webhook.target.authority())
            .header(USER_AGENT, concat!("spile/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header("spile-delivery", id)
            .header("spile-timestamp", timestamp)
            .header("spile-signature", sign(&self.webhook.secret, timestamp, &body))
            .body(Full::new(body))
            .expect("the target was parsed from a URL, and the rest is ours")
    }
}

/// What is given up is counted and said.
impl Drop for Courier {
    fn drop(&mut self) {
        let left = self.in_hand + self.to_send.len();
        if left > 0 {
            self.counts.dropped.increment(left as u64);
            let host = self.webhook.target.host();
            tracing::warn!(target: "spile::webhook", host, events = left, "not delivered: the time to stop is up");
        }
    }
}
