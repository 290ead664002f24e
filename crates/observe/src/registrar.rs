//! Where handles on metrics come from: the process's recorder, or one of the watch's own.

use std::sync::Arc;

use metrics::Recorder;

/// Makes handles, to be held: looking a series up costs more than counting in it.
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
