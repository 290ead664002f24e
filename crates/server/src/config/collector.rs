//! The collector of spans: its header fields, and the attributes of this process.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use http::uri::Scheme;
use percent_encoding::percent_decode_str;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spile_observe::trace::{Otlp, OtlpHeaders};

use super::ObserveConfig;
use super::secret;
use super::source::{Faults, Location, wrong};

/// The variables of OpenTelemetry that apply if the file has no setting.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";

const PAIRS: &str = "`name=value`, with commas between them";
const FIELDS: &str = "names as in `authorization`, each once, with values of visible ASCII";
/// The longest name and the longest value of an attribute, in bytes.
const MOST_NAME: usize = 255;
const MOST_VALUE: usize = 4_096;
/// The most attributes from one source.
const MOST: usize = 64;

/// Texts by name: a table in a file, and `name=value,name=value` with percent-encoding in a variable. They may be secrets, so `Debug`
/// does not show them.
#[derive(Clone, Default, Eq, PartialEq)]
pub(super) struct NamedTexts(Vec<(String, String)>);

/// Checks the collector that `[observe]` names, with the header fields and attributes that accompany spans.
pub(super) fn check(
    observe: &ObserveConfig,
    ratio: f64,
    at: &Location<'_>,
    variables: &[(String, String)],
    folder: &Path,
    faults: &mut Faults,
) -> Option<Otlp> {
    let given = observe.headers(at, folder, faults);
    check_attributes(&observe.otlp_attributes, at, faults);
    let wrong = |why| faults.add(&at.key("otlp"), why, "for instance `http://127.0.0.1:4318`");
    let otlp = Otlp::new(observe.otlp.as_deref()?).map_err(wrong).ok()?.ratio(ratio);
    let is_given = !observe.otlp_headers.0.is_empty() || observe.otlp_headers_file.is_some();
    let headers = if is_given { given } else { usual_headers(variables, faults) };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = Some(("host.name".to_owned(), host)).filter(|(_, host)| !host.is_empty());
    let service = variable(SERVICE, variables).map(|name| ("service.name".to_owned(), name.to_owned()));
    let usual = of_variable(ATTRIBUTES, variables, faults);
    // Later attributes override earlier ones.
    let attributes = host.into_iter().chain(usual.0).chain(service).chain(observe.otlp_attributes.0.clone());
    Some(attributes.fold(otlp.headers(headers), |otlp, (name, value)| otlp.resource(name, value)))
}

impl ObserveConfig {
    /// Whether header fields are sent to another machine without encryption.
    pub(super) fn shows_headers(&self) -> bool {
        let url: Option<http::Uri> = self.otlp.as_ref().and_then(|url| url.parse().ok());
        let is_clear = url.is_some_and(|url| {
            let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
            let is_here = host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback());
            url.scheme() == Some(&Scheme::HTTP) && !is_here
        });
        is_clear && self.collector.as_ref().is_some_and(Otlp::has_headers)
    }

    /// The header fields of the file, and of the file that it names.
    fn headers(&self, at: &Location<'_>, folder: &Path, faults: &mut Faults) -> OtlpHeaders {
        let (mut headers, in_file) = (OtlpHeaders::default(), at.key("otlp_headers"));
        for (name, value) in &self.otlp_headers.0 {
            if let Err(why) = headers.insert(name, value) {
                faults.add(&in_file.key(name), why, FIELDS);
            }
        }
        let at = at.key("otlp_headers_file");
        let text = self
            .otlp_headers_file
            .as_ref()
            .and_then(|path| secret::read("header fields", &folder.join(path), &at, faults));
        for (index, line) in text.iter().flat_map(|text| text.lines()).enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, value)) = line.split_once(':') else {
                let message = format!("line {} of the header fields has no colon", index + 1);
                faults.add(&at, message, "one header field per line, as in `x-api-key: …`");
                continue;
            };
            if let Err(why) = headers.insert(name.trim(), value.trim()) {
                faults.add(&at, why, FIELDS);
            }
        }
        headers
    }
}

fn usual_headers(variables: &[(String, String)], faults: &mut Faults) -> OtlpHeaders {
    let mut headers = OtlpHeaders::default();
    for (name, value) in of_variable(HEADERS, variables, faults).0 {
        if let Err(why) = headers.insert(&name, &value) {
            faults.add(&Location::variable(HEADERS), why, FIELDS);
        }
    }
    headers
}

fn check_attributes(attributes: &NamedTexts, at: &Location<'_>, faults: &mut Faults) {
    let at = at.key("otlp_attributes");
    if attributes.0.len() > MOST {
        faults.add(
            &at,
            format_args!("there are {} attributes", attributes.0.len()),
            format_args!("at most {MOST}"),
        );
    }
    for (name, value) in &attributes.0 {
        if name.is_empty() || name.len() > MOST_NAME {
            let message = format!("an attribute has a name of {} bytes", name.len());
            faults.add(&at.key(name), message, format_args!("1 to {MOST_NAME} bytes"));
        }
        if value.len() > MOST_VALUE {
            let message = format!("the attribute `{name}` has {} bytes", value.len());
            faults.add(&at.key(name), message, format_args!("at most {MOST_VALUE} bytes"));
        }
    }
}

/// The value of a variable. An empty one counts as not set, as in OpenTelemetry.
fn variable<'v>(name: &str, variables: &'v [(String, String)]) -> Option<&'v str> {
    let found = variables.iter().find(|(own, _)| own == name);
    found.map(|(_, text)| text.trim()).filter(|text| !text.is_empty())
}

fn of_variable(name: &str, variables: &[(String, String)], faults: &mut Faults) -> NamedTexts {
    let text = variable(name, variables).unwrap_or_default();
    NamedTexts::parse(text).unwrap_or_else(|why| {
        faults.add(&Location::variable(name), why, PAIRS);
        NamedTexts::default()
    })
}

impl NamedTexts {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses `name=value,name=value`. Errors do not show the values.
    fn parse(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).enumerate().filter(|(_, item)| !item.is_empty());
        let pair = |(index, item): (usize, &str)| {
            let (name, value) =
                item.split_once('=').ok_or_else(|| format!("item {} has no name", index + 1))?;
            let name = name.trim().to_owned();
            match percent_decode_str(value.trim()).decode_utf8() {
                Ok(value) => Ok((name, value.into_owned())),
                Err(_) => Err(format!("the value of `{name}` is not UTF-8 after percent-decoding")),
            }
        };
        items.map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// Writes the names, with a mask in place of each value.
    pub(super) fn masked<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, _)| map.serialize_entry(name, "***"))?;
        map.end()
    }
}

impl fmt::Debug for NamedTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Serialize for NamedTexts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for NamedTexts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NamedTextsVisitor)
    }
}

struct NamedTextsVisitor;

impl<'de> Visitor<'de> for NamedTextsVisitor {
    type Value = NamedTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of texts, as in `{ name = \"value\" }`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NamedTexts, E> {
        NamedTexts::parse(text).map_err(|why| wrong(why, PAIRS))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<NamedTexts, A::Error> {
        let mut texts = Vec::new();
        while let Some(pair) = table.next_entry()? {
            texts.push(pair);
        }
        Ok(NamedTexts(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_opentelemetry_writes_them() {
        let texts = |text| NamedTexts::parse(text).map(|texts| texts.0);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(texts(""), Ok(vec![]));
        assert_eq!(
            texts("authorization=Basic%20aGk6bA==, x-team = a%2Cb ,"),
            Ok(vec![pair("authorization", "Basic aGk6bA=="), pair("x-team", "a,b")])
        );
        assert_eq!(texts("a=b,hunter2"), Err("item 2 has no name".to_owned()));
        assert_eq!(texts("a=%FF"), Err("the value of `a` is not UTF-8 after percent-decoding".to_owned()));
    }
}
