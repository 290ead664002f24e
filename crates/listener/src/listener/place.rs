//! The places of a listener: each connection holds one, and so does work that goes on after its connection has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OwnedSemaphorePermit;

/// A connection's place among those of its listener. Clones share it. It is free once the connection is closed and no work keeps
/// it.
#[derive(Clone, Debug)]
pub struct ConnectionPlace(Arc<PlaceState>);

#[derive(Debug)]
struct PlaceState {
    permit: OwnedSemaphorePermit,
    /// Whether work keeps the place.
    kept: AtomicBool,
}

/// A place that work holds after its client has gone, until this is dropped.
#[derive(Debug)]
pub struct KeptPlace(PlaceSource);

#[derive(Debug)]
enum PlaceSource {
    OfConnection(Arc<PlaceState>),
    Another { _permit: OwnedSemaphorePermit },
}

impl ConnectionPlace {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(PlaceState { permit, kept: AtomicBool::new(false) }))
    }

    /// Keeps a place for work whose client has gone: that of its connection, or another one if other work keeps that, as streams
    /// of HTTP/2 do that were reset on the same connection. `None` if all places of the listener are taken.
    pub fn keep(&self) -> Option<KeptPlace> {
        if !self.0.kept.swap(true, Ordering::Relaxed) {
            return Some(KeptPlace(PlaceSource::OfConnection(Arc::clone(&self.0))));
        }
        let another = Arc::clone(self.0.permit.semaphore()).try_acquire_owned().ok()?;
        Some(KeptPlace(PlaceSource::Another { _permit: another }))
    }
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        if let PlaceSource::OfConnection(place) = &self.0 {
            place.kept.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn work_keeps_the_place_of_its_connection_and_more_work_on_it_takes_other_places() {
        let room = Arc::new(Semaphore::new(3));
        let place = ConnectionPlace::new(Arc::clone(&room).acquire_owned().await.unwrap());
        let first = place.keep().unwrap();
        assert_eq!(room.available_permits(), 2);
        let others = [place.keep().unwrap(), place.keep().unwrap()];
        assert!(place.keep().is_none(), "all places are taken");
        drop(place);
        assert_eq!(room.available_permits(), 0, "the connection is closed, and its place is kept");
        drop(first);
        assert_eq!(room.available_permits(), 1);
        drop(others);
        assert_eq!(room.available_permits(), 3);
    }
}
