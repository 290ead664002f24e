//! How a caller's address and name are found.

use http::HeaderName;
use spile_tower::client::Networks;

use super::file::{ClientsFile, Faults, Spot};

/// Whose word counts about who a caller is.
#[derive(Clone, Debug)]
pub struct Clients {
    pub(crate) trusted_proxies: Networks,
    /// What was written, for `config show`.
    pub(crate) trusted_words: Vec<String>,
    pub(crate) ipv6_prefix: u8,
    pub(crate) principal_header: HeaderName,
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
    pub(super) fn check(file: ClientsFile, faults: &mut Faults) -> Self {
        let mut clients = Self::default();
        if let Some(Spot { value: networks, .. }) = file.trusted_proxies {
            for Spot { value, place } in &networks {
                if let Err(why) = Networks::parse([value.as_str()]) {
                    faults.add(place, why, "an address and a prefix, as in `10.0.0.0/8`");
                }
            }
            clients.trusted_words = networks.into_iter().map(|network| network.value).collect();
            let words = clients.trusted_words.iter().map(String::as_str);
            clients.trusted_proxies = Networks::parse(words).unwrap_or_default();
        }
        if let Some(Spot { value, place }) = file.ipv6_prefix {
            match u8::try_from(value) {
                Ok(bits @ 1..=128) => clients.ipv6_prefix = bits,
                _ => faults.add(
                    &place,
                    format_args!("an IPv6 prefix of {value} bits"),
                    "1 to 128; 64 is usual",
                ),
            }
        }
        if let Some(Spot { value, place }) = file.principal_header {
            match value.parse() {
                Ok(name) => clients.principal_header = name,
                Err(_) => faults.add(
                    &place,
                    format_args!("`{value}` is no header name"),
                    "for instance `x-forwarded-user`",
                ),
            }
        }
        clients
    }
}
