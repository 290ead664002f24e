//! One client: reads commands, answers them in order, and goes when told to, when idle for too long, or when a command
//! takes too long to arrive.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::framer::{Frame, Framer, Garbled};
use super::session::{Session, Then};
use crate::serve::told_to;

/// How long a client may leave its answers unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
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
}

/// One client's connection.
pub(super) struct Connection {
    stream: TcpStream,
    session: Session,
    patience: Patience,
    framer: Framer,
    /// Commands that have arrived whole.
    frames: Vec<Frame>,
    out: Vec<u8>,
}

impl Connection {
    pub(super) const fn new(stream: TcpStream, session: Session, patience: Patience) -> Self {
        Self { stream, session, patience, framer: Framer::new(), frames: Vec::new(), out: Vec::new() }
    }

    /// Serves until either side has enough. What has arrived whole when `stop` says so is still answered, and so is a
    /// command of which part has arrived.
    pub(super) async fn serve(mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let mut patience_ends = Instant::now() + self.patience.idle;
        loop {
            let is_between = !self.framer.is_within_command();
            tokio::select! {
                biased;
                () = told_to(&mut stop), if is_between => return Ok(()),
                readable = timeout_at(patience_ends, self.stream.readable()) => readable??,
            }
            let read = match self.read() {
                Ok(0) => return Ok(()),
                Ok(_) => Ok(()),
                Err(Trouble::Io(why)) if why.kind() == io::ErrorKind::WouldBlock => continue,
                Err(Trouble::Io(why)) => return Err(why),
                Err(Trouble::Garbled(why)) => Err(why),
            };
            let arrived = !self.frames.is_empty();
            if self.answer().await? == Then::Close {
                return self.farewell().await;
            }
            if let Err(garbled) = read {
                self.session.refuse(garbled, &mut self.out);
                self.flush().await?;
                return self.farewell().await;
            }
            if !self.framer.is_within_command() {
                patience_ends = Instant::now() + self.patience.idle;
            } else if is_between || arrived {
                // A command has begun to arrive; each further byte of it gains no time.
                patience_ends = Instant::now() + self.patience.command;
            }
        }
    }

    /// Reads what is there. The buffer lives only here, so that an idle connection holds none.
    fn read(&mut self) -> Result<usize, Trouble> {
        let mut buffer = [0; READ_BYTES];
        let read = self.stream.try_read(&mut buffer)?;
        let mut bytes = &buffer[..read];
        while let Some(frame) = self.framer.next(&mut bytes)? {
            self.frames.push(frame);
        }
        Ok(read)
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
            timeout(WRITE_TIMEOUT, self.stream.write_all(&self.out)).await??;
            self.out.clear();
            self.out.shrink_to(GATHERED_BYTES);
        }
        Ok(())
    }

    /// Ends the connection so that what was said last is heard: closing over unread bytes would take it back.
    async fn farewell(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut unread = [0; 1024];
        let leaving = async { while self.stream.read(&mut unread).await.is_ok_and(|read| read > 0) {} };
        let _gone_or_cut_off = timeout(FAREWELL, leaving).await;
        Ok(())
    }
}

/// Why nothing more can be read.
enum Trouble {
    Io(io::Error),
    Garbled(Garbled),
}

impl From<io::Error> for Trouble {
    fn from(why: io::Error) -> Self {
        Self::Io(why)
    }
}

impl From<Garbled> for Trouble {
    fn from(why: Garbled) -> Self {
        Self::Garbled(why)
    }
}
