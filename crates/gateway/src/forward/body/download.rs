//! The body of an upstream's response on its way to the client.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use spile_limiter::Permit;
use spile_listener::{Deadline, PacedBody};
use spile_tower::cost::CostMeter;
use tokio::runtime::Handle;

use super::activity::{Activity, SharedIdleTimer};
use crate::access_log::AccessRecord;
use crate::limit::{DetachedExchange, Detachment, MAX_DETACHED_BYTES};
use crate::upstream::{Http1Body, Http2Body, InFlightRequest};

/// A body that is read from the upstream only as fast as the client takes it, with an idle timeout. It counts as a
/// request in flight at the upstream until it has arrived completely.
#[derive(Debug)]
pub(crate) struct Download {
    body: DownloadSource,
    in_flight: Option<InFlightRequest>,
    deadline: Deadline,
    /// Written to the access log when the body ends or is dropped.
    record: AccessRecord,
    /// Reads the cost of the answer until its end. Boxed, because few routes have one.
    meter: Option<Box<AnswerMeter>>,
    /// The request's permit, held until the last byte of the response has arrived.
    permit: Option<Box<Permit>>,
}

/// Reads the cost of an answer while it passes, and settles the request at its end.
#[derive(Debug)]
pub(crate) struct AnswerMeter {
    cost: CostMeter,
    /// `None` while the rest is read without a client.
    detachment: Option<Detachment>,
}

#[derive(Debug)]
enum DownloadSource {
    Http1(Http1Body),
    Http2 {
        body: Http2Body,
        idle: SharedIdleTimer,
    },
    /// The client has disconnected, and a task reads the rest.
    Taken,
}

/// A response body that ended early. The client sees a broken connection.
#[derive(Debug, thiserror::Error)]
#[error("the response broke off")]
pub(crate) struct IncompleteBody;

impl Download {
    pub(crate) fn http1(mut body: Http1Body, activity: Activity, in_flight: InFlightRequest) -> Self {
        body.share_activity(activity);
        body.release_at_end();
        Self::new(DownloadSource::Http1(body), in_flight)
    }

    pub(crate) fn http2(body: Http2Body, idle: SharedIdleTimer, in_flight: InFlightRequest) -> Self {
        Self::new(DownloadSource::Http2 { body, idle }, in_flight)
    }

    fn new(body: DownloadSource, in_flight: InFlightRequest) -> Self {
        let mut download = Self {
            body,
            in_flight: Some(in_flight),
            deadline: Deadline::after(None),
            record: AccessRecord::default(),
            meter: None,
            permit: None,
        };
        download.release_at_end();
        download
    }

    /// Ends the body with an error if it is not complete by the deadline.
    pub(crate) fn end_by(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Counts the bytes of the body in the access log.
    pub(crate) fn with_record(mut self, record: AccessRecord) -> Self {
        self.record = record;
        self
    }

    /// Reads the cost of the answer while it passes. If the client disconnects, the rest is read all the same.
    pub(crate) fn read_cost(&mut self, meter: AnswerMeter) {
        self.meter = Some(Box::new(meter));
    }

    /// Holds the permit of the request until the body ends or is dropped.
    pub(crate) fn hold(&mut self, permit: Option<Box<Permit>>) {
        self.permit = permit;
        self.release_at_end();
    }

    /// Ends the request in flight as soon as the body has ended. A body that reports its end is not polled again.
    fn release_at_end(&mut self) {
        if self.is_end_stream() {
            self.release();
            self.finish_meter();
        }
    }

    /// Ends the request in flight, and its permits.
    fn release(&mut self) {
        self.in_flight = None;
        self.permit = None;
    }

    /// Settles the request, because its answer has ended.
    fn finish_meter(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.cost.finish();
        }
    }

    /// Moves the rest of the body, with its meter and its permit, to a download without a client.
    #[cold]
    fn take_rest(&mut self) -> Self {
        Self {
            body: mem::replace(&mut self.body, DownloadSource::Taken),
            in_flight: self.in_flight.take(),
            deadline: mem::replace(&mut self.deadline, Deadline::after(None)),
            record: AccessRecord::default(),
            meter: self.meter.take(),
            permit: self.permit.take(),
        }
    }

    /// Reads the rest of the body for its cost, without a client. If a bound ends the reading, the request is settled like one whose response broke off.
    pub(crate) async fn read_on(mut self, mut detached: DetachedExchange) {
        if let Some(meter) = &mut self.meter {
            meter.detachment = None;
            let mut bytes = 0;
            let rest = async {
                while let Some(Ok(frame)) = self.frame().await {
                    bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
                    if bytes > MAX_DETACHED_BYTES {
                        return;
                    }
                }
            };
            let _cut = detached.run(rest).await;
            if bytes > MAX_DETACHED_BYTES {
                detached.count_too_large();
            }
        }
        // Dropped first, so that the place is freed only after the exchange has ended.
        drop(self);
    }
}

impl AnswerMeter {
    /// A meter for an answer that is read to its end, even if its client disconnects before that.
    pub(crate) const fn new(cost: CostMeter, detachment: Detachment) -> Self {
        Self { cost, detachment: Some(detachment) }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let Some(detachment) = self.meter.as_mut().and_then(|meter| meter.detachment.take()) else { return };
        // A runtime that is shutting down drops the task at once. The body in it has no detachment left, so it starts no other.
        if let Ok(runtime) = Handle::try_current()
            && let Some(detached) = detachment.detach()
        {
            runtime.spawn(self.take_rest().read_on(detached));
        }
    }
}

impl DownloadSource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        match self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2 { body, idle } => {
                let Poll::Ready(frame) = Pin::new(&mut body.received).poll_frame(cx) else {
                    return idle.poll_expired(cx).map(|()| Some(Err(IncompleteBody)));
                };
                idle.record();
                Poll::Ready(frame.map(|frame| frame.map_err(|_| IncompleteBody)))
            }
            Self::Taken => Poll::Ready(None),
        }
    }
}

impl PacedBody for Download {
    fn read_at_most(&mut self, bytes: usize) {
        if let DownloadSource::Http1(body) = &mut self.body {
            body.read_at_most(bytes);
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = IncompleteBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        let frame = match self.deadline.poll_expired(cx) {
            Poll::Ready(()) => Some(Err(IncompleteBody)),
            Poll::Pending => ready!(self.body.poll_frame(cx)),
        };
        match &frame {
            Some(Ok(frame)) => {
                self.record.sent(frame.data_ref().map_or(0, |data| data.len() as u64));
                if let (Some(meter), Some(data)) = (&mut self.meter, frame.data_ref()) {
                    meter.cost.push(data);
                }
                self.release_at_end();
            }
            Some(Err(_)) => {
                self.release();
                self.meter = None;
            }
            None => {
                self.release();
                self.finish_meter();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            DownloadSource::Http1(body) => body.is_end_stream(),
            DownloadSource::Http2 { body, .. } => body.received.is_end_stream(),
            DownloadSource::Taken => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            DownloadSource::Http1(body) => body.size_hint(),
            DownloadSource::Http2 { body, .. } => body.received.size_hint(),
            DownloadSource::Taken => SizeHint::with_exact(0),
        }
    }
}
