//! The fields that the gateway adds to every request: tenant, plan, client, `Via` and request id.

use http::Version;
use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use spile_policy::CallerTenant;

use super::forwarded::{
    X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, address_text, write_forwarded,
};
use super::request_id::{RequestId, X_REQUEST_ID};
use super::sanitize::{X_PLAN, X_TENANT_ID, via};
use crate::auth::{Caller, Downstream};
use crate::upstream::write_field;

/// The number of fields, for which room is reserved at once.
const FIELDS: usize = 10;

/// The fields that the gateway adds to one request.
#[derive(Clone, Copy)]
pub(crate) struct ForwardingHeaders<'r> {
    pub(crate) caller: &'r Caller,
    pub(crate) downstream: &'r Downstream,
    /// The host that the client asked for, with its port. It is valid.
    pub(crate) authority: &'r str,
    pub(crate) version: Version,
    pub(crate) id: &'r RequestId,
}

impl ForwardingHeaders<'_> {
    /// Whether the fields are independent of the request's own. Those of a trusted proxy are added to.
    pub(crate) const fn is_independent(&self) -> bool {
        !self.downstream.trusted
    }

    /// Inserts the fields among the request's own.
    pub(crate) fn insert(&self, headers: &mut HeaderMap) {
        headers.reserve(FIELDS);
        if let Some(tenant) = self.tenant() {
            insert_text(headers, X_TENANT_ID, Some(&tenant.id));
            insert_text(headers, X_PLAN, self.caller.plan());
        }
        write_forwarded(headers, self.downstream, self.authority);
        headers.append(VIA, via(self.version));
        self.id.write(headers);
    }

    /// Writes the fields as an HTTP/1.1 header, if they are independent. The upstream gets the same as with
    /// [`insert`](Self::insert), far cheaper: nothing is hashed, and nothing is stored until the response.
    pub(crate) fn write_http1(&self, lines: &mut Vec<u8>) {
        if let Some(tenant) = self.tenant() {
            for (name, value) in [(X_TENANT_ID, Some(tenant.id.as_str())), (X_PLAN, self.caller.plan())] {
                if let Some(value) = value {
                    write_field(lines, &name, &[value.as_bytes()]);
                }
            }
        }
        self.write_forwarded_http1(lines);
        write_field(lines, &VIA, &[via(self.version).as_bytes()]);
        write_field(lines, &X_REQUEST_ID, &[self.id.as_bytes()]);
    }

    /// The tenant, unless its id cannot be the value of a field. A plan without a tenant would mislead the upstream.
    fn tenant(&self) -> Option<&CallerTenant> {
        self.caller.tenant.as_ref().filter(|tenant| is_value(&tenant.id))
    }

    fn write_forwarded_http1(&self, lines: &mut Vec<u8>) {
        let (peer, host) = (address_text(self.downstream.peer), self.authority.as_bytes());
        let peer = peer.as_bytes();
        let proto: &[u8] = if self.downstream.secure { b"https" } else { b"http" };
        let [open, close]: [&[u8]; 2] =
            if self.downstream.peer.is_ipv4() { [b"for=", b""] } else { [b"for=\"[", b"]\""] };
        write_field(lines, &X_REAL_IP, &[peer]);
        write_field(lines, &X_FORWARDED_FOR, &[peer]);
        write_field(lines, &X_FORWARDED_PROTO, &[proto]);
        if host.is_empty() {
            return write_field(lines, &FORWARDED, &[open, peer, close, b";proto=", proto]);
        }
        write_field(lines, &X_FORWARDED_HOST, &[host]);
        write_field(lines, &FORWARDED, &[open, peer, close, b";host=\"", host, b"\";proto=", proto]);
    }
}

fn insert_text(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(Ok(value)) = value.map(|value| HeaderValue::from_bytes(value.as_bytes())) {
        headers.insert(name, value);
    }
}

/// Whether the text can be the value of a field. Only ids that an operator has chosen may fail.
fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 127))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use spile_core::PlanName;

    use super::*;

    fn read(lines: &[u8]) -> HeaderMap {
        let mut room = [httparse::EMPTY_HEADER; 20];
        let text = [lines, b"\r\n"].concat();
        let httparse::Status::Complete((_, fields)) = httparse::parse_headers(&text, &mut room).unwrap()
        else {
            panic!("lines that end");
        };
        let pairs = fields.iter().map(|field| {
            let value = HeaderValue::from_bytes(field.value).unwrap();
            (HeaderName::from_bytes(field.name.as_bytes()).unwrap(), value)
        });
        pairs.collect()
    }

    proptest! {
        #[test]
        fn written_as_lines_it_says_the_same(
            peer: IpAddr,
            secure: bool,
            authority in "|[a-z0-9.]{1,20}(:[0-9]{1,4})?",
            tenant in proptest::option::of(("(?s).{1,12}|\\PC{1,12}", proptest::option::of("[a-z.-]{1,12}"))),
        ) {
            let plan = |name: String| PlanName::new(&name).expect("a name");
            let tenant = tenant.map(|(id, name)| CallerTenant::new(&id, name.map(plan)));
            let caller = Caller { tenant, ..Caller::default() };
            let downstream = Downstream { peer, client: peer, trusted: false, secure };
            let id = RequestId::of(&HeaderMap::new(), false);
            let (authority, version) = (authority.as_str(), Version::HTTP_2);
            let forwarding = ForwardingHeaders { caller: &caller, downstream: &downstream, authority, version, id: &id };
            let (mut lines, mut inserted) = (Vec::new(), HeaderMap::new());
            forwarding.write_http1(&mut lines);
            forwarding.insert(&mut inserted);
            for value in inserted.values_mut() {
                // Blanks at the ends of a value are lost on the wire.
                *value = HeaderValue::from_bytes(value.as_bytes().trim_ascii()).unwrap();
            }
            prop_assert_eq!(read(&lines), inserted);
        }
    }
}
