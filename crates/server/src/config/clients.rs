//! How a caller's address and name are found.

use std::fmt;

use http::HeaderName;
use serde::{Deserialize, Serialize};
use spile_tower::client::Networks;

use super::value::{Text, Texts, Written, within};

/// `[clients]`: which proxies are trusted to name the caller, and how callers are distinguished.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clients {
    #[serde(skip)]
    pub(crate) trusted_proxies: Networks,
    /// The networks as they were written.
    #[serde(rename = "trusted_proxies", with = "Texts")]
    pub(crate) trusted_words: Vec<Network>,
    #[serde(deserialize_with = "within::<1, 128, _, _>")]
    pub(crate) ipv6_prefix: u8,
    #[serde(with = "Text")]
    pub(crate) principal_header: HeaderName,
}

/// A network as the operator wrote it.
#[derive(Clone, Debug)]
pub(crate) struct Network(String);

impl Written for Network {
    const RIGHT: &'static str = "an address and a prefix, as in `10.0.0.0/8`";

    fn read(text: &str) -> Result<Self, String> {
        Networks::parse([text]).map(|_| Self(text.to_owned())).map_err(|why| why.to_string())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            trusted_proxies: Networks::default(),
            trusted_words: Vec::new(),
            ipv6_prefix: 64,
            principal_header: HeaderName::from_static("x-forwarded-user"),
        }
    }
}

impl Clients {
    pub(super) fn finish(mut self) -> Self {
        let words = self.trusted_words.iter().map(|network| network.0.as_str());
        self.trusted_proxies = Networks::parse(words).unwrap_or_default();
        self
    }
}
