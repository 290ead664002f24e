//! JSON lines: nginx's with names of the operator's choice, Caddy's, Envoy's, Traefik's.

use std::borrow::Cow;
use std::fmt;

use clap::ValueEnum;
use foldhash::{HashMap, HashSet};
use http::{HeaderMap, HeaderName};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smol_str::SmolStr;

use super::{
    LineError, LogRecord, LogTime, LoggedRequest, MalformedRequest, add_header, address, host, present,
};

/// A fact that a JSON line has in one of its fields.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub(crate) enum LogField {
    /// When the request came.
    Time,
    /// The address that it came from.
    Address,
    /// The method.
    Method,
    /// The path, or a whole URL.
    Uri,
    /// The request line, in place of method and path.
    Request,
    /// The requested host.
    Host,
    /// The user that was authenticated.
    User,
    /// The tenant's id.
    Tenant,
}

const FIELDS: [LogField; 8] = [
    LogField::Time,
    LogField::Address,
    LogField::Method,
    LogField::Uri,
    LogField::Request,
    LogField::Host,
    LogField::User,
    LogField::Tenant,
];

impl LogField {
    /// The name on the command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Address => "address",
            Self::Method => "method",
            Self::Uri => "uri",
            Self::Request => "request",
            Self::Host => "host",
            Self::User => "user",
            Self::Tenant => "tenant",
        }
    }

    /// The names that servers and their operators usually give it, the best one first. A dot leads into an object.
    const fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Time => &[
                "time",
                "ts",
                "timestamp",
                "@timestamp",
                "msec",
                "time_iso8601",
                "time_local",
                "start_time",
                "StartUTC",
                "datetime",
            ],
            Self::Address => &[
                "remote_addr",
                "request.client_ip",
                "request.remote_ip",
                "client_ip",
                "remote_ip",
                "downstream_remote_address",
                "ClientHost",
                "client",
                "ip",
            ],
            Self::Method => &["method", "request_method", "request.method", "RequestMethod", "http_method"],
            Self::Uri => {
                &["request_uri", "uri", "request.uri", "path", "RequestPath", "x_envoy_original_path", "url"]
            }
            Self::Request => &["request", "request_line"],
            Self::Host => &[
                "host",
                "http_host",
                "request.host",
                "authority",
                ":authority",
                "RequestHost",
                "server_name",
            ],
            Self::User => &["remote_user", "user_id", "user", "ClientUsername"],
            // No server logs tenants by default: `--field tenant=NAME` sets the field.
            Self::Tenant => &[],
        }
    }
}

/// Where a value of a line goes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum FieldSlot {
    Fact(LogField),
    Header(HeaderName),
}

/// The fields of a JSON line that hold the facts.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonFields {
    /// The names that were given for facts, in place of the usual ones.
    facts: Vec<(LogField, String)>,
    /// The fields that hold headers.
    headers: Vec<(HeaderName, String)>,
    /// Each full name, where its value goes, and its rank among the names for the same thing.
    slots: HashMap<String, Vec<(FieldSlot, usize)>>,
    /// The full names of objects that have to be searched.
    objects: HashSet<String>,
}

impl JsonFields {
    /// Fields of these names, in place of the usual ones. A dot leads into an object.
    pub(crate) fn new(facts: Vec<(LogField, String)>, headers: Vec<(HeaderName, String)>) -> Self {
        Self { facts, headers, ..Self::default() }
    }

    /// Looks for these headers too, under the names that nginx and Caddy have for them.
    pub(super) fn for_headers(mut self, wanted: &[HeaderName]) -> Self {
        for field in FIELDS {
            let given: Vec<String> =
                self.facts.iter().filter(|(own, _)| *own == field).map(|(_, name)| name.clone()).collect();
            let usual = || field.usual().iter().map(|name| (*name).to_owned()).collect();
            let names = if given.is_empty() { usual() } else { given };
            self.expect(&FieldSlot::Fact(field), names);
        }
        for name in wanted {
            let given: Vec<String> =
                self.headers.iter().filter(|(own, _)| own == name).map(|(_, field)| field.clone()).collect();
            let usual = || {
                let nginx = format!("http_{}", name.as_str().replace('-', "_"));
                vec![
                    nginx,
                    format!("request.headers.{}", capitalized(name)),
                    format!("request.headers.{name}"),
                ]
            };
            let names = if given.is_empty() { usual() } else { given };
            self.expect(&FieldSlot::Header(name.clone()), names);
        }
        self
    }

    fn expect(&mut self, slot: &FieldSlot, names: Vec<String>) {
        for (rank, name) in names.into_iter().enumerate() {
            for (dot, _) in name.match_indices('.') {
                self.objects.insert(name[..dot].to_owned());
            }
            self.slots.entry(name).or_default().push((slot.clone(), rank));
        }
    }

    pub(super) fn parse(&self, line: &[u8]) -> Result<LogRecord, LineError> {
        let mut found = FoundFields::default();
        let mut json = serde_json::Deserializer::from_slice(line);
        let walk = ObjectWalk { fields: self, found: &mut found, path: String::new() };
        // The text after the object is ignored.
        walk.deserialize(&mut json).map_err(|why| LineError::NotJson(category(&why)))?;
        self.record(&found)
    }

    fn record(&self, found: &FoundFields<'_>) -> Result<LogRecord, LineError> {
        let time = found.fact(LogField::Time).ok_or(LineError::NoField("time"))?;
        let time = time.time().ok_or_else(|| self.bad(LogField::Time, "a time"))?;
        let text = |field| found.fact(field).map(JsonScalar::text);
        let peer = match text(LogField::Address).as_deref().and_then(present) {
            None => None,
            Some(text) => Some(address(text).ok_or_else(|| self.bad(LogField::Address, "an address"))?),
        };
        let host = text(LogField::Host).as_deref().and_then(present).map(host).unwrap_or_default();
        let named = |field| text(field).as_deref().and_then(present).map(SmolStr::new);
        let mut headers = HeaderMap::new();
        for (name, _, value) in &found.headers {
            add_header(&mut headers, name, value.text().as_bytes());
        }
        Ok(LogRecord {
            time,
            peer,
            request: request(found)?,
            host,
            user: named(LogField::User),
            tenant: named(LogField::Tenant),
            headers,
        })
    }

    fn bad(&self, field: LogField, what: &'static str) -> LineError {
        let given = self.facts.iter().find(|(own, _)| *own == field).map(|(_, name)| name.clone());
        LineError::BadField { name: given.unwrap_or_else(|| field.name().to_owned()), what }
    }
}

/// The request, by method and path or by its line.
fn request(found: &FoundFields<'_>) -> Result<Result<LoggedRequest, MalformedRequest>, LineError> {
    let text = |field| found.fact(field).map(JsonScalar::text);
    match (text(LogField::Method), text(LogField::Uri), text(LogField::Request)) {
        (Some(method), Some(uri), None) => Ok(LoggedRequest::new(method.as_bytes(), uri.as_bytes())),
        // A path may be rewritten by the time that it is logged; the request line never is.
        (_, _, Some(line)) => Ok(LoggedRequest::parse(line.as_bytes())),
        (None, Some(_), None) => Err(LineError::NoField("method")),
        (_, None, None) => Err(LineError::NoField("uri")),
    }
}

/// `x-api-key` as Caddy writes it: `X-Api-Key`.
fn capitalized(name: &HeaderName) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.as_str().split('-').map(capital).collect::<Vec<_>>().join("-")
}

/// The kind of fault and its place. The text of serde's error may show a value.
fn category(why: &serde_json::Error) -> String {
    let kind = match why.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        _ => "it is malformed",
    };
    format!("{kind} at column {}", why.column())
}

/// A value that is not an object.
#[derive(Clone, Debug)]
enum JsonScalar<'l> {
    Text(Cow<'l, str>),
    Number(f64),
    Integer(u64),
}

impl JsonScalar<'_> {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Integer(number) => Cow::Owned(number.to_string()),
        }
    }

    fn time(&self) -> Option<LogTime> {
        match self {
            Self::Text(text) => LogTime::parse(text.as_bytes()),
            // A number with a fraction of zero differs from a whole one by its type.
            Self::Number(number) => {
                LogTime::since_epoch(*number).map(|time| LogTime { whole_seconds: false, ..time })
            }
            Self::Integer(number) => LogTime::since_epoch(*number as f64),
        }
    }
}

/// The values that were found in a line, each with the rank of its name.
#[derive(Debug, Default)]
struct FoundFields<'l> {
    facts: [Option<(usize, JsonScalar<'l>)>; FIELDS.len()],
    headers: Vec<(HeaderName, usize, JsonScalar<'l>)>,
}

impl<'l> FoundFields<'l> {
    fn fact(&self, field: LogField) -> Option<&JsonScalar<'l>> {
        self.facts[field as usize].as_ref().map(|(_, value)| value)
    }

    /// Stores the values in each slot of the field. Of two names for the same slot, the better one wins.
    fn put(&mut self, slots: &[(FieldSlot, usize)], values: &[JsonScalar<'l>]) {
        let Some(first) = values.first() else { return };
        for (slot, rank) in slots {
            match slot {
                FieldSlot::Fact(field) => {
                    let kept = &mut self.facts[*field as usize];
                    if kept.as_ref().is_none_or(|(own, _)| rank < own) {
                        *kept = Some((*rank, first.clone()));
                    }
                }
                FieldSlot::Header(name) => self.put_header(name, *rank, values),
            }
        }
    }

    fn put_header(&mut self, name: &HeaderName, rank: usize, values: &[JsonScalar<'l>]) {
        let is_better = |(own, other, _): &(HeaderName, usize, JsonScalar<'l>)| own == name && *other <= rank;
        if !self.headers.iter().any(is_better) {
            self.headers.retain(|(own, _, _)| own != name);
            self.headers.extend(values.iter().map(|value| (name.clone(), rank, value.clone())));
        }
    }
}

/// Walks through an object and keeps the wanted values. Everything else is skipped without being built.
struct ObjectWalk<'w, 'l> {
    fields: &'w JsonFields,
    found: &'w mut FoundFields<'l>,
    /// The full name of the object, with a dot at the end.
    path: String,
}

impl<'l> DeserializeSeed<'l> for ObjectWalk<'_, 'l> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'l>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for ObjectWalk<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'l>>(mut self, mut map: M) -> Result<(), M::Error> {
        let start = self.path.len();
        while let Some(key) = map.next_key::<MemberName<'l>>()? {
            self.path.truncate(start);
            self.path.push_str(&key.0);
            let slots = self.fields.slots.get(self.path.as_str()).map(Vec::as_slice);
            if self.fields.objects.contains(self.path.as_str()) {
                let (fields, path) = (self.fields, format!("{}.", self.path));
                let inner = ObjectWalk { fields, found: &mut *self.found, path };
                let values = map.next_value_seed(ScalarsOrObject(inner))?;
                self.found.put(slots.unwrap_or_default(), &values);
            } else if let Some(slots) = slots {
                let values = map.next_value_seed(Scalars)?;
                self.found.put(slots, &values);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The name of a member.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct MemberName<'l>(#[serde(borrow)] Cow<'l, str>);

/// The values of a field: none for `null` and objects, several for a list.
struct Scalars;

/// Scalars, or an object to walk through: `request` is a line in one log and an object in another.
struct ScalarsOrObject<'w, 'l>(ObjectWalk<'w, 'l>);

/// Implements the common methods of visitors of scalars.
macro_rules! scalars {
    () => {
        type Value = Vec<JsonScalar<'l>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Self::Value, E> {
            Ok(vec![JsonScalar::Text(Cow::Borrowed(text))])
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![JsonScalar::Text(Cow::Owned(text.to_owned()))])
        }

        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(vec![JsonScalar::Integer(number)])
        }

        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(vec![JsonScalar::Number(number as f64)])
        }

        fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
            Ok(vec![JsonScalar::Number(number)])
        }

        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<S: SeqAccess<'l>>(self, mut list: S) -> Result<Self::Value, S::Error> {
            let mut all = Vec::new();
            while let Some(values) = list.next_element_seed(Scalars)? {
                all.extend(values);
            }
            Ok(all)
        }
    };
}

impl<'l> DeserializeSeed<'l> for Scalars {
    type Value = Vec<JsonScalar<'l>>;

    fn deserialize<D: serde::Deserializer<'l>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Scalars {
    scalars!();

    fn visit_map<M: MapAccess<'l>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }
}

impl<'l> DeserializeSeed<'l> for ScalarsOrObject<'_, 'l> {
    type Value = Vec<JsonScalar<'l>>;

    fn deserialize<D: serde::Deserializer<'l>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for ScalarsOrObject<'_, 'l> {
    scalars!();

    fn visit_map<M: MapAccess<'l>>(self, map: M) -> Result<Self::Value, M::Error> {
        self.0.visit_map(map)?;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(fields: JsonFields, headers: &[&'static str], line: &str) -> Result<LogRecord, LineError> {
        let names: Vec<HeaderName> = headers.iter().map(|name| HeaderName::from_static(name)).collect();
        fields.for_headers(&names).parse(line.as_bytes())
    }

    fn read(line: &str) -> Result<LogRecord, LineError> {
        read_with(JsonFields::default(), &["x-api-key", "user-agent"], line)
    }

    #[test]
    fn lines_of_nginx_caddy_envoy_and_traefik_are_read_without_being_told_how() {
        let nginx = r#"{"time_iso8601":"2000-10-10T13:55:36-07:00","remote_addr":"203.0.113.7","remote_user":"",
            "request":"GET /a?x=1 HTTP/1.1","status":200,"http_user_agent":"curl","http_host":"api.example"}"#;
        let caddy = r#"{"level":"info","ts":971211336.25,"logger":"http.log.access","msg":"handled request","request":
            {"remote_ip":"10.0.0.1","remote_port":"4","client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET",
            "host":"api.example","uri":"/a?x=1","headers":{"User-Agent":["curl"],"X-Api-Key":["k1","k2"]}},
            "user_id":"","duration":0.1,"status":200}"#;
        let envoy = r#"{"start_time":"2000-10-10T20:55:36.250Z","method":"GET","path":"/a?x=1","protocol":"HTTP/1.1",
            "response_code":200,"downstream_remote_address":"203.0.113.7:5123","authority":"api.example:443",
            "user_agent":"curl"}"#;
        let traefik = r#"{"ClientHost":"203.0.113.7","ClientUsername":"-","RequestMethod":"GET","RequestPath":"/a?x=1",
            "RequestHost":"api.example","StartUTC":"2000-10-10T20:55:36.250Z","level":"info"}"#;
        for line in [nginx, caddy, envoy, traefik] {
            let record = read(line).expect(line);
            assert_eq!(record.time.at.get() / 1_000_000, 971_211_336, "{line}");
            assert_eq!(record.peer, Some([203, 0, 113, 7].into()), "{line}");
            assert_eq!(record.host, "api.example", "{line}");
            assert_eq!(record.user, None, "{line}");
            assert_eq!(record.request.expect(line).path.matched(), "/a", "{line}");
        }
        let keys: Vec<_> =
            read(caddy).expect("a line").headers.get_all("x-api-key").iter().cloned().collect();
        assert_eq!(keys, ["k1", "k2"]);
        assert_eq!(read(nginx).expect("a line").headers["user-agent"], "curl");
    }

    #[test]
    fn fields_of_other_names_are_read_where_they_are_said_to_be() {
        let facts = vec![
            (LogField::Time, "at".to_owned()),
            (LogField::Tenant, "who.tenant".to_owned()),
            (LogField::User, "who.id".to_owned()),
            (LogField::Uri, "http.target".to_owned()),
        ];
        let headers = vec![(HeaderName::from_static("x-api-key"), "who.key".to_owned())];
        let fields = JsonFields::new(facts, headers);
        let line = r#"{"at":971211336250,"time":"no","who":{"tenant":"acme","id":42,"key":"k"},"http.target":"/a","method":"PUT"}"#;
        let record = read_with(fields, &["x-api-key"], line).expect("a line");
        assert_eq!((record.tenant.as_deref(), record.user.as_deref()), (Some("acme"), Some("42")));
        assert_eq!(record.peer, None);
        assert_eq!(record.headers["x-api-key"], "k");
        assert_eq!(record.time.at.get(), 971_211_336_250_000);
    }

    #[test]
    fn what_a_line_lacks_is_named_and_the_line_is_not_shown() {
        for (line, words) in [
            (r#"{"ts":1,"method":"GET"}"#, "no field for the uri: `--field uri=NAME`"),
            (r#"{"ts":1,"uri":"/"}"#, "no field for the method"),
            (r#"{"uri":"/","method":"GET"}"#, "no field for the time"),
            (r#"{"ts":"k-secret","uri":"/","method":"GET"}"#, "the field `time` is not a time"),
            (r#"{"ts":1,"uri":"/","method":"GET","ip":"k-secret"}"#, "`address` is not an address"),
            (r#"{"ts":1,"k-secret"#, "ends too early at column"),
            (r#"{"ts":1,"k-secret" 1}"#, "malformed at column"),
        ] {
            let why = read(line).expect_err(line).to_string();
            assert!(why.contains(words) && !why.contains("k-secret"), "{why}");
        }
    }
}
