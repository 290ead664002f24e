//! Store URLs: `redis://user:pass@host:6379/2`, and their kin for TLS, Unix sockets, Sentinel and Cluster.

use std::fmt;
use std::path::PathBuf;

use crate::endpoint::Endpoint;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What a URL points at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) topology: Topology,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: u32,
    /// Present where connections are encrypted.
    pub(crate) tls: Option<TlsFiles>,
}

/// How the nodes are found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Topology {
    Standalone(Endpoint),
    Sentinel { sentinels: Vec<Endpoint>, master: String, credentials: Option<Credentials> },
    Cluster { seeds: Vec<Endpoint> },
}

/// A user, if not the default one, and a password.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, ***)", self.user)
    }
}

/// PEM files beside what the system trusts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TlsFiles {
    /// The authority to trust in place of the system's.
    pub(crate) authority: Option<PathBuf>,
    /// The certificate to show, and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with a store URL. Never holds the URL, which may hold a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The part before `://` is none that this store knows.
    #[error(
        "scheme `{0}` is none of redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster and \
         rediss-cluster"
    )]
    Scheme(String),
    /// There is no `://`.
    #[error("the store URL has no scheme: write for instance redis://127.0.0.1:6379")]
    NoScheme,
    /// A host or a port cannot be read.
    #[error("address `{0}` is not host or host:port")]
    Address(String),
    /// There is no address at all.
    #[error("the store URL names no host")]
    NoAddress,
    /// The scheme takes one address.
    #[error("{scheme}:// takes one address; several are for redis-sentinel:// and redis-cluster://")]
    OneAddress {
        /// The scheme that was written.
        scheme: &'static str,
    },
    /// A Sentinel URL must say which master it means.
    #[error("the Sentinel URL names no master: write redis-sentinel://host:26379/mymaster")]
    NoMaster,
    /// The database is no number.
    #[error("database `{0}` is not a number")]
    Database(String),
    /// A cluster has one database.
    #[error("a cluster has database 0 only")]
    ClusterDatabase,
    /// The path has more parts than it can mean.
    #[error("path `{0}` has too many parts")]
    Path(String),
    /// A percent sign that no two hexadecimal digits follow, or bytes that are no text.
    #[error("the {0} is not percent-encoded text: write `/` as %2F, `?` as %3F, `@` as %40")]
    Encoding(&'static str),
    /// A user without a password.
    #[error("the user has no password: write user:password@ or :password@")]
    NoPassword,
    /// A parameter after `?` that nothing reads.
    #[error("parameter `{name}` is none that {scheme}:// takes")]
    Parameter {
        /// What was written.
        name: String,
        /// The scheme it was written for.
        scheme: &'static str,
    },
    /// One of a pair of parameters.
    #[error("`cert` and `key` go together")]
    HalfAPair,
}

impl Target {
    /// Reads a URL.
    pub(crate) fn read(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = Scheme::read(scheme)?;
        // An `@` this late means that the password holds a `/` or `?` as it is. Whatever would be said about the
        // parts would quote it.
        let tail = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
        if scheme.kind != Kind::Unix && tail.contains('@') {
            return Err(UrlError::Encoding("password"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = Query::read(scheme, query)?;
        if scheme.kind == Kind::Unix { unix(rest, query) } else { networked(scheme, rest, query) }
    }
}

fn unix(path: &str, query: Query) -> Result<Target, UrlError> {
    if path.is_empty() {
        return Err(UrlError::NoAddress);
    }
    let endpoint = Endpoint::Unix(PathBuf::from(decoded(path, "socket path")?));
    let credentials = paired(query.user, query.password)?;
    let database = query.database.unwrap_or(0);
    Ok(Target { topology: Topology::Standalone(endpoint), credentials, database, tls: None })
}

fn networked(scheme: Scheme, rest: &str, query: Query) -> Result<Target, UrlError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user_info(user)?), hosts),
        None => (None, authority),
    };
    let addresses = addresses(hosts, scheme.default_port())?;
    let path: Vec<&str> = path.trim_end_matches('/').split('/').filter(|part| !part.is_empty()).collect();
    let (topology, database) = match scheme.kind {
        Kind::Sentinel => {
            let (master, database) = match *path {
                [] => return Err(UrlError::NoMaster),
                [master] => (master, None),
                [master, database] => (master, Some(database)),
                _ => return Err(UrlError::Path(path.join("/"))),
            };
            let master = decoded(master, "master's name")?;
            let credentials = paired(query.sentinel_user, query.sentinel_password)?;
            (Topology::Sentinel { sentinels: addresses, master, credentials }, database)
        }
        Kind::Cluster => (Topology::Cluster { seeds: addresses }, single(&path)?),
        Kind::Standalone | Kind::Unix => {
            let [endpoint]: [Endpoint; 1] =
                addresses.try_into().map_err(|_| UrlError::OneAddress { scheme: scheme.name })?;
            (Topology::Standalone(endpoint), single(&path)?)
        }
    };
    let database = database.map(read_database).transpose()?.or(query.database).unwrap_or(0);
    if scheme.kind == Kind::Cluster && database != 0 {
        return Err(UrlError::ClusterDatabase);
    }
    Ok(Target { topology, credentials, database, tls: scheme.tls.then_some(query.tls) })
}

fn single<'a>(path: &[&'a str]) -> Result<Option<&'a str>, UrlError> {
    match *path {
        [] => Ok(None),
        [part] => Ok(Some(part)),
        _ => Err(UrlError::Path(path.join("/"))),
    }
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Endpoint>, UrlError> {
    if hosts.is_empty() {
        return Err(UrlError::NoAddress);
    }
    let read = |text: &str| {
        let endpoint = Endpoint::read(text, Some(default_port)).filter(|_| !text.starts_with(':'));
        endpoint.filter(|_| !text.is_empty()).ok_or_else(|| UrlError::Address(text.to_owned()))
    };
    hosts.split(',').map(read).collect()
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
    text.parse().map_err(|_| UrlError::Database(text.to_owned()))
}

/// Undoes percent-encoding. `part` names what was read, for its text may be secret.
fn decoded(text: &str, part: &'static str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2).ok_or(UrlError::Encoding(part))?;
            let digits = std::str::from_utf8(digits).map_err(|_| UrlError::Encoding(part))?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| UrlError::Encoding(part))?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding(part))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Standalone,
    Unix,
    Sentinel,
    Cluster,
}

#[derive(Clone, Copy, Debug)]
struct Scheme {
    name: &'static str,
    kind: Kind,
    tls: bool,
}

impl Scheme {
    const ALL: [Self; 7] = [
        Self { name: "redis", kind: Kind::Standalone, tls: false },
        Self { name: "rediss", kind: Kind::Standalone, tls: true },
        Self { name: "unix", kind: Kind::Unix, tls: false },
        Self { name: "redis-sentinel", kind: Kind::Sentinel, tls: false },
        Self { name: "rediss-sentinel", kind: Kind::Sentinel, tls: true },
        Self { name: "redis-cluster", kind: Kind::Cluster, tls: false },
        Self { name: "rediss-cluster", kind: Kind::Cluster, tls: true },
    ];

    fn read(name: &str) -> Result<Self, UrlError> {
        let found = Self::ALL.into_iter().find(|scheme| scheme.name == name);
        // A scheme is short; anything longer may be a secret that was pasted into the wrong place.
        found.ok_or_else(|| UrlError::Scheme(name.chars().take(20).collect()))
    }

    fn default_port(self) -> u16 {
        if self.kind == Kind::Sentinel { SENTINEL_PORT } else { REDIS_PORT }
    }
}

/// The parameters after `?`.
#[derive(Debug, Default)]
struct Query {
    database: Option<u32>,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    tls: TlsFiles,
}

impl Query {
    fn read(scheme: Scheme, text: &str) -> Result<Self, UrlError> {
        let mut query = Self::default();
        let (mut certificate, mut key) = (None, None);
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |part| decoded(value, part);
            match name {
                "db" => query.database = Some(read_database(value)?),
                "user" if scheme.kind == Kind::Unix => query.user = Some(text("user")?),
                "pass" if scheme.kind == Kind::Unix => query.password = Some(text("password")?),
                "sentinel_user" if scheme.kind == Kind::Sentinel => query.sentinel_user = Some(text("user")?),
                "sentinel_pass" if scheme.kind == Kind::Sentinel => {
                    query.sentinel_password = Some(text("password")?);
                }
                "ca" if scheme.tls => query.tls.authority = Some(text("ca")?.into()),
                "cert" if scheme.tls => certificate = Some(text("cert")?.into()),
                "key" if scheme.tls => key = Some(text("key")?.into()),
                _ => return Err(UrlError::Parameter { name: name.to_owned(), scheme: scheme.name }),
            }
        }
        query.tls.client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(UrlError::HalfAPair),
        };
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standalone(host: &str, port: u16) -> Target {
        let topology = Topology::Standalone(Endpoint::tcp(host, port));
        Target { topology, credentials: None, database: 0, tls: None }
    }

    #[allow(clippy::unnecessary_wraps, reason = "the table reads better")]
    fn credentials(user: Option<&str>, password: &str) -> Option<Credentials> {
        Some(Credentials { user: user.map(Into::into), password: password.into() })
    }

    #[test]
    fn each_kind_of_url_is_read() {
        let cluster = Topology::Cluster { seeds: vec![Endpoint::tcp("a", 7000), Endpoint::tcp("b", 6379)] };
        let sentinel = |credentials| Topology::Sentinel {
            sentinels: vec![Endpoint::tcp("a", 26379), Endpoint::tcp("b", 5000)],
            master: "mymaster".into(),
            credentials,
        };
        let files = TlsFiles {
            authority: Some("/etc/ca.pem".into()),
            client: Some(("/etc/c.pem".into(), "/etc/c.key".into())),
        };
        let table = [
            ("redis://localhost", standalone("localhost", 6379)),
            ("redis://[::1]:7000/", standalone("::1", 7000)),
            ("redis://h:1/2", Target { database: 2, ..standalone("h", 1) }),
            ("redis://h?db=3", Target { database: 3, ..standalone("h", 6379) }),
            ("redis://:p%40ss@h", Target { credentials: credentials(None, "p@ss"), ..standalone("h", 6379) }),
            (
                "redis://ann:a:b@h",
                Target { credentials: credentials(Some("ann"), "a:b"), ..standalone("h", 6379) },
            ),
            ("rediss://h", Target { tls: Some(TlsFiles::default()), ..standalone("h", 6379) }),
            (
                "rediss://h?ca=/etc/ca.pem&cert=/etc/c.pem&key=/etc/c.key",
                Target { tls: Some(files), ..standalone("h", 6379) },
            ),
            (
                "unix:///run/redis.sock?db=4&user=ann&pass=s",
                Target {
                    topology: Topology::Standalone(Endpoint::Unix("/run/redis.sock".into())),
                    credentials: credentials(Some("ann"), "s"),
                    database: 4,
                    tls: None,
                },
            ),
            (
                "redis-sentinel://ann:s@a,b:5000/mymaster/5?sentinel_pass=t",
                Target {
                    topology: sentinel(credentials(None, "t")),
                    credentials: credentials(Some("ann"), "s"),
                    database: 5,
                    tls: None,
                },
            ),
            ("redis-sentinel://a,b:5000/mymaster", Target { topology: sentinel(None), ..standalone("", 1) }),
            ("redis-cluster://a:7000,b", Target { topology: cluster.clone(), ..standalone("", 1) }),
            (
                "rediss-cluster://a:7000,b",
                Target { topology: cluster, tls: Some(TlsFiles::default()), ..standalone("", 1) },
            ),
        ];
        for (url, target) in table {
            assert_eq!(Target::read(url), Ok(target), "{url}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let table = [
            ("localhost:6379", UrlError::NoScheme),
            ("http://h", UrlError::Scheme("http".into())),
            ("redis://", UrlError::NoAddress),
            ("redis://h:port", UrlError::Address("h:port".into())),
            ("redis://h:0", UrlError::Address("h:0".into())),
            ("redis://:6379", UrlError::Address(":6379".into())),
            ("redis://h:70000", UrlError::Address("h:70000".into())),
            ("redis://a,b", UrlError::OneAddress { scheme: "redis" }),
            ("redis://h/one", UrlError::Database("one".into())),
            ("redis://h/1/2", UrlError::Path("1/2".into())),
            ("redis://ann@h", UrlError::NoPassword),
            ("redis://:%zz@h", UrlError::Encoding("password")),
            ("redis://app:Sup3r/Secret@redis", UrlError::Encoding("password")),
            ("redis://app:12345/hunter2@redis:6379", UrlError::Encoding("password")),
            ("redis://app:Sup3r?Secret@redis:6379", UrlError::Encoding("password")),
            ("redis://h?ca=x", UrlError::Parameter { name: "ca".into(), scheme: "redis" }),
            ("rediss://h?cert=x", UrlError::HalfAPair),
            ("redis-sentinel://h", UrlError::NoMaster),
            ("redis-cluster://h/1", UrlError::ClusterDatabase),
            ("unix://", UrlError::NoAddress),
        ];
        for (url, error) in table {
            assert_eq!(Target::read(url), Err(error), "{url}");
        }
    }

    #[test]
    fn no_error_and_no_debug_form_shows_the_password() {
        let shown = format!("{:?}", Target::read("redis://ann:hunter2@h"));
        assert!(!shown.contains("hunter2"), "{shown}");
        for url in ["redis://ann:hunter2@h:x", "redis://ann:hunter2@h/x", "redis://ann:hunter2@"] {
            let shown = Target::read(url).unwrap_err().to_string();
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
