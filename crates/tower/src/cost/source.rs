//! Where a response says what it cost.

use std::fmt;
use std::str::FromStr;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use spile_core::Amount;

use super::parse_amount;
use super::pointer::{JsonPointer, JsonPointerError};
use super::reader::CostReader;

/// The field in which services report the cost of a request.
const X_RATELIMIT_COST: HeaderName = HeaderName::from_static("x-ratelimit-cost");

/// Where a response says what it cost, in tokens.
///
/// ```
/// # use spile_tower as spile;
/// use spile::cost::CostSource;
///
/// let source: CostSource = "json:/usage/total_tokens".parse()?;
/// let headers = http::HeaderMap::new();
/// let mut reader = source.reader(&headers).expect("a body that is not encoded");
/// reader.push(b"{\"text\":\"hello\",\"usage\":{\"total_");
/// reader.push(b"tokens\":1250}}");
/// assert_eq!(reader.amount().expect("the body has reported it"), 1_250);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CostSource {
    /// In a header field: `header:NAME`.
    Header(HeaderName),
    /// At this place of a JSON body: `json:/POINTER`. If the body has several documents one after the other, the last that
    /// has the number counts.
    Json(JsonPointer),
    /// At this place of the data of server-sent events, in the last that has the number: `sse:/POINTER`.
    Sse(JsonPointer),
    /// As the API of `OpenAI` says it, in JSON or in events: `total_tokens`.
    OpenAi,
    /// As the API of Anthropic says it, in JSON or in events: the sum of `input_tokens`, `output_tokens`,
    /// `cache_read_input_tokens` and `cache_creation_input_tokens`.
    Anthropic,
}

/// Why a text names no place of a cost.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostSourceError {
    /// The word is not known.
    #[error("`{0}` is not a place where a response says its cost")]
    Unknown(String),
    /// The name of the header field is not one.
    #[error("`{0}` is not a header name")]
    Header(String),
    /// The pointer is not one.
    #[error(transparent)]
    Pointer(#[from] JsonPointerError),
}

impl CostSource {
    /// Whether the cost is in the body of a response.
    pub const fn reads_body(&self) -> bool {
        !matches!(self, Self::Header(_))
    }

    /// The cost that the header of a response reports. `None` if the source is not a header field, or if the field is not an
    /// amount.
    pub fn in_header(&self, headers: &HeaderMap) -> Option<Amount> {
        match self {
            Self::Header(name) => parse_amount(headers.get(name)?.to_str().ok()?),
            _ => None,
        }
    }

    /// A reader for the body of the response with this header. `None` if the cost is not in the body, or if the body is
    /// compressed and cannot be read.
    pub fn reader(&self, headers: &HeaderMap) -> Option<CostReader> {
        if is_encoded(headers) {
            return None;
        }
        match self {
            Self::Header(_) => None,
            Self::Json(pointer) => Some(CostReader::json([(0, pointer.clone())])),
            Self::Sse(pointer) => Some(CostReader::events([(0, pointer.clone())])),
            Self::OpenAi => Some(CostReader::preset(&OPENAI, has_events(headers))),
            Self::Anthropic => Some(CostReader::preset(&ANTHROPIC, has_events(headers))),
        }
    }
}

/// The places of a preset, each with the index of its number. The cost is the sum of the numbers.
pub(super) type PresetPlaces = [(usize, &'static str)];

/// The total includes cached and reasoning tokens. The second is in the last event of a streamed answer of the Responses API.
const OPENAI: [(usize, &str); 2] = [(0, "/usage/total_tokens"), (0, "/response/usage/total_tokens")];

/// In events, `message_start` has the counts within a message, and `message_delta` has them by themselves. They are
/// cumulative: the last of each counts. `input_tokens` does not include tokens that were read from the cache or written to it.
const ANTHROPIC: [(usize, &str); 8] = [
    (0, "/usage/input_tokens"),
    (0, "/message/usage/input_tokens"),
    (1, "/usage/output_tokens"),
    (1, "/message/usage/output_tokens"),
    (2, "/usage/cache_read_input_tokens"),
    (2, "/message/usage/cache_read_input_tokens"),
    (3, "/usage/cache_creation_input_tokens"),
    (3, "/message/usage/cache_creation_input_tokens"),
];

/// Whether the body is compressed, or encoded in another way.
fn is_encoded(headers: &HeaderMap) -> bool {
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !is_identity(value))
}

fn has_events(headers: &HeaderMap) -> bool {
    let name = b"text/event-stream";
    let starts = |value: &HeaderValue| {
        value.as_bytes().get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    headers.get(CONTENT_TYPE).is_some_and(starts)
}

/// The field `X-RateLimit-Cost`.
impl Default for CostSource {
    fn default() -> Self {
        Self::Header(X_RATELIMIT_COST)
    }
}

impl FromStr for CostSource {
    type Err = CostSourceError;

    fn from_str(text: &str) -> Result<Self, CostSourceError> {
        match text.split_once(':') {
            None if text == "openai" => Ok(Self::OpenAi),
            None if text == "anthropic" => Ok(Self::Anthropic),
            Some(("header", name)) => {
                name.parse().map(Self::Header).map_err(|_| CostSourceError::Header(name.to_owned()))
            }
            Some(("json", pointer)) => Ok(Self::Json(pointer.parse()?)),
            Some(("sse", pointer)) => Ok(Self::Sse(pointer.parse()?)),
            _ => Err(CostSourceError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Sse(pointer) => write!(f, "sse:{pointer}"),
            Self::OpenAi => f.write_str("openai"),
            Self::Anthropic => f.write_str("anthropic"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn cost(source: &str, content_type: &'static str, body: &str) -> Option<Amount> {
        let source: CostSource = source.parse().unwrap();
        let mut reader = source.reader(&headers(&[("content-type", content_type)])).unwrap();
        body.as_bytes().chunks(7).for_each(|piece| reader.push(piece));
        reader.amount()
    }

    #[test]
    fn every_spelling_reads_back_and_others_are_refused_by_name() {
        for text in ["header:x-cost", "json:/usage/total_tokens", "sse:/a~1b/0", "openai", "anthropic"] {
            assert_eq!(text.parse::<CostSource>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("opnai", "`opnai` is not a place"),
            ("header:a b", "`a b` is not a header name"),
            ("json:usage", "`usage` does not start with `/`"),
            ("sse:", "`` does not start with `/`"),
            ("xml:/a", "`xml:/a` is not a place"),
        ] {
            let refused = text.parse::<CostSource>().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_header_field_is_read_if_it_is_an_amount() {
        let source = CostSource::default();
        let cost = |value| source.in_header(&headers(&[("x-ratelimit-cost", value)]));
        for (value, micro) in [
            ("12", Some(12_000_000)),
            (" 12 ", Some(12_000_000)),
            ("1.5", Some(1_500_000)),
            ("0.0000015", None),
            ("-1", None),
            ("", None),
            ("99999999999999999999", Some(i64::MAX)),
        ] {
            assert_eq!(cost(value), micro.map(Amount::from_micro), "{value}");
        }
    }

    #[test]
    fn an_encoded_body_is_not_read() {
        for (encoding, is_read) in [("gzip", false), ("br", false), ("identity", true), ("Identity", true)] {
            let reader = CostSource::OpenAi.reader(&headers(&[("content-encoding", encoding)]));
            assert_eq!(reader.is_some(), is_read, "{encoding}");
        }
    }

    #[test]
    fn answers_of_openai_are_read_in_either_form() {
        let whole = r#"{
            "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT", "object": "chat.completion", "created": 1741569952,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "\"usage\": {\"total_tokens\": 1}"},
                         "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
                      "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}},
            "service_tier": "default"
        }"#;
        assert_eq!(cost("openai", "application/json", whole), Some(Amount::from(29)));
        let streamed = concat!(
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n",
            "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":12,\"total_tokens\":31}}\n\n",
            "data: [DONE]\n\n",
        );
        assert_eq!(cost("openai", "text/event-stream; charset=utf-8", streamed), Some(Amount::from(31)));
        let responses = concat!(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",",
            "\"usage\":{\"input_tokens\":36,\"output_tokens\":87,\"total_tokens\":123}}}\n\n",
        );
        assert_eq!(cost("openai", "text/event-stream", responses), Some(Amount::from(123)));
    }

    #[test]
    fn answers_of_anthropic_are_read_in_either_form() {
        let whole = r#"{
            "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF", "type": "message", "role": "assistant",
            "content": [{"type": "text", "text": "Hi! My name is {\"usage\":{\"input_tokens\":9}}."}],
            "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 2095, "output_tokens": 503}
        }"#;
        assert_eq!(cost("anthropic", "application/json", whole), Some(Amount::from(2598)));
        let streamed = concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],",
            "\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
            "\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
            "\"usage\":{\"output_tokens\":15}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        );
        assert_eq!(
            cost("anthropic", "text/event-stream", streamed),
            Some(Amount::from(40)),
            "counts are cumulative"
        );
    }

    #[test]
    fn tokens_of_a_cache_are_added_and_counted_once_in_a_stream() {
        let usage = r#""usage":{"input_tokens":4,"cache_creation_input_tokens":900,"cache_read_input_tokens":5000,
            "cache_creation":{"ephemeral_5m_input_tokens":900,"ephemeral_1h_input_tokens":0},"output_tokens":"#;
        let whole = format!(r#"{{"type":"message",{usage}96}}}}"#);
        assert_eq!(cost("anthropic", "application/json", &whole), Some(Amount::from(6_000)));
        let usage = usage.replace('\n', " ");
        let start =
            format!("data: {{\"type\":\"message_start\",\"message\":{{\"id\":\"m\",{usage}1}}}}}}\n\n");
        let brief = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":96}}\n\n";
        let full = format!("data: {{\"type\":\"message_delta\",{usage}96}}}}\n\n");
        for end in [brief, &full] {
            let streamed = format!("{start}{end}data: {{\"type\":\"message_stop\"}}\n\n");
            assert_eq!(
                cost("anthropic", "text/event-stream", &streamed),
                Some(Amount::from(6_000)),
                "{streamed}"
            );
        }
    }
}
