//! Decisions by minute for a chart: summed over all rules, or of one rule or tenant.

use serde::{Deserialize, Serialize};

use super::{GroupBy, Scope, within};
use crate::metrics::OutcomeCounts;

/// Selects what a chart shows. Without any field, it selects all decisions of the last day.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct HistoryQuery {
    /// How many minutes, up to the present one. A day has 1440.
    #[serde(deserialize_with = "within::<_, 1440>")]
    #[cfg_attr(feature = "dashboard", param(nullable = false, minimum = 1, maximum = 1440))]
    pub minutes: Option<u64>,
    /// Decisions by rule or by tenant. By rule if it is left out: every decision has a rule, which may be empty.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub by: Option<GroupBy>,
    /// Only this rule or tenant.
    #[cfg_attr(feature = "dashboard", param(nullable = false))]
    pub name: Option<String>,
}

/// The data of a chart.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
pub struct History {
    /// Which instances it is from.
    pub scope: Scope,
    /// One row for each minute with decisions, the oldest first.
    pub rows: Vec<HistoryRow>,
}

/// One minute of a chart.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HistoryRow {
    /// When the minute began, in seconds since the epoch.
    pub at: u64,
    /// The decisions, counted.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
}

impl HistoryQuery {
    /// Whether decisions of this rule or tenant are part of it.
    pub(crate) fn selects(&self, by: GroupBy, name: &str) -> bool {
        by == self.by.unwrap_or(GroupBy::Rule) && self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Sums a minute. `None` if nothing in it is selected.
    pub(crate) fn sum<'a>(
        &self,
        minute: u64,
        counts_by_name: impl Iterator<Item = (GroupBy, &'a str, OutcomeCounts)>,
    ) -> Option<HistoryRow> {
        let mut selected = counts_by_name.filter(|(by, name, _)| self.selects(*by, name)).peekable();
        selected.peek()?;
        let mut row = HistoryRow { at: minute, counts: OutcomeCounts::default() };
        selected.for_each(|(_, _, counts)| row.counts += counts);
        Some(row)
    }
}
