//! Replies, in the protocol version of the connection.

use spile_resp::write;

/// The protocol version of a connection, chosen by `HELLO`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum ProtocolVersion {
    #[default]
    Resp2,
    Resp3,
}

impl ProtocolVersion {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RespReply {
    Simple(&'static str),
    /// A code in capitals for programs, and a sentence for people.
    Error(String),
    Int(i64),
    Text(Vec<u8>),
    Nil,
    List(Vec<RespReply>),
    /// Pairs. In RESP2, a list of twice as many items.
    Map(Vec<(&'static str, RespReply)>),
    /// The reply to `CL.THROTTLE`, without an allocation.
    Throttled([i64; 5]),
}

impl RespReply {
    pub(super) const OK: Self = Self::Simple("OK");

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn count(items: usize) -> Self {
        Self::Int(i64::try_from(items).unwrap_or(i64::MAX))
    }

    pub(super) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }

    pub(super) fn texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    pub(super) fn write(&self, protocol: ProtocolVersion, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => write::simple(out, text),
            Self::Error(text) => write::error(out, text),
            Self::Int(number) => write::integer(out, *number),
            Self::Text(text) => write::bulk(out, text),
            Self::Nil => out.extend_from_slice(match protocol {
                ProtocolVersion::Resp2 => b"$-1\r\n",
                ProtocolVersion::Resp3 => b"_\r\n",
            }),
            Self::List(items) => {
                write::array(out, items.len());
                for item in items {
                    item.write(protocol, out);
                }
            }
            Self::Map(pairs) => {
                match protocol {
                    ProtocolVersion::Resp2 => write::array(out, 2 * pairs.len()),
                    ProtocolVersion::Resp3 => write::map(out, pairs.len()),
                }
                for (name, value) in pairs {
                    write::bulk(out, name.as_bytes());
                    value.write(protocol, out);
                }
            }
            Self::Throttled(numbers) => {
                write::array(out, numbers.len());
                for number in numbers {
                    write::integer(out, *number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &RespReply, protocol: ProtocolVersion) -> String {
        let mut out = Vec::new();
        reply.write(protocol, &mut out);
        String::from_utf8(out).expect("these are text")
    }

    #[test]
    fn the_versions_differ_in_maps_and_in_nothing() {
        let map = RespReply::Map(vec![("proto", RespReply::Int(3)), ("name", RespReply::Nil)]);
        assert_eq!(written(&map, ProtocolVersion::Resp2), "*4\r\n$5\r\nproto\r\n:3\r\n$4\r\nname\r\n$-1\r\n");
        assert_eq!(written(&map, ProtocolVersion::Resp3), "%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nname\r\n_\r\n");
    }

    #[test]
    fn an_error_never_breaks_out_of_its_line() {
        let reply = RespReply::error("ERR unknown command 'a\r\n+OK'");
        assert_eq!(written(&reply, ProtocolVersion::Resp2), "-ERR unknown command 'a  +OK'\r\n");
    }

    #[test]
    fn a_throttle_is_five_integers() {
        let reply = RespReply::Throttled([0, 16, 15, -1, 2]);
        assert_eq!(written(&reply, ProtocolVersion::Resp3), "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n");
    }
}
