//! A limit on silence: runs out where nothing arrives for too long.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Measures how long a stream has been silent. No timer exists before the first silence.
#[derive(Debug)]
pub(crate) struct Idle {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Idle {
    pub(crate) const fn after(limit: Duration) -> Self {
        Self { limit, timer: None, running: false }
    }

    /// Something arrived.
    pub(crate) const fn stir(&mut self) {
        self.running = false;
    }

    /// Ready once the silence has lasted too long.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        if !self.running {
            self.running = true;
            timer.as_mut().reset(Instant::now() + self.limit);
        }
        timer.as_mut().poll(cx)
    }
}
