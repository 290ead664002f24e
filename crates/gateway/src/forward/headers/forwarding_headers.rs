//! What the gateway itself tells an upstream about a request: whose it is, where it came from, and its id.

use http::Version;
use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use spile_policy::CallerTenant;

use super::forwarded::{
    X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, address_text, write_forwarded,
};
use super::request_id::{RequestId, X_REQUEST_ID};
use super::sanitize::{X_PLAN, X_TENANT_ID, via};
use crate::auth::{Caller, Hop};

/// Fields that make it up: room for them is made at once.
const FIELDS: usize = 10;

/// The gateway's own fields of one request.
#[derive(Clone, Copy)]
pub(crate) struct Introduction<'r> {
    pub(crate) caller: &'r Caller,
    pub(crate) hop: &'r Hop,
    /// What the client asked for, with its port. It has passed as a host.
    pub(crate) authority: &'r str,
    pub(crate) version: Version,
    pub(crate) id: &'r RequestId,
}

impl Introduction<'_> {
    /// Whether it is the same whatever the request's own header says. What trusted proxies wrote is added to.
    pub(crate) const fn stands_alone(&self) -> bool {
        !self.hop.trusted
    }

    /// Puts it among the request's own fields.
    pub(crate) fn insert(&self, headers: &mut HeaderMap) {
        headers.reserve(FIELDS);
        if let Some(tenant) = self.tenant() {
            set(headers, X_TENANT_ID, Some(&tenant.id));
            set(headers, X_PLAN, self.caller.plan());
        }
        write_forwarded(headers, self.hop, self.authority);
        headers.append(VIA, via(self.version));
        self.id.write(headers);
    }

    /// Writes it as lines of an HTTP/1.1 header, if it stands alone. It says what [`insert`](Self::insert) would, and
    /// is far cheaper: nothing is hashed, and nothing is kept until the answer is there.
    pub(crate) fn push(&self, lines: &mut Vec<u8>) {
        if let Some(tenant) = self.tenant() {
            for (name, value) in [(X_TENANT_ID, Some(tenant.id.as_str())), (X_PLAN, self.caller.plan())] {
                if let Some(value) = value {
                    push_line(lines, &name, &[value.as_bytes()]);
                }
            }
        }
        self.push_forwarded(lines);
        push_line(lines, &VIA, &[via(self.version).as_bytes()]);
        push_line(lines, &X_REQUEST_ID, &[self.id.as_bytes()]);
    }

    /// The tenant, unless its name cannot be a field's value: a plan without a tenant would mislead the upstream.
    fn tenant(&self) -> Option<&CallerTenant> {
        self.caller.tenant.as_ref().filter(|tenant| is_value(&tenant.id))
    }

    fn push_forwarded(&self, lines: &mut Vec<u8>) {
        let (peer, host) = (address_text(self.hop.peer), self.authority.as_bytes());
        let peer = peer.as_bytes();
        let proto: &[u8] = if self.hop.secure { b"https" } else { b"http" };
        let [open, close]: [&[u8]; 2] =
            if self.hop.peer.is_ipv4() { [b"for=", b""] } else { [b"for=\"[", b"]\""] };
        push_line(lines, &X_REAL_IP, &[peer]);
        push_line(lines, &X_FORWARDED_FOR, &[peer]);
        push_line(lines, &X_FORWARDED_PROTO, &[proto]);
        if host.is_empty() {
            return push_line(lines, &FORWARDED, &[open, peer, close, b";proto=", proto]);
        }
        push_line(lines, &X_FORWARDED_HOST, &[host]);
        push_line(lines, &FORWARDED, &[open, peer, close, b";host=\"", host, b"\";proto=", proto]);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(Ok(value)) = value.map(|value| HeaderValue::from_bytes(value.as_bytes())) {
        headers.insert(name, value);
    }
}

/// Whether the text can be the value of a field; nothing but a name chosen by an operator may fail.
fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 127))
}

fn push_line(lines: &mut Vec<u8>, name: &HeaderName, value: &[&[u8]]) {
    lines.extend_from_slice(name.as_str().as_bytes());
    lines.extend_from_slice(b": ");
    for part in value {
        lines.extend_from_slice(part);
    }
    lines.extend_from_slice(b"\r\n");
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
            let hop = Hop { peer, client: peer, trusted: false, secure };
            let id = RequestId::of(&HeaderMap::new(), false);
            let (authority, version) = (authority.as_str(), Version::HTTP_2);
            let introduction = Introduction { caller: &caller, hop: &hop, authority, version, id: &id };
            let (mut lines, mut inserted) = (Vec::new(), HeaderMap::new());
            introduction.push(&mut lines);
            introduction.insert(&mut inserted);
            for value in inserted.values_mut() {
                // Blanks at the ends are no part of a value once it is on the wire.
                *value = HeaderValue::from_bytes(value.as_bytes().trim_ascii()).unwrap();
            }
            prop_assert_eq!(read(&lines), inserted);
        }
    }
}
