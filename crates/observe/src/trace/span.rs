//! Spans as they run. The one under way is found by its task, so that nothing has to be handed down.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
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
pub fn span<F: Future>(name: &'static str, work: F) -> Spanned<F> {
    let above = CURRENT.try_with(|above| (above.tracer.clone(), above.context)).ok();
    Spanned::new(above.map(|(tracer, context)| Scope::new(tracer, name, Some(context))), work)
}

/// The context to pass on in `traceparent`, where this task is in a trace.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|scope| scope.context).ok()
}

/// Notes something about the span under way. Never a key: spans leave the house.
pub fn note(what: &'static str, value: impl FnOnce() -> String) {
    let _outside_of_any_trace = CURRENT.try_with(|scope| scope.notes.lock().push((what, value())));
}

pin_project! {
    /// Work that is a span, or just work. One future for both: an `async fn` with two paths would hold the work twice.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Spanned<F> {
        #[pin]
        work: F,
        scope: Option<Ending>,
    }
}

impl<F> Spanned<F> {
    pub(super) fn new(scope: Option<Scope>, work: F) -> Self {
        Self { work, scope: scope.map(Ending) }
    }
}

impl<F: Future> Future for Spanned<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(Ending(scope)) = this.scope else { return this.work.poll(cx) };
        let answer = ready!(CURRENT.sync_scope(scope.clone(), || this.work.poll(cx)));
        drop(this.scope.take());
        Poll::Ready(answer)
    }
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
