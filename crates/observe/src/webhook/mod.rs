//! Events, told to somebody else's server: signed, in batches, off the decision path.
//!
//! A receiver that is slow or down costs bounded queues and nothing else. What cannot be delivered is counted. Denials
//! wait, and are carried, apart from what happens to the server: no number of them delays or drops the loss of the store.

mod courier;
mod error;
mod public;
mod signature;
mod target;
mod telling;

use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio::sync::{broadcast, mpsc, watch};

use self::courier::Courier;
pub use self::error::WebhookError;
pub use self::signature::{Secret, verify};
pub(crate) use self::target::Target;
pub use self::telling::Telling;
use crate::event::{Event, Lane, What};
use crate::watch::Watch;

const DELIVERIES: &str = "ratelimit_webhook_events_total";

/// Where events go, and how patiently.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "call start()"]
pub struct Webhook {
    target: Target,
    secret: Secret,
    kinds: Vec<String>,
    queue: usize,
    batch: usize,
    gather: Duration,
    attempts: u32,
    backoff: Duration,
    timeout: Duration,
}

impl Webhook {
    /// Events go to `url`, which is `http` or `https`, signed with `secret`.
    pub fn new(url: &str, secret: impl Into<Secret>) -> Result<Self, WebhookError> {
        Ok(Self {
            target: Target::parse(url)?,
            secret: secret.into(),
            kinds: Vec::new(),
            queue: 1_000,
            batch: 100,
            gather: Duration::from_millis(500),
            attempts: 6,
            backoff: Duration::from_millis(500),
            timeout: Duration::from_secs(5),
        })
    }

    /// Lets the receiver be on a private, loopback or link-local address. Refused otherwise, so that nobody who may
    /// set a URL can reach into the network that Spile runs in.
    pub const fn allow_private(mut self, allowed: bool) -> Self {
        self.target.private_allowed = allowed;
        self
    }

    /// Tells only of these kinds of event: `key_denied`, `store_lost`. Of all, where none is named. Who hears of a kind also
    /// hears how many of its events were left out.
    pub fn only(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kinds = kinds.into_iter().map(Into::into).collect();
        self
    }

    /// Holds up to so many events while the receiver is slow, and as many denials; more are dropped and counted.
    pub const fn queue(mut self, events: usize) -> Self {
        self.queue = events;
        self
    }

    /// Sends up to so many events at once, and waits this long for company before it sends fewer.
    pub const fn batch(mut self, most: usize, gather: Duration) -> Self {
        self.batch = most;
        self.gather = gather;
        self
    }

    /// Tries so often, and waits twice as long after each failure, beginning with `backoff`.
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

    /// Starts telling. Ends once the watch is closed and everything is sent, or when it is told to finish.
    pub fn start(self, watch: &Watch) -> Telling {
        let counts = Counts::new(watch);
        let (stop, told) = watch::channel(false);
        let lanes = Lane::ALL.map(|lane| {
            let (events, to_send) = mpsc::channel(self.queue.max(1));
            let (mut told, mut closed) = (told.clone(), watch.closed());
            let stopped = async move {
                tokio::select! {
                    // A handle that was dropped tells it to stop no more.
                    Ok(_) = told.wait_for(|stop| *stop) => {}
                    _ = closed.wait_for(|closed| *closed) => {}
                }
            };
            let (listener, kinds, dropped) =
                (watch.listen_to(lane), self.kinds.clone(), counts.dropped.clone());
            let gathering = gather(listener, events, kinds, dropped, stopped);
            let courier = Courier::new(self.clone(), to_send, counts.clone());
            // The courier ends when the gatherer has dropped its end and everything is sent.
            async move { tokio::join!(gathering, courier.run()) }
        });
        let task = tokio::spawn(async move {
            let [denials, server] = lanes;
            tokio::join!(denials, server);
        });
        Telling { stop, task }
    }
}

/// Events by what became of them.
#[derive(Clone)]
struct Counts {
    delivered: Counter,
    dead: Counter,
    dropped: Counter,
}

impl Counts {
    fn new(watch: &Watch) -> Self {
        let result = |result: &'static str| counter!(DELIVERIES, "result" => result);
        watch.register(|| {
            describe_counter!(DELIVERIES, "Events for webhooks, by what became of them.");
            Self { delivered: result("delivered"), dead: result("dead"), dropped: result("dropped") }
        })
    }
}

/// Takes events as they come, so that a slow receiver never holds anybody else up.
async fn gather(
    mut listener: broadcast::Receiver<Event>,
    queue: mpsc::Sender<Event>,
    kinds: Vec<String>,
    dropped: Counter,
    stopped: impl Future<Output = ()>,
) {
    let mut stopped = std::pin::pin!(stopped);
    loop {
        // What has happened before the stop is told, too.
        let heard = tokio::select! {
            biased;
            heard = listener.recv() => heard,
            () = &mut stopped => return,
        };
        match heard {
            Ok(event) if is_wanted(&event.what, &kinds) => {
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

/// Whether a webhook that asked for these kinds hears of it. A summary of what was left out belongs to its kind, too.
fn is_wanted(what: &What, kinds: &[String]) -> bool {
    let summed = match what {
        What::EventsSuppressed { kind, .. } => Some(kind.as_str()),
        _ => None,
    };
    kinds.is_empty() || kinds.iter().any(|kind| kind == what.kind() || Some(kind.as_str()) == summed)
}
