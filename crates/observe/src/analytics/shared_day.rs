//! The last day of all instances, cached so that several requests at once read it only once.

use std::sync::Arc;

use spile_core::Micros;
use tokio::sync::Mutex;

use super::packed::PackedMinutes;
use super::store::{MinuteStore, MinuteStoreError};
use super::{Day, HistoryQuery, HistoryRow, Scope, last_day};
use crate::watch::Watch;

/// How long a cached day is used before it is read again.
const FRESH_US: u64 = 5_000_000;
/// How long the day of this instance stays cached. It is shown while the shared store cannot be reached.
const MAKESHIFT_US: u64 = 1_000_000;

/// The last day of all instances that share a store.
pub(crate) struct SharedDay {
    sums: Arc<dyn MinuteStore>,
    /// Locked while the day is read: requests that arrive meanwhile wait for the result instead of reading it again.
    held: Mutex<DayCache>,
}

#[derive(Default)]
struct DayCache {
    minutes: PackedMinutes,
    shown: Option<CachedDay>,
}

struct CachedDay {
    day: Arc<Day>,
    at: Micros,
}

impl SharedDay {
    pub(crate) fn new(sums: Arc<dyn MinuteStore>) -> Self {
        Self { sums, held: Mutex::default() }
    }

    pub(crate) fn sums(&self) -> &dyn MinuteStore {
        &*self.sums
    }

    /// The day of all instances, or the day of this instance while the store is out of reach.
    pub(crate) async fn show(&self, watch: &Watch) -> Arc<Day> {
        let mut held = self.held.lock().await;
        if let Some(day) = held.fresh(watch.now()) {
            return day;
        }
        let day = match self.read(&mut held.minutes, watch).await {
            Ok(day) => day,
            Err(_) => Day::new(Scope::Instance, watch.day()),
        };
        let day = Arc::new(day);
        held.shown = Some(CachedDay { day: Arc::clone(&day), at: watch.now() });
        day
    }

    /// The minutes of all instances for a chart. `None` while the store is out of reach.
    pub(crate) async fn history(
        &self,
        watch: &Watch,
        from: u64,
        selected: &HistoryQuery,
    ) -> Option<Vec<HistoryRow>> {
        let day = self.show(watch).await;
        (day.scope == Scope::All).then_some(())?;
        Some(self.held.lock().await.minutes.history(from, selected))
    }

    async fn read(&self, minutes: &mut PackedMinutes, watch: &Watch) -> Result<Day, MinuteStoreError> {
        let (from, to) = last_day(watch);
        self.sums.update(minutes, from, to).await?;
        Ok(Day::new(Scope::All, minutes.sums()))
    }
}

impl DayCache {
    fn fresh(&self, now: Micros) -> Option<Arc<Day>> {
        let CachedDay { day, at } = self.shown.as_ref()?;
        let fresh_us = if day.scope == Scope::All { FRESH_US } else { MAKESHIFT_US };
        (now >= *at && now.since_us(*at) < fresh_us).then(|| Arc::clone(day))
    }
}
