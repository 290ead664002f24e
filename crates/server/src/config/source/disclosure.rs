//! Which parts of a file an error may show.
//!
//! A value is shown if its key is known to hold no secret. All else is hidden, because it may be a secret in the wrong place:
//! a value under a misspelt key, text in the place of a number, a line that could not be parsed.

use std::ops::Range;

use toml::de::{DeString, DeTable, DeValue};

use crate::secret::{is_plain, url_secrets};

/// Keys whose values are names and choices. They are shown as they are.
const NAMES: [&str; 52] = [
    "also",
    "anchor",
    "anonymous_plan",
    "audience",
    "balance",
    "content_type",
    "cost_from_response",
    "credential",
    "domain",
    "entries",
    "error_cost",
    "estimate",
    "events",
    "format",
    "header",
    "headers",
    "hosts",
    "id",
    "issuer",
    "key",
    "level",
    "methods",
    "mode",
    "name",
    "on_failure",
    "only_plans",
    "path",
    "paths",
    "per",
    "plan",
    "plan_claim",
    "plans",
    "prefix",
    "principal_header",
    "protocols",
    "proxy",
    "refill",
    "remove",
    "replaces",
    "retry_on",
    "rewrite_prefix",
    "server_name",
    "shared",
    "strip_prefix",
    "subset",
    "tenant_claim",
    "time",
    "unmatched",
    "unread_cost",
    "upgrade_cost",
    "upgrades",
    "zone",
];
/// Keys whose values may be lists. A list under another key may hold a secret.
const NAME_LISTS: [&str; 17] = [
    "also",
    "audience",
    "entries",
    "events",
    "headers",
    "hosts",
    "key",
    "methods",
    "only_plans",
    "paths",
    "plans",
    "protocols",
    "remove",
    "replaces",
    "retry_on",
    "shared",
    "upgrades",
];
/// Tables that hold secrets, or the places of secrets. The value of an unknown key in them may be one.
const GUARDED: [&str; 6] = ["admin", "jwt", "resp", "store", "tls", "webhooks"];
/// Names and choices in guarded tables.
const GUARDED_NAMES: [&str; 10] = [
    "audience",
    "events",
    "header",
    "issuer",
    "on_failure",
    "plan_claim",
    "prefix",
    "tenant_claim",
    "time",
    "protocols",
];
/// Keys whose values are URLs. They are shown without the parts that may be secret.
const URLS: [&str; 3] = ["url", "upstream", "otlp"];
/// Keys whose values are files. They are shown if they look like a path.
const FILES: [&str; 2] = ["_file", "file"];
/// Tables whose keys are free names and whose values are hidden.
const HEADER_TABLES: [&str; 4] = ["otlp_headers", "otlp_attributes", "set", "add"];
/// Keys of known tables that are not listed elsewhere. Their values are shown if they are plain.
const PLAIN: &str = "access_log adaptive admin allow_private bounds capacity clients concurrency connect_timeout connections \
    cost debt decrease deny_cache drain_timeout enabled fail_closed_retry_after fixed_cost flights floor forbidden forward_auth \
    gateway grpc handshake_timeout header_timeout health_check healthy_after hold http idle_timeout increase interval ipv6_prefix \
    jwt late lease lease_share leeway limited limits listen log match max_body max_connections max_error_rate max_header_bytes \
    max_header_fields max_keys max_streams max_uri_bytes min_requests not_found observe opened otlp_percent per_caller \
    per_upstream query queue quota rate_limit_headers refusals replicas request_headers require_auth resp response_headers \
    retries routes rules sample show_keys status store stream_window target_latency targets tenants timeout tls too_large \
    total_timeout trusted_proxies unauthorized unavailable unhealthy_after upstream_tls wait webhooks window \
    write_timeout";

/// The disclosure of a value by its key.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Disclosure {
    Name,
    Url,
    File,
    Plain,
    /// A table in which only some names are shown.
    Guarded,
    /// Its members have free names.
    Named,
    Headers,
    Nothing,
}

impl Disclosure {
    /// The disclosure of the member `key` of a table. `depth` is that of the table.
    fn of_member(self, key: &str, depth: usize) -> Self {
        match self {
            // None of these is a table, except for header fields.
            Self::Nothing | Self::Headers | Self::Name | Self::Url | Self::File => return Self::Nothing,
            Self::Named => return Self::Plain,
            Self::Plain | Self::Guarded => {}
        }
        let is_name = || NAMES.contains(&key) && (self != Self::Guarded || GUARDED_NAMES.contains(&key));
        let is_plain = || PLAIN.split_whitespace().any(|known| known == key);
        match key {
            // Each plan, and each own limit of a tenant, has a name.
            "plans" if depth == 0 => Self::Named,
            "limits" => Self::Named,
            _ if depth == 0 && key != "unmatched" && key != "otlp" && !is_plain() => Self::Nothing,
            _ if GUARDED.contains(&key) => Self::Guarded,
            _ if is_name() => Self::Name,
            _ if URLS.contains(&key) => Self::Url,
            _ if HEADER_TABLES.contains(&key) => Self::Headers,
            _ if is_plain() => Self::Plain,
            _ if FILES.iter().any(|end| key.ends_with(end)) => Self::File,
            _ => Self::Nothing,
        }
    }

    /// The parts of a text that are hidden.
    fn hidden_in(self, text: &str) -> Vec<Range<usize>> {
        let is_shown = match self {
            Self::Name => true,
            Self::File => {
                is_plain(text) || (text.contains(['/', '.']) && !text.contains([':', '@', '?', '=']))
            }
            Self::Plain | Self::Guarded | Self::Named => is_plain(text),
            Self::Url if is_plain(text) => true,
            Self::Url => return url_secrets(text),
            Self::Headers | Self::Nothing => false,
        };
        if is_shown { Vec::new() } else { std::iter::once(0..text.len()).collect() }
    }
}

/// The parts of the text of a variable that are hidden, if it sets the value at these steps.
pub(super) fn hidden_in_variable(steps: &[String], text: &str) -> Vec<Range<usize>> {
    let mut disclosure = Disclosure::Plain;
    for (depth, step) in steps.iter().enumerate() {
        if !step.bytes().all(|byte| byte.is_ascii_digit()) {
            disclosure = disclosure.of_member(step, depth);
        }
    }
    disclosure.hidden_in(text)
}

/// The parts of a file that are hidden, in order. `broken` are those that could not be parsed.
pub(super) fn hidden(text: &str, table: &DeTable<'_>, broken: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut broken = broken.to_vec();
    broken.sort_by_key(|part| part.start);
    let mut parts = FileParts { text, broken, hidden: Vec::new(), known: Vec::new() };
    parts.table(table, Disclosure::Plain, 0);
    parts.lines();
    let mut hidden = parts.hidden;
    hidden.retain(|part| !part.is_empty());
    hidden.sort_by_key(|part| part.start);
    hidden
}

struct FileParts<'t> {
    text: &'t str,
    broken: Vec<Range<usize>>,
    hidden: Vec<Range<usize>>,
    /// Keys and values that were parsed.
    known: Vec<Range<usize>>,
}

impl FileParts<'_> {
    fn table(&mut self, table: &DeTable<'_>, disclosure: Disclosure, depth: usize) {
        for (key, value) in table {
            self.known.push(key.span());
            if disclosure == Disclosure::Nothing {
                self.hide(key.span());
            }
            self.value(key, value, disclosure.of_member(key.get_ref(), depth), depth);
        }
    }

    fn value(
        &mut self,
        key: &toml::Spanned<DeString<'_>>,
        value: &toml::Spanned<DeValue<'_>>,
        disclosure: Disclosure,
        depth: usize,
    ) {
        let is_value = !matches!(value.get_ref(), DeValue::Table(_));
        let disclosure =
            if is_value && self.is_broken(&value.span()) { Disclosure::Nothing } else { disclosure };
        match value.get_ref() {
            DeValue::Table(members) => self.table(members, disclosure, depth + 1),
            DeValue::Array(items) => {
                let disclosure = match disclosure {
                    Disclosure::Named => Disclosure::Plain,
                    Disclosure::Name if !NAME_LISTS.contains(&&**key.get_ref()) => Disclosure::Nothing,
                    other => other,
                };
                for item in items {
                    let is_list = matches!(item.get_ref(), DeValue::Array(_));
                    self.value(key, item, if is_list { Disclosure::Nothing } else { disclosure }, depth);
                }
            }
            DeValue::Boolean(_) => self.known.push(value.span()),
            _ => {
                let span = value.span();
                self.known.push(span.clone());
                let inner = self.without_quotes(span);
                let hidden = disclosure.hidden_in(&self.text[inner.clone()]);
                for part in hidden {
                    self.hide(inner.start + part.start..inner.start + part.end);
                }
            }
        }
    }

    /// Whether a part, or what is next to it, could not be parsed.
    fn is_broken(&self, part: &Range<usize>) -> bool {
        let first = self.broken.partition_point(|broken| broken.end < part.start);
        self.broken.get(first).is_some_and(|broken| broken.start <= part.end)
    }

    fn without_quotes(&self, span: Range<usize>) -> Range<usize> {
        let text = self.text.get(span.clone()).unwrap_or_default();
        let quotes = match text.as_bytes() {
            [b'"', b'"', b'"', .., b'"', b'"', b'"'] | [b'\'', b'\'', b'\'', .., b'\'', b'\'', b'\''] => 3,
            [b'"', .., b'"'] | [b'\'', .., b'\''] => 1,
            _ => 0,
        };
        span.start + quotes..(span.end - quotes).max(span.start + quotes)
    }

    /// Hides a part on each of its lines, so that lines keep their numbers.
    fn hide(&mut self, part: Range<usize>) {
        let mut at = part.start;
        for line in self.text.get(part).unwrap_or_default().split_inclusive('\n') {
            let shown = line.trim();
            let start = at + (line.len() - line.trim_start().len());
            self.hidden.push(start..start + shown.len());
            at += line.len();
        }
    }

    /// Hides comments, and all that was not parsed.
    fn lines(&mut self) {
        self.known.sort_by_key(|part| part.start);
        let (text, mut at, mut next) = (self.text, 0, 0);
        let known = std::mem::take(&mut self.known);
        for line in text.split_inclusive('\n') {
            let (start, end) = (at, at + line.trim_end().len());
            at += line.len();
            while known.get(next).is_some_and(|part| part.end <= start) {
                next += 1;
            }
            let parsed = known[next..].iter().take_while(|part| part.start < end);
            let is_broken = self.is_broken(&(start..at));
            let (mut gap, mut comment, mut is_clear) = (start, None, !is_broken);
            for part in parsed {
                if part.start > gap {
                    let between = &text[gap..part.start];
                    is_clear &= is_punctuation(between) || (gap == start && is_way(between));
                }
                gap = gap.max(part.end);
            }
            if gap < end {
                let rest = &text[gap..end];
                comment = rest.find('#').map(|sign| gap + sign + 1);
                is_clear &= is_punctuation(rest.split('#').next().unwrap_or_default());
            }
            // For several tables with the same first keys, the parser reports the position of the first.
            let is_header = !is_broken && line.trim_start().starts_with('[') && is_known_header(line);
            if !is_clear && !is_header {
                self.hide(start + shown_of_broken(&text[start..end])..end);
            } else if let Some(comment) = comment {
                self.hide(comment..end);
            }
        }
    }
}

fn is_punctuation(text: &str) -> bool {
    text.chars().all(|letter| letter.is_whitespace() || "=[]{},.\"'".contains(letter))
}

/// True for the beginning of a dotted key: `observe.`
fn is_way(text: &str) -> bool {
    let is_bare = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    text.trim().strip_suffix('.').is_some_and(|way| way.split('.').all(|part| is_bare(part.trim())))
}

/// True for the header of a known table.
fn is_known_header(line: &str) -> bool {
    let header = line.trim().trim_start_matches('[');
    let table = header.split(['.', ']']).next().unwrap_or_default().trim();
    Disclosure::Plain.of_member(table, 0) != Disclosure::Nothing
}

/// How much of a line that could not be parsed is shown: a known key before its `=`, or the header of a known table.
fn shown_of_broken(line: &str) -> usize {
    let is_known =
        |key: &str| Disclosure::Plain.of_member(key, 1) != Disclosure::Nothing || is_secret_key(key);
    let key = line.split('=').next().unwrap_or_default();
    if line.contains('=') && is_known(key.trim()) {
        return key.len() + 1;
    }
    let is_plain = line.bytes().all(|byte| byte.is_ascii_lowercase() || b"_-.[] \t".contains(&byte));
    if line.trim_start().starts_with('[') && is_plain && is_known_header(line) { line.len() } else { 0 }
}

/// True for a key whose value is a secret.
fn is_secret_key(key: &str) -> bool {
    ["token", "password", "secret", "api_keys"].contains(&key)
}
