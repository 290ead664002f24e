//! The caller that a request counts for in the queue of an upstream.

use std::net::{IpAddr, Ipv6Addr};

use smol_str::SmolStr;

use crate::auth::Caller;

/// The bits of an IPv6 address that identify the network of one client.
const NETWORK: u128 = u128::MAX << 64;

/// The caller that a request counts for. The kinds are kept apart: a principal may be named like a tenant.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum CallerKey {
    Tenant(SmolStr),
    Principal(SmolStr),
    /// An IPv4 address, or the /64 network of an IPv6 address, all of which one client usually owns.
    Address(IpAddr),
}

impl CallerKey {
    /// The tenant, else the principal, else the address.
    pub(crate) fn of(caller: &Caller, client: IpAddr) -> Self {
        match (&caller.tenant, &caller.principal) {
            (Some(tenant), _) => Self::Tenant(tenant.id.clone()),
            (None, Some(principal)) => Self::Principal(principal.as_str().into()),
            (None, None) => Self::Address(match client.to_canonical() {
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use spile_policy::CallerTenant;

    use super::*;

    fn at(address: &str) -> CallerKey {
        CallerKey::of(&Caller::default(), address.parse().unwrap())
    }

    #[test]
    fn names_of_different_kinds_never_meet() {
        for name in ["acme", "203.0.113.7", "2001:db8::"] {
            let tenant = CallerTenant { id: name.into(), plan: None };
            let tenant = Caller { tenant: Some(tenant), ..Caller::default() };
            let principal = Caller { principal: Some(name.to_owned()), ..Caller::default() };
            let address = "203.0.113.7".parse().unwrap();
            let (tenant, principal) = (CallerKey::of(&tenant, address), CallerKey::of(&principal, address));
            assert!(tenant != principal && tenant != at("203.0.113.7") && principal != at("2001:db8::"));
        }
    }

    #[test]
    fn addresses_count_by_the_network_that_one_client_has() {
        assert_eq!(at("2001:db8:1:2:3:4:5:6"), at("2001:db8:1:2:ffff::1"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:203.0.113.7"), at("203.0.113.7"), "the same client over another socket");
        assert_ne!(at("::ffff:203.0.113.7"), at("::ffff:203.0.113.8"));
        assert_ne!(at("203.0.113.7"), at("203.0.113.8"));
    }
}
