//! The body of an upstream's response on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spile_listener::{Deadline, PacedBody};

use super::activity::{Activity, SharedIdleTimer};
use crate::access_log::AccessRecord;
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
}

#[derive(Debug)]
enum DownloadSource {
    Http1(Http1Body),
    Http2 { body: Http2Body, idle: SharedIdleTimer },
}

/// A response body that ended early. The client sees the connection break off.
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
        };
        download.release_at_end();
        download
    }

    /// Ends the body with an error if it is not complete by the deadline.
    pub(crate) fn with_deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = deadline;
        self
    }

    /// Counts the bytes of the body in the access log.
    pub(crate) fn with_record(mut self, record: AccessRecord) -> Self {
        self.record = record;
        self
    }

    /// Ends the request in flight as soon as the body has ended. A body that says it has ended is not polled again.
    fn release_at_end(&mut self) {
        if self.is_end_stream() {
            self.in_flight = None;
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
                self.release_at_end();
            }
            Some(Err(_)) | None => self.in_flight = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            DownloadSource::Http1(body) => body.is_end_stream(),
            DownloadSource::Http2 { body, .. } => body.received.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            DownloadSource::Http1(body) => body.size_hint(),
            DownloadSource::Http2 { body, .. } => body.received.size_hint(),
        }
    }
}
