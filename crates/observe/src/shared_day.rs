//! The last day of all instances, read once for everybody who looks at it.

use std::sync::Arc;

use spile_core::Micros;
use tokio::sync::Mutex;

use crate::analytics::{Day, Scope, last_day};
use crate::packed::PackedMinutes;
use crate::sums::{MinuteSums, SumsError};
use crate::watch::Watch;

/// For how long a day is shown before it is brought up to date.
const FRESH_US: u64 = 5_000_000;
/// The same for what is shown in its place while instances cannot meet.
const MAKESHIFT_US: u64 = 1_000_000;

/// The last day, where instances meet.
pub(crate) struct SharedDay {
    sums: Arc<dyn MinuteSums>,
    /// Held while the day is brought up to date: those who ask meanwhile wait for it and read nothing themselves.
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    minutes: PackedMinutes,
    shown: Option<Shown>,
}

struct Shown {
    day: Arc<Day>,
    at: Micros,
}

impl SharedDay {
    pub(crate) fn new(sums: Arc<dyn MinuteSums>) -> Self {
        Self { sums, held: Mutex::default() }
    }

    pub(crate) fn sums(&self) -> &dyn MinuteSums {
        &*self.sums
    }

    /// The day of all instances; while they cannot meet, that of this one.
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
        held.shown = Some(Shown { day: Arc::clone(&day), at: watch.now() });
        day
    }

    async fn read(&self, minutes: &mut PackedMinutes, watch: &Watch) -> Result<Day, SumsError> {
        let (from, to) = last_day(watch);
        self.sums.bring_up_to_date(minutes, from, to).await?;
        Ok(Day::new(Scope::All, minutes.sums()))
    }
}

impl Held {
    fn fresh(&self, now: Micros) -> Option<Arc<Day>> {
        let Shown { day, at } = self.shown.as_ref()?;
        let fresh_us = if day.scope == Scope::All { FRESH_US } else { MAKESHIFT_US };
        (now >= *at && now.since_us(*at) < fresh_us).then(|| Arc::clone(day))
    }
}
