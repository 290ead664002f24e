//! Configurations that are valid line by line and still cannot run: listeners that anyone could use, that conflict, or that are missing.

use std::net::SocketAddr;

use super::admin::TOKEN_HINT;
use super::source::{Faults, Location};
use super::{Config, ConfigError, Listen};

/// A listener: its key in `[listen]`, its flag, and its address.
struct ListenerAddress {
    key: &'static str,
    flag: Option<&'static str>,
    address: SocketAddr,
    is_default: bool,
}

impl ListenerAddress {
    fn at<'a>(&self, listen: &'a Location<'a>) -> Location<'a> {
        self.flag.map_or_else(|| listen.key(self.key), Location::flag)
    }
}

impl Config {
    /// Refuses settings that would fail at the start of a server, or would have no effect. `running` has the addresses of a running
    /// server, which stay until a restart.
    pub(crate) fn check_runs(&self, running: Option<&Listen>) -> Result<(), ConfigError> {
        let (mut faults, listen) = (Faults::default(), Location::FILE.key("listen"));
        let listeners = self.listeners();
        for (index, one) in listeners.iter().enumerate() {
            for other in listeners[..index].iter().filter(|other| overlap(one.address, other.address)) {
                // A default has no line that the operator wrote.
                let place = if one.is_default { other } else { one };
                let message = format!(
                    "`listen.{}` ({}) and `listen.{}` ({}) use the same port",
                    other.key, other.address, one.key, one.address
                );
                faults.add(&place.at(&listen), message, "give each a different port");
            }
        }
        if let Some(admin) = listeners.iter().find(|listener| listener.key == "admin")
            && self.admin.token.is_none()
            && !admin.address.ip().to_canonical().is_loopback()
        {
            let address = admin.address;
            let message = format!(
                "`listen.admin` is {address}, which other machines reach, and the admin API has no token"
            );
            faults.add(&admin.at(&listen), message, TOKEN_HINT);
        }
        if !self.routes.is_empty() && self.listen.gateway.or(running.and_then(|on| on.gateway)).is_none() {
            let fix = "add `gateway = \"127.0.0.1:8000\"` to `[listen]`, or start with `--gateway`";
            let message = "there are routes, and no gateway listens for their requests";
            faults.add(&Location::FILE.key("routes").item(0), message, fix);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.into_error(&self.origin)) }
    }

    fn listeners(&self) -> Vec<ListenerAddress> {
        let (on, flags, usual) = (&self.listen, &self.origin.flags, Listen::default());
        let all = [
            ("http", Some(on.http), flags.http.map(|_| "--http"), Some(usual.http)),
            ("admin", Some(on.admin), flags.admin.map(|_| "--admin"), Some(usual.admin)),
            ("grpc", on.grpc, flags.grpc.map(|_| "--grpc"), usual.grpc),
            ("resp", on.resp, flags.resp.map(|_| "--resp"), usual.resp),
            ("gateway", on.gateway, flags.gateway.map(|_| "--gateway"), usual.gateway),
        ];
        let listener = |(key, address, flag, usual): (_, Option<SocketAddr>, _, _)| {
            Some(ListenerAddress {
                key,
                flag,
                address: address?,
                is_default: address == usual && flag.is_none(),
            })
        };
        all.into_iter().filter_map(listener).collect()
    }
}

/// True if the second of two listeners could not be bound. An unspecified address covers every address of its family, and that of IPv6
/// covers IPv4, too. Port 0 is a free one each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
    let takes_all = |ip: std::net::IpAddr, other: std::net::IpAddr| {
        ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4())
    };
    one.port() != 0
        && one.port() == other.port()
        && (ip == other_ip || takes_all(ip, other_ip) || takes_all(other_ip, ip))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Flags;

    fn refused(text: &str, flags: Flags) -> Vec<String> {
        let config = Config::parse(Path::new("spile.toml"), text.to_owned(), []).expect("each line is right");
        let why = config.under(flags).check_runs(None).err();
        why.map(|why| why.lines().collect()).unwrap_or_default()
    }

    #[test]
    fn listeners_on_one_port_are_refused_at_the_line_of_the_second() {
        for (text, place) in [
            ("[listen]\ngrpc = \"127.0.0.1:8080\"", "spile.toml:2:8"),
            ("[listen]\nhttp = \"127.0.0.1:8081\"", "spile.toml:2:8"),
            ("[listen]\nresp = \"0.0.0.0:8080\"", "spile.toml:2:8"),
            ("[listen]\nresp = \"[::]:8081\"", "spile.toml:2:8"),
            ("[listen]\nresp = \"[::ffff:127.0.0.1]:8081\"", "spile.toml:2:8"),
            ("[listen]\nresp = \":9\"\ngrpc = \"127.0.0.1:9\"", "spile.toml:2:8"),
        ] {
            let lines = refused(text, Flags::default());
            assert!(lines.len() == 1 && lines[0].starts_with(place), "{text}: {lines:?}");
            assert!(lines[0].contains("use the same port"), "{lines:?}");
        }
        for text in [
            "",
            "[listen]\ngrpc = \"127.0.0.2:8080\"",
            "[listen]\ngrpc = \"[::1]:8080\"",
            "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"",
        ] {
            assert_eq!(refused(text, Flags::default()), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_flag_is_named_where_it_is_at_fault_and_puts_the_file_right() {
        let address = |text: &str| Some(text.parse().expect("an address"));
        let lines = refused("", Flags { grpc: address("127.0.0.1:8080"), ..Flags::default() });
        assert!(lines.len() == 1 && lines[0].starts_with("--grpc: "), "{lines:?}");
        let beyond = "[listen]\nadmin = \"0.0.0.0:8081\"";
        let lines = refused(beyond, Flags::default());
        assert!(lines.len() == 1 && lines[0].starts_with("spile.toml:2:9: "), "{lines:?}");
        assert!(lines[0].contains("SPILE_ADMIN_TOKEN"), "{lines:?}");
        assert_eq!(refused(beyond, Flags { admin: address("[::1]:8081"), ..Flags::default() }), [""; 0]);
    }

    #[test]
    fn routes_need_a_gateway_listener() {
        let text = "[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:9000\"";
        let lines = refused(text, Flags::default());
        assert!(lines.len() == 1 && lines[0].starts_with("spile.toml:1:"), "{lines:?}");
        let gateway = "127.0.0.1:8000".parse().ok();
        assert_eq!(refused(text, Flags { gateway, ..Flags::default() }), [""; 0]);
    }
}
