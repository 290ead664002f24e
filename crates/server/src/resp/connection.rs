//! One client: reads commands, answers them in order, and goes when told to, when idle for too long, or when a command
//! takes too long to arrive.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use spile_listener::{ClientIo, DrainWatcher};
use spile_resp::{CommandDecoder, Frame, ProtocolError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use super::session::{Session, Then};

/// How long a client that is sent away may take to see why.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Bytes of answers that are gathered before they are sent.
const GATHERED_BYTES: usize = 64 * 1024;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between two commands.
    pub(super) idle: Duration,
    /// From the first byte of a command to its last.
    pub(super) command: Duration,
    /// Over reading its answers.
    pub(super) unread: Duration,
}

/// One client's connection.
pub(super) struct Connection<I> {
    stream: I,
    session: Session,
    patience: Patience,
    decoder: CommandDecoder,
    /// Commands that have arrived whole.
    frames: Vec<Frame>,
    out: Vec<u8>,
}

impl<I: ClientIo> Connection<I> {
    pub(super) const fn new(stream: I, session: Session, patience: Patience) -> Self {
        Self {
            stream,
            session,
            patience,
            decoder: CommandDecoder::new(),
            frames: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Serves until either side has enough. What has arrived whole when the listener drains is still answered, and so is
    /// a command of which part has arrived.
    pub(super) async fn serve(mut self, mut watcher: DrainWatcher) -> io::Result<()> {
        let mut patience_ends = Instant::now() + self.patience.idle;
        loop {
            let is_between = !self.decoder.is_within_command();
            let reading = timeout_at(patience_ends, poll_fn(|cx| self.poll_read(cx)));
            let read = if is_between {
                let Some(read) = watcher.unless_draining(reading).await else { return Ok(()) };
                read?
            } else {
                reading.await?
            };
            let read = match read {
                Ok(0) => return Ok(()),
                Ok(_) => Ok(()),
                Err(ReadError::Io(why)) => return Err(why),
                Err(ReadError::Protocol(why)) => Err(why),
            };
            let arrived = !self.frames.is_empty();
            if self.answer().await? == Then::Close {
                return self.farewell().await;
            }
            if let Err(error) = read {
                self.session.refuse(error, &mut self.out);
                self.flush().await?;
                return self.farewell().await;
            }
            if !self.decoder.is_within_command() {
                patience_ends = Instant::now() + self.patience.idle;
            } else if is_between || arrived {
                // A command has begun to arrive; each further byte of it gains no time.
                patience_ends = Instant::now() + self.patience.command;
            }
        }
    }

    /// Reads what is there. The buffer lives only here, so that an idle connection holds none.
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

    /// Answers whatever has arrived whole, in order.
    async fn answer(&mut self) -> io::Result<Then> {
        let frames = std::mem::take(&mut self.frames);
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let (answered, then) = self.session.answer(rest, &mut self.out).await;
            rest = &rest[answered..];
            if then == Then::Close {
                self.flush().await?;
                return Ok(then);
            }
            if self.out.len() >= GATHERED_BYTES {
                self.flush().await?;
            }
        }
        self.flush().await?;
        Ok(Then::GoOn)
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            let write = async {
                self.stream.write_all(&self.out).await?;
                self.stream.flush().await
            };
            timeout(self.patience.unread, write).await??;
            self.out.clear();
            self.out.shrink_to(GATHERED_BYTES);
        }
        Ok(())
    }

    /// Ends the connection so that what was said last is heard: closing over unread bytes would take it back.
    async fn farewell(mut self) -> io::Result<()> {
        let mut unread = [0; 1024];
        let leaving = async {
            let shut = self.stream.shutdown().await;
            while shut.is_ok() && self.stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
        };
        let _gone_or_cut_off = timeout(FAREWELL, leaving).await;
        Ok(())
    }
}

/// Why nothing more can be read.
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
