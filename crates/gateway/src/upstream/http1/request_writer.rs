//! A request on its way to an upstream: its header and the first of its body leave in one piece.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Method;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRAILER, TRANSFER_ENCODING};
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::asked::Asked;
use super::write_buffer::Text;
use crate::forward::body::{Upload, UploadFailure};

/// What is to be written, in this order: text of ours, a piece of the body, and the end of it.
#[derive(Debug)]
pub(super) struct Outgoing {
    text: Text,
    written: usize,
    data: Bytes,
    end: &'static [u8],
    body: Coding,
    /// The trailers that the header has announced; no others are sent.
    announced: Vec<HeaderName>,
    progress: Progress,
}

/// How the body is framed, and what is left of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Coding {
    Exact { left: u64 },
    Chunked,
    Ended,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Progress {
    #[default]
    Unsent,
    Begun,
    /// The upstream takes no more of it.
    GivenUp,
    Done,
}

/// Why a request did not reach the upstream whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Upload(#[from] UploadFailure),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Outgoing {
    /// A request. How its body is framed depends on the body alone.
    pub(super) fn new(asked: Asked<'_>, upload: &Upload) -> Self {
        let Asked { method, path, host, headers, push_more, .. } = asked;
        let mut text = Text::take();
        for part in [method.as_str(), " ", path.as_str(), " HTTP/1.1\r\nhost: ", host, "\r\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        for (name, value) in headers {
            if *name != HOST && *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
                push_field(&mut text, name, value.as_bytes());
            }
        }
        push_more(&mut text);
        let body = push_framing(&mut text, asked, upload);
        text.extend_from_slice(b"\r\n");
        let announced = if body == Coding::Chunked { announced(headers) } else { Vec::new() };
        Self { text, written: 0, data: Bytes::new(), end: b"", body, announced, progress: Progress::Unsent }
    }

    /// Whether the whole request has been written.
    pub(super) fn is_done(&self) -> bool {
        self.progress == Progress::Done
    }

    /// Whether none of it has been written.
    pub(super) fn is_unsent(&self) -> bool {
        self.progress == Progress::Unsent
    }

    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.progress, Progress::Done | Progress::GivenUp)
    }

    /// Writes nothing more.
    pub(super) fn give_up(&mut self) {
        self.progress = Progress::GivenUp;
    }

    /// Writes as much as the upstream takes and the client has sent. Pending calls `moved` for what did move.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
        upload: &mut Upload,
        mut moved: impl FnMut(),
    ) -> Poll<Result<(), SendError>> {
        while self.is_under_way() {
            if self.wants_frame() {
                match Pin::new(&mut *upload).poll_frame(cx) {
                    Poll::Ready(frame) => {
                        self.take(frame.transpose()?, upload.is_end_stream())?;
                        moved();
                        continue;
                    }
                    Poll::Pending if self.remaining() == 0 => {
                        let _flushed = Pin::new(&mut *writer).poll_flush(cx)?;
                        return Poll::Pending;
                    }
                    Poll::Pending => {}
                }
            }
            if self.remaining() == 0 {
                ready!(Pin::new(&mut *writer).poll_flush(cx))?;
                self.progress = Progress::Done;
            } else {
                let bytes = ready!(self.poll_write(cx, writer))?;
                self.advance(bytes);
                moved();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wants_frame(&self) -> bool {
        self.body != Coding::Ended && self.data.is_empty() && self.end.is_empty()
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>, is_last: bool) -> Result<(), UploadFailure> {
        let Some(frame) = frame else { return self.close() };
        match frame.into_data() {
            Ok(data) => {
                self.take_data(data)?;
                if is_last { self.close() } else { Ok(()) }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                self.take_trailers(&trailers);
                Ok(())
            }
        }
    }

    fn take_data(&mut self, data: Bytes) -> Result<(), UploadFailure> {
        match &mut self.body {
            Coding::Exact { left } => {
                *left = left.checked_sub(data.len() as u64).ok_or(UploadFailure::Broken)?;
            }
            // An empty chunk would be the last one.
            Coding::Chunked if !data.is_empty() => {
                // Writing to memory cannot fail.
                let _ = write!(self.text, "{:x}\r\n", data.len());
                self.end = b"\r\n";
            }
            Coding::Chunked | Coding::Ended => {}
        }
        self.data = data;
        Ok(())
    }

    fn take_trailers(&mut self, trailers: &HeaderMap) {
        if self.body != Coding::Chunked {
            return;
        }
        self.text.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.iter().filter(|(name, _)| self.announced.contains(name)) {
            push_field(&mut self.text, name, value.as_bytes());
        }
        self.text.extend_from_slice(b"\r\n");
        self.body = Coding::Ended;
    }

    fn close(&mut self) -> Result<(), UploadFailure> {
        match self.body {
            Coding::Exact { left: 1.. } => return Err(UploadFailure::Broken),
            Coding::Chunked => self.end = if self.end.is_empty() { b"0\r\n\r\n" } else { b"\r\n0\r\n\r\n" },
            Coding::Exact { .. } | Coding::Ended => {}
        }
        self.body = Coding::Ended;
        Ok(())
    }

    fn remaining(&self) -> usize {
        self.text.len() - self.written + self.data.len() + self.end.len()
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<usize>> {
        let text = &self.text[self.written..];
        let written = if self.data.is_empty() && self.end.is_empty() {
            ready!(Pin::new(writer).poll_write(cx, text))?
        } else {
            let slices = [IoSlice::new(text), IoSlice::new(&self.data), IoSlice::new(self.end)];
            ready!(Pin::new(writer).poll_write_vectored(cx, &slices))?
        };
        Poll::Ready(if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) })
    }

    fn advance(&mut self, mut bytes: usize) {
        self.progress = Progress::Begun;
        let of_text = bytes.min(self.text.len() - self.written);
        self.written += of_text;
        bytes -= of_text;
        if self.written == self.text.len() {
            // Let go at once where no more is to come, for the next request on this thread.
            if self.body == Coding::Ended {
                self.text = Text::default();
            }
            self.text.clear();
            self.written = 0;
        }
        let of_data = bytes.min(self.data.len());
        self.data.advance(of_data);
        self.end = &self.end[bytes - of_data..];
    }
}

fn push_field(text: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Says how long the body is: the one field of the header that is never taken over from the client.
fn push_framing(text: &mut Vec<u8>, asked: Asked<'_>, upload: &Upload) -> Coding {
    if upload.is_end_stream() {
        let expected = matches!(*asked.method, Method::POST | Method::PUT | Method::PATCH);
        if expected || asked.headers.contains_key(CONTENT_LENGTH) {
            text.extend_from_slice(b"content-length: 0\r\n");
        }
        return Coding::Ended;
    }
    if let Some(left) = upload.size_hint().exact() {
        let _ = write!(text, "content-length: {left}\r\n");
        return Coding::Exact { left };
    }
    text.extend_from_slice(b"transfer-encoding: chunked\r\n");
    Coding::Chunked
}

/// The names that the header promises as trailers, but for those that say how a message is framed or addressed.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(TRAILER).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(|name| ![CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING].contains(name)).collect()
}
