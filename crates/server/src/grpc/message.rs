//! Envoy's messages, as much of them as is read and written. The numbers are Envoy's.

/// Envoy's service.
pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its only method.
pub(super) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitRequest {
    /// Bytes: a caller's text need not be UTF-8, and Envoy lets a request pass if its message cannot be decoded.
    #[prost(bytes, tag = "1")]
    pub(super) domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<DescriptorEntry>,
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<Override>,
    /// A wrapped number: zero is not the same as absent.
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

/// One entry of a descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DescriptorEntry {
    #[prost(bytes, tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes, tag = "2")]
    pub(super) value: Vec<u8>,
}

/// A limit that a descriptor contains.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Override {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(enumeration = "TimeUnit", tag = "2")]
    pub(super) unit: i32,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub(super) enum TimeUnit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl TimeUnit {
    /// The name of the buckets of limits by this unit.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// How long it is. `None` for a month and a year, which the calendar knows.
    pub(super) const fn seconds(self) -> Option<u64> {
        const DAY: u64 = 86_400;
        Some(match self {
            Self::Unknown | Self::Month | Self::Year => return None,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
        })
    }
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) overall_code: i32,
    /// One status for each descriptor, in order.
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<HeaderValue>,
    /// Metadata for Envoy's other filters and its access log.
    #[prost(message, optional, tag = "6")]
    pub(super) dynamic_metadata: Option<prost_types::Struct>,
}

/// Whether a request or a descriptor is over its limit.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// The status of one descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<prost_types::Duration>,
}

/// The limit that binds.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(enumeration = "TimeUnit", tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}
