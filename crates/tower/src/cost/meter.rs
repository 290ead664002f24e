//! Reads an answer's cost as the answer passes, and settles once, however it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::runtime::Handle;

use super::reader::{CostReader, ReportedCost};

/// Settles a request.
pub type SettleFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

type SettleFn = Box<dyn FnOnce(ReportedCost) -> SettleFuture + Send>;

/// Reads what an answer cost while it passes, and settles when it is dropped: once, and whether the answer came to its end or
/// broke off.
pub struct CostMeter {
    reader: CostReader,
    is_whole: bool,
    /// `None` once it has settled.
    settle: Option<SettleFn>,
}

impl CostMeter {
    /// Calls `settle` with what `reader` has found when the answer ends.
    pub fn new(
        reader: CostReader,
        settle: impl FnOnce(ReportedCost) -> SettleFuture + Send + 'static,
    ) -> Self {
        Self { reader, is_whole: false, settle: Some(Box::new(settle)) }
    }

    /// Reads the next piece of the answer.
    pub fn push(&mut self, piece: &[u8]) {
        self.reader.push(piece);
    }

    /// Settles an answer that has come to its end. Dropping the meter settles one that broke off.
    pub fn finish(mut self) {
        self.is_whole = true;
    }
}

impl Drop for CostMeter {
    fn drop(&mut self) {
        let Some(settle) = self.settle.take() else { return };
        // Without a runtime no store can be asked, and what was charged stays.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut settling = settle(self.reader.report(self.is_whole));
        // A store in memory settles at once, before the client sees the end of its answer. The task polls again in any case.
        if settling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(settling);
        }
    }
}

impl fmt::Debug for CostMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CostMeter").field("reader", &self.reader).finish_non_exhaustive()
    }
}
