//! Request bodies over either version of HTTP, and response bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http2::{PacedBody, ReceiveBody};

/// A request's body.
#[derive(Debug)]
pub enum ClientBody {
    /// Over HTTP/1.
    Http1(Incoming),
    /// Over HTTP/2.
    Http2(ReceiveBody),
}

/// The client closed the connection before its body was complete.
#[derive(Debug, thiserror::Error)]
#[error("the client closed the connection before the body was complete")]
pub struct ClientBodyError;

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|_| ClientBodyError))),
            Self::Http2(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|_| ClientBodyError))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

/// A response body that ignores how fast it is read: one that is small or generated while it is sent.
#[derive(Debug)]
pub struct UnpacedBody<B>(pub B);

impl<B: Body + Unpin> Body for UnpacedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl<B: Body<Data = Bytes> + Unpin> PacedBody for UnpacedBody<B> {
    fn read_at_most(&mut self, _bytes: usize) {}
}
