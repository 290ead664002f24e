//! Hides secrets in text that people may read: errors, logs, events, and the lines of a file that an error shows.
//!
//! The text may be wrong in any way, so nothing here parses it. Where it is unclear how far a secret goes, more is hidden.

use std::ops::Range;

/// Replaces every secret, regardless of its length.
pub(super) const MASK: &str = "***";

/// Suffixes of the names of settings whose values are secrets, in lowercase and without `_` and `-`.
const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "pw",
    "secret",
    "token",
    "apikey",
    "apikeys",
    "authorization",
    "cookie",
    "credentials",
    "privatekey",
];

/// The table whose values are all secrets.
const TABLE: &str = "otlp_headers";

/// The text without its secrets: passwords in URLs, and the values of settings that are named like secrets.
pub fn mask(text: &str) -> String {
    Masked::new(text).text
}

/// A text without its secrets that knows where everything was before.
pub(crate) struct Masked {
    pub(crate) text: String,
    /// The secrets, as they were in the original.
    secrets: Vec<Range<usize>>,
}

impl Masked {
    pub(crate) fn new(text: &str) -> Self {
        Self::hiding(text, Vec::new())
    }

    /// Masks the text, and these parts too, none of which crosses the end of a line.
    pub(crate) fn hiding(text: &str, parts: Vec<Range<usize>>) -> Self {
        let secrets = secrets(text, parts);
        let (mut masked, mut at) = (String::with_capacity(text.len()), 0);
        for secret in &secrets {
            masked.push_str(&text[at..secret.start]);
            masked.push_str(MASK);
            at = secret.end;
        }
        masked.push_str(&text[at..]);
        Self { text: masked, secrets }
    }

    /// Where a part of the original is now. A part of a secret is all of its mask.
    pub(crate) fn span(&self, original: &Range<usize>) -> Range<usize> {
        let start = self.moved(original.start, 0);
        start..self.moved(original.end, MASK.len()).max(start)
    }

    /// Where a position of the original is now: `within` from the beginning of the mask for one inside a secret.
    fn moved(&self, at: usize, within: usize) -> usize {
        let (mut gone, mut added) = (0, 0);
        for secret in self.secrets.iter().take_while(|secret| secret.start < at) {
            if at < secret.end {
                return secret.start - gone + added + within;
            }
            gone += secret.len();
            added += MASK.len();
        }
        at - gone + added
    }
}

/// The secrets' positions, in order. None crosses the end of a line.
fn secrets(text: &str, mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        find_in_urls(line, |secret| found.push(secret.start + at..secret.end + at));
        at += line.len();
    }
    find_by_name(text, |secret| found.push(secret));
    find_in_tables(text, |secret| found.push(secret));
    found.retain(|secret| !secret.is_empty());
    found.sort_by_key(|secret| secret.start);
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for secret in found {
        match apart.last_mut() {
            Some(last) if secret.start < last.end => last.end = last.end.max(secret.end),
            _ => apart.push(secret),
        }
    }
    apart
}

/// Finds users and passwords in everything that looks like a URL, on one line.
fn find_in_urls(line: &str, mut found: impl FnMut(Range<usize>)) {
    if !line.contains(['@', ':']) {
        return;
    }
    let mut part = |range: Range<usize>, is_url| {
        if let Some(secret) = user_info(&line[range.clone()], is_url) {
            found(range.start + secret.start..range.start + secret.end);
        }
    };
    if let Some(strings) = strings(line) {
        for string in strings {
            let named_as_url = is_url(&line[..string.start]);
            part(string, named_as_url);
        }
        return;
    }
    // Quotes that do not pair up may be part of a password, and so may blanks.
    let assigned = line.match_indices(['=', ':']).map(|(at, _)| at + 1).find(|&at| is_url(&line[..at]));
    let slashes = line.rfind('@').and_then(|at| line[..at].find("//"));
    match (assigned, slashes) {
        (Some(start), _) => part(start..line.trim_end().len(), true),
        (None, Some(_)) => part(0..line.trim_end().len(), false),
        (None, None) => words(line).for_each(|word| part(word, false)),
    }
}

/// The user and password in what may be a URL; `is_url` if nothing else belongs there.
fn user_info(text: &str, is_url: bool) -> Option<Range<usize>> {
    let slashes = text.find("//").map(|at| at + 2);
    let colon = text.find(':').map(|at| at + 1);
    let start = slashes.or(colon).or(is_url.then_some(0));
    if let Some(at) = text.rfind('@')
        && let Some(start) = start.filter(|&start| start <= at)
    {
        return Some(start..at);
    }
    // Without an `@` there is no host, or no password: ports are numbers, so the text after a colon decides.
    let start = slashes.or(colon.filter(|_| is_url))?;
    let hosts = &text[start..];
    let hosts = &hosts[..hosts.find(['/', '?', '#']).unwrap_or(hosts.len())];
    let mut host_at = start;
    for host in hosts.split(',') {
        let skipped = host.rfind(']').map_or(0, |end| end + 1);
        if let Some((name, port)) = host[skipped..].split_once(':') {
            let is_port = skipped + name.len() > 0 && port.bytes().all(|byte| byte.is_ascii_digit());
            // Advice on the syntax is not a secret.
            let is_advice = (name, port) == ("HOST", "PORT");
            if !is_port && !is_advice {
                return Some(host_at + skipped + name.len() + 1..text.len());
            }
        }
        host_at += host.len() + 1;
    }
    None
}

/// True if the text before a value marks it as a URL: `url = "`, `"url": "`.
fn is_url(before: &str) -> bool {
    let before = before.trim_end_matches(['"', '\'', ' ', '\t']).to_ascii_lowercase();
    let name = before.strip_suffix('=').map(|name| name.trim_end().trim_end_matches(['"', '\'']));
    name.is_some_and(|name| name.ends_with("url")) || before.ends_with("url\":")
}

/// The quoted parts of a line, if every quote has its partner and the rest is not a secret.
fn strings(line: &str) -> Option<Vec<Range<usize>>> {
    let (mut strings, mut at) = (Vec::new(), 0);
    while let Some(open) = line[at..].find(['"', '\'', '#']).map(|found| at + found) {
        let between = &line[at..open];
        let between = if at == 0 { between } else { between.strip_prefix(':').unwrap_or(between) };
        if !between.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.,=[]{} \t".contains(letter)) {
            return None;
        }
        if line[open..].starts_with('#') {
            break;
        }
        if line[open..].starts_with("\"\"\"") || line[open..].starts_with("'''") {
            return None;
        }
        let close = closing_quote(line, open)?;
        strings.push(open + 1..close);
        at = close + 1;
    }
    // An `@` in a string after a URL may be the URL's own, after a password with quotes in it.
    let mut texts =
        strings.iter().skip_while(|text| !line[text.start..text.end].contains([':', '@'])).skip(1);
    let is_clear = texts.all(|text| !line[text.start..text.end].contains('@'));
    (is_clear && !strings.is_empty() && !line[at..].contains(['@', ':'])).then_some(strings)
}

/// Where the string that opens here ends: at a quote that something follows which may follow a value or a key.
fn closing_quote(line: &str, open: usize) -> Option<usize> {
    let quote = line.as_bytes()[open];
    let mut escaped = false;
    for (at, byte) in line.bytes().enumerate().skip(open + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quote == b'"' => escaped = true,
            byte if byte == quote => {
                let follows = line[at + 1..].trim_start().bytes().next();
                return follows.is_none_or(|next| b",]}#=.:".contains(&next)).then_some(at);
            }
            _ => {}
        }
    }
    None
}

fn words(line: &str) -> impl Iterator<Item = Range<usize>> {
    let words = line.split(|letter: char| letter.is_whitespace() || "`\"'(){}<>".contains(letter));
    words.map(|word| {
        let word = word.trim_end_matches([':', ';', ',', '.', '?', '!']);
        let start = word.as_ptr() as usize - line.as_ptr() as usize;
        start..start + word.len()
    })
}

/// Finds the values of settings that are named like secrets.
fn find_by_name(text: &str, mut found: impl FnMut(Range<usize>)) {
    let mut at = 0;
    while let Some(sign) = text[at..].find(['=', ':']).map(|sign| at + sign) {
        at = sign + 1;
        if !names_secret(&text[..sign], text.as_bytes()[sign]) {
            continue;
        }
        let value = value(text, sign + 1);
        at = value.end;
        for piece in text[value].split([',', '\n']) {
            let piece = piece.trim_matches(|letter: char| letter.is_whitespace() || "\"'[]".contains(letter));
            let start = piece.as_ptr() as usize - text.as_ptr() as usize;
            found(start..start + piece.len());
        }
    }
}

/// Finds the values in tables of secrets by any name: `otlp_headers = { … }` and `[observe.otlp_headers]`.
fn find_in_tables(text: &str, mut found: impl FnMut(Range<usize>)) {
    if !text.contains(TABLE) {
        return;
    }
    // Within the section, or within braces that an earlier line has opened.
    let (mut at, mut in_section, mut in_braces) = (0, false, false);
    for line in text.split_inclusive('\n') {
        let mut ends = line.match_indices(TABLE).map(|(name, _)| name + TABLE.len());
        let named = ends.find(|end| !line[*end..].starts_with('_'));
        if line.trim_start().starts_with('[') {
            (in_section, in_braces) = (named.is_some(), false);
        } else if let Some(start) = named.or((in_section || in_braces).then_some(0)) {
            let sign = line[start..].find('=').map(|sign| start + sign + 1);
            if let Some(start) = sign.or(named.is_none().then_some(0)) {
                let value = &line[start..];
                in_braces = !value.contains('}') && (in_braces || value.contains('{'));
                values(value, |secret| found(at + start + secret.start..at + start + secret.end));
            }
        }
        at += line.len();
    }
}

/// The texts of `{ name = "text", … }` or of one value. All of it if it is not clear which these are.
fn values(assigned: &str, mut found: impl FnMut(Range<usize>)) {
    let (mut at, mut texts) = (0, Vec::new());
    let is_plain =
        |between: &str| between.chars().all(|c| c.is_ascii_alphanumeric() || "_-.,={} \t".contains(c));
    while let Some(open) = assigned[at..].find(['"', '\'']).map(|open| at + open) {
        let between = &assigned[at..open];
        let Some(close) = closing_quote(assigned, open).filter(|_| is_plain(between)) else { break };
        // A name follows an opening brace or a comma.
        if between.trim_end().ends_with('=') || (at == 0 && between.trim().is_empty()) {
            texts.push(open + 1..close);
        }
        at = close + 1;
    }
    let rest = assigned[at..].trim_matches(['{', '}', ',', ' ', '\t', '\n']);
    if rest.is_empty() || rest.starts_with('#') {
        return texts.into_iter().for_each(found);
    }
    let value = assigned.trim();
    let start = value.as_ptr() as usize - assigned.as_ptr() as usize;
    found(start..start + value.len());
}

/// Whether the name that `before` ends with is one of a secret. A colon follows names in JSON and of headers; in a
/// sentence it says nothing.
fn names_secret(before: &str, sign: u8) -> bool {
    let trimmed = before.trim_end_matches([' ', '\t']);
    let unquoted = trimmed.strip_suffix(['"', '\'']).unwrap_or(trimmed);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let name = &unquoted[unquoted.trim_end_matches(is_name).len()..];
    let plain: String = name.to_ascii_lowercase().replace(['_', '-'], "");
    let is_secret = SECRETS.iter().any(|secret| plain.ends_with(secret)) && !plain.starts_with("require");
    is_secret && (sign == b'=' || unquoted.len() < trimmed.len() || plain == "authorization")
}

/// The value that begins here: a list, a text over one or several lines, or a word.
fn value(text: &str, start: usize) -> Range<usize> {
    let start = text.len() - text[start..].trim_start_matches([' ', '\t']).len();
    let (rest, line_end) = (&text[start..], text[start..].find('\n').map_or(text.len(), |end| start + end));
    let ends = |length: Option<usize>| length.map_or(line_end, |length| start + length);
    match rest.bytes().next() {
        Some(b'[') => start..list_end(text, start),
        Some(b'"' | b'\'') if rest.starts_with("\"\"\"") || rest.starts_with("'''") => {
            start..rest[3..].find(&rest[..3]).map_or(text.len(), |length| start + 3 + length)
        }
        Some(b'"' | b'\'') => start..closing_quote(&text[..line_end], start).unwrap_or(line_end),
        _ if rest.starts_with("true") || rest.starts_with("false") => start..start,
        // Part of a URL or of a sentence; or a setting without its quotes, which has the line for itself.
        _ if text[..start].trim_end().ends_with('=') && !text[..start].ends_with('=') => start..line_end,
        _ if text[..start].ends_with(':') || text[..start].ends_with(": ") => start..line_end,
        _ => start..ends(rest.find(|letter: char| letter.is_whitespace() || "&\"'`,".contains(letter))),
    }
}

/// Where the list that begins here ends. One that is never closed ends before the next setting or table.
fn list_end(text: &str, start: usize) -> usize {
    let (mut at, mut quote) = (start, None);
    for line in text[start..].split_inclusive('\n') {
        let begins = line.trim_start();
        let name = begins.split('=').next().unwrap_or_default().trim_end();
        let is_setting = begins.contains('=') && !name.is_empty() && !name.contains(['"', '\'', ',']);
        if at > start && (begins.starts_with('[') || is_setting) {
            return at;
        }
        for (inside, letter) in line.char_indices() {
            match (quote, letter) {
                (None, ']') => return at + inside,
                (None, '"' | '\'') => quote = Some(letter),
                (Some(open), letter) if open == letter => quote = None,
                _ => {}
            }
        }
        quote = None;
        at += line.len();
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_hidden_and_all_else_stays() {
        for (text, masked) in [
            ("write http://HOST:PORT, or", "write http://HOST:PORT, or"),
            ("url = \"reds://:hunter2@h:6379/1\"", "url = \"reds://***@h:6379/1\""),
            ("url = 'user:hunter2@h'", "url = 'user:***@h'"),
            ("url = \"hunter2@h\"", "url = \"***@h\""),
            ("url = \"redis://:hunter2\"", "url = \"redis://:***\""),
            ("url = \"redis://user:hunter2@\"", "url = \"redis://***@\""),
            ("url = redis://:hunter 2@h", "url = redis://***@h"),
            ("url = \"redis://:hunter\"2@h\"", "url = \"redis://***@h\""),
            ("`redis:/:hunter2@h` is no store; a store", "`redis:***@h` is no store; a store"),
            ("url = \"redis://h?password=hunter2&db=1\"", "url = \"redis://h?password=***&db=1\""),
            (
                "{ url = \"redis://u:hunter2@h\", prefix = \"a:b\" }",
                "{ url = \"redis://***@h\", prefix = \"a:b\" }",
            ),
            ("token = \"hunter2\" # mine", "token = \"***\" # mine"),
            ("set = { Authorization = \"Bearer hunter2\" }", "set = { Authorization = \"***\" }"),
            ("\"x-api-key\" = 'hunter2'", "\"x-api-key\" = '***'"),
            ("api_keys = [\"hunter2\", \"hunter3\"]", "api_keys = [\"***\", \"***\"]"),
            (
                "api_keys = [\n  \"hunter2\",\n  'hunter3'\n]\nid = \"a\"",
                "api_keys = [\n  \"***\",\n  '***'\n]\nid = \"a\"",
            ),
            ("api_keys = [\"hunter2\nid = \"a\"", "api_keys = [\"***\nid = \"a\""),
            ("password = \"\"\"hunter\n  hunter\"\"\"\nid = 1", "password = \"\"\"***\n  ***\"\"\"\nid = 1"),
            ("{\"apiKeys\": [\"hunter2\"], \"plan\": \"a\"}", "{\"apiKeys\": [\"***\"], \"plan\": \"a\"}"),
            ("Authorization: Bearer hunter2", "Authorization: ***"),
            (
                "otlp_headers = { x-team = \"hunter2\", 'x b'='hunter3' } # mine",
                "otlp_headers = { x-team = \"***\", 'x b'='***' } # mine",
            ),
            ("otlp_headers.x-team = \"hunter2\"", "otlp_headers.x-team = \"***\""),
            ("otlp_headers = x-team=hunter2", "otlp_headers = ***"),
            ("otlp_headers = { x-team = hunter2 }", "otlp_headers = ***"),
            ("otlp_headers = { x-team = \"hunter2\"hunter3\" }", "otlp_headers = ***"),
            (
                "otlp_headers = {\n  x-team = \"hunter2\",\n  hunter3\n}\notlp = \"a\"",
                "otlp_headers = {\n  x-team = \"***\",\n  ***\n}\notlp = \"a\"",
            ),
            (
                "[observe.otlp_headers]\nx-team = \"hunter2\"\nx = hunter3\n[log]\nlevel = \"info\"",
                "[observe.otlp_headers]\nx-team = \"***\"\nx = ***\n[log]\nlevel = \"info\"",
            ),
        ] {
            assert_eq!(mask(text), masked);
        }
    }

    #[test]
    fn text_without_secrets_stays_as_it_is() {
        for text in [
            "url = \"redis://127.0.0.1:6379\"",
            "url = \"redis-cluster://a:1,b:2,[::1]:3/0\"",
            "url = \"memory:\"",
            "upstream = [\"http://127.0.0.1:9000\", \"https://b.example:443/a:b\"]",
            "tenant `alice@example.com` is on a plan that is not there",
            "token_file = \"admin.token\"",
            "otlp_headers_file = \"otlp-headers\"",
            "it takes otlp, otlp_headers, otlp_headers_file, otlp_attributes",
            "the token cannot be read: permission denied",
            "require_api_key = true",
            "key = [\"tenant\", \"header:x-api-key\", \"ip\"]",
            "no server answers at http://127.0.0.1:8080: is it running?",
            "spile.toml:3:8: capacity 0 is outside 1 to 10; add `secret_file = …`",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn no_password_of_a_url_is_shown_however_it_is_written(
            scheme in prop::sample::select(&["redis", "reds", "rediss+x", "Redis", "redis-cluster", "http", ""][..]),
            slashes in prop::sample::select(&["://", ":/", "//", ":", "::/", ":\\\\"][..]),
            user in prop::sample::select(&["", "user", "a.b", "ü"][..]),
            password in "[a-zA-Z0-9/?#,;:@%&=+ü☃\\[\\]{} '\"`\\\\-]{0,12}Z[a-z]{4}",
            host in prop::sample::select(&["", "h", "h:6379/1", "[::1]:1", "a:1,b:2"][..]),
            (open, close) in prop::sample::select(
                &[("\"", "\""), ("'", "'"), ("", ""), ("\"", ""), ("", "'"), ("\"\"\"", "\"\"\""), ("`", "`")][..],
            ),
            before in prop::sample::select(&["url = ", "  url=", "{ url = ", "store.url = ", "\"url\": "][..]),
        ) {
            let line = format!("{before}{open}{scheme}{slashes}{user}:{password}@{host}{close}");
            let masked = mask(&line);
            prop_assert!(!masked.contains(&password[password.len() - 5..]), "{line} -> {masked}");
            prop_assert_eq!(mask(&masked), masked);
        }

        #[test]
        fn every_position_outside_of_secrets_is_found_again(
            before in "[a-z =\"\n☃]{0,9}", after in "[a-z \"\n☃]{0,9}",
        ) {
            let text = format!("{before}\nurl = \"reds://u:hunter2@h\" \n{after}");
            let masked = Masked::new(&text);
            let url = text.find("\"reds").expect("it is there");
            let host = text.find("@h\"").expect("it is there");
            let span = masked.span(&(url..host + 3));
            prop_assert_eq!(&masked.text[span], "\"reds://***@h\"");
            let secret = text.find("hunter").expect("it is there");
            let span = masked.span(&(secret + 1..secret + 3));
            prop_assert_eq!(&masked.text[span], "***");
            prop_assert_eq!(&masked.text[masked.span(&(text.len()..text.len()))], "");
        }
    }
}
