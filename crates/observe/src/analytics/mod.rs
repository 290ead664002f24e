//! Decisions by minute over the last day, per rule and per tenant: filtered, summed over the day, and as CSV.

mod history;
mod minutes;
mod packed;
mod shared_day;
mod store;
mod table;

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

pub use self::history::{History, HistoryQuery, HistoryRow};
use self::minutes::KEPT;
pub(crate) use self::minutes::MinuteHistory;
pub use self::minutes::{GroupBy, MinuteRow};
pub use self::packed::PackedMinutes;
use self::shared_day::SharedDay;
pub use self::store::{MinuteBatch, MinuteStore, MinuteStoreError, MinuteStoreFuture, share_minutes};
use crate::metrics::OutcomeCounts;
use crate::watch::Watch;

/// The last second that JSON has an exact number for.
const LAST_SECOND: u64 = (1 << 53) - 1;
/// How far the clock of another instance may be ahead of this one's.
const AHEAD_SECONDS: u64 = 120;
/// How much of a day is read at once during an export.
const PART_SECONDS: u64 = 10 * 60;
/// The header line of a CSV export.
pub(crate) const CSV_HEAD: &str = "minute,by,name,allowed,denied,shadow\n";

/// Reads the minutes: those of all instances if they share a [`MinuteStore`], else those of this instance.
#[derive(Clone)]
pub struct Analytics {
    watch: Watch,
    sums: Option<Arc<SharedDay>>,
}

/// Which instances the minutes are from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// All instances that share a minute store, summed. Without such a store, the instance that is asked.
    #[default]
    All,
    /// The instance that is asked.
    Instance,
}

/// Selects minutes. Without any field it selects all of the last day.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct AnalyticsQuery {
    /// Seconds since the epoch. Minutes that began before this time are left out.
    #[serde(deserialize_with = "second")]
    #[cfg_attr(feature = "dashboard", param(nullable = false, maximum = 9_007_199_254_740_991_i64))]
    pub from: Option<u64>,
    /// Seconds since the epoch. Minutes that began at this time or later are left out.
    #[serde(deserialize_with = "second")]
    #[cfg_attr(feature = "dashboard", param(nullable = false, maximum = 9_007_199_254_740_991_i64))]
    pub to: Option<u64>,
    /// Only rules, or only tenants.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub by: Option<GroupBy>,
    /// Only this rule or tenant.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub name: Option<String>,
    /// All instances, or only this one.
    #[cfg_attr(feature = "dashboard", param(required = false))]
    pub scope: Scope,
}

impl From<Watch> for Analytics {
    /// The minutes of one instance that shares them with no other.
    fn from(watch: Watch) -> Self {
        Self { watch, sums: None }
    }
}

impl Analytics {
    /// The minutes of all instances that share this store.
    pub fn summed(watch: Watch, sums: Arc<dyn MinuteStore>) -> Self {
        Self { watch, sums: Some(Arc::new(SharedDay::new(sums))) }
    }

    /// The watch of this instance.
    pub const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The minutes that the query selects, in order.
    pub async fn rows(&self, asked: &AnalyticsQuery) -> Result<Vec<MinuteRow>, MinuteStoreError> {
        let (from, to) = (asked.from.unwrap_or(0), asked.to.unwrap_or(u64::MAX));
        let mut rows = match (&self.sums, asked.scope) {
            (Some(shared), Scope::All) => {
                let (oldest, newest) = last_day(&self.watch);
                shared.sums().rows(from.max(oldest), to.min(newest)).await?
            }
            _ => self.watch.minutes(from, to),
        };
        rows.retain(|row| asked.by.is_none_or(|by| by == row.by));
        rows.retain(|row| asked.name.as_ref().is_none_or(|name| *name == row.name));
        Ok(rows)
    }

    /// Splits a query into queries for ten minutes each, the earliest first, so that a large result is never held
    /// whole.
    pub fn parts(&self, asked: &AnalyticsQuery) -> impl Iterator<Item = AnalyticsQuery> + use<> {
        let (oldest, newest) = last_day(&self.watch);
        let (from, to) = (asked.from.unwrap_or(0).max(oldest), asked.to.unwrap_or(u64::MAX).min(newest));
        let asked = asked.clone();
        (from..to.max(from)).step_by(PART_SECONDS as usize).map(move |began| AnalyticsQuery {
            from: Some(began),
            to: Some(to.min(began + PART_SECONDS)),
            ..asked.clone()
        })
    }

    /// The last day, summed. If instances share a store, it is up to a few seconds old; while the store is out of
    /// reach, it is the day of this instance.
    pub async fn day(&self) -> Arc<Day> {
        match &self.sums {
            Some(shared) => shared.show(&self.watch).await,
            None => Arc::new(Day::new(Scope::Instance, self.watch.day())),
        }
    }

    /// The last minutes, summed for a chart. Of all instances or of this one, like the day.
    pub async fn history(&self, asked: &HistoryQuery) -> History {
        let from = self.oldest_of(asked);
        let shared = match &self.sums {
            Some(shared) => shared.history(&self.watch, from, asked).await,
            None => None,
        };
        match shared {
            Some(rows) => History { scope: Scope::All, rows },
            None => History { scope: Scope::Instance, rows: self.watch.history(from, asked) },
        }
    }

    fn oldest_of(&self, asked: &HistoryQuery) -> u64 {
        let (oldest, _) = last_day(&self.watch);
        let minutes = asked.minutes.unwrap_or(KEPT as u64).min(KEPT as u64);
        oldest + 60 * (KEPT as u64 - minutes)
    }
}

/// The first and the last time at which a minute of the last day can have begun, in seconds since the epoch by the wall
/// clock.
pub(crate) fn last_day(watch: &Watch) -> (u64, u64) {
    let now = watch.wall().get() / 1_000_000;
    let present = now - now % 60;
    ((present + 60).saturating_sub(60 * KEPT as u64), now + AHEAD_SECONDS)
}

/// The minutes as CSV with a header line. Names are quoted if necessary, and none can start a formula in a spreadsheet.
pub fn csv(rows: &[MinuteRow]) -> String {
    let mut text = String::from(CSV_HEAD);
    write_csv(&mut text, rows);
    text
}

/// Appends one CSV line for each row.
pub(crate) fn write_csv(text: &mut String, rows: &[MinuteRow]) {
    for MinuteRow { minute, by, name, counts } in rows {
        let (by, name) = (by.as_str(), field(name));
        let OutcomeCounts { allowed, denied, shadow } = counts;
        // Writing to a String cannot fail.
        let _written = writeln!(text, "{minute},{by},{name},{allowed},{denied},{shadow}");
    }
}

/// A day of minutes, summed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
pub struct Day {
    /// Which instances it is from.
    pub scope: Scope,
    /// One row for each rule and tenant, those with the most decisions first.
    pub rows: Vec<DayRow>,
}

/// The day of one rule or tenant.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DayRow {
    /// Whether the name is a rule's or a tenant's.
    pub by: GroupBy,
    /// The rule or the tenant.
    pub name: String,
    /// The decisions, counted.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
}

impl Day {
    /// Sums these minutes.
    pub fn of(scope: Scope, minutes: &[MinuteRow]) -> Self {
        let mut sums = PackedMinutes::default();
        sums.put(0, 0, minutes.iter().map(|row| (row.by, row.name.as_str(), row.counts)));
        Self::new(scope, sums.sums())
    }

    pub(crate) fn new(scope: Scope, mut rows: Vec<DayRow>) -> Self {
        rows.sort_by(|a, b| {
            (a.by, Reverse(a.counts.all()), &a.name).cmp(&(b.by, Reverse(b.counts.all()), &b.name))
        });
        Self { scope, rows }
    }
}

fn second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        Some(beyond) if beyond > LAST_SECOND => {
            Err(D::Error::custom(format_args!("{beyond} is not a second from 0 to {LAST_SECOND}")))
        }
        second => Ok(second),
    }
}

/// A number from 1 to `MOST`.
pub(crate) fn within<'de, D: Deserializer<'de>, const MOST: u64>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        Some(beyond) if !(1..=MOST).contains(&beyond) => {
            Err(D::Error::custom(format_args!("{beyond} is not a number from 1 to {MOST}")))
        }
        number => Ok(number),
    }
}

fn field(name: &str) -> String {
    let formula = name.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guarded = if formula { format!("'{name}") } else { name.to_owned() };
    if guarded.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", guarded.replace('"', "\"\""))
    } else {
        guarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(minute: u64, name: &str) -> MinuteRow {
        let counts = OutcomeCounts { allowed: 2, denied: 1, shadow: 0 };
        MinuteRow { minute, by: GroupBy::Tenant, name: name.to_owned(), counts }
    }

    #[test]
    fn csv_quotes_what_needs_it_and_starts_no_formula() {
        let text = csv(&[row(60, "acme"), row(60, "a,b\"c"), row(120, "=1+1")]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "60,tenant,acme,2,1,0");
        assert_eq!(lines[2], "60,tenant,\"a,b\"\"c\",2,1,0");
        assert_eq!(lines[3], "120,tenant,'=1+1,2,1,0");
    }

    #[test]
    fn a_day_sums_its_minutes() {
        let day = Day::of(Scope::All, &[row(60, "acme"), row(120, "acme"), row(120, "beta")]);
        let sums: Vec<_> = day.rows.iter().map(|row| (row.name.as_str(), row.counts.allowed)).collect();
        assert_eq!(sums, [("acme", 4), ("beta", 2)]);
    }
}
