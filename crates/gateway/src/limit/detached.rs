//! Exchanges that continue after their client has disconnected, so that the cost of their answer is read. They are bounded: in time, for
//! each caller and in total.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use spile_listener::{Bounds, ConnectionPlace, KeptPlace};
use tokio::sync::watch;
use tokio::time::Instant;

use super::CallerKey;

/// The default maximum, independent of the number of connections.
const USUAL_TOTAL: usize = 1_024;
/// How many bytes of an answer are read without a client.
pub(crate) const MAX_DETACHED_BYTES: u64 = 64 * 1024 * 1024;

/// How many exchanges may continue without their client, and for how long. An exchange above a bound is cut, and costs as much as an
/// answer that could not be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DetachedBounds {
    /// At once. `None`, the default, stands for half of the connections, and 1,024 at most.
    pub total: Option<usize>,
    /// At once for one caller: a tenant, a principal or an address. Default 16.
    pub per_caller: usize,
    /// How long each may take. Default 10 minutes.
    pub timeout: Duration,
}

impl Default for DetachedBounds {
    fn default() -> Self {
        Self { total: None, per_caller: 16, timeout: Duration::from_secs(600) }
    }
}

/// Counts the exchanges of a gateway that continue without their client.
#[derive(Debug)]
pub(crate) struct DetachedExchanges {
    total: usize,
    bounds: DetachedBounds,
    open: Mutex<OpenExchanges>,
    gauge: Gauge,
    cut_by_caller: Counter,
    cut_by_total: Counter,
    cut_by_connections: Counter,
    cut_by_time: Counter,
    cut_by_size: Counter,
}

#[derive(Debug, Default)]
struct OpenExchanges {
    total: usize,
    by_caller: HashMap<CallerKey, usize>,
}

/// The resources that an exchange needs to continue without its client.
#[derive(Clone, Debug)]
pub(crate) struct Detachment {
    pub(crate) exchanges: Arc<DetachedExchanges>,
    pub(crate) caller: CallerKey,
    /// `None` if the listener does not bound connections.
    pub(crate) place: Option<ConnectionPlace>,
    /// Turns true when the gateway stops.
    pub(crate) closing: watch::Receiver<bool>,
}

/// An exchange that continues without its client. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct DetachedExchange {
    detachment: Detachment,
    until: Instant,
    _place: Option<KeptPlace>,
}

impl DetachedExchanges {
    pub(crate) fn new(bounds: DetachedBounds, listener: &Bounds) -> Self {
        let usual = (listener.connections / 2).clamp(1, USUAL_TOTAL);
        let cut = |reason: &'static str| counter!("gateway_detached_cut_total", "reason" => reason);
        Self {
            total: bounds.total.unwrap_or(usual),
            bounds,
            open: Mutex::default(),
            gauge: gauge!("gateway_detached_exchanges"),
            cut_by_caller: cut("caller"),
            cut_by_total: cut("total"),
            cut_by_connections: cut("connections"),
            cut_by_time: cut("time"),
            cut_by_size: cut("size"),
        }
    }

    /// Counts one more exchange of this caller. If a bound is reached, returns the counter of those that it cut.
    fn count(&self, caller: &CallerKey) -> Result<(), &Counter> {
        let mut open = self.open.lock();
        if open.total >= self.total {
            return Err(&self.cut_by_total);
        }
        let of_caller = open.by_caller.get(caller).copied().unwrap_or(0);
        if of_caller >= self.bounds.per_caller {
            return Err(&self.cut_by_caller);
        }
        open.total += 1;
        open.by_caller.insert(caller.clone(), of_caller + 1);
        self.gauge.set(open.total as f64);
        Ok(())
    }

    fn end(&self, caller: &CallerKey) {
        let mut open = self.open.lock();
        open.total -= 1;
        self.gauge.set(open.total as f64);
        if let Some(of_caller) = open.by_caller.get_mut(caller) {
            *of_caller -= 1;
            if *of_caller == 0 {
                open.by_caller.remove(caller);
            }
        }
    }
}

impl Detachment {
    /// Lets the exchange continue without its client. `None` if a bound is reached: then it has to be cut.
    pub(crate) fn detach(self) -> Option<DetachedExchange> {
        let exchanges = Arc::clone(&self.exchanges);
        if let Err(cut) = exchanges.count(&self.caller) {
            cut.increment(1);
            return None;
        }
        let kept = self.place.as_ref().map(ConnectionPlace::keep);
        if let Some(None) = kept {
            exchanges.end(&self.caller);
            exchanges.cut_by_connections.increment(1);
            return None;
        }
        let until = Instant::now() + exchanges.bounds.timeout;
        Some(DetachedExchange { detachment: self, until, _place: kept.flatten() })
    }
}

impl DetachedExchange {
    /// Runs a part of the exchange. `None` if its time is over, or the gateway stops: then it was cut.
    pub(crate) async fn run<F: Future>(&mut self, part: F) -> Option<F::Output> {
        tokio::select! {
            done = tokio::time::timeout_at(self.until, part) => {
                if done.is_err() {
                    self.detachment.exchanges.cut_by_time.increment(1);
                }
                done.ok()
            }
            _ = self.detachment.closing.wait_for(|closing| *closing) => None,
        }
    }

    /// Counts that it was cut because more than [`MAX_DETACHED_BYTES`] of its answer arrived.
    pub(crate) fn count_too_large(&self) {
        self.detachment.exchanges.cut_by_size.increment(1);
    }
}

impl Drop for DetachedExchange {
    fn drop(&mut self) {
        self.detachment.exchanges.end(&self.detachment.caller);
    }
}
