//! Sentinel: who the master is, and when that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use spile_resp::Value;
use tokio::time::{sleep, timeout};

use crate::connection::dial_limiter::{Backoff, DialPriority};
use crate::connection::dialer::Dialer;
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError};
use crate::node::Node;
use crate::session::next_message;

/// How long one sentinel may take to be reached, and then to answer, before the next is asked.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);

/// How long to leave a sentinel alone that does not let us subscribe. It is asked where the master is each time.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// The sentinels that watch one master.
pub(crate) struct Sentinels {
    addresses: Vec<Endpoint>,
    master: String,
    dialer: Dialer,
    /// The one that answered last, which is asked first.
    preferred: AtomicUsize,
    /// The newest master that any of them has named.
    newest: Mutex<Option<MasterAddress>>,
}

/// A master as a sentinel names it. Each failover is agreed on under a greater epoch than the last, so a sentinel that
/// was cut off from the others when they agreed gives itself away.
#[derive(Clone, Debug, Eq, PartialEq)]
struct MasterAddress {
    epoch: u64,
    endpoint: Endpoint,
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Endpoint>, master: String, dialer: Dialer) -> Self {
        Self { addresses, master, dialer, preferred: AtomicUsize::new(0), newest: Mutex::default() }
    }

    /// Where the master is, by the first sentinel that is not behind what another has said.
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

    /// How many there are. One alone may be cut off with a master that has been replaced: listen to each.
    pub(crate) const fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Listens at one of them for a change of master for ever, and tells `node` when there is one. While it cannot listen,
    /// the store warns of it.
    pub(crate) async fn watch(self: Arc<Self>, index: usize, node: Arc<Node>) {
        let (warnings, subject) =
            (&self.dialer.counters.warnings, format!("sentinel {}", self.addresses[index]));
        let mut backoff = Backoff::default();
        loop {
            match self.subscribed(index, &node).await {
                Ok(connection) => {
                    warnings.clear(&subject);
                    backoff = Backoff::default();
                    self.listen(index, connection, &node).await;
                }
                Err(why) => {
                    warnings.set(&subject, format!("a change of master is not heard from it: {why}"));
                    if let ConnectionError::Refused(_) = why {
                        sleep(REFUSED_PAUSE).await;
                    }
                }
            }
            backoff.pause().await;
        }
    }

    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.addresses.len());
        (0..count).map(move |step| (first + step) % count)
    }

    fn is_behind(&self, reported: &MasterAddress) -> bool {
        self.newest.lock().as_ref().is_some_and(|newest| reported.epoch < newest.epoch)
    }

    /// Whether another master was in force before, by an older agreement.
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

    /// Where all who answered are behind: most of them are right, for whoever sets sentinels up afresh begins a new
    /// count. A few are cut off. Where none answers, the last known master may well be one still: connecting to it asks.
    fn newest_of(&self, answers: Vec<MasterAddress>) -> Option<Endpoint> {
        let most = answers.len() > self.addresses.len() / 2;
        match answers.into_iter().max_by_key(|reported| reported.epoch) {
            Some(best) if most => Some(self.remember(best)),
            _ => self.newest.lock().as_ref().map(|newest| newest.endpoint.clone()),
        }
    }

    async fn ask(&self, sentinel: &Endpoint) -> Result<MasterAddress, ConnectionError> {
        let mut connection = self.dialer.open(sentinel).await?;
        bounded(self.ask_over(&mut connection)).await
    }

    async fn ask_over(&self, connection: &mut Connection) -> Result<MasterAddress, ConnectionError> {
        let question: [&[u8]; 3] = [b"SENTINEL", b"MASTER", self.master.as_bytes()];
        let reply = connection.command(&question).await?;
        if let Some(reported) = reply.as_array().and_then(parse_master) {
            return Ok(reported);
        }
        match reply {
            // Sentinels may let their clients ask for the address alone. It then stands for itself.
            Value::Error(refusal) if refusal.starts_with("NOPERM") => self.ask_for_address(connection).await,
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            _ => Err(self.unknown()),
        }
    }

    async fn ask_for_address(&self, connection: &mut Connection) -> Result<MasterAddress, ConnectionError> {
        let question: [&[u8]; 3] = [b"SENTINEL", b"get-master-addr-by-name", self.master.as_bytes()];
        match connection.command(&question).await? {
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            reply => match reply.as_array() {
                Some([host, port]) => {
                    let endpoint = endpoint(host, port).ok_or_else(|| self.unknown())?;
                    Ok(MasterAddress { epoch: 0, endpoint })
                }
                _ => Err(self.unknown()),
            },
        }
    }

    fn unknown(&self) -> ConnectionError {
        ConnectionError::Refused(format!("the sentinel knows no master {}", self.master))
    }

    /// A connection on which one sentinel tells of changes.
    async fn subscribed(&self, index: usize, node: &Node) -> Result<Connection, ConnectionError> {
        let sentinel = &self.addresses[index];
        // Who the master is can be asked without listening, so this waits for the dials of decisions.
        let background = Dialer { priority: DialPriority::Background, ..self.dialer.clone() };
        let mut connection = background.open(sentinel).await?;
        let subscription: [&[u8]; 2] = [b"SUBSCRIBE", b"+switch-master"];
        let reply = bounded(connection.command(&subscription)).await?;
        // The change may have come before the subscription, or there is none, so the sentinel is asked in any case.
        if let Ok(reported) = self.ask(sentinel).await
            && self.is_new_master(&reported)
        {
            self.moved(index, node, reported.endpoint);
        }
        match reply {
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            _ => Ok(connection),
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&self, index: usize, mut connection: Connection, node: &Node) {
        while let Ok(message) = next_message(&mut connection).await {
            if let Some(master) = self.switched_to(&message) {
                self.moved(index, node, master);
            }
        }
    }

    /// The one with the news is asked first: the others may not have heard.
    fn moved(&self, index: usize, node: &Node, to: Endpoint) {
        self.preferred.store(index, Ordering::Relaxed);
        node.moved(to);
    }

    /// The new master, if the message tells of ours: its name, the old host and port, the new host and port.
    fn switched_to(&self, message: &Value) -> Option<Endpoint> {
        let payload = message.as_array()?.get(2)?.as_str()?;
        match payload.split(' ').collect::<Vec<_>>()[..] {
            [name, _, _, host, port] if name == self.master => Some(Endpoint::tcp(host, port.parse().ok()?)),
            _ => None,
        }
    }
}

/// Reads the pairs that `SENTINEL MASTER` answers with.
fn parse_master(pairs: &[Value]) -> Option<MasterAddress> {
    let value =
        |name: &str| pairs.chunks_exact(2).find(|pair| pair[0].as_str() == Some(name)).map(|pair| &pair[1]);
    let epoch = value("config-epoch")?.as_str()?.parse().ok()?;
    Some(MasterAddress { epoch, endpoint: endpoint(value("ip")?, value("port")?)? })
}

fn endpoint(host: &Value, port: &Value) -> Option<Endpoint> {
    Some(Endpoint::tcp(host.as_str()?, port.as_str()?.parse().ok()?))
}

async fn bounded<T>(answer: impl Future<Output = Result<T, ConnectionError>>) -> Result<T, ConnectionError> {
    timeout(TIMEOUT, answer).await.unwrap_or(Err(ConnectionError::Stalled(TIMEOUT)))
}
