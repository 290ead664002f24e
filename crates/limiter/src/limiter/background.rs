//! Work that no caller waits for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use spile_core::{Charge, Operation, Store};
use tokio::sync::oneshot;

use super::inner::LimiterInner;
use crate::deny_cache::DenyCache;
use crate::lease::Portion;

/// As many as the deny cache has notes.
const MOST_RENEWALS: usize = 1 << 14;
/// How many notes are asked for at once.
const AT_ONCE: usize = 256;

/// One piece of background work.
pub(crate) enum BackgroundWork {
    /// Takes a portion for a lease from the store, and notifies the question that waits for it.
    Take(Portion, Option<oneshot::Sender<()>>),
    /// Returns the rest of a lease when it ends.
    Keep(Portion),
    /// Does so for the leases whose tasks have ended with their runtime.
    KeepOrphans,
    /// Renews cached denials that will expire soon.
    Renew,
}

/// Starts a task. Without a runtime that is not possible: then the store is asked for every decision.
pub(super) fn start_work<S: Store + 'static>(limiter: &Arc<LimiterInner<S>>, work: BackgroundWork) {
    match (work, limiter.runtime.spawner()) {
        // Without a runtime it is kept on that of the next question.
        (BackgroundWork::Keep(portion), _) => limiter.keep(portion),
        (_, None) => limiter.renewals.lock().clear(),
        (BackgroundWork::Take(portion, taken), Some(spawner)) => {
            drop(spawner.spawn(Arc::clone(limiter).take(portion, taken)));
        }
        (BackgroundWork::KeepOrphans, Some(_)) => limiter.keep_orphans(),
        (BackgroundWork::Renew, Some(spawner)) => drop(spawner.spawn(renew_notes(Arc::clone(limiter)))),
    }
}

impl<S: Store> LimiterInner<S> {
    /// Schedules the renewal of the note about this charge's bucket.
    pub(super) fn renew(self: &Arc<Self>, charge: &Charge<'_>) {
        let is_first = {
            let mut renewals = self.renewals.lock();
            if renewals.len() >= MOST_RENEWALS {
                renewals.clear();
            }
            renewals.push(Portion::of(charge));
            renewals.len() == 1
        };
        if is_first {
            (self.start_work)(self, BackgroundWork::Renew);
        }
    }
}

async fn renew_notes<S: Store + 'static>(limiter: Arc<LimiterInner<S>>) {
    let mut collecting = CollectingGuard { limiter: &limiter, is_armed: true };
    // Collected for a while, so that few calls renew all of them.
    let collects = limiter.deny_cache.as_ref().map_or(Duration::ZERO, DenyCache::collects);
    limiter.runtime.sleep(collects).await;
    collecting.is_armed = false;
    let renewals = std::mem::take(&mut *limiter.renewals.lock());
    for some in renewals.chunks(AT_ONCE) {
        let charges: Vec<_> = some.iter().filter_map(Portion::charges).collect();
        // A peek charges nothing. If it fails, the note expires and the next question asks the store.
        join_all(charges.iter().map(|charges| limiter.ask(Operation::Peek, charges, limiter.deadline))).await;
    }
}

/// Empties the list if the task ends with its runtime: the first note after that starts another task.
struct CollectingGuard<'a, S> {
    limiter: &'a LimiterInner<S>,
    is_armed: bool,
}

impl<S> Drop for CollectingGuard<'_, S> {
    fn drop(&mut self) {
        if self.is_armed {
            self.limiter.renewals.lock().clear();
        }
    }
}
