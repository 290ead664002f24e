//! Header fields that a route adds, sets or removes.

use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, HOST,
    HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::forward::headers::equivalent_names::is_equivalent;

/// Fields that describe the content of a response.
const OF_CONTENT: [HeaderName; 6] =
    [CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, LAST_MODIFIED];

/// Changes to the header of a request or response: fields are removed first, then set, then added.
///
/// ```
/// use spile_gateway::HeaderChanges;
///
/// let changes = HeaderChanges::default().remove("server")?.set("x-frame-options", "DENY")?;
/// # Ok::<(), spile_gateway::HeaderChangeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct HeaderChanges {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderChanges {
    /// Removes the field.
    pub fn remove(mut self, name: &str) -> Result<Self, HeaderChangeError> {
        self.remove.push(field(name)?);
        Ok(self)
    }

    /// Sets the field to this value only.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, HeaderChangeError> {
        self.set.push((field(name)?, text(name, value)?));
        Ok(self)
    }

    /// Adds this value to those that the field has.
    pub fn add(mut self, name: &str, value: &str) -> Result<Self, HeaderChangeError> {
        self.add.push((field(name)?, text(name, value)?));
        Ok(self)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the changes to a request. Fields that are removed or set are removed in every equivalent spelling.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap) {
        for name in self.remove.iter().chain(self.set.iter().map(|(name, _)| name)) {
            let alike = |other: &&HeaderName| *other != name && is_equivalent(other.as_str(), name.as_str());
            while let Some(other) = headers.keys().find(alike).cloned() {
                headers.remove(other);
            }
        }
        self.apply(headers);
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        self.apply_where(headers, |_| true);
    }

    /// Applies the changes to a response of the gateway itself. Changes to fields about content are for the upstream's
    /// content, so they are skipped. So are those about caching: a route must not decide how long a refusal is cached.
    pub(crate) fn apply_to_own(&self, headers: &mut HeaderMap) {
        self.apply_where(headers, |name| !OF_CONTENT.contains(name));
    }

    fn apply_where(&self, headers: &mut HeaderMap, meant: impl Fn(&HeaderName) -> bool) {
        for name in self.remove.iter().filter(|name| meant(name)) {
            headers.remove(name);
        }
        for (name, value) in self.set.iter().filter(|(name, _)| meant(name)) {
            headers.insert(name, value.clone());
        }
        for (name, value) in self.add.iter().filter(|(name, _)| meant(name)) {
            headers.append(name, value.clone());
        }
    }
}

fn field(name: &str) -> Result<HeaderName, HeaderChangeError> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let parsed = parsed.map_err(|_| HeaderChangeError::Name(name.to_owned()))?;
    // The gateway frames and addresses messages itself on each side.
    match parsed {
        CONNECTION | CONTENT_LENGTH | HOST | TE | TRANSFER_ENCODING | UPGRADE => {
            Err(HeaderChangeError::Framing(name.to_owned()))
        }
        parsed => Ok(parsed),
    }
}

fn text(name: &str, value: &str) -> Result<HeaderValue, HeaderChangeError> {
    HeaderValue::from_str(value).map_err(|_| HeaderChangeError::Value(name.to_owned()))
}

/// Why a header field cannot be changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderChangeError {
    /// The name is not valid.
    #[error("`{0}` is not the name of a header field")]
    Name(String),
    /// The value is not valid.
    #[error("the value of `{0}` holds a line end or another control character")]
    Value(String),
    /// The field frames or addresses the message.
    #[error("`{0}` frames or addresses the message and cannot be changed")]
    Framing(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_go_are_set_and_are_added() {
        let changes =
            HeaderChanges::default().remove("server").unwrap().set("a", "2").unwrap().add("b", "2").unwrap();
        let one = |name: &'static str| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        let mut headers = HeaderMap::from_iter([one("server"), one("a"), one("b")]);
        changes.apply(&mut headers);
        assert!(!headers.contains_key("server"));
        assert_eq!(headers["a"], "2");
        assert_eq!(headers.get_all("b").iter().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn what_goes_from_a_request_or_is_set_in_it_is_gone_in_every_spelling() {
        let changes = HeaderChanges::default().remove("x-debug").unwrap().set("x-env-name", "prod").unwrap();
        let changes = changes.add("x-more", "1").unwrap();
        let names = ["x_debug", "x.debug", "x-env_name", "x|env|name", "x_more", "x-debugs"];
        let fields = names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("mine")));
        let mut headers = HeaderMap::from_iter(fields);
        changes.apply_to_request(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["x-debugs", "x-env-name", "x-more", "x_more"]);
        assert_eq!(headers["x-env-name"], "prod");
    }

    #[test]
    fn a_value_cannot_bring_a_field_of_its_own() {
        assert!(HeaderChanges::default().set("a", "1\r\nx-plan: gold").is_err());
        assert!(HeaderChanges::default().set("a: 1\r\nb", "1").is_err());
        assert!(HeaderChanges::default().set("Content-Length", "0").is_err());
    }
}
