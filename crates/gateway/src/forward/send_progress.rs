//! Whether an upstream may have run a request.

use std::sync::atomic::{AtomicU8, Ordering};

/// An attempt is sending the request, or waits for its answer.
const UNDER_WAY: u8 = 1;
/// An attempt got no answer after the upstream had got some of the request.
const MAY_HAVE_RUN: u8 = 2;

/// The progress of sending a request to the upstreams, over all attempts.
#[derive(Debug, Default)]
pub(crate) struct SendProgress(AtomicU8);

impl SendProgress {
    /// Records that the request is about to be written to a connection.
    pub(crate) fn begin(&self) {
        self.0.fetch_or(UNDER_WAY, Ordering::Relaxed);
    }

    /// Records that an attempt got no answer. If it never began, that changes nothing.
    pub(crate) fn end(&self, did_not_run: bool) {
        let before = self.0.fetch_and(!UNDER_WAY, Ordering::Relaxed);
        if before & UNDER_WAY != 0 && !did_not_run {
            self.0.fetch_or(MAY_HAVE_RUN, Ordering::Relaxed);
        }
    }

    /// Whether an upstream has got some of the request, and may have run it.
    pub(crate) fn may_have_run(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_that_was_sent_and_is_not_known_to_have_failed_may_have_run() {
        let progress = SendProgress::default();
        progress.end(false);
        assert!(!progress.may_have_run(), "it was not sent");
        progress.begin();
        assert!(progress.may_have_run());
        progress.end(true);
        assert!(!progress.may_have_run());
        progress.begin();
        progress.end(false);
        progress.begin();
        progress.end(true);
        assert!(progress.may_have_run(), "the earlier attempt may have run");
    }
}
