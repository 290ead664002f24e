//! Plans and limits as plain numbers.

use std::sync::OnceLock;
use std::time::Duration;

use spile_calendar::{Calendar, Period};
use spile_core::{Amount, Limit, Plan, QuotaWindows, Unit};

/// The names that plans have, by their numbers.
pub const PLAN_NAMES: [&str; 8] = ["ash", "beech", "cedar", "date", "elm", "fir", "gum", "hazel"];
/// The names of the limits of a plan that has several.
const LIMIT_NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A plan, and what it may change to. The first version is in force at the start.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    /// The limits of each version. A single limit has no name.
    pub versions: Vec<Vec<LimitSpec>>,
}

/// A limit. Amounts are micro-tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitSpec {
    /// `refill` comes back in each period.
    Rate {
        /// The most that the bucket holds.
        capacity: i64,
        /// The amount that comes back.
        refill: i64,
        /// In how many milliseconds.
        period_ms: u64,
        /// How far late charges may go below zero.
        debt: i64,
        /// How long an instance may keep tokens, in milliseconds; 0: not at all.
        lease_ms: u64,
        /// Whether the unit is money, so that any amount above zero is enough for cost 0.
        money: bool,
    },
    /// So much in each window.
    Quota {
        /// The amount.
        capacity: i64,
        /// The window.
        window: WindowSpec,
        /// How far late charges may go below zero.
        debt: i64,
    },
    /// So many at once.
    Concurrency {
        /// The places.
        permits: u64,
        /// For how many milliseconds a place is held.
        hold_ms: u64,
    },
}

/// The window of a quota.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WindowSpec {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day in UTC.
    Day,
    /// A day in New York.
    DayInNewYork,
}

impl WindowSpec {
    const ALL: [Self; 4] = [Self::Minute, Self::Hour, Self::Day, Self::DayInNewYork];

    fn windows(self) -> QuotaWindows {
        // Windows live as long as the process.
        static MADE: OnceLock<[QuotaWindows; 4]> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            Self::ALL.map(|window| {
                QuotaWindows::new(match window {
                    Self::Minute => Calendar::new(Period::Minute),
                    Self::Hour => Calendar::new(Period::Hour),
                    Self::Day => Calendar::new(Period::Day),
                    Self::DayInNewYork => {
                        Calendar::new(Period::Day).zone("America/New_York").expect("a zone of the database")
                    }
                })
            })
        });
        made[self as usize]
    }
}

impl LimitSpec {
    fn limit(&self) -> Limit {
        let micro = Amount::from_micro;
        let built = match *self {
            Self::Rate { capacity, refill, period_ms, debt, lease_ms, money } => {
                let rate = Limit::per(micro(refill), Duration::from_millis(period_ms));
                let rate = rate.burst(micro(capacity)).debt(micro(debt));
                let rate = if money { rate.unit("usd".parse::<Unit>().expect("a currency")) } else { rate };
                let leases = lease_ms > 0 && !money;
                (if leases { rate.lease(Duration::from_millis(lease_ms)) } else { rate }).build()
            }
            Self::Quota { capacity, window, debt } => {
                Limit::per_window(micro(capacity), window.windows()).debt(micro(debt)).build()
            }
            Self::Concurrency { permits, hold_ms } => {
                Limit::concurrent(permits).hold(Duration::from_millis(hold_ms)).build()
            }
        };
        built.unwrap_or_else(|why| panic!("{self:?}: {why}"))
    }

    /// The most that it admits at once.
    pub const fn capacity(&self) -> i64 {
        match *self {
            Self::Rate { capacity, .. } | Self::Quota { capacity, .. } => capacity,
            Self::Concurrency { permits, .. } => permits.cast_signed() * 1_000_000,
        }
    }
}

impl PlanSpec {
    /// The plan of this number in one of its versions.
    ///
    /// # Panics
    /// If a limit is out of bounds.
    pub fn plan(&self, number: u8, version: u8) -> Plan {
        let name = PLAN_NAMES[usize::from(number)];
        let limits = &self.versions[usize::from(version) % self.versions.len()];
        let plan = match limits.as_slice() {
            [only] => Plan::new(name, only.limit()),
            several => Plan::chain(name, LIMIT_NAMES.into_iter().zip(several.iter().map(LimitSpec::limit))),
        };
        plan.unwrap_or_else(|why| panic!("plan {name}: {why}"))
    }

    /// True if it starts with a quota.
    pub fn has_quota(&self) -> bool {
        self.versions[0].iter().any(|limit| matches!(limit, LimitSpec::Quota { .. }))
    }

    /// True if a version has a concurrency.
    pub fn takes_permits(&self) -> bool {
        self.versions.iter().flatten().any(|limit| matches!(limit, LimitSpec::Concurrency { .. }))
    }
}
