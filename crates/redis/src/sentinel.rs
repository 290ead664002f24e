//! Sentinel: who the master is, and when that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connection::{Connection, ConnectionError};
use crate::dialer::Dialer;
use crate::endpoint::Endpoint;
use crate::node::Node;
use crate::pace::Backoff;
use crate::resp::Value;
use crate::side::next_message;

/// How long one sentinel may take to be reached, and then to answer, before the next is asked.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// The sentinels that watch one master.
pub(crate) struct Sentinels {
    addresses: Vec<Endpoint>,
    master: String,
    dialer: Dialer,
    /// The one that answered last, which is asked first.
    favourite: AtomicUsize,
    /// Where the master was when it was last looked for.
    last_known: Mutex<Option<Endpoint>>,
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Endpoint>, master: String, dialer: Dialer) -> Self {
        Self { addresses, master, dialer, favourite: AtomicUsize::new(0), last_known: Mutex::default() }
    }

    /// Where the master is, by the first sentinel that knows.
    pub(crate) async fn master(&self) -> Result<Endpoint, ConnectionError> {
        let mut last = ConnectionError::Closed;
        for index in self.in_order() {
            match self.ask(&self.addresses[index]).await {
                Ok(endpoint) => {
                    self.favourite.store(index, Ordering::Relaxed);
                    *self.last_known.lock() = Some(endpoint.clone());
                    return Ok(endpoint);
                }
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    /// Listens for a change of master for ever, and makes `node` look again when there is one.
    pub(crate) async fn watch(self: Arc<Self>, node: Arc<Node>) {
        let mut backoff = Backoff::default();
        loop {
            for index in self.in_order() {
                if self.listen(&self.addresses[index], &node).await.is_ok() {
                    backoff = Backoff::default();
                }
            }
            backoff.pause().await;
        }
    }

    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.favourite.load(Ordering::Relaxed), self.addresses.len());
        (0..count).map(move |step| (first + step) % count)
    }

    async fn ask(&self, sentinel: &Endpoint) -> Result<Endpoint, ConnectionError> {
        let mut connection = self.dialer.open(sentinel).await?;
        bounded(self.ask_over(&mut connection)).await
    }

    async fn ask_over(&self, connection: &mut Connection) -> Result<Endpoint, ConnectionError> {
        let question: [&[u8]; 3] = [b"SENTINEL", b"get-master-addr-by-name", self.master.as_bytes()];
        let reply = connection.ask(&question).await?;
        let address = reply.as_array().and_then(|parts| match parts {
            [host, port] => Some(Endpoint::tcp(host.as_str()?, port.as_str()?.parse().ok()?)),
            _ => None,
        });
        address.ok_or_else(|| match reply {
            Value::Error(refusal) => ConnectionError::Refused(refusal),
            _ => ConnectionError::Refused(format!("the sentinel knows no master {}", self.master)),
        })
    }

    /// Subscribes at one sentinel until it is lost. An error where it could not even be reached.
    async fn listen(&self, sentinel: &Endpoint, node: &Node) -> Result<(), ConnectionError> {
        let mut connection = self.dialer.open(sentinel).await?;
        let subscription: [&[u8]; 2] = [b"SUBSCRIBE", b"+switch-master"];
        bounded(connection.ask(&subscription)).await?;
        // The change may have come before the subscription, so the sentinel is asked once there is one.
        if self.ask(sentinel).await.is_ok_and(|master| self.is_news(&master)) {
            node.look_again();
        }
        while let Ok(message) = next_message(&mut connection).await {
            if self.is_about_us(&message) {
                node.look_again();
            }
        }
        Ok(())
    }

    fn is_news(&self, master: &Endpoint) -> bool {
        self.last_known.lock().as_ref().is_some_and(|known| known != master)
    }

    fn is_about_us(&self, message: &Value) -> bool {
        let payload = message.as_array().and_then(|parts| parts.get(2)?.as_str());
        payload.is_some_and(|text| text.split(' ').next() == Some(&*self.master))
    }
}

async fn bounded<T>(answer: impl Future<Output = Result<T, ConnectionError>>) -> Result<T, ConnectionError> {
    timeout(PATIENCE, answer).await.unwrap_or(Err(ConnectionError::Stalled(PATIENCE)))
}
