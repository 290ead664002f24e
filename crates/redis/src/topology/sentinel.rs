//! Sentinel: the current master, and changes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_resp::Value;

use crate::connection::dial_limiter::DialPriority;
use crate::connection::dialer::Dialer;
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError, accepted, in_time};
use crate::node::Node;
use crate::session::keep_subscribed;

/// The timeout of connecting to one sentinel, and again of its reply. Then the next one is asked.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);

/// The sentinels that watch one master.
pub(crate) struct Sentinels {
    addresses: Vec<Endpoint>,
    master: String,
    dialer: Dialer,
    /// The index of the sentinel that is asked first: the one that answered last.
    preferred: AtomicUsize,
    /// The newest master that any sentinel has reported.
    newest: Mutex<Option<MasterAddress>>,
}

/// The master as a sentinel reports it. Each failover has a greater epoch than the one before, so a smaller epoch shows
/// that the sentinel was cut off from the others.
#[derive(Clone, Debug, Eq, PartialEq)]
struct MasterAddress {
    epoch: u64,
    endpoint: Endpoint,
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Endpoint>, master: String, dialer: Dialer) -> Self {
        Self { addresses, master, dialer, preferred: AtomicUsize::new(0), newest: Mutex::default() }
    }

    /// The same sentinels, asked in the background. The newest master is known to each apart: a session that has heard of it must not hide
    /// it from the decisions.
    pub(crate) fn apart(&self) -> Self {
        let dialer = Dialer { priority: DialPriority::Background, ..self.dialer.clone() };
        Self::new(self.addresses.clone(), self.master.clone(), dialer)
    }

    /// The master, from the first sentinel whose epoch is not older than the newest known one.
    pub(crate) async fn master(&self) -> Result<Endpoint, ConnectionError> {
        let (mut last, mut answers) = (ConnectionError::Closed, Vec::new());
        for index in self.in_order() {
            match self.ask(&self.addresses[index]).await {
                Ok(reported) if !self.is_behind(&reported) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(self.remember(reported));
                }
                Ok(reported) => answers.push(reported),
                Err(why) => last = why,
            }
        }
        self.newest_of(answers).ok_or(last)
    }

    /// The number of sentinels. All are subscribed to, because one may be cut off together with a replaced master.
    pub(crate) const fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Subscribes to changes of master at one sentinel, and passes them to `node`. Sets a warning while the
    /// subscription fails. Never returns.
    pub(crate) async fn watch(self: Arc<Self>, index: usize, node: Arc<Node>) {
        let (context, subject) = (&self.dialer.context, format!("sentinel {}", self.addresses[index]));
        let report = |why| match why {
            None => context.counters.warnings.clear(&subject),
            Some(why) => {
                let why = format!("a change of master is not heard from it: {why}");
                context.counters.warnings.set(&subject, why);
            }
        };
        let heard = |message: &Value| {
            if let Some(master) = self.switched_to(message) {
                self.moved(index, &node, master);
            }
        };
        keep_subscribed(&context.runtime, || self.subscribed(index, &node), report, heard).await;
    }

    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.addresses.len());
        (0..count).map(move |step| (first + step) % count)
    }

    fn is_behind(&self, reported: &MasterAddress) -> bool {
        self.newest.lock().as_ref().is_some_and(|newest| reported.epoch < newest.epoch)
    }

    /// Whether it differs from the newest known master and is not older.
    fn is_new_master(&self, reported: &MasterAddress) -> bool {
        let newest = self.newest.lock();
        newest
            .as_ref()
            .is_some_and(|newest| reported.epoch >= newest.epoch && reported.endpoint != newest.endpoint)
    }

    fn remember(&self, reported: MasterAddress) -> Endpoint {
        let endpoint = reported.endpoint.clone();
        *self.newest.lock() = Some(reported);
        endpoint
    }

    /// The master if all answers are older than the newest known one. If most sentinels answered they are right:
    /// sentinels that were set up anew count epochs from the start. A minority may be cut off. In that case, and if no
    /// sentinel answers, the last known master is used: connecting to it checks its role.
    fn newest_of(&self, answers: Vec<MasterAddress>) -> Option<Endpoint> {
        let most = answers.len() > self.addresses.len() / 2;
        match answers.into_iter().max_by_key(|reported| reported.epoch) {
            Some(best) if most => Some(self.remember(best)),
            _ => self.newest.lock().as_ref().map(|newest| newest.endpoint.clone()),
        }
    }

    async fn ask(&self, sentinel: &Endpoint) -> Result<MasterAddress, ConnectionError> {
        let mut connection = self.dialer.open(sentinel).await?;
        in_time(&self.dialer.context.runtime, TIMEOUT, async {
            let name = self.master.as_bytes();
            let reported = match connection.command(&[b"SENTINEL", b"MASTER", name]).await? {
                // An ACL may allow clients only to ask for the address. The answer then has no epoch.
                Value::Error(refusal) if refusal.starts_with("NOPERM") => {
                    let question: [&[u8]; 3] = [b"SENTINEL", b"get-master-addr-by-name", name];
                    match accepted(connection.command(&question).await?)?.as_array() {
                        Some([host, port]) => master_address(0, host, port),
                        _ => None,
                    }
                }
                reply => accepted(reply)?.as_array().and_then(parse_master),
            };
            let unknown =
                || ConnectionError::Refused(format!("the sentinel knows no master {}", self.master));
            reported.ok_or_else(unknown)
        })
        .await
    }

    /// Subscribes to the changes of one sentinel.
    async fn subscribed(&self, index: usize, node: &Node) -> Result<Connection, ConnectionError> {
        let sentinel = &self.addresses[index];
        // A background dial: the master can be asked for without a subscription.
        let background = Dialer { priority: DialPriority::Background, ..self.dialer.clone() };
        let mut connection = background.open(sentinel).await?;
        let subscription: [&[u8]; 2] = [b"SUBSCRIBE", b"+switch-master"];
        let subscribed = connection.ask(&subscription, TIMEOUT, &self.dialer.context.runtime).await;
        // The master may have changed before the subscription, or the subscription may have failed, so the sentinel is
        // asked too.
        if let Ok(reported) = self.ask(sentinel).await
            && self.is_new_master(&reported)
        {
            self.moved(index, node, reported.endpoint);
        }
        subscribed.map(|_| connection)
    }

    /// This sentinel is asked first from now on: the others may not know the change yet.
    fn moved(&self, index: usize, node: &Node, to: Endpoint) {
        self.preferred.store(index, Ordering::Relaxed);
        node.moved(to);
    }

    /// The new master, if the message is about ours. It holds the name, the old host and port, and the new host and
    /// port.
    fn switched_to(&self, message: &Value) -> Option<Endpoint> {
        let payload = message.as_array()?.get(2)?.as_str()?;
        match payload.split(' ').collect::<Vec<_>>()[..] {
            [name, _, _, host, port] if name == self.master => Some(Endpoint::tcp(host, port.parse().ok()?)),
            _ => None,
        }
    }
}

/// Parses the pairs of `SENTINEL MASTER`.
fn parse_master(pairs: &[Value]) -> Option<MasterAddress> {
    let value =
        |name: &str| pairs.chunks_exact(2).find(|pair| pair[0].as_str() == Some(name)).map(|pair| &pair[1]);
    let epoch = value("config-epoch")?.as_str()?.parse().ok()?;
    master_address(epoch, value("ip")?, value("port")?)
}

fn master_address(epoch: u64, host: &Value, port: &Value) -> Option<MasterAddress> {
    Some(MasterAddress { epoch, endpoint: Endpoint::tcp(host.as_str()?, port.as_str()?.parse().ok()?) })
}
