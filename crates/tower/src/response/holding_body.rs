//! A response body that holds a permit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use spile_limiter::Permit;

pin_project! {
    /// A response body that passes unchanged and holds a permit until its last byte, its error or its drop.
    #[derive(Debug)]
    pub struct HoldingBody<B> {
        #[pin]
        body: B,
        permit: Option<Arc<Permit>>,
    }
}

impl<B: Body> HoldingBody<B> {
    /// The body with the permit. A body that has ended already holds none: a server may never poll it.
    pub fn new(body: B, permit: Arc<Permit>) -> Self {
        let permit = (!body.is_end_stream()).then_some(permit);
        Self { body, permit }
    }
}

impl<B: Body> Body for HoldingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        let goes_on = matches!(frame, Some(Ok(_))) && !this.body.is_end_stream();
        if !goes_on {
            *this.permit = None;
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
