//! A response body whose cost is read while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::meter::CostMeter;

pin_project! {
    /// A response body that passes unchanged while its cost is read. The request is settled when the body ends or is dropped.
    ///
    /// Made by [`Admission::settle_from`](crate::Admission::settle_from).
    #[derive(Debug)]
    pub struct MeteredBody<B> {
        #[pin]
        body: B,
        meter: Option<CostMeter>,
    }
}

impl<B: Body> MeteredBody<B> {
    pub(crate) fn new(body: B, meter: Option<CostMeter>) -> Self {
        let mut metered = Self { body, meter };
        // A body that says it has ended may never be polled.
        if metered.body.is_end_stream()
            && let Some(meter) = metered.meter.take()
        {
            meter.finish();
        }
        metered
    }
}

impl<B: Body<Data = Bytes>> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let (Some(meter), Some(Ok(frame))) = (this.meter.as_mut(), &frame)
            && let Some(data) = frame.data_ref()
        {
            meter.push(data);
        }
        match &frame {
            Some(Err(_)) => drop(this.meter.take()),
            Some(Ok(_)) if !this.body.is_end_stream() => {}
            Some(Ok(_)) | None => {
                if let Some(meter) = this.meter.take() {
                    meter.finish();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
