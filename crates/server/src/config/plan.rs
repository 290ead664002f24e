//! Plans as they are written, and the checks that every limit is within its bounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spile_calendar::{Anchor, Calendar, Period};
use spile_core::{Amount, Limit, LimitError, NamedLimit, Plan, PlanError, PlanName, RateBuilder, Unit};
use spile_policy::RESERVED_PLANS;
use utoipa::ToSchema;

use super::overlay::Defined;
use super::source::{Faults, Location};
use super::spec::Source;
use super::value::{HoldSpan, LeaseSpan, tables};
use crate::input::tokens::Tokens;

/// Above this number of calendars, tickets add none, because anyone may have written a ticket.
const MOST_CALENDARS: usize = 2_000;
/// The units of a limit.
const UNITS: &str = "`requests`, `tokens` or a currency in lower case, as in `usd`";

/// A plan: one limit, or a chain of limits that must all allow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Plan, examples(json!({"name": "pro", "capacity": 100, "refill": "50/s", "source": "file"})))]
pub(crate) struct PlanSpec {
    /// The name. It may be left out if the path has it.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) name: Option<String>,
    /// The most tokens that can be spent at once. If it is left out, as many as come back in a period.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    pub(super) capacity: Option<Tokens>,
    /// Tokens per period: `1/s`, `100/min`, `5/10s`, `10000/day`.
    #[schema(format = "refill", examples("50/s"))]
    pub(super) refill: Option<String>,
    /// How long an instance that is asked often may keep tokens that it took from Redis in advance: `100ms`. If it is left
    /// out, each decision asks Redis.
    #[serde(deserialize_with = "LeaseSpan::deserialize_some", serialize_with = "LeaseSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "lease", examples("100ms"))]
    pub(super) lease: Option<Duration>,
    /// How many tokens late charges may take beyond the available ones, 0 for none. If it is left out, as many as the capacity.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000, examples(40_000))]
    pub(super) debt: Option<Tokens>,
    /// The unit that it counts in: `requests`, `tokens`, or a currency such as `usd`, whose smallest amount is a millionth. If it is left
    /// out, `requests`.
    #[schema(examples("tokens"))]
    pub(super) unit: Option<String>,
    /// A quota: at most this many tokens in each `per` of the calendar, in place of `capacity` and `refill`.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000, examples(100_000))]
    pub(super) quota: Option<Tokens>,
    /// The period of a quota: `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[schema(pattern = "^(minute|hour|day|week|month|year)$", examples("month"))]
    pub(super) per: Option<String>,
    /// The time zone of a quota, by its IANA name. If it is left out, UTC.
    #[schema(format = "zone", examples("Europe/Berlin"))]
    pub(super) zone: Option<String>,
    /// When a period of a quota starts. If it is left out, on the first of the month, at midnight, on Monday or on 1 January.
    pub(super) anchor: Option<AnchorSpec>,
    /// A concurrency: at most this many at once, in place of `capacity` and `refill`.
    #[schema(minimum = 1, maximum = 1_000_000, examples(5))]
    pub(super) concurrency: Option<u64>,
    /// How long a permit of a concurrency is held if it is neither renewed nor released: `30s`, which is the default.
    #[serde(deserialize_with = "HoldSpan::deserialize_some", serialize_with = "HoldSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "hold", examples("30s"))]
    pub(super) hold: Option<Duration>,
    /// A chain, in place of a single limit.
    #[serde(deserialize_with = "tables")]
    #[schema(min_items = 1, max_items = 32)]
    pub(super) limits: Option<Vec<LimitSpec>>,
    /// Where it comes from.
    #[schema(read_only)]
    pub(crate) source: Option<Source>,
}

/// One limit: of a plan's chain, or a tenant's own that replaces one of them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Limit)]
pub(crate) struct LimitSpec {
    /// The name within its plan. A tenant's own limits are listed by their names, and leave it out.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$", examples("burst"))]
    pub(super) name: Option<String>,
    /// The most tokens that can be spent at once. If it is left out, as many as come back in a period.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000)]
    capacity: Option<Tokens>,
    /// Tokens per period.
    #[schema(format = "refill", examples("50/s"))]
    refill: Option<String>,
    /// How long an instance that is asked often may keep tokens that it took from Redis in advance: `100ms`. If it is left
    /// out, each decision asks Redis.
    #[serde(deserialize_with = "LeaseSpan::deserialize_some", serialize_with = "LeaseSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "lease", examples("100ms"))]
    lease: Option<Duration>,
    /// How many tokens late charges may take beyond the available ones, 0 for none. If it is left out, as many as the capacity.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000, examples(40_000))]
    debt: Option<Tokens>,
    /// The unit that it counts in: `requests`, `tokens`, or a currency such as `usd`, whose smallest amount is a millionth. If it is left
    /// out, `requests`.
    #[schema(examples("tokens"))]
    unit: Option<String>,
    /// A quota: at most this many tokens in each `per` of the calendar, in place of `capacity` and `refill`.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000_000, examples(100_000))]
    quota: Option<Tokens>,
    /// The period of a quota: `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[schema(pattern = "^(minute|hour|day|week|month|year)$", examples("month"))]
    per: Option<String>,
    /// The time zone of a quota, by its IANA name. If it is left out, UTC.
    #[schema(format = "zone", examples("Europe/Berlin"))]
    zone: Option<String>,
    /// When a period of a quota starts. If it is left out, on the first of the month, at midnight, on Monday or on 1 January.
    anchor: Option<AnchorSpec>,
    /// A concurrency: at most this many at once, in place of `capacity` and `refill`.
    #[schema(minimum = 1, maximum = 1_000_000, examples(5))]
    concurrency: Option<u64>,
    /// How long a permit of a concurrency is held if it is neither renewed nor released: `30s`, which is the default.
    #[serde(deserialize_with = "HoldSpan::deserialize_some", serialize_with = "HoldSpan::serialize_some")]
    #[schema(value_type = Option<String>, format = "hold", examples("30s"))]
    hold: Option<Duration>,
}

impl From<&Plan> for PlanSpec {
    fn from(plan: &Plan) -> Self {
        let name = Some(plan.name().to_string());
        match plan.limits() {
            [only] if only.name().as_str() == plan.name().as_str() => {
                let own = LimitSpec::own(only);
                Self {
                    name,
                    capacity: own.capacity,
                    refill: own.refill,
                    lease: own.lease,
                    debt: own.debt,
                    unit: own.unit,
                    quota: own.quota,
                    per: own.per,
                    zone: own.zone,
                    anchor: own.anchor,
                    concurrency: own.concurrency,
                    hold: own.hold,
                    limits: None,
                    source: None,
                }
            }
            limits => {
                let limit = |limit: &NamedLimit| LimitSpec {
                    name: Some(limit.own_name().to_owned()),
                    ..LimitSpec::own(limit)
                };
                Self { name, limits: Some(limits.iter().map(limit).collect()), ..Self::default() }
            }
        }
    }
}

impl PlanSpec {
    /// The one limit of a plan without a chain.
    fn own(&self) -> LimitSpec {
        LimitSpec {
            name: None,
            capacity: self.capacity,
            refill: self.refill.clone(),
            lease: self.lease,
            debt: self.debt,
            unit: self.unit.clone(),
            quota: self.quota,
            per: self.per.clone(),
            zone: self.zone.clone(),
            anchor: self.anchor.clone(),
            concurrency: self.concurrency,
            hold: self.hold,
        }
    }
}

/// When a period of a quota starts: a day of the month (1 to 31), an hour of the day (0 to 23), a weekday (`mon` to `sun`) or a day of
/// the year (`01-01` to `12-31`).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(untagged, expecting = "invalid type, expected a number or text")]
#[schema(as = Anchor, examples(15, "mon", "04-01"))]
pub(crate) enum AnchorSpec {
    /// A day of the month or an hour.
    Number(i64),
    /// A weekday or a day of the year.
    #[schema(format = "anchor")]
    Text(String),
}

impl From<&AnchorSpec> for Anchor {
    fn from(anchor: &AnchorSpec) -> Self {
        match anchor {
            AnchorSpec::Number(number) => (*number).into(),
            AnchorSpec::Text(text) => text.as_str().into(),
        }
    }
}

impl From<Anchor> for AnchorSpec {
    fn from(anchor: Anchor) -> Self {
        match anchor {
            Anchor::Number(number) => Self::Number(number),
            Anchor::Text(text) => Self::Text(text),
        }
    }
}

impl LimitSpec {
    /// A limit that is listed under its name.
    pub(super) fn own(limit: &NamedLimit) -> Self {
        let limit = limit.limit();
        let (capacity, debt, text) = (limit.capacity(), limit.debt(), limit.to_string());
        let debt = (debt != capacity).then_some(debt.into());
        let unit = (limit.unit() != Unit::default()).then(|| limit.unit().to_string());
        if let Some(calendar) = Calendar::of(limit) {
            let first = Calendar::new(calendar.period()).anchored_on();
            return Self {
                quota: Some(capacity.into()),
                per: Some(calendar.period().to_string()),
                zone: Some(calendar.zone_name().to_owned()).filter(|zone| zone != "UTC"),
                anchor: calendar
                    .anchored_on()
                    .filter(|_| calendar.anchored_on() != first)
                    .map(AnchorSpec::from),
                debt,
                unit,
                ..Self::default()
            };
        }
        if let Some(hold) = limit.hold() {
            let hold = Some(hold).filter(|hold| *hold != Limit::DEFAULT_HOLD);
            return Self { concurrency: Some(capacity.whole_tokens()), hold, ..Self::default() };
        }
        // The text is `10, 1/s`: the capacity and the refill.
        let refill = text.split_once(", ").map_or(text.as_str(), |(_, refill)| refill);
        Self {
            name: None,
            capacity: Some(capacity.into()),
            refill: Some(refill.to_owned()),
            lease: limit.lease(),
            debt,
            unit,
            ..Self::default()
        }
    }

    /// A limit as a ticket carries it, with the members that it has.
    pub(crate) fn record(limit: &NamedLimit) -> serde_json::Value {
        let mut record = serde_json::to_value(Self::own(limit)).expect("names and numbers are JSON");
        if let Some(members) = record.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        record
    }

    /// The limit that [`record`](Self::record) wrote. `None` if it is not one.
    pub(crate) fn recorded(record: &serde_json::Value) -> Option<Limit> {
        let spec = Self::deserialize(record).ok()?;
        if spec.quota.is_some() && Calendar::in_use() > MOST_CALENDARS {
            return None;
        }
        spec.check(&Location::FILE, &mut Faults::default())
    }

    /// True if no member except the name is set.
    fn is_empty(&self) -> bool {
        *self == Self { name: self.name.clone(), ..Self::default() }
    }

    pub(super) fn check(&self, at: &Location<'_>, faults: &mut Faults) -> Option<Limit> {
        if self.concurrency.is_some() || self.hold.is_some() {
            return self.check_concurrency(at, faults);
        }
        let unit = self.unit.as_deref().unwrap_or(Unit::default().as_str()).parse::<Unit>();
        let unit = unit.map_err(|why| faults.add(&at.key("unit"), why, UNITS)).ok()?;
        if self.quota.is_some() || self.per.is_some() || self.zone.is_some() || self.anchor.is_some() {
            return self.check_quota(unit, at, faults);
        }
        self.check_rate(unit, at, faults)
    }

    fn check_rate(&self, unit: Unit, at: &Location<'_>, faults: &mut Faults) -> Option<Limit> {
        let Some(refill) = &self.refill else {
            if !faults.has(&at.key("refill")) {
                let fix = "add `refill = \"1/s\"`, or for a quota `quota = 1000` and `per = \"month\"`, or `concurrency = 5`";
                faults.add(&at.key("refill"), "the limit has no refill", fix);
            }
            return None;
        };
        let Ok(mut rate) = refill.parse::<RateBuilder>() else {
            let fix = "tokens per period, as in `1/s`, `100/min` or `10000/day`";
            faults.add(&at.key("refill"), format_args!("`{refill}` is not a refill"), fix);
            return None;
        };
        rate = rate.unit(unit);
        if let Some(Tokens(capacity)) = self.capacity {
            rate = rate.burst(capacity);
        }
        if let Some(Tokens(debt)) = self.debt {
            rate = rate.debt(debt);
        }
        if let Some(lease) = self.lease {
            rate = rate.lease(lease);
        }
        let refuse = |why| match why {
            LimitError::Capacity { least, .. } if self.capacity.is_some() => {
                faults.add(&at.key("capacity"), why, within(least));
            }
            LimitError::Debt(_) => {
                let fix = "0 to 1000000000 tokens, which the refill repays within ten years";
                faults.add(&at.key("debt"), why, fix);
            }
            why => faults.add(&at.key("refill"), why, "a slower or faster refill"),
        };
        rate.build().map_err(refuse).ok()
    }

    fn check_concurrency(&self, at: &Location<'_>, faults: &mut Faults) -> Option<Limit> {
        let of_others = [
            ("capacity", self.capacity.is_some()),
            ("refill", self.refill.is_some()),
            ("lease", self.lease.is_some()),
            ("debt", self.debt.is_some()),
            ("unit", self.unit.is_some()),
            ("quota", self.quota.is_some()),
            ("per", self.per.is_some()),
            ("zone", self.zone.is_some()),
            ("anchor", self.anchor.is_some()),
        ];
        if let Some((key, _)) = of_others.into_iter().find(|(_, is_there)| *is_there) {
            let fix = "a limit is a rate (`capacity`, `refill`), a quota (`quota`, `per`) or a concurrency (`concurrency`, `hold`); \
                       a plan can have several";
            match self.concurrency {
                Some(_) => faults.add(&at.key(key), format_args!("a concurrency has no `{key}`"), fix),
                None => faults.add(&at.key("hold"), "only a concurrency has a `hold`", fix),
            }
            return None;
        }
        let permits = faults.required(at, "concurrency", self.concurrency)?;
        let built = Limit::concurrent(permits).hold(self.hold.unwrap_or(Limit::DEFAULT_HOLD)).build();
        let refuse = |why| match why {
            LimitError::Hold(_) => faults.add(&at.key("hold"), why, "1s to 1day, in whole milliseconds"),
            why => faults.add(&at.key("concurrency"), why, "1 to 1000000"),
        };
        built.map_err(refuse).ok()
    }

    fn check_quota(&self, unit: Unit, at: &Location<'_>, faults: &mut Faults) -> Option<Limit> {
        let of_rates = [
            ("capacity", self.capacity.is_some()),
            ("refill", self.refill.is_some()),
            ("lease", self.lease.is_some()),
        ];
        if let Some((key, _)) = of_rates.into_iter().find(|(_, is_there)| *is_there) {
            let fix = "a limit is a rate (`capacity`, `refill`, `lease`) or a quota (`quota`, `per`, `zone`, `anchor`)";
            faults.add(&at.key(key), format_args!("a quota has no `{key}`"), fix);
            return None;
        }
        let tokens = faults.required(at, "quota", self.quota);
        let calendar = self.check_calendar(at, faults);
        let Tokens(tokens) = tokens?;
        let builder = Limit::per_window(tokens, calendar?.windows()).unit(unit);
        let built = self.debt.map_or(builder, |Tokens(debt)| builder.debt(debt)).build();
        let refuse = |why| match why {
            LimitError::Capacity { capacity: tokens, least } => {
                let message = format_args!("a quota of {tokens} is out of bounds");
                faults.add(&at.key("quota"), message, within(least));
            }
            why => faults.add(&at.key("debt"), why, "0 to 1000000000 tokens"),
        };
        built.map_err(refuse).ok()
    }

    /// Checks the period, zone and anchor of a quota.
    fn check_calendar(&self, at: &Location<'_>, faults: &mut Faults) -> Option<Calendar> {
        let per = faults.required(at, "per", self.per.as_deref())?;
        let period: Period =
            per.parse().map_err(|why| faults.add(&at.key("per"), why, "for instance `month`")).ok()?;
        let mut calendar = Calendar::new(period);
        if let Some(zone) = &self.zone {
            let refuse = |why| faults.add(&at.key("zone"), why, "for instance `Europe/Berlin`");
            calendar = calendar.zone(zone).map_err(refuse).ok()?;
        }
        if let Some(anchor) = &self.anchor {
            let refuse = |why| faults.add(&at.key("anchor"), why, "or leave it out");
            calendar = calendar.anchor(anchor).map_err(refuse).ok()?;
        }
        Some(calendar)
    }
}

/// How many tokens a bucket may hold.
fn within(least: Amount) -> String {
    format!("{least} to {}", Limit::MAX_TOKENS)
}

/// Returns the valid plans, and the names of all.
pub(super) fn check_all(plans: &[Defined<'_, PlanSpec>], faults: &mut Faults) -> (Vec<Plan>, Vec<PlanName>) {
    let names = plans.iter().filter_map(|plan| PlanName::new(plan.name?).ok()).collect();
    let list = Location::FILE.key("plans");
    let check = |plan: &Defined<'_, PlanSpec>| {
        let name = plan.name?;
        let at = if plan.index.is_some() { list.key(name) } else { plan.at(&list) };
        check(name, plan.spec, &at, faults)
    };
    (plans.iter().filter_map(check).collect(), names)
}

fn check(name: &str, spec: &PlanSpec, at: &Location<'_>, faults: &mut Faults) -> Option<Plan> {
    let good_name = check_name(name, at, faults);
    let own = spec.own();
    let plan = match &spec.limits {
        Some(_) if !own.is_empty() => {
            let message = format!("plan `{name}` has a limit of its own and a list of limits");
            let fix =
                "write one limit (`capacity` and `refill`, `quota` and `per`, or `concurrency`), or `limits`";
            faults.add(&at.spelling(), message, fix);
            return None;
        }
        None => {
            let limit = own.check(at, faults);
            good_name.then(|| limit.map(|limit| Plan::new(name, limit)))??
        }
        Some(limits) => {
            let list = at.key("limits");
            let check = |(index, limit): (usize, &LimitSpec)| {
                let at = list.item(index);
                let name = faults.required(&at, "name", limit.name.clone());
                let limit = limit.check(&at, faults);
                Some((name?, limit?))
            };
            let checked: Vec<_> = limits.iter().enumerate().filter_map(check).collect();
            if checked.len() < limits.len() || !good_name {
                return None;
            }
            Plan::chain(name, checked.iter().map(|(own, limit)| (own.as_str(), *limit)))
        }
    };
    plan.map_err(|why: PlanError| faults.add(&at.spelling(), why, "each limit needs a different name")).ok()
}

fn check_name(name: &str, at: &Location<'_>, faults: &mut Faults) -> bool {
    if RESERVED_PLANS.contains(&name) {
        let message = format!("no plan can be called `{name}`");
        faults.add(&at.spelling(), message, "that word is reserved; choose another name");
        return false;
    }
    PlanName::new(name).map_err(|why| faults.add(&at.spelling(), why, "for instance `gold`")).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spile_core::QuotaWindows;

    use crate::config::Config;

    fn windows(quota: &str) -> Option<QuotaWindows> {
        let text = format!("[plans.gold]\n{quota}\n");
        let config = Config::parse(Path::new("spile.toml"), text, []).expect("a sound file");
        let gold = config.plans.iter().find(|plan| plan.name().as_str() == "gold")?;
        gold.limits()[0].limit().windows()
    }

    #[test]
    fn files_that_name_the_same_calendar_refer_to_the_same_windows() {
        let berlin =
            |more: &str| windows(&format!("quota = 5\nper = \"month\"\nzone = \"Europe/Berlin\"\n{more}"));
        let first = berlin("anchor = 15");
        assert!(first.is_some());
        assert_eq!(berlin("anchor = 15\ndebt = 3"), first, "a reload makes no windows of its own");
        assert_eq!(windows("quota = 9\nper = \"month\"\nzone = \"europe/berlin\"\nanchor = \"15\""), first);
        assert_ne!(berlin("anchor = 16"), first);
        assert_eq!(berlin("anchor = 1"), berlin(""));
    }
}
