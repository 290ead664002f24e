//! Converts Envoy's messages into descriptors of the policy.

use std::sync::LazyLock;
use std::time::Duration;

use spile_calendar::{Calendar, Period};
use spile_core::{Charges, Limit, QuotaWindows};
use spile_policy::{Descriptor, DescriptorLimit, Hits};
use tonic::Status;

use super::message::{Override, RateLimitDescriptor, RateLimitRequest, TimeUnit};

/// The months and the years of the calendar, in UTC.
static MONTHS: LazyLock<QuotaWindows> = LazyLock::new(|| Calendar::new(Period::Month).windows());
static YEARS: LazyLock<QuotaWindows> = LazyLock::new(|| Calendar::new(Period::Year).windows());

/// The descriptors of a request, in order.
pub(super) fn descriptors(request: &RateLimitRequest) -> Result<Vec<Descriptor<'_>>, Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid_argument("domain: is empty; it takes the name of a set of rules"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid_argument("descriptors: there are none; a request takes 1 or more"));
    }
    if request.descriptors.len() > Charges::MAX {
        let (count, most) = (request.descriptors.len(), Charges::MAX);
        let why = format!("descriptors: there are {count}; a request takes at most {most}");
        return Err(Status::invalid_argument(why));
    }
    let each = request.descriptors.iter().enumerate();
    each.map(|(index, one)| descriptor(request, one, index)).collect()
}

fn descriptor<'r>(
    request: &RateLimitRequest,
    descriptor: &'r RateLimitDescriptor,
    index: usize,
) -> Result<Descriptor<'r>, Status> {
    let wrong = |why: &str| Err(Status::invalid_argument(format!("descriptors[{index}].{why}")));
    if descriptor.entries.is_empty() {
        return wrong("entries: there are none; a descriptor takes 1 or more");
    }
    if descriptor.entries.iter().any(|entry| entry.key.is_empty()) {
        return wrong("entries: a key is empty");
    }
    let limit = match descriptor.limit.map(own_limit) {
        Some(None) => return wrong("limit.unit: is not a unit of time, 1 (second) to 7 (week)"),
        Some(Some(limit)) => Some(limit),
        None => None,
    };
    let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
    Ok(Descriptor { entries, limit, hits: hits(request, descriptor) })
}

/// The descriptor's own count overrides the request's, whose default is one. An own count of zero only peeks.
fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
    let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)));
    if descriptor.is_negative_hits { Hits::Refund(hits) } else { Hits::Spend(hits) }
}

/// A rate, or a quota of the calendar for a month or a year, which have no fixed length. `None` if the unit is unknown.
fn own_limit(limit: Override) -> Option<DescriptorLimit> {
    let unit = TimeUnit::try_from(limit.unit).ok()?;
    // Clamped, because no limit can hold more.
    let tokens = u64::from(limit.requests_per_unit.min(Limit::MAX_TOKENS));
    let limit = match unit {
        TimeUnit::Month => Limit::per_window(tokens, *MONTHS).build(),
        TimeUnit::Year => Limit::per_window(tokens, *YEARS).build(),
        _ => Limit::per(tokens, Duration::from_secs(unit.seconds()?)).build(),
    };
    Some(DescriptorLimit { limit: limit.ok(), unit: unit.name() })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn fuzzed_messages_keep_every_byte_of_a_descriptor_or_are_refused_by_field() {
        spile_testkit::fuzz::fuzz(
            "grpc-message",
            &["\n\u{1}d", "\u{12}", "\u{1a}\u{2}\u{8}\u{5}", " \u{1}"],
            |bytes| {
                let Ok(request) = RateLimitRequest::decode(bytes) else { return Err(String::new()) };
                let again = RateLimitRequest::decode(request.encode_to_vec().as_slice());
                assert_eq!(again.as_ref(), Ok(&request), "what is written again reads the same");
                let read = descriptors(&request).map_err(|status| {
                    assert_eq!(status.code(), tonic::Code::InvalidArgument);
                    let field =
                        status.message().split_once(": ").expect("a field and what is wrong with it").0;
                    field.trim_matches(|sign: char| sign.is_ascii_digit()).to_owned()
                })?;
                assert_eq!(read.len(), request.descriptors.len());
                assert!(read.len() <= Charges::MAX);
                for (one, sent) in read.iter().zip(&request.descriptors) {
                    let entries = sent.entries.iter().map(|entry| (&*entry.key, &*entry.value));
                    assert!(one.entries.iter().copied().eq(entries));
                }
                Ok(read.len())
            },
        );
    }

    #[test]
    fn a_limit_of_its_own_is_so_many_per_unit() {
        let own =
            |requests_per_unit, unit: TimeUnit| own_limit(Override { requests_per_unit, unit: unit.into() });
        let limit = Limit::per_minute(5).build().ok();
        assert_eq!(own(5, TimeUnit::Minute), Some(DescriptorLimit { limit, unit: "minute" }));
        assert_eq!(own(0, TimeUnit::Second), Some(DescriptorLimit { limit: None, unit: "second" }));
        assert_eq!(own(5, TimeUnit::Unknown), None);
        let months = Limit::per_window(5, Calendar::new(Period::Month).windows()).build().ok();
        assert_eq!(own(5, TimeUnit::Month), Some(DescriptorLimit { limit: months, unit: "month" }));
        assert_eq!(own(0, TimeUnit::Year), Some(DescriptorLimit { limit: None, unit: "year" }));
        let most = Limit::per_second(1_000_000_000).build().ok();
        assert_eq!(own(u32::MAX, TimeUnit::Second), Some(DescriptorLimit { limit: most, unit: "second" }));
    }
}
