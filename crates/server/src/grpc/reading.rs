//! Reads messages within bounds: memory is allocated for bytes that have arrived, never for an announced length.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use spile_core::Charges;
use spile_listener::{ClientBody, Deadline};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Status;

/// The length of the prefix of a message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;
/// The largest message that is read. Most have a few hundred bytes, but each descriptor may hold all of a request's
/// headers, of which Envoy accepts 60 KiB by default. A larger message is over the limit.
const MAX_MESSAGE: usize = Charges::MAX * 64 * 1024;
/// A message needs a place once more than this has arrived.
const LARGE: usize = 64 * 1024;
/// Places for large messages, of all connections together: 64 MiB.
pub(super) const MAX_LARGE: usize = 32;
/// How long a message waits for a place. Without one it is over the limit.
const PLACE_WITHIN: Duration = Duration::from_millis(5);
/// The most descriptors and entries that are decoded. In a message they can be as short as two bytes, and in memory each takes dozens.
const MAX_PARTS: usize = 4096;

/// A message that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable;

/// The message of a call that has one.
pub(super) async fn read_message(mut body: ClientBody, large: &Semaphore) -> Result<Bytes, Unreadable> {
    let mut arrived = next(&mut body).await?;
    while arrived.len() < PREFIX {
        arrived = [&arrived[..], &next(&mut body).await?].concat().into();
    }
    let (compressed, length) = (arrived.get_u8() != 0, arrived.get_u32() as usize);
    if compressed || length > MAX_MESSAGE {
        return Err(Unreadable);
    }
    if arrived.len() >= length {
        return Ok(arrived.split_to(length));
    }
    let (mut message, mut place) = (BytesMut::from(arrived), None);
    while message.len() < length {
        if message.len() > LARGE && place.is_none() {
            // Envoy does not wait long, and admits a request that gets no answer.
            let free = timeout(PLACE_WITHIN, large.acquire()).await;
            place = Some(free.map_err(|_| Unreadable)?);
        }
        message.extend_from_slice(&next(&mut body).await?);
    }
    message.truncate(length);
    Ok(message.freeze())
}

async fn next(body: &mut ClientBody) -> Result<Bytes, Unreadable> {
    match body.frame().await {
        Some(Ok(frame)) => frame.into_data().map_err(|_| Unreadable),
        Some(Err(_)) | None => Err(Unreadable),
    }
}

/// Whether a message has few enough descriptors and entries to be decoded.
pub(super) fn is_modest(message: &[u8]) -> bool {
    const DESCRIPTORS: u64 = 2;
    let (mut message, mut parts) = (message, 0);
    while let Some((tag, content)) = field(&mut message) {
        let Some(mut descriptor) = content.filter(|_| tag == DESCRIPTORS) else { continue };
        parts += 1;
        while parts <= MAX_PARTS && field(&mut descriptor).is_some() {
            parts += 1;
        }
        if parts > MAX_PARTS {
            return false;
        }
    }
    true
}

/// The next field's number, and its content if it is length-delimited. `None` at the end, and for bytes that
/// are not a field, which decoding refuses.
fn field<'m>(message: &mut &'m [u8]) -> Option<(u64, Option<&'m [u8]>)> {
    let key = varint(message)?;
    let content = match key & 7 {
        0 => varint(message).map(|_| None)?,
        1 => message.split_off(..8).map(|_| None)?,
        2 => {
            let length = usize::try_from(varint(message)?).ok()?;
            Some(message.split_off(..length)?)
        }
        5 => message.split_off(..4).map(|_| None)?,
        _ => return None,
    };
    Some((key >> 3, content))
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A body that must arrive completely within a time.
pub(super) struct TimedBody {
    body: ClientBody,
    deadline: Deadline,
}

impl TimedBody {
    pub(super) fn new(body: ClientBody, within: Duration) -> Self {
        let deadline = Deadline::after((!body.is_end_stream()).then_some(within));
        Self { body, deadline }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                Poll::Ready(frame.map(|frame| frame.map_err(|why| Status::cancelled(why.to_string()))))
            }
            Poll::Pending => {
                let late = || Some(Err(Status::deadline_exceeded("the message took too long to arrive")));
                self.deadline.poll_expired(cx).map(|()| late())
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::grpc::message::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest};

    fn message(descriptors: usize, entries: usize) -> Vec<u8> {
        let entries = vec![DescriptorEntry::default(); entries];
        let descriptor = RateLimitDescriptor { entries, ..Default::default() };
        let (domain, descriptors) = (b"edge".to_vec(), vec![descriptor; descriptors]);
        RateLimitRequest { domain, descriptors, hits_addend: 7 }.encode_to_vec()
    }

    #[test]
    fn a_message_that_grows_in_memory_is_not_decoded() {
        for (descriptors, entries) in [(1, 1), (33, 4), (32, 100), (0, 0)] {
            assert!(is_modest(&message(descriptors, entries)), "{descriptors} of {entries}");
        }
        for (descriptors, entries) in [(1_000_000, 0), (1, 1_000_000), (100, 100)] {
            assert!(!is_modest(&message(descriptors, entries)), "{descriptors} of {entries}");
        }
    }

    #[test]
    fn what_is_not_a_message_is_left_to_the_decoder() {
        for bytes in [&b"\x0a\xff\xff\xff\xff\x0f"[..], b"\xff", b"\x12\x05", b"", b"\x0b"] {
            assert!(is_modest(bytes), "{bytes:?}");
        }
    }
}
