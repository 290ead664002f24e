//! Spans as they run. The one under way is found by its task, so that nothing has to be handed down.

use std::sync::Arc;

use parking_lot::Mutex;
use spile_core::SystemClock;

use super::{TraceContext, Tracer};

tokio::task_local! {
    static CURRENT: Scope;
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) name: &'static str,
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<TraceContext>,
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
    pub(crate) notes: Vec<(&'static str, String)>,
}

/// Runs `work` as a span of the trace that this task is in, where it is in one.
pub async fn span<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    match CURRENT.try_with(Clone::clone) {
        Ok(above) => Scope::new(above.tracer, name, Some(above.context)).run(work).await,
        Err(_) => work.await,
    }
}

/// The context to pass on in `traceparent`, where this task is in a trace.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|scope| scope.context).ok()
}

/// Notes something about the span under way. Never a key: spans leave the house.
pub fn note(what: &'static str, value: impl FnOnce() -> String) {
    let _outside_of_any_trace = CURRENT.try_with(|scope| scope.notes.lock().push((what, value())));
}

/// A span under way.
#[derive(Clone)]
pub(super) struct Scope {
    tracer: Tracer,
    name: &'static str,
    context: TraceContext,
    parent: Option<TraceContext>,
    began_us: u64,
    notes: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Scope {
    pub(super) fn new(tracer: Tracer, name: &'static str, parent: Option<TraceContext>) -> Self {
        let (context, began_us) = (TraceContext::below(parent), SystemClock::wall_now().get());
        Self { tracer, name, context, parent, began_us, notes: Arc::default() }
    }

    pub(super) async fn run<T>(self, work: impl Future<Output = T>) -> T {
        let _until_dropped = Ending(self.clone());
        CURRENT.scope(self, work).await
    }
}

/// Ends the span when dropped, so that work which was given up on shows too.
struct Ending(Scope);

impl Drop for Ending {
    fn drop(&mut self) {
        let Scope { tracer, name, context, parent, began_us, notes } = &self.0;
        tracer.finish(Finished {
            name,
            context: *context,
            parent: *parent,
            began_us: *began_us,
            ended_us: SystemClock::wall_now().get(),
            notes: std::mem::take(&mut *notes.lock()),
        });
    }
}
