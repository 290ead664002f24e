//! Counts the connections of a listener. Handles are taken when the listener is built, from the recorder that is
//! installed then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// The metrics of one listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionMetrics(Arc<ConnectionSeries>);

#[derive(Debug)]
struct ConnectionSeries {
    open: Gauge,
    /// The value of the gauge, which cannot be read.
    open_now: AtomicUsize,
    accepted: Counter,
    full: Counter,
    handshake_failed: Counter,
    timed_out: Counter,
}

impl ConnectionMetrics {
    pub(crate) fn new(listener: &'static str) -> Self {
        describe_gauge!("server_connections", "Open connections, by listener.");
        describe_counter!("server_connections_total", "Connections accepted, by listener.");
        describe_counter!(
            "server_connections_full_total",
            "Times that the maximum number of connections was open and the next one had to wait."
        );
        describe_counter!(
            "server_connections_ended_total",
            "Connections that the server ended, by reason: a failed TLS handshake, or a client that took too long."
        );
        let ended = |reason: &'static str| counter!("server_connections_ended_total", "listener" => listener, "reason" => reason);
        Self(Arc::new(ConnectionSeries {
            open: gauge!("server_connections", "listener" => listener),
            open_now: AtomicUsize::new(0),
            accepted: counter!("server_connections_total", "listener" => listener),
            full: counter!("server_connections_full_total", "listener" => listener),
            handshake_failed: ended("handshake"),
            timed_out: ended("timeout"),
        }))
    }

    pub(crate) fn opened(&self) {
        self.0.accepted.increment(1);
        self.0.open.increment(1.0);
        self.0.open_now.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.0.open.decrement(1.0);
        self.0.open_now.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) -> usize {
        self.0.open_now.load(Ordering::Relaxed)
    }

    pub(crate) fn full(&self) {
        self.0.full.increment(1);
    }

    pub(crate) fn handshake_failed(&self) {
        self.0.handshake_failed.increment(1);
    }

    pub(crate) fn timed_out(&self) {
        self.0.timed_out.increment(1);
    }
}
