//! Counts and times the requests of a listener. Handles are taken when the listener is built, from the recorder that is
//! installed then.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use metrics::{Counter, Histogram, counter, describe_counter, describe_histogram, histogram};
use pin_project_lite::pin_project;
use spile_core::{Clock, Micros, SystemClock};

/// Status codes run from 100 to 599.
const STATUSES: usize = 500;

/// Statuses that have a series from the start. Others are counted as `other`, unless series can be created later.
const USUAL: [u16; 37] = [
    101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    412, 413, 414, 415, 416, 421, 422, 429, 431, 499, 500, 501, 502, 503, 504, 508,
];

/// The status that nginx logs when the client closed the connection before the response.
const CLIENT_LEFT: u16 = 499;

/// The metrics of one listener's requests. Clones share them.
#[derive(Clone)]
pub struct RequestMetrics(Option<Arc<RequestSeries>>);

struct RequestSeries {
    requests: Box<[OnceLock<Counter>]>,
    /// Creates the series of a status when it first occurs.
    make: MakeCounter,
    duration: Histogram,
    clock: SystemClock,
}

type MakeCounter = Box<dyn Fn(u16) -> Counter + Send + Sync>;

pin_project! {
    /// A request that is counted with its response. If it is dropped before that, its client has left.
    pub(crate) struct CountedRequest<F> {
        #[pin]
        answering: F,
        in_flight: InFlight,
    }
}

struct InFlight(Option<(Arc<RequestSeries>, Micros)>);

impl RequestMetrics {
    /// The metrics of the listener of this name, all registered now.
    pub fn new(listener: &'static str) -> Self {
        let usual = USUAL.map(|status| requests(listener, status.to_string()));
        let other = requests(listener, "other".to_owned());
        let own = move |status| USUAL.binary_search(&status).ok().map(|index| usual[index].clone());
        Self::with(listener, move |status| own(status).unwrap_or_else(|| other.clone()))
    }

    /// As [`new`](Self::new), but the series of a status is created when it first occurs, by `register`, which installs the
    /// recorder.
    pub fn lazy(
        listener: &'static str,
        register: impl Fn(&dyn Fn() -> Counter) -> Counter + Send + Sync + 'static,
    ) -> Self {
        Self::with(listener, move |status| register(&|| requests(listener, status.to_string())))
    }

    fn with(listener: &'static str, make: impl Fn(u16) -> Counter + Send + Sync + 'static) -> Self {
        describe_counter!(
            "http_server_requests_total",
            "HTTP requests answered, by listener and status; 499 if the client left first."
        );
        describe_histogram!(
            "http_server_request_duration_seconds",
            "Time from request to response, by listener."
        );
        Self(Some(Arc::new(RequestSeries {
            requests: (0..STATUSES).map(|_| OnceLock::new()).collect(),
            make: Box::new(make),
            duration: histogram!("http_server_request_duration_seconds", "listener" => listener),
            clock: SystemClock::new(),
        })))
    }

    /// Records nothing, and costs nothing.
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Counts the request that this future answers. Written by hand, because an `async fn` would hold the future twice.
    pub(crate) fn counted<F>(&self, answering: F) -> CountedRequest<F> {
        let series = self.0.as_ref().map(|series| (Arc::clone(series), series.clock.now()));
        CountedRequest { answering, in_flight: InFlight(series) }
    }
}

impl<F: Future<Output = Response<B>>, B> Future for CountedRequest<F> {
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
