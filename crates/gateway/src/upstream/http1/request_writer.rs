//! Writes a request to an upstream. The header and the first part of the body are sent in one write.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Method;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRAILER, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::write_buffer::WriteBuffer;
use crate::forward::body::{Upload, UploadError};

/// The header of a request, and how it is sent.
#[derive(Clone, Copy)]
pub(crate) struct Http1Request<'r> {
    pub(crate) method: &'r Method,
    pub(crate) path: &'r PathAndQuery,
    pub(crate) host: &'r str,
    /// All other fields. Those that frame the body are ignored: the framing follows from the body.
    pub(crate) headers: &'r HeaderMap,
    /// The most bytes of one read of the response, until its reader sets another limit.
    pub(crate) read_at_most: usize,
    /// Writes additional fields.
    pub(crate) write_more: &'r (dyn Fn(&mut Vec<u8>) + Sync),
    /// Whether to wait for the response even if the client does not send its whole body.
    pub(crate) await_answer: bool,
}

/// The bytes to be written, in this order: text, a part of the body, and its end.
#[derive(Debug)]
pub(super) struct RequestWriter {
    text: WriteBuffer,
    written: usize,
    data: Bytes,
    end: &'static [u8],
    body: BodyCoding,
    /// Trailers that the header has announced. Others are not sent.
    announced: Vec<HeaderName>,
    progress: SendProgress,
}

/// The framing of the body, and how much of it is left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BodyCoding {
    Exact { left: u64 },
    Chunked,
    Ended,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum SendProgress {
    #[default]
    Unsent,
    Begun,
    /// The rest of the request is not sent.
    GivenUp,
    Done,
}

/// Why the upstream did not get the whole request.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl RequestWriter {
    /// A writer of this request. The framing follows from the body alone.
    pub(super) fn new(request: Http1Request<'_>, upload: &Upload) -> Self {
        let Http1Request { method, path, host, headers, write_more, .. } = request;
        let mut text = WriteBuffer::take();
        for part in [method.as_str(), " ", path.as_str(), " HTTP/1.1\r\nhost: ", host, "\r\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        for (name, value) in headers {
            if *name != HOST && *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
                write_field(&mut text, name, &[value.as_bytes()]);
            }
        }
        write_more(&mut text);
        let body = write_framing(&mut text, request, upload);
        text.extend_from_slice(b"\r\n");
        let announced = if body == BodyCoding::Chunked { announced(headers) } else { Vec::new() };
        Self {
            text,
            written: 0,
            data: Bytes::new(),
            end: b"",
            body,
            announced,
            progress: SendProgress::Unsent,
        }
    }

    /// Whether the whole request has been written.
    pub(super) fn is_done(&self) -> bool {
        self.progress == SendProgress::Done
    }

    /// Whether nothing has been written.
    pub(super) fn is_unsent(&self) -> bool {
        self.progress == SendProgress::Unsent
    }

    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.progress, SendProgress::Done | SendProgress::GivenUp)
    }

    /// Stops writing.
    pub(super) fn give_up(&mut self) {
        self.progress = SendProgress::GivenUp;
    }

    /// Writes as much as the client has sent and the upstream takes. Calls `moved` whenever bytes move.
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
                self.progress = SendProgress::Done;
            } else {
                let bytes = ready!(self.poll_write(cx, writer))?;
                self.advance(bytes);
                moved();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wants_frame(&self) -> bool {
        self.body != BodyCoding::Ended && self.data.is_empty() && self.end.is_empty()
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>, is_last: bool) -> Result<(), UploadError> {
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

    fn take_data(&mut self, data: Bytes) -> Result<(), UploadError> {
        match &mut self.body {
            BodyCoding::Exact { left } => {
                *left = left.checked_sub(data.len() as u64).ok_or(UploadError::Broken)?;
            }
            // An empty chunk would end the body.
            BodyCoding::Chunked if !data.is_empty() => {
                // Writing to memory cannot fail.
                let _ = write!(self.text, "{:x}\r\n", data.len());
                self.end = b"\r\n";
            }
            BodyCoding::Chunked | BodyCoding::Ended => {}
        }
        self.data = data;
        Ok(())
    }

    fn take_trailers(&mut self, trailers: &HeaderMap) {
        if self.body != BodyCoding::Chunked {
            return;
        }
        self.text.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.iter().filter(|(name, _)| self.announced.contains(name)) {
            write_field(&mut self.text, name, &[value.as_bytes()]);
        }
        self.text.extend_from_slice(b"\r\n");
        self.body = BodyCoding::Ended;
    }

    fn close(&mut self) -> Result<(), UploadError> {
        match self.body {
            BodyCoding::Exact { left: 1.. } => return Err(UploadError::Broken),
            BodyCoding::Chunked => {
                self.end = if self.end.is_empty() { b"0\r\n\r\n" } else { b"\r\n0\r\n\r\n" }
            }
            BodyCoding::Exact { .. } | BodyCoding::Ended => {}
        }
        self.body = BodyCoding::Ended;
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
        self.progress = SendProgress::Begun;
        let of_text = bytes.min(self.text.len() - self.written);
        self.written += of_text;
        bytes -= of_text;
        if self.written == self.text.len() {
            // If nothing more will be written, the memory is returned at once, for the next request on this thread.
            if self.body == BodyCoding::Ended {
                self.text = WriteBuffer::default();
            }
            self.text.clear();
            self.written = 0;
        }
        let of_data = bytes.min(self.data.len());
        self.data.advance(of_data);
        self.end = &self.end[bytes - of_data..];
    }
}

/// Writes a header field whose value consists of these parts.
pub(crate) fn write_field(text: &mut Vec<u8>, name: &HeaderName, value: &[&[u8]]) {
    text.extend_from_slice(name.as_str().as_bytes());
    text.extend_from_slice(b": ");
    for part in value {
        text.extend_from_slice(part);
    }
    text.extend_from_slice(b"\r\n");
}

/// Writes the field that frames the body. It is never copied from the client.
fn write_framing(text: &mut Vec<u8>, request: Http1Request<'_>, upload: &Upload) -> BodyCoding {
    if upload.is_end_stream() {
        let expected = matches!(*request.method, Method::POST | Method::PUT | Method::PATCH);
        if expected || request.headers.contains_key(CONTENT_LENGTH) {
            text.extend_from_slice(b"content-length: 0\r\n");
        }
        return BodyCoding::Ended;
    }
    if let Some(left) = upload.size_hint().exact() {
        let _ = write!(text, "content-length: {left}\r\n");
        return BodyCoding::Exact { left };
    }
    text.extend_from_slice(b"transfer-encoding: chunked\r\n");
    BodyCoding::Chunked
}

/// The trailers that the header announces, without those that frame or address a message.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(TRAILER).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(|name| ![CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING].contains(name)).collect()
}
