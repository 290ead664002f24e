//! Bodies as they arrive from clients, over either version, and as they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http2::{Paced, Received};

/// A request's body.
#[derive(Debug)]
pub enum ClientBody {
    /// Over HTTP/1.
    Http1(Incoming),
    /// Over HTTP/2.
    Http2(Received),
}

/// A body that did not arrive whole. Why is the client's affair.
#[derive(Debug, thiserror::Error)]
#[error("the client broke off")]
pub struct Interrupted;

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        match self.get_mut() {
            Self::Http1(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|_| Interrupted)))
            }
            Self::Http2(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|_| Interrupted)))
            }
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

/// An answer's body that takes no heed of how fast it is read: one that is small, or made as it goes.
#[derive(Debug)]
pub struct Unpaced<B>(pub B);

impl<B: Body + Unpin> Body for Unpaced<B> {
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

impl<B: Body<Data = Bytes> + Unpin> Paced for Unpaced<B> {
    fn read_at_most(&mut self, _bytes: usize) {}
}
