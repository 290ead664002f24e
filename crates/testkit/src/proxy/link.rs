//! One connection through the proxy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spile_resp::parse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::exchange::ReplyExchange;
use super::{Mode, ProxyCounters};

/// The state of one connection: the current mode, and what it has lost already.
#[derive(Clone)]
pub(super) struct Link {
    modes: watch::Receiver<Mode>,
    exchange: Arc<ReplyExchange>,
    counts: Arc<ProxyCounters>,
    requests_lost: Arc<AtomicBool>,
    replies_lost: Arc<AtomicBool>,
}

impl Link {
    pub(super) fn new(
        modes: watch::Receiver<Mode>,
        exchange: Arc<ReplyExchange>,
        counts: Arc<ProxyCounters>,
    ) -> Self {
        Self { modes, exchange, counts, requests_lost: Arc::default(), replies_lost: Arc::default() }
    }

    /// Counts that a mode has affected this connection.
    pub(super) fn strike(&self) {
        self.counts.struck.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies bytes both ways until one side closes or the mode ends the connection.
    pub(super) async fn carry(self, client: TcpStream, server: TcpStream) {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (queue, queued) = mpsc::unbounded_channel();
        let mut reset = self.modes.clone();
        let struck = tokio::select! {
            _ = self.requests(from_client, to_server) => false,
            _ = self.replies(from_server, queue) => false,
            _ = deliver(queued, &to_client) => false,
            _ = reset.wait_for(|mode| *mode == Mode::Reset) => true,
            () = self.watch_for_half_open() => false,
        };
        if struck {
            self.strike();
            let _ = to_client.as_ref().set_zero_linger();
            // Dropping the half would send a FIN first, and the client would see an end instead of a reset.
            to_client.forget();
        }
    }

    /// Marks the link as dead when the mode is set, even if there is no traffic meanwhile.
    async fn watch_for_half_open(&self) {
        let mut modes = self.modes.clone();
        if modes.wait_for(|mode| *mode == Mode::HalfOpen).await.is_ok() {
            self.requests_lost.store(true, Ordering::Relaxed);
            self.replies_lost.store(true, Ordering::Relaxed);
            self.strike();
        }
        std::future::pending::<()>().await;
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let length = from.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            if self.mode() == Mode::HalfOpen {
                self.requests_lost.store(true, Ordering::Relaxed);
            }
            if !self.requests_lost.load(Ordering::Relaxed) {
                to.write_all(&chunk[..length]).await?;
            }
        }
    }

    async fn replies(&self, from: OwnedReadHalf, queue: ParcelSender) -> io::Result<()> {
        let mut replies = ReplyReader(from);
        while let Some(chunk) = replies.next().await? {
            let mode = self.mode();
            if mode != Mode::Pass {
                self.strike();
            }
            let chunk = if mode == Mode::Swapped { self.swapped(chunk, &mut replies).await? } else { chunk };
            if matches!(mode, Mode::HalfOpen | Mode::DropReplies) {
                self.replies_lost.store(true, Ordering::Relaxed);
            }
            if self.replies_lost.load(Ordering::Relaxed) {
                continue;
            }
            let Some(parcel) = Parcel::new(chunk, mode) else { continue };
            let ends = parcel.then_closes;
            if queue.send(parcel).is_err() || ends {
                // The delivery closes the link once the half reply was sent.
                return std::future::pending().await;
            }
        }
        Ok(())
    }

    /// The chunk with its first two replies swapped, or with its only reply swapped for one of another connection.
    async fn swapped(&self, mut chunk: Vec<u8>, replies: &mut ReplyReader) -> io::Result<Vec<u8>> {
        while reply_length(&chunk).is_none() {
            let Some(more) = replies.next().await? else { return Ok(chunk) };
            chunk.extend(more);
        }
        let first = reply_length(&chunk).unwrap_or_default();
        match reply_length(&chunk[first..]) {
            Some(second) => chunk[..first + second].rotate_left(first),
            None => chunk = self.exchange.trade(chunk).await,
        }
        Ok(chunk)
    }

    pub(super) fn mode(&self) -> Mode {
        *self.modes.borrow()
    }
}

type ParcelSender = mpsc::UnboundedSender<Parcel>;

/// Bytes on their way to the client, and how they are to arrive.
struct Parcel {
    bytes: Vec<u8>,
    due: Instant,
    byte_by_byte: bool,
    then_closes: bool,
}

impl Parcel {
    fn new(bytes: Vec<u8>, mode: Mode) -> Option<Self> {
        let whole = Self { bytes, due: Instant::now(), byte_by_byte: false, then_closes: false };
        match mode {
            Mode::Pass | Mode::Swapped => Some(whole),
            Mode::Delay(by) => Some(Self { due: whole.due + by, ..whole }),
            Mode::OneByte => Some(Self { byte_by_byte: true, ..whole }),
            Mode::CutMidReply => {
                let half = whole.bytes[..whole.bytes.len() / 2].to_vec();
                Some(Self { bytes: half, then_closes: true, ..whole })
            }
            Mode::Garbage => Some(Self { bytes: garbage(whole.bytes.len()), ..whole }),
            Mode::HalfOpen | Mode::Reset | Mode::DropReplies => None,
        }
    }
}

async fn deliver(mut queued: mpsc::UnboundedReceiver<Parcel>, to: &OwnedWriteHalf) -> io::Result<()> {
    while let Some(parcel) = queued.recv().await {
        sleep_until(parcel.due).await;
        let piece = if parcel.byte_by_byte { 1 } else { parcel.bytes.len().max(1) };
        for bytes in parcel.bytes.chunks(piece) {
            write_all(to, bytes).await?;
        }
        if parcel.then_closes {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes by a shared reference, so that the link can still be reset while a write is under way.
async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// The chunks that the server sends.
struct ReplyReader(OwnedReadHalf);

impl ReplyReader {
    /// The next chunk. `None` if the server has closed the connection.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = Vec::with_capacity(64 * 1024);
        let length = self.0.read_buf(&mut chunk).await?;
        Ok((length > 0).then_some(chunk))
    }
}

/// The length of the first reply. `None` if it has not arrived completely.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    parse(bytes).ok()?.map(|(_, length)| length)
}

/// Bytes that are not the start of a reply in any version of the protocol.
fn garbage(length: usize) -> Vec<u8> {
    b"\x00\xfenot a reply\r\n".iter().copied().cycle().take(length.max(1)).collect()
}
