//! What is counted of every listener. Handles are taken when it is built, under whichever recorder is in place then.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use pin_project_lite::pin_project;
use spile_core::{Clock, Micros, SystemClock};

/// Status codes run from 100 to 599.
const STATUSES: usize = 500;

/// Statuses that have a series from the beginning; any other is counted as `other`, unless series can be made later.
const USUAL: [u16; 37] = [
    101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    412, 413, 414, 415, 416, 421, 422, 429, 431, 499, 500, 501, 502, 503, 504, 508,
];

/// What other proxies log in place of a status that no client was there to get.
const CLIENT_LEFT: u16 = 499;

/// The series of one listener's requests. Clones count together.
#[derive(Clone)]
pub struct RequestMetrics(Option<Arc<RequestSeries>>);

struct RequestSeries {
    requests: Box<[OnceLock<Counter>]>,
    /// Makes the series of a status that comes for the first time.
    make: MakeCounter,
    duration: Histogram,
    clock: SystemClock,
}

type MakeCounter = Box<dyn Fn(u16) -> Counter + Send + Sync>;

pin_project! {
    /// A request that is counted with its answer. If it is dropped before, its client has left.
    pub(crate) struct Counted<F> {
        #[pin]
        answering: F,
        in_flight: InFlight,
    }
}

struct InFlight(Option<(Arc<RequestSeries>, Micros)>);

impl RequestMetrics {
    /// The series of the listener of this name, all taken now.
    pub fn new(listener: &'static str) -> Self {
        let usual = USUAL.map(|status| requests(listener, status.to_string()));
        let other = requests(listener, "other".to_owned());
        let own = move |status| USUAL.binary_search(&status).ok().map(|index| usual[index].clone());
        Self::with(listener, move |status| own(status).unwrap_or_else(|| other.clone()))
    }

    /// The same, in which the series of a status is made when it first comes, within `register`, which puts the recorder
    /// in place.
    pub fn lazy(
        listener: &'static str,
        register: impl Fn(&dyn Fn() -> Counter) -> Counter + Send + Sync + 'static,
    ) -> Self {
        Self::with(listener, move |status| register(&|| requests(listener, status.to_string())))
    }

    fn with(listener: &'static str, make: impl Fn(u16) -> Counter + Send + Sync + 'static) -> Self {
        describe_counter!(
            "http_server_requests_total",
            "HTTP requests answered; 499 if the client left before."
        );
        describe_histogram!("http_server_request_duration_seconds", "From request to answer.");
        Self(Some(Arc::new(RequestSeries {
            requests: (0..STATUSES).map(|_| OnceLock::new()).collect(),
            make: Box::new(make),
            duration: histogram!("http_server_request_duration_seconds", "listener" => listener),
            clock: SystemClock::new(),
        })))
    }

    /// Counts nothing, and takes no time.
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Counts the request that is answered by this future. A future of its own, for an `async fn` would keep it twice.
    pub(crate) fn counted<F>(&self, answering: F) -> Counted<F> {
        let series = self.0.as_ref().map(|series| (Arc::clone(series), series.clock.now()));
        Counted { answering, in_flight: InFlight(series) }
    }
}

impl<F: Future<Output = Response<B>>, B> Future for Counted<F> {
    type Output = Response<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<B>> {
        let this = self.project();
        let response = ready!(this.answering.poll(cx));
        this.in_flight.end(response.status().as_u16());
        Poll::Ready(response)
    }
}

impl InFlight {
    fn end(&mut self, status: u16) {
        if let Some((series, started)) = self.0.take() {
            let took = Duration::from_micros(series.clock.now().since_us(started));
            series.ended(status, took);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.end(CLIENT_LEFT);
    }
}

impl RequestSeries {
    fn ended(&self, status: u16, took: Duration) {
        let index = usize::from(status).saturating_sub(100).min(STATUSES - 1);
        self.requests[index].get_or_init(|| (self.make)(status)).increment(1);
        self.duration.record(took.as_secs_f64());
    }
}

fn requests(listener: &'static str, status: String) -> Counter {
    counter!("http_server_requests_total", "listener" => listener, "status" => status)
}

/// The series of one listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionMetrics(Arc<ConnectionSeries>);

#[derive(Debug)]
struct ConnectionSeries {
    open: Gauge,
    accepted: Counter,
    full: Counter,
    handshake_failed: Counter,
    timed_out: Counter,
}

impl ConnectionMetrics {
    pub(crate) fn new(listener: &'static str) -> Self {
        describe_gauge!("server_connections", "Connections that are open.");
        describe_counter!("server_connections_total", "Connections that were accepted.");
        describe_counter!(
            "server_connections_full_total",
            "Times that as many connections were open as there may be, so that the next one had to wait."
        );
        describe_counter!(
            "server_connections_ended_total",
            "Connections that the server ended: no TLS handshake, or a client that took too long."
        );
        let ended = |reason: &'static str| counter!("server_connections_ended_total", "listener" => listener, "reason" => reason);
        Self(Arc::new(ConnectionSeries {
            open: gauge!("server_connections", "listener" => listener),
            accepted: counter!("server_connections_total", "listener" => listener),
            full: counter!("server_connections_full_total", "listener" => listener),
            handshake_failed: ended("handshake"),
            timed_out: ended("timeout"),
        }))
    }

    pub(crate) fn opened(&self) {
        self.0.accepted.increment(1);
        self.0.open.increment(1.0);
    }

    pub(crate) fn closed(&self) {
        self.0.open.decrement(1.0);
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
