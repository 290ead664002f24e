//! The users and passwords of connections, which may change while the store runs.

use std::sync::Arc;

use tokio::sync::watch;

use crate::connection::url::{Credentials, RedisUrl, Topology, UrlError};

/// The credentials for one kind of server. Clones share them.
#[derive(Clone)]
pub(crate) struct Login(Arc<watch::Sender<Option<Credentials>>>);

impl Login {
    pub(crate) fn new(credentials: Option<Credentials>) -> Self {
        Self(Arc::new(watch::Sender::new(credentials)))
    }

    /// The current credentials, and every change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Credentials>> {
        self.0.subscribe()
    }

    fn replace(&self, credentials: Option<Credentials>) {
        self.0.send_if_modified(|current| {
            let changes = *current != credentials;
            if changes {
                *current = credentials;
            }
            changes
        });
    }
}

/// The URL of a store, and its credentials for servers and sentinels.
pub(crate) struct Logins {
    /// The URL without credentials.
    target: RedisUrl,
    pub(crate) servers: Login,
    pub(crate) sentinels: Login,
}

impl Logins {
    pub(crate) fn new(target: &RedisUrl) -> Self {
        let (target, servers, sentinels) = split_credentials(target.clone());
        Self { target, servers: Login::new(servers), sentinels: Login::new(sentinels) }
    }

    /// Takes the credentials of `url`, if it names the same store.
    pub(crate) fn renew(&self, url: &str) -> Result<(), CredentialsError> {
        let (target, servers, sentinels) = split_credentials(RedisUrl::parse(url)?);
        if target != self.target {
            return Err(CredentialsError::OtherStore);
        }
        self.servers.replace(servers);
        self.sentinels.replace(sentinels);
        Ok(())
    }
}

/// Why the credentials of a URL are rejected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The URL cannot be read.
    #[error("store URL: {0}")]
    Url(#[from] UrlError),
    /// The URL differs in more than users and passwords.
    #[error("the URL names another store: only users and passwords can change while a store runs")]
    OtherStore,
}

/// Whether two store URLs differ only in users and passwords.
pub fn names_same_store(one: &str, other: &str) -> bool {
    let target = |url| RedisUrl::parse(url).map(|target| split_credentials(target).0);
    one == other || matches!((target(one), target(other)), (Ok(one), Ok(other)) if one == other)
}

/// The URL without credentials, the credentials for the servers, and those for the sentinels.
fn split_credentials(mut target: RedisUrl) -> (RedisUrl, Option<Credentials>, Option<Credentials>) {
    let servers = target.credentials.take();
    let sentinels = match &mut target.topology {
        Topology::Sentinel { credentials, .. } => credentials.take(),
        Topology::Standalone(_) | Topology::Cluster { .. } => None,
    };
    (target, servers, sentinels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_the_same_place_whatever_their_users_and_passwords() {
        let same = [
            ("redis://h", "redis://ann:a@h:6379/0"),
            ("unix:///s?user=a&pass=b", "unix:///s"),
            (
                "redis-sentinel://a,b/m?sentinel_pass=x",
                "redis-sentinel://u:p@a,b/m?sentinel_user=y&sentinel_pass=z",
            ),
            ("redis-cluster://:old@a,b", "redis-cluster://:new@a,b"),
        ];
        for (one, other) in same {
            assert!(names_same_store(one, other), "{one} {other}");
        }
        let different = [
            ("redis://:p@h", "redis://:p@g"),
            ("redis://:p@h", "redis://:p@h/1"),
            ("redis://h", "rediss://h"),
            ("rediss://h", "rediss://h?ca=x"),
            ("redis-sentinel://a/m", "redis-sentinel://a/n"),
            ("redis-cluster://a", "redis-cluster://a,b"),
        ];
        for (one, other) in different {
            assert!(!names_same_store(one, other), "{one} {other}");
            assert_eq!(
                Logins::new(&RedisUrl::parse(one).unwrap()).renew(other),
                Err(CredentialsError::OtherStore)
            );
        }
    }
}
