//! Counts and times every HTTP request of one listener.

use std::sync::OnceLock;

use http::StatusCode;
use metrics::{Counter, Histogram, counter, histogram};
use spile_core::{Clock, Micros, SystemClock};

use super::{HTTP_DURATION, Telemetry};

/// Status codes run from 100 to 599.
const STATUSES: usize = 500;

/// The series of one listener.
pub(crate) struct HttpMetrics {
    telemetry: Telemetry,
    listener: &'static str,
    clock: SystemClock,
    requests: Box<[OnceLock<Counter>]>,
    duration: Histogram,
}

impl HttpMetrics {
    pub(crate) fn new(telemetry: Telemetry, listener: &'static str) -> Self {
        let duration = telemetry.register(|| histogram!(HTTP_DURATION, "listener" => listener));
        let requests = (0..STATUSES).map(|_| OnceLock::new()).collect();
        Self { telemetry, listener, clock: SystemClock::new(), requests, duration }
    }

    pub(crate) fn started(&self) -> Micros {
        self.clock.now()
    }

    pub(crate) fn answered(&self, started: Micros, status: StatusCode) {
        let index = usize::from(status.as_u16() - 100).min(STATUSES - 1);
        let counter = self.requests[index].get_or_init(|| {
            let status = status.as_str().to_owned();
            self.telemetry.register(
                || counter!("http_server_requests_total", "listener" => self.listener, "status" => status),
            )
        });
        counter.increment(1);
        self.duration.record(self.clock.now().since_us(started) as f64 / 1e6);
    }
}
