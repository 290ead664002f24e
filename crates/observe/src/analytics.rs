//! Minutes as they are asked for and handed out: filtered, summed over a day, and as CSV.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use crate::minutes::{By, KEPT, MinuteRow};
use crate::packed::PackedMinutes;
use crate::shared_day::SharedDay;
use crate::sums::{MinuteSums, SumsError};
use crate::tally::Tally;
use crate::watch::Watch;

/// The last second that JSON has an exact number for.
const LAST_SECOND: u64 = (1 << 53) - 1;
/// How much later than here another instance's clock may be.
const AHEAD_SECONDS: u64 = 120;
/// How many minutes are held at once while a day of them is handed out.
const PART_SECONDS: u64 = 10 * 60;
/// The first line of a CSV.
pub(crate) const CSV_HEAD: &str = "minute,by,name,allowed,denied,shadow\n";

/// The minutes, for whoever asks: of all instances where they meet somewhere, else of this one.
#[derive(Clone)]
pub struct Analytics {
    watch: Watch,
    sums: Option<Arc<SharedDay>>,
}

/// Whose minutes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Those of all instances that meet in one place, summed; where they do not meet, those of this one.
    #[default]
    All,
    /// Those of the instance that is asked.
    Instance,
}

/// Which minutes are asked for. Nothing said means all of the last day.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct Asked {
    /// Seconds since the epoch: minutes that began before are left out.
    #[serde(deserialize_with = "second")]
    #[cfg_attr(feature = "dashboard", param(nullable = false, maximum = 9_007_199_254_740_991_i64))]
    pub from: Option<u64>,
    /// Seconds since the epoch: minutes that began then or later are left out.
    #[serde(deserialize_with = "second")]
    #[cfg_attr(feature = "dashboard", param(nullable = false, maximum = 9_007_199_254_740_991_i64))]
    pub to: Option<u64>,
    /// Only rules, or only tenants.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub by: Option<By>,
    /// Only this rule or tenant.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub name: Option<String>,
    /// Of all instances, or of this one.
    #[cfg_attr(feature = "dashboard", param(required = false))]
    pub scope: Scope,
}

impl From<Watch> for Analytics {
    /// Those of one instance, which meets no other.
    fn from(watch: Watch) -> Self {
        Self { watch, sums: None }
    }
}

impl Analytics {
    /// Those of all instances that meet there.
    pub fn summed(watch: Watch, sums: Arc<dyn MinuteSums>) -> Self {
        Self { watch, sums: Some(Arc::new(SharedDay::new(sums))) }
    }

    /// The watch of this instance.
    pub const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The minutes that were asked for, in order.
    pub async fn rows(&self, asked: &Asked) -> Result<Vec<MinuteRow>, SumsError> {
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

    /// The same question in parts, the earliest first: each asks for as many minutes as can be held at once.
    pub fn parts(&self, asked: &Asked) -> impl Iterator<Item = Asked> + use<> {
        let (oldest, newest) = last_day(&self.watch);
        let (from, to) = (asked.from.unwrap_or(0).max(oldest), asked.to.unwrap_or(u64::MAX).min(newest));
        let asked = asked.clone();
        (from..to.max(from)).step_by(PART_SECONDS as usize).map(move |began| Asked {
            from: Some(began),
            to: Some(to.min(began + PART_SECONDS)),
            ..asked.clone()
        })
    }

    /// The last day, summed. Where instances meet, as it was a few seconds ago at most; while they cannot, the day of this
    /// one.
    pub async fn day(&self) -> Arc<Day> {
        match &self.sums {
            Some(shared) => shared.show(&self.watch).await,
            None => Arc::new(Day::new(Scope::Instance, self.watch.day())),
        }
    }
}

/// From when to when the last day's minutes began, in seconds since the epoch: by the wall clock.
pub(crate) fn last_day(watch: &Watch) -> (u64, u64) {
    let now = watch.wall().get() / 1_000_000;
    let present = now - now % 60;
    ((present + 60).saturating_sub(60 * KEPT as u64), now + AHEAD_SECONDS)
}

/// The minutes as CSV, with a head. Names that need it are quoted, and none can start a formula in a spreadsheet.
pub fn csv(rows: &[MinuteRow]) -> String {
    let mut text = String::from(CSV_HEAD);
    write_csv(&mut text, rows);
    text
}

/// The lines of these minutes.
pub(crate) fn write_csv(text: &mut String, rows: &[MinuteRow]) {
    for MinuteRow { minute, by, name, tally } in rows {
        let (by, name) = (by.as_str(), field(name));
        let Tally { allowed, denied, shadow } = tally;
        // Writing to a String cannot fail.
        let _written = writeln!(text, "{minute},{by},{name},{allowed},{denied},{shadow}");
    }
}

/// A day of minutes, summed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
pub struct Day {
    /// Whose day it is.
    pub scope: Scope,
    /// One row for each rule and tenant, those that decided most first.
    pub rows: Vec<DayRow>,
}

/// The day of one rule or tenant.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DayRow {
    /// Whether the name is a rule's or a tenant's.
    pub by: By,
    /// The rule or the tenant.
    pub name: String,
    /// What was decided.
    #[serde(flatten)]
    pub tally: Tally,
}

impl Day {
    /// The sums of these minutes.
    pub fn of(scope: Scope, minutes: &[MinuteRow]) -> Self {
        let mut sums = PackedMinutes::default();
        sums.put(0, 0, minutes.iter().map(|row| (row.by, row.name.as_str(), row.tally)));
        Self::new(scope, sums.sums())
    }

    pub(crate) fn new(scope: Scope, mut rows: Vec<DayRow>) -> Self {
        rows.sort_by(|a, b| {
            (a.by, Reverse(a.tally.all()), &a.name).cmp(&(b.by, Reverse(b.tally.all()), &b.name))
        });
        Self { scope, rows }
    }
}

fn second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        Some(beyond) if beyond > LAST_SECOND => {
            Err(D::Error::custom(format_args!("{beyond} is no second from 0 to {LAST_SECOND}")))
        }
        second => Ok(second),
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
        let tally = Tally { allowed: 2, denied: 1, shadow: 0 };
        MinuteRow { minute, by: By::Tenant, name: name.to_owned(), tally }
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
        let sums: Vec<_> = day.rows.iter().map(|row| (row.name.as_str(), row.tally.allowed)).collect();
        assert_eq!(sums, [("acme", 4), ("beta", 2)]);
    }
}
