//! Webhooks: events are posted to a receiver outside of this server, signed and in batches, off the decision path.
//!
//! A receiver that is slow or down costs bounded queues and nothing else. Events that cannot be delivered are counted.
//! Denials have a separate queue and sender: no number of denials delays or
//! drops the event that the store is lost.

mod delivery;
mod signature;

use std::time::Duration;

use metrics::Counter;
use tokio::sync::{broadcast, mpsc, watch};

use self::delivery::{DeliveryCounters, EventDelivery};
pub use self::signature::{SigningSecret, verify};
use super::HttpEndpoint;
use super::batch::{BatchSender, stopped};
use crate::events::{Event, EventKind, EventLane};
pub use crate::export::{DeliveryError, ExportTask};
use crate::watch::Watch;

/// The receiver of events, the kinds that it gets, and how failures are retried.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "call start()"]
pub struct Webhook {
    endpoint: HttpEndpoint,
    secret: SigningSecret,
    /// The kinds of event that are posted. All kinds if empty.
    kinds: Vec<String>,
    queue: usize,
    batch: usize,
    max_wait: Duration,
    attempts: u32,
    backoff: Duration,
    timeout: Duration,
}

impl Webhook {
    /// Posts events to `url`, which is `http` or `https`, signed with `secret`.
    pub fn new(url: &str, secret: impl Into<SigningSecret>) -> Result<Self, DeliveryError> {
        Ok(Self {
            endpoint: HttpEndpoint::parse(url)?,
            secret: secret.into(),
            kinds: Vec::new(),
            queue: 1_000,
            batch: 100,
            max_wait: Duration::from_millis(500),
            attempts: 6,
            backoff: Duration::from_millis(500),
            timeout: Duration::from_secs(5),
        })
    }

    /// Allows a receiver on a private, loopback or link-local address. Such addresses are refused by default, so that a
    /// person who may set a URL cannot reach into the network that Spile runs in.
    pub const fn allow_private(mut self, allowed: bool) -> Self {
        self.endpoint.private_allowed = allowed;
        self
    }

    /// Restricts the webhook to these kinds of event, such as `key_denied` and `store_lost`; an empty list means all kinds. A webhook for
    /// a kind also gets the summary of how many of its events were suppressed.
    pub fn only(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kinds = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Queues up to this many events while the receiver is slow, and as many denials. More are dropped and counted.
    pub const fn queue(mut self, events: usize) -> Self {
        self.queue = events;
        self
    }

    /// Sends up to `max_events` at once, and waits up to `max_wait` for a batch to fill.
    pub const fn batch(mut self, max_events: usize, max_wait: Duration) -> Self {
        self.batch = max_events;
        self.max_wait = max_wait;
        self
    }

    /// Makes up to this many attempts. The wait between them begins with `backoff` and doubles each time.
    pub const fn retries(mut self, attempts: u32, backoff: Duration) -> Self {
        self.attempts = attempts;
        self.backoff = backoff;
        self
    }

    /// Gives the receiver this long to answer.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts to post events. Ends when the watch is closed, or the task is asked to finish, and all events are sent.
    pub fn start(self, watch: &Watch) -> ExportTask {
        let counters = DeliveryCounters::new(watch);
        ExportTask::spawn(|stop| {
            let [denials, server] =
                EventLane::ALL.map(|lane| self.run_lane(lane, watch, &counters, stop.clone()));
            async move {
                tokio::join!(denials, server);
            }
        })
    }

    /// Queues the events of one lane and delivers them.
    fn run_lane(
        &self,
        lane: EventLane,
        watch: &Watch,
        counters: &DeliveryCounters,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (queue, queued) = mpsc::channel(self.queue.max(1));
        let (events, kinds, dropped) =
            (watch.subscribe_to(lane), self.kinds.clone(), counters.dropped.clone());
        let mut closed = watch.closed();
        let stop = async move {
            tokio::select! {
                () = stopped(stop) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        };
        let delivery = EventDelivery { webhook: self.clone(), counters: counters.clone() };
        let sender = BatchSender::new(delivery, queued, self.batch, self.max_wait);
        async move {
            // The sender ends when `enqueue` has dropped its end of the queue and all events are sent.
            tokio::join!(enqueue(events, queue, kinds, dropped, stop), sender.run(std::future::pending()));
        }
    }
}

/// Moves events into the queue as they are emitted, so that a slow receiver delays no other subscriber.
async fn enqueue(
    mut events: broadcast::Receiver<Event>,
    queue: mpsc::Sender<Event>,
    kinds: Vec<String>,
    dropped: Counter,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    loop {
        // Biased: events that were emitted before the stop are still sent.
        let received = tokio::select! {
            biased;
            received = events.recv() => received,
            () = &mut stop => return,
        };
        match received {
            Ok(event) if is_wanted(&event.kind, &kinds) => {
                if queue.try_send(event).is_err() {
                    dropped.increment(1);
                }
            }
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(missed)) => dropped.increment(missed),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Whether a webhook for these kinds gets the event. A summary of suppressed events also belongs to their kind.
fn is_wanted(event: &EventKind, kinds: &[String]) -> bool {
    let summed = match event {
        EventKind::EventsSuppressed { kind, .. } => Some(kind.as_str()),
        _ => None,
    };
    kinds.is_empty() || kinds.iter().any(|kind| kind == event.name() || Some(kind.as_str()) == summed)
}
