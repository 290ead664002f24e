//! Store URLs: `redis://user:pass@host:6379/2`, and the schemes for TLS, Unix sockets, Sentinel and Cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use spile_resp::write;

use crate::connection::endpoint::Endpoint;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// A parsed store URL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RedisUrl {
    pub(crate) topology: Topology,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) database: u32,
    /// `None` if connections are not encrypted.
    pub(crate) tls: Option<ClientTlsFiles>,
}

/// How the nodes are found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Topology {
    Standalone(Endpoint),
    Sentinel { sentinels: Vec<Endpoint>, master: String },
    Cluster { seeds: Vec<Endpoint> },
}

/// A user and a password. The user is `None` for the default user.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// Appends the `AUTH` command.
    pub(crate) fn push_auth(&self, out: &mut Vec<u8>) {
        match &self.user {
            Some(user) => write::command(out, &[b"AUTH", user.as_bytes(), self.password.as_bytes()]),
            None => write::command(out, &[b"AUTH", self.password.as_bytes()]),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, ***)", self.user)
    }
}

/// PEM files for TLS.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClientTlsFiles {
    /// The authority to trust instead of the system's.
    pub(crate) authority: Option<PathBuf>,
    /// The client certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// The error of a store URL. Never quotes the URL: after a typing mistake any part may hold the password, as in
/// `redis://app:secret` without its host. Only a scheme of letters is quoted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is unknown.
    #[error(
        "unknown scheme `{0}`: use one of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster or \
         rediss-cluster"
    )]
    Scheme(String),
    /// There is no `://`.
    #[error("the store URL has no scheme: write for instance redis://127.0.0.1:6379")]
    NoScheme,
    /// The address at this position, counted from 1, cannot be parsed.
    #[error("address {0} is not host, host:port or [IPv6]:port; user and password end with an @ before it")]
    Address(usize),
    /// There is no address.
    #[error("the store URL names no host")]
    NoAddress,
    /// The scheme takes one address.
    #[error("{scheme}:// takes one address; several are for redis-sentinel:// and redis-cluster://")]
    OneAddress {
        /// The scheme that was written.
        scheme: &'static str,
    },
    /// A Sentinel URL without the name of the master.
    #[error("the Sentinel URL names no master: write redis-sentinel://host:26379/mymaster")]
    NoMaster,
    /// The database is not a number.
    #[error("the database is not a number")]
    Database,
    /// A cluster has only database 0.
    #[error("a cluster has database 0 only")]
    ClusterDatabase,
    /// The path has too many segments.
    #[error("the path has too many parts")]
    Path,
    /// A percent sign is not followed by two hexadecimal digits, or the bytes are not UTF-8.
    #[error("the {0} is not percent-encoded text: write `/` as %2F, `?` as %3F, `@` as %40")]
    Encoding(&'static str),
    /// A user without a password.
    #[error("the user has no password: write user:password@ or :password@")]
    NoPassword,
    /// An unknown parameter after `?`.
    #[error("unknown parameter after `?`: {scheme}:// takes {takes}")]
    Parameter {
        /// The scheme that was written.
        scheme: &'static str,
        /// The parameters that it takes.
        takes: &'static str,
    },
    /// `cert` without `key`, or `key` without `cert`.
    #[error("`cert` and `key` go together")]
    HalfAPair,
}

impl RedisUrl {
    /// Parses a URL.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = Scheme::parse(scheme)?;
        // An `@` after the first `/` or `?` means that the password holds one of them unescaped. Any other error would
        // be about a part of the password.
        let tail = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
        if scheme.kind != SchemeKind::Unix && tail.contains('@') {
            return Err(UrlError::Encoding("password"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut query = parameters(scheme, query)?;
        let mut take = |name| query.remove(name);
        let query_database = take("db").map(|text| read_database(&text)).transpose()?;
        let query_credentials = paired(take("user"), take("pass"))?;
        let sentinel_credentials = paired(take("sentinel_user"), take("sentinel_pass"))?;
        let authority = take("ca").map(PathBuf::from);
        let client = match (take("cert"), take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(UrlError::HalfAPair),
        };
        let tls = scheme.name.starts_with("rediss").then_some(ClientTlsFiles { authority, client });
        let (topology, credentials, database) = match scheme.kind {
            SchemeKind::Unix if rest.is_empty() => return Err(UrlError::NoAddress),
            SchemeKind::Unix => {
                let path = decoded(rest, "socket path")?.into();
                (Topology::Standalone(Endpoint::Unix(path)), query_credentials, None)
            }
            _ => networked(scheme, rest)?,
        };
        let database = database.or(query_database).unwrap_or(0);
        if scheme.kind == SchemeKind::Cluster && database != 0 {
            return Err(UrlError::ClusterDatabase);
        }
        Ok(Self { topology, credentials, sentinel_credentials, database, tls })
    }

    /// Whether the URLs differ only in users and passwords.
    pub(crate) fn names_same_store(&self, other: &Self) -> bool {
        let target = |url: &Self| (url.topology.clone(), url.database, url.tls.clone());
        target(self) == target(other)
    }
}

/// A store URL for display: without user, password and parameters. Of a URL that cannot be parsed only the scheme is
/// shown, because a secret may be anywhere in it.
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    match (Scheme::parse(scheme), RedisUrl::parse(url)) {
        (Err(_), _) => "***".to_owned(),
        (Ok(_), Err(_)) => format!("{scheme}://***"),
        (Ok(known), Ok(_)) => {
            let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
            match rest.rsplit_once('@').filter(|_| known.kind != SchemeKind::Unix) {
                Some((_, address)) => format!("{scheme}://***@{address}"),
                None => format!("{scheme}://{rest}"),
            }
        }
    }
}

/// Parses what is before the parameters of all URLs but those of Unix sockets. The database is `None` if the path has none.
fn networked(scheme: Scheme, rest: &str) -> Result<(Topology, Option<Credentials>, Option<u32>), UrlError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user_info(user)?), hosts),
        None => (None, authority),
    };
    let addresses = addresses(hosts, scheme.default_port())?;
    let path: Vec<&str> = path.trim_end_matches('/').split('/').filter(|part| !part.is_empty()).collect();
    let (topology, path) = match scheme.kind {
        SchemeKind::Sentinel => {
            let (master, path) = path.split_first().ok_or(UrlError::NoMaster)?;
            let master = decoded(master, "master's name")?;
            (Topology::Sentinel { sentinels: addresses, master }, path)
        }
        SchemeKind::Cluster => (Topology::Cluster { seeds: addresses }, &*path),
        SchemeKind::Standalone | SchemeKind::Unix => {
            let [endpoint]: [Endpoint; 1] =
                addresses.try_into().map_err(|_| UrlError::OneAddress { scheme: scheme.name })?;
            (Topology::Standalone(endpoint), &*path)
        }
    };
    match *path {
        [] => Ok((topology, credentials, None)),
        [database] => Ok((topology, credentials, Some(read_database(database)?))),
        _ => Err(UrlError::Path),
    }
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Endpoint>, UrlError> {
    if hosts.is_empty() {
        return Err(UrlError::NoAddress);
    }
    let read = |(index, text): (usize, &str)| {
        let endpoint = Endpoint::parse(text, Some(default_port)).filter(|_| has_plain_host(text));
        endpoint.ok_or(UrlError::Address(index + 1))
    };
    hosts.split(',').enumerate().map(read).collect()
}

/// Whether the host is not empty, and not an IPv6 address without brackets, whose last group would be taken for the
/// port.
fn has_plain_host(address: &str) -> bool {
    match address.strip_prefix('[') {
        Some(rest) => !rest.starts_with(']'),
        None => !address.is_empty() && !address.starts_with(':') && address.matches(':').count() <= 1,
    }
}

fn user_info(text: &str) -> Result<Credentials, UrlError> {
    let (user, password) = text.split_once(':').ok_or(UrlError::NoPassword)?;
    let user = Some(decoded(user, "user")?).filter(|user| !user.is_empty());
    paired(user, Some(decoded(password, "password")?))?.ok_or(UrlError::NoPassword)
}

fn paired(user: Option<String>, password: Option<String>) -> Result<Option<Credentials>, UrlError> {
    match (user, password) {
        (user, Some(password)) => Ok(Some(Credentials { user, password })),
        (Some(_), None) => Err(UrlError::NoPassword),
        (None, None) => Ok(None),
    }
}

fn read_database(text: &str) -> Result<u32, UrlError> {
    text.parse().map_err(|_| UrlError::Database)
}

/// Decodes percent-encoding. Errors name the `part` and not its text, which may be secret.
fn decoded(text: &str, part: &'static str) -> Result<String, UrlError> {
    // The crate leaves a percent sign without two digits as it is, which would hide a typing mistake.
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = percent_decode_str(text).decode_utf8().ok();
    let decoded = decoded.filter(|_| text.split('%').skip(1).all(is_escape));
    decoded.map(Into::into).ok_or(UrlError::Encoding(part))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SchemeKind {
    Standalone,
    Unix,
    Sentinel,
    Cluster,
}

#[derive(Clone, Copy, Debug)]
struct Scheme {
    name: &'static str,
    kind: SchemeKind,
    /// The parameters that it takes.
    takes: &'static str,
}

/// The schemes. Those with TLS begin with `rediss`.
const SCHEMES: [(&str, SchemeKind, &str); 7] = [
    ("redis", SchemeKind::Standalone, "db"),
    ("rediss", SchemeKind::Standalone, "db, ca, cert, key"),
    ("unix", SchemeKind::Unix, "db, user, pass"),
    ("redis-sentinel", SchemeKind::Sentinel, "db, sentinel_user, sentinel_pass"),
    ("rediss-sentinel", SchemeKind::Sentinel, "db, sentinel_user, sentinel_pass, ca, cert, key"),
    ("redis-cluster", SchemeKind::Cluster, "db"),
    ("rediss-cluster", SchemeKind::Cluster, "db, ca, cert, key"),
];

impl Scheme {
    fn parse(name: &str) -> Result<Self, UrlError> {
        let found = SCHEMES.into_iter().find(|(known, ..)| *known == name);
        found.map(|(name, kind, takes)| Self { name, kind, takes }).ok_or_else(|| {
            // Any other text may be a secret that was pasted into the wrong place.
            let tellable = name.len() <= 20 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-'));
            if tellable { UrlError::Scheme(name.to_owned()) } else { UrlError::NoScheme }
        })
    }

    fn default_port(self) -> u16 {
        if self.kind == SchemeKind::Sentinel { SENTINEL_PORT } else { REDIS_PORT }
    }
}

/// The parameters after `?`, by their names.
fn parameters(scheme: Scheme, text: &str) -> Result<BTreeMap<&'static str, String>, UrlError> {
    let Scheme { name: scheme, takes, .. } = scheme;
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let known = takes.split(", ").find(|known| *known == name);
        let name = known.ok_or(UrlError::Parameter { scheme, takes })?;
        let part = match name.trim_start_matches("sentinel_") {
            "pass" => "password",
            part => part,
        };
        Ok((name, if name == "db" { value.to_owned() } else { decoded(value, part)? }))
    };
    text.split('&').filter(|pair| !pair.is_empty()).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standalone(host: &str, port: u16) -> RedisUrl {
        let topology = Topology::Standalone(Endpoint::tcp(host, port));
        RedisUrl { topology, credentials: None, sentinel_credentials: None, database: 0, tls: None }
    }

    #[allow(clippy::unnecessary_wraps, reason = "the table reads better")]
    fn credentials(user: Option<&str>, password: &str) -> Option<Credentials> {
        Some(Credentials { user: user.map(Into::into), password: password.into() })
    }

    #[test]
    fn each_kind_of_url_is_read() {
        let cluster = Topology::Cluster { seeds: vec![Endpoint::tcp("a", 7000), Endpoint::tcp("b", 6379)] };
        let sentinel = Topology::Sentinel {
            sentinels: vec![Endpoint::tcp("a", 26379), Endpoint::tcp("b", 5000)],
            master: "mymaster".into(),
        };
        let files = ClientTlsFiles {
            authority: Some("/etc/ca.pem".into()),
            client: Some(("/etc/c.pem".into(), "/etc/c.key".into())),
        };
        let table = [
            ("redis://localhost", standalone("localhost", 6379)),
            ("redis://[::1]:7000/", standalone("::1", 7000)),
            ("redis://h:1/2", RedisUrl { database: 2, ..standalone("h", 1) }),
            ("redis://h?db=3", RedisUrl { database: 3, ..standalone("h", 6379) }),
            (
                "redis://:p%40ss@h",
                RedisUrl { credentials: credentials(None, "p@ss"), ..standalone("h", 6379) },
            ),
            (
                "redis://ann:a:b@h",
                RedisUrl { credentials: credentials(Some("ann"), "a:b"), ..standalone("h", 6379) },
            ),
            ("rediss://h", RedisUrl { tls: Some(ClientTlsFiles::default()), ..standalone("h", 6379) }),
            (
                "rediss://h?ca=/etc/ca.pem&cert=/etc/c.pem&key=/etc/c.key",
                RedisUrl { tls: Some(files), ..standalone("h", 6379) },
            ),
            (
                "unix:///run/redis.sock?db=4&user=ann&pass=s",
                RedisUrl {
                    topology: Topology::Standalone(Endpoint::Unix("/run/redis.sock".into())),
                    credentials: credentials(Some("ann"), "s"),
                    database: 4,
                    ..standalone("", 1)
                },
            ),
            (
                "redis-sentinel://ann:s@a,b:5000/mymaster/5?sentinel_pass=t",
                RedisUrl {
                    topology: sentinel.clone(),
                    credentials: credentials(Some("ann"), "s"),
                    sentinel_credentials: credentials(None, "t"),
                    database: 5,
                    ..standalone("", 1)
                },
            ),
            ("redis-sentinel://a,b:5000/mymaster", RedisUrl { topology: sentinel, ..standalone("", 1) }),
            ("redis-cluster://a:7000,b", RedisUrl { topology: cluster.clone(), ..standalone("", 1) }),
            (
                "rediss-cluster://a:7000,b",
                RedisUrl { topology: cluster, tls: Some(ClientTlsFiles::default()), ..standalone("", 1) },
            ),
        ];
        for (url, target) in table {
            assert_eq!(RedisUrl::parse(url), Ok(target), "{url}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let table = [
            ("localhost:6379", UrlError::NoScheme),
            ("http://h", UrlError::Scheme("http".into())),
            ("redis://", UrlError::NoAddress),
            ("app:secret@h://", UrlError::NoScheme),
            ("redis://h:port", UrlError::Address(1)),
            ("redis://h:0", UrlError::Address(1)),
            ("redis://:6379", UrlError::Address(1)),
            ("redis://[]:6379", UrlError::Address(1)),
            ("redis://h:70000", UrlError::Address(1)),
            ("redis-cluster://a,", UrlError::Address(2)),
            ("redis-cluster://a,b:x", UrlError::Address(2)),
            ("redis://a,b", UrlError::OneAddress { scheme: "redis" }),
            ("redis://h/one", UrlError::Database),
            ("redis://h/1/2", UrlError::Path),
            ("redis://ann@h", UrlError::NoPassword),
            ("redis://:%zz@h", UrlError::Encoding("password")),
            ("redis://app:Sup3r/Secret@redis", UrlError::Encoding("password")),
            ("redis://app:12345/hunter2@redis:6379", UrlError::Encoding("password")),
            ("redis://app:Sup3r?Secret@redis:6379", UrlError::Encoding("password")),
            ("redis://h?ca=x", UrlError::Parameter { scheme: "redis", takes: "db" }),
            ("rediss://h?cert=x", UrlError::HalfAPair),
            ("redis-sentinel://h", UrlError::NoMaster),
            ("redis-cluster://h/1", UrlError::ClusterDatabase),
            ("unix://", UrlError::NoAddress),
        ];
        for (url, error) in table {
            assert_eq!(RedisUrl::parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn an_ipv6_address_needs_brackets() {
        for url in
            ["redis://2001:db8::1", "redis://::1", "redis://2001:db8::1:6379", "redis-cluster://a,::1:7000"]
        {
            assert!(matches!(RedisUrl::parse(url), Err(UrlError::Address(_))), "{url}");
        }
        assert_eq!(RedisUrl::parse("redis://[2001:db8::1]"), Ok(standalone("2001:db8::1", 6379)));
        let redirected = Endpoint::tcp("h", 1).redirected("2001:db8::1:7000");
        assert_eq!(redirected, Some(Endpoint::tcp("2001:db8::1", 7000)), "Redis Cluster writes none");
    }

    #[test]
    fn a_debug_form_never_shows_the_password() {
        let shown = format!("{:?}", RedisUrl::parse("redis://ann:hunter2@h"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    /// Every URL with one typing mistake: a character is missing, inserted or replaced, or the URL is cut.
    fn slips(url: &str) -> impl Iterator<Item = String> + '_ {
        let cuts = url.char_indices().map(|(at, _)| at).chain([url.len()]);
        cuts.flat_map(move |at| {
            let (before, after) = url.split_at(at);
            let rest = after.get(1..).unwrap_or_default();
            let inserted = "/?@:#&=,x%".chars().map(move |slip| format!("{before}{slip}{after}"));
            let replaced = "/?@:#&=,x%".chars().map(move |slip| format!("{before}{slip}{rest}"));
            inserted.chain(replaced).chain([before.to_owned(), format!("{before}{rest}"), after.to_owned()])
        })
    }

    #[test]
    fn no_error_shows_the_password_whatever_slip_was_made() {
        let urls = [
            "redis://app:hunter2",
            "redis://hunter2",
            "redis://app:hunter2@h:6379/1",
            "rediss://:hunter2@[::1]:6379?ca=x",
            "redis-sentinel://app:hunter2@a,b:5000/mymaster/5?sentinel_user=u&sentinel_pass=hunter2",
            "redis-cluster://:hunter2@a:7000,b",
            "unix:///run/r.sock?user=u&pass=hunter2",
            "hunter2",
            "app:hunter2@h",
        ];
        for url in urls.iter().flat_map(|url| slips(url)) {
            if let Err(why) = RedisUrl::parse(&url) {
                let told = format!("{why} {why:?} {}", without_secrets(&url));
                assert!(!told.contains("unter2") && !told.contains("hunter"), "{url}: {told}");
            }
        }
    }

    #[test]
    fn a_url_is_shown_without_user_password_and_parameters() {
        let table = [
            ("redis://ann:hunter2@h:1/2", "redis://***@h:1/2"),
            ("redis-sentinel://a,b/m?sentinel_pass=hunter2", "redis-sentinel://a,b/m"),
            ("unix:///run/a@b.sock?pass=hunter2", "unix:///run/a@b.sock"),
            ("redis://app:hunter2", "redis://***"),
            ("redis://app:hun?ter2@h", "redis://***"),
            ("hunter2", "***"),
            ("hunter2://h", "***"),
        ];
        for (url, shown) in table {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
