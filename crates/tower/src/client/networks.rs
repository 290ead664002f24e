//! A list of networks: of trusted proxies, or of clients that are not limited.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks by their prefix. An empty list contains no address.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// These networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// The networks that these texts name: `10.0.0.0/8`, `fd00::/8`, or one address.
    pub fn parse<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<Self, NotANetwork> {
        networks.into_iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the address lies in one of them. IPv4 that comes mapped into IPv6 counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn network(text: &str) -> Result<IpNet, NotANetwork> {
    let one = |address: IpAddr| IpNet::from(address.to_canonical());
    text.parse().or_else(|_| text.parse().map(one)).map_err(|_| NotANetwork(text.to_owned()))
}

/// A text that is not a network.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a network: write an address and a prefix, as in 10.0.0.0/8")]
pub struct NotANetwork(String);
