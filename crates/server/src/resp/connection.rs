//! The connection of one client: reads commands and answers them in order. It is closed if the client is idle for too
//! long, or if a command takes too long to arrive.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use spile_listener::{ClientIo, DrainWatcher, HangUp, IdleTimer};
use spile_resp::{CommandDecoder, Frame, ProtocolError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::{sleep, timeout};

use super::session::{AfterReply, ClientSession, Replies};
use crate::decide::UnansweredPermit;

/// How long the connection stays open for the client to read the last reply.
const LINGER: Duration = Duration::from_secs(1);
/// The interval between checks whether a client that has hung up has reset the connection.
const RESET_CHECK: Duration = Duration::from_millis(20);
/// The most bytes of one read.
const READ_BYTES: usize = 16 * 1024;
/// Replies of this many bytes are sent before more commands are answered.
const FLUSH_BYTES: usize = 64 * 1024;

/// Timeouts of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientTimeouts {
    /// Between two commands.
    pub(super) idle: Duration,
    /// From the first byte of a command to its last.
    pub(super) command: Duration,
    /// For reading its replies.
    pub(super) unread: Duration,
}

/// One client's connection.
pub(super) struct ClientConnection<I> {
    stream: I,
    session: ClientSession,
    timeouts: ClientTimeouts,
    /// Measures how long the client takes for the next command, or for the rest of one. Kept from command to command: a timer
    /// for each would cost as much as the decision.
    waiting: IdleTimer,
    decoder: CommandDecoder,
    /// Commands that have arrived completely and are not answered yet.
    frames: Vec<Frame>,
    out: Replies,
    hang_up: HangUp,
}

impl<I: ClientIo> ClientConnection<I> {
    pub(super) fn new(stream: I, session: ClientSession, timeouts: ClientTimeouts) -> Self {
        let hang_up = stream.hang_up();
        Self {
            stream,
            session,
            timeouts,
            waiting: IdleTimer::after(timeouts.idle),
            decoder: CommandDecoder::default(),
            frames: Vec::new(),
            out: Replies::default(),
            hang_up,
        }
    }

    /// Serves until the connection ends. While the listener drains, commands that have arrived are still answered,
    /// including one of which only a part has arrived.
    pub(super) async fn serve(mut self, mut watcher: DrainWatcher) -> io::Result<()> {
        loop {
            let is_between = !self.decoder.is_within_command();
            let reading = poll_fn(|cx| self.poll_read_in_time(cx));
            let read = if is_between {
                let Some(read) = watcher.unless_draining(reading).await else {
                    self.mark_delivered();
                    return Ok(());
                };
                read
            } else {
                reading.await
            };
            let read = match read {
                Ok(0) => return self.end(watcher, Ok(())).await,
                Ok(_) => Ok(()),
                Err(ReadError::Io(why)) => return self.end(watcher, Err(why)).await,
                Err(ReadError::Protocol(why)) => Err(why),
            };
            // The client is still there, and can read the replies.
            self.mark_delivered();
            let arrived = !self.frames.is_empty();
            if self.answer().await? == AfterReply::Close {
                return self.close().await;
            }
            if let Err(error) = read {
                self.session.reject(error, &mut self.out.bytes);
                self.flush().await?;
                return self.close().await;
            }
            if !self.decoder.is_within_command() {
                self.waiting.restart(self.timeouts.idle);
            } else if is_between || arrived {
                // The timeout runs from the first byte of a command; further bytes do not extend it.
                self.waiting.restart(self.timeouts.command);
            }
        }
    }

    fn poll_read_in_time(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, ReadError>> {
        match self.poll_read(cx) {
            Poll::Pending => {
                self.waiting.poll_expired(cx).map(|()| Err(ReadError::Io(ErrorKind::TimedOut.into())))
            }
            read @ Poll::Ready(_) => read,
        }
    }

    /// Reads what has arrived. The buffer is on the stack, so that an idle connection holds none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, ReadError>> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let mut bytes = buffer.filled();
        while let Some(frame) = self.decoder.decode(&mut bytes)? {
            self.frames.push(frame);
        }
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Answers all commands that have arrived, in order.
    async fn answer(&mut self) -> io::Result<AfterReply> {
        let frames = std::mem::take(&mut self.frames);
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let (answered, after) = self.session.answer(rest, &mut self.out).await;
            rest = &rest[answered..];
            if after == AfterReply::Close {
                self.flush().await?;
                return Ok(after);
            }
            if self.out.bytes.len() >= FLUSH_BYTES {
                self.flush().await?;
            }
        }
        self.flush().await?;
        Ok(AfterReply::Continue)
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.out.bytes.is_empty() {
            if !self.out.permits.is_empty() && self.hang_up.is_heard() {
                // Replies with permits that are about to be released would mislead a client that still reads.
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let mut write = pin!(async {
                self.stream.write_all(&self.out.bytes).await?;
                self.stream.flush().await
            });
            // Most replies are written at once, and need no timer.
            match poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await {
                Poll::Ready(written) => written?,
                Poll::Pending => timeout(self.timeouts.unread, write).await??,
            }
            self.out.bytes.clear();
            self.out.bytes.shrink_to(FLUSH_BYTES);
        }
        Ok(())
    }

    /// Leaves the permits in replies that were sent to the client.
    fn mark_delivered(&mut self) {
        self.out.permits.drain(..).for_each(UnansweredPermit::answer);
    }

    /// Ends a connection of which no more can be read. The permits in its last replies are released if the client did not
    /// read them: its system then resets the connection, at once or when they arrive.
    async fn end(mut self, mut watcher: DrainWatcher, read: io::Result<()>) -> io::Result<()> {
        if self.out.permits.is_empty() || is_reset(&read) {
            return read;
        }
        let reset = async {
            if I::CLOSES_SILENTLY {
                let _closed = self.stream.shutdown().await;
            }
            while !self.hang_up.is_reset() {
                sleep(RESET_CHECK).await;
            }
        };
        if !matches!(watcher.unless_draining(timeout(LINGER, reset)).await, Some(Ok(()))) {
            self.mark_delivered();
        }
        read
    }

    /// Closes the connection so that the client gets the last reply: closing with unread bytes would send a reset.
    async fn close(mut self) -> io::Result<()> {
        if !I::CLOSES_SILENTLY && !self.hang_up.is_reset() {
            self.mark_delivered();
        }
        let mut unread = [0; 1024];
        let leaving = async {
            self.stream.shutdown().await?;
            while self.stream.read(&mut unread).await? > 0 {}
            io::Result::Ok(())
        };
        let left = timeout(LINGER, leaving).await.unwrap_or(Ok(()));
        if !is_reset(&left) && !self.hang_up.is_reset() {
            self.mark_delivered();
        }
        Ok(())
    }
}

/// Whether the connection ended before the client had read everything. One that it only closed, with or without the farewell
/// of TLS, or that was idle for too long, did not.
fn is_reset(read: &io::Result<()>) -> bool {
    read.as_ref().is_err_and(|why| !matches!(why.kind(), ErrorKind::TimedOut | ErrorKind::UnexpectedEof))
}

/// Why no more commands can be read.
enum ReadError {
    Io(io::Error),
    Protocol(ProtocolError),
}

impl From<io::Error> for ReadError {
    fn from(why: io::Error) -> Self {
        Self::Io(why)
    }
}

impl From<ProtocolError> for ReadError {
    fn from(why: ProtocolError) -> Self {
        Self::Protocol(why)
    }
}
