//! `CL.THROTTLE key max_burst count period [quantity]`: a check that brings its own limit.

use std::ops::RangeInclusive;
use std::time::Duration;

use spile_core::{Decision, Limit, Reason};
use spile_limiter::Ruling;
use spile_policy::{Owed, Policy, THROTTLE, identity};

use super::reply::RespReply;

/// The longest period in seconds: the fill time of the slowest limit.
const LONGEST_PERIOD: u64 = Limit::MAX_FILL.as_secs();

/// The valid arguments of a throttle.
#[derive(Debug)]
pub(super) struct Throttle<'a> {
    key: &'a str,
    limit: Limit,
    quantity: u64,
}

impl<'a> Throttle<'a> {
    /// Reads the arguments after the name of the command.
    pub(super) fn parse(arguments: &'a [Vec<u8>]) -> Result<Self, RespReply> {
        let (key, max_burst, count, period, quantity) = match arguments {
            [key, max_burst, count, period] => (key, max_burst, count, period, None),
            [key, max_burst, count, period, quantity] => (key, max_burst, count, period, Some(quantity)),
            _ => return Err(RespReply::error("ERR wrong number of arguments for 'cl.throttle' command")),
        };
        let most = u64::from(Limit::MAX_TOKENS);
        let key = std::str::from_utf8(key).map_err(|why| wrong(format_args!("key is not UTF-8: {why}")))?;
        identity(key).map_err(|why| wrong(format_args!("key: {why}")))?;
        let capacity = number("max_burst", max_burst, 0..=most - 1)? + 1;
        let count = number("count", count, 1..=most)?;
        let period = number("period", period, 1..=LONGEST_PERIOD)?;
        let quantity = quantity.map_or(Ok(1), |quantity| number("quantity", quantity, 0..=most))?;
        let limit = Limit::per(count, Duration::from_secs(period)).burst(capacity).build();
        let limit = limit.map_err(|why| wrong(format_args!("max_burst, count and period: {why}")))?;
        if quantity > capacity {
            return Err(wrong(format_args!(
                "quantity {quantity} is above {capacity}, which is max_burst + 1: it can never pass"
            )));
        }
        Ok(Self { key, limit, quantity })
    }

    /// The charges, in the namespace of this database. Database 0 uses the limit's name as it is.
    pub(super) fn owed(&self, policy: &Policy, database: u8) -> Result<Owed, RespReply> {
        let namespace = (database > 0).then(|| format!("db{database}"));
        let owed = policy.owed_by_limit(THROTTLE, namespace.as_deref(), self.key, self.limit, self.quantity);
        owed.map_err(wrong)
    }

    /// The five integers, or an error if the store failed and the failure policy denies.
    ///
    /// If the rule is in shadow mode, the numbers are those of its shadow bucket.
    pub(super) fn reply(&self, ruling: &Ruling) -> RespReply {
        let shown = ruling.decisions().next();
        if let Some(decision) = shown.filter(|decision| decision.reason() == Reason::FailClosed) {
            let wait = decision.retry_after().as_millis();
            return RespReply::error(format!(
                "UNAVAILABLE rate limiter backend error: nothing was decided, retry after {wait} ms"
            ));
        }
        let denied = shown.filter(|_| !ruling.allowed());
        let capacity = self.limit.capacity();
        RespReply::Throttled([
            i64::from(denied.is_some()),
            // The requested capacity, even if each instance decides by its share of it.
            capacity.whole_tokens().cast_signed(),
            shown.map_or(capacity, Decision::remaining).whole_tokens().cast_signed(),
            denied.map_or(-1, |decision| whole_seconds(decision.retry_after())),
            shown.map_or(0, |decision| whole_seconds(decision.reset_after())),
        ])
    }
}

/// Rounded up, so that a client that waits as long as reported is admitted.
fn whole_seconds(span: Duration) -> i64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).cast_signed()
}

fn number(name: &str, text: &[u8], bounds: RangeInclusive<u64>) -> Result<u64, RespReply> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let number = number.filter(|number| bounds.contains(number));
    number.ok_or_else(|| {
        let shown = text[..text.len().min(32)].escape_ascii();
        let (least, most) = (bounds.start(), bounds.end());
        wrong(format_args!("{name} '{shown}' is not a whole number from {least} to {most}"))
    })
}

fn wrong(why: impl std::fmt::Display) -> RespReply {
    RespReply::error(format!("ERR {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<(Limit, u64), String> {
        let arguments: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let parsed = Throttle::parse(&arguments);
        parsed.map(|throttle| (throttle.limit, throttle.quantity)).map_err(|reply| match reply {
            RespReply::Error(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_capacity_is_one_more_than_the_burst() {
        let limit = Limit::per(30, Duration::from_secs(60)).burst(16).build().expect("it is within bounds");
        assert_eq!(parse(&["user:1", "15", "30", "60"]), Ok((limit, 1)));
        assert_eq!(parse(&["user:1", "15", "30", "60", "0"]), Ok((limit, 0)));
        assert_eq!(parse(&["user:1", "15", "30", "60", "16"]), Ok((limit, 16)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_and_its_bound() {
        let table: [(&[&str], &[&str]); 11] = [
            (&["k", "-1", "1", "1"], &["max_burst", "'-1'", "0 to 999999999"]),
            (&["k", "1000000000", "1", "1"], &["max_burst", "'1000000000'", "999999999"]),
            (&["k", "1.5", "1", "1"], &["max_burst", "'1.5'", "whole number"]),
            (&["k", "1", "0", "1"], &["count", "'0'", "1 to 1000000000"]),
            (&["k", "1", "x", "1"], &["count", "'x'"]),
            (&["k", "1", "1", "0"], &["period", "'0'", "1 to 315619200"]),
            (&["k", "1", "1", "1", "-2"], &["quantity", "'-2'"]),
            (&["k", "1", "1", "1", "3"], &["quantity", "3", "2", "never"]),
            (&["", "1", "1", "1"], &["key", "1 to 1024"]),
            (&["k\n", "1", "1", "1"], &["key", "U+000A"]),
            (&["k", "999999999", "1", "1"], &["capacity 1000000000", "ten years"]),
        ];
        for (words, said) in table {
            let why = parse(words).expect_err("it is refused");
            assert!(why.starts_with("ERR "), "{why}");
            for word in said {
                assert!(why.contains(word), "{word} in {why}");
            }
        }
    }

    #[test]
    fn waits_are_whole_seconds_rounded_up() {
        let table = [(0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)];
        for (us, seconds) in table {
            assert_eq!(whole_seconds(Duration::from_micros(us)), seconds);
        }
    }
}
