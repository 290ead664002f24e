//! The source of metric handles: the global recorder, or a separate recorder of the watch.

use std::sync::Arc;

use metrics::Recorder;

/// Makes metric handles. Callers keep them, because looking up a series costs more than counting.
#[derive(Clone, Default)]
pub(crate) struct Registrar {
    recorder: Option<Arc<dyn Recorder + Send + Sync>>,
}

impl Registrar {
    pub(crate) fn of(recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        Self { recorder: Some(recorder) }
    }

    pub(crate) fn register<T>(&self, make: impl FnOnce() -> T) -> T {
        match &self.recorder {
            Some(recorder) => metrics::with_local_recorder(&**recorder, make),
            None => make(),
        }
    }
}
