//! Writes one record as one line.

use std::io::Write;

use http::Version;

use super::AccessLogFormat;
use super::escape::{write_json, write_quoted, write_word};
use super::record::FinishedRecord;
use super::timestamp::Timestamp;

impl AccessLogFormat {
    /// Appends the line of a record, with its line break.
    pub(super) fn write(self, record: &FinishedRecord, to: &mut Vec<u8>) {
        match self {
            Self::Text => write_text(record, to),
            Self::Json => write_object(record, to),
        }
        to.push(b'\n');
    }
}

/// The names and values of the fields that both formats have besides those of the combined format.
fn fields(record: &FinishedRecord) -> [(&'static str, &[u8]); 7] {
    let FinishedRecord { route, upstream, rule, limit, decision, tenant, .. } = record;
    [
        ("request_id", record.id.as_bytes()),
        ("route", route.as_deref().unwrap_or_default().as_bytes()),
        ("upstream", upstream.as_deref().unwrap_or_default().as_bytes()),
        ("rule", rule.as_deref().unwrap_or_default().as_bytes()),
        ("limit", limit.as_deref().unwrap_or_default().as_bytes()),
        ("decision", decision.unwrap_or_default().as_bytes()),
        ("tenant", tenant.as_deref().unwrap_or_default().as_bytes()),
    ]
}

// Writing to memory does not fail.
fn write_text(record: &FinishedRecord, to: &mut Vec<u8>) {
    let tenant = record.tenant.as_deref().unwrap_or_default();
    let _written = write!(to, "{} - ", record.client);
    write_word(tenant.as_bytes(), to);
    to.extend_from_slice(b" [");
    Timestamp::of(record.at).write_common(to);
    to.extend_from_slice(b"] \"");
    write_word(record.method.as_str().as_bytes(), to);
    to.push(b' ');
    write_word(record.path(), to);
    let _written = write!(to, " {}\" {} {} ", protocol(record.version), record.status, record.bytes);
    for text in [record.referer(), record.user_agent()] {
        write_quoted(if text.is_empty() { b"-" } else { text }, to);
        to.push(b' ');
    }
    let _written = write!(to, "duration_ms={}", Millis(record.duration_us));
    for (name, value) in fields(record) {
        let _written = write!(to, " {name}=");
        write_word(value, to);
    }
    if let Some(cause) = record.cause {
        to.extend_from_slice(b" cause=");
        write_quoted(cause.as_bytes(), to);
    }
}

fn write_object(record: &FinishedRecord, to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"timestamp\":\"");
    Timestamp::of(record.at).write_rfc3339(to);
    let _written = write!(to, "\",\"target\":\"spile::access\",\"client\":\"{}\"", record.client);
    let mut member = |name: &str, value: &[u8]| {
        let _written = write!(to, ",\"{name}\":");
        if value.is_empty() { to.extend_from_slice(b"null") } else { write_json(value, to) }
    };
    member("method", record.method.as_str().as_bytes());
    member("path", record.path());
    member("protocol", protocol(record.version).as_bytes());
    member("referer", record.referer());
    member("user_agent", record.user_agent());
    for (name, value) in fields(record) {
        member(name, value);
    }
    member("cause", record.cause.unwrap_or_default().as_bytes());
    let FinishedRecord { status, bytes, duration_us, .. } = record;
    let _written =
        write!(to, ",\"status\":{status},\"bytes\":{bytes},\"duration_ms\":{}}}", Millis(*duration_us));
}

/// Microseconds, shown as milliseconds.
struct Millis(u64);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: AccessLogFormat, text: &[u8]) -> String {
        let mut line = Vec::new();
        format.write(&FinishedRecord::with_text(text), &mut line);
        String::from_utf8(line).expect("a line is text whatever a client sends")
    }

    #[test]
    fn a_text_line_begins_in_the_combined_format() {
        let line = line(AccessLogFormat::Text, b"a");
        let (start, rest) = line.split_once(" duration_ms=").expect("more follows");
        assert_eq!(start, r#"203.0.113.7 - a [09/Sep/2001:01:46:40 +0000] "GET a HTTP/1.1" 200 512 "a" "a""#);
        assert!(rest.starts_with("1.234 request_id="), "{rest}");
        assert!(rest.ends_with(" route=a upstream=a rule=a limit=a decision=ok tenant=a\n"), "{rest}");
    }

    #[test]
    fn a_json_line_is_one_object_with_numbers_as_numbers() {
        let line = line(AccessLogFormat::Json, b"a");
        let read: serde_json::Value = serde_json::from_str(&line).expect("an object");
        assert_eq!(read["timestamp"], "2001-09-09T01:46:40.000000Z");
        assert_eq!(
            (&read["status"], &read["bytes"], &read["duration_ms"]),
            (&200.into(), &512.into(), &1.234.into())
        );
        assert_eq!((&read["path"], &read["cause"]), (&"a".into(), &serde_json::Value::Null));
    }

    #[test]
    fn whatever_clients_send_a_record_stays_one_line_with_its_own_fields() {
        let forged =
            b"x HTTP/1.1\" 200 1 \"-\" \"-\"\n6.6.6.6 - root [] \"GET /admin\x1b[2J\xff\r\n\",\"status\":200";
        let text = line(AccessLogFormat::Text, forged);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert_eq!(text.matches('"').count(), 6, "the quotes of the three quoted fields: {text}");
        assert!(text.trim_end().bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
        let json = line(AccessLogFormat::Json, forged);
        assert_eq!(json.matches('\n').count(), 1, "{json}");
        assert!(!json.trim_end().contains(char::is_control), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("an object");
        assert_eq!(read["status"], 200);
        assert_eq!(read.as_object().map(serde_json::Map::len), Some(19));
        assert!(
            read["path"].as_str().is_some_and(|path| path.contains("root [] \"GET /admin\u{1b}[2J\\xFF"))
        );
    }
}
