//! Running spans. The current span is in a task-local, so that it need not be passed as an argument.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use spile_core::SystemClock;

use super::{AttributeValue, TraceContext, Tracer};

tokio::task_local! {
    static CURRENT: ActiveSpan;
}

/// The kind of a span: a request that was received, a request that was sent, or work in between.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpanKind {
    /// Work within this process.
    Internal,
    /// A request that was received.
    Server,
    /// A request to another server.
    Client,
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct FinishedSpan {
    pub(crate) name: &'static str,
    pub(crate) kind: SpanKind,
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<TraceContext>,
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
    pub(crate) attributes: Vec<(&'static str, AttributeValue)>,
}

/// Runs `work` as a span of the trace that this task is in. Outside of a trace, `work` runs without a span.
pub fn span<F: Future>(name: &'static str, kind: SpanKind, work: F) -> Instrumented<F> {
    let above = CURRENT.try_with(|above| (above.tracer.clone(), above.context)).ok();
    Instrumented::new(above.map(|(tracer, context)| ActiveSpan::new(tracer, name, kind, Some(context))), work)
}

/// The context to send in `traceparent`. `None` if this task is not in a trace.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|scope| scope.context).ok()
}

/// The kind of the current span. `None` if this task is not in a trace.
pub(super) fn kind() -> Option<SpanKind> {
    CURRENT.try_with(|scope| scope.kind).ok()
}

/// Sets an attribute of the current span. It must not contain a key, because spans leave the process.
pub fn note<V: Into<AttributeValue>>(what: &'static str, value: impl FnOnce() -> V) {
    let _outside_of_any_trace =
        CURRENT.try_with(|scope| scope.attributes.lock().push((what, value().into())));
}

pin_project! {
    /// A future that runs as a span, or without one. One type for both, because an `async fn` with two branches would
    /// hold the future twice.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Instrumented<F> {
        #[pin]
        work: F,
        scope: Option<EndOnDrop>,
    }
}

impl<F> Instrumented<F> {
    pub(super) fn new(scope: Option<ActiveSpan>, work: F) -> Self {
        Self { work, scope: scope.map(EndOnDrop) }
    }
}

impl<F: Future> Future for Instrumented<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(EndOnDrop(scope)) = this.scope else { return this.work.poll(cx) };
        let answer = ready!(CURRENT.sync_scope(scope.clone(), || this.work.poll(cx)));
        drop(this.scope.take());
        Poll::Ready(answer)
    }
}

/// A running span.
#[derive(Clone)]
pub(super) struct ActiveSpan {
    tracer: Tracer,
    name: &'static str,
    kind: SpanKind,
    context: TraceContext,
    parent: Option<TraceContext>,
    began_us: u64,
    attributes: Arc<Mutex<Vec<(&'static str, AttributeValue)>>>,
}

impl ActiveSpan {
    pub(super) fn new(
        tracer: Tracer,
        name: &'static str,
        kind: SpanKind,
        parent: Option<TraceContext>,
    ) -> Self {
        let (context, began_us) = (TraceContext::child_of(parent), SystemClock::wall_now().get());
        Self { tracer, name, kind, context, parent, began_us, attributes: Arc::default() }
    }
}

/// Ends the span when it is dropped, so that cancelled work is traced too.
struct EndOnDrop(ActiveSpan);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let ActiveSpan { tracer, name, kind, context, parent, began_us, attributes } = &self.0;
        tracer.finish(FinishedSpan {
            name,
            kind: *kind,
            context: *context,
            parent: *parent,
            began_us: *began_us,
            ended_us: SystemClock::wall_now().get(),
            attributes: std::mem::take(&mut *attributes.lock()),
        });
    }
}
