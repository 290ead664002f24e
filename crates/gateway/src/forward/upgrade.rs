//! A client that wants its connection to become something else, and an upstream that agrees.

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use hyper::upgrade::OnUpgrade;

use super::headers::wanted_upgrade;

/// A client's wish, and the connection that it is about.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// The client's wish, if it has one that the route grants. Any other is dropped with the connection's own
    /// fields: an upstream that spoke another protocol behind the gateway's back would be out of reach of every rule.
    pub(crate) fn wanted(request: &mut Parts, granted: &[Box<str>]) -> Option<Self> {
        let protocol = wanted_upgrade(&request.headers)?.clone();
        let name = protocol.to_str().ok()?;
        if !granted.iter().any(|granted| granted.eq_ignore_ascii_case(name)) {
            return None;
        }
        let client = request.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client })
    }

    /// Asks the upstream, or tells the client that it agreed.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }

    pub(crate) fn into_client(self) -> OnUpgrade {
        self.client
    }
}
