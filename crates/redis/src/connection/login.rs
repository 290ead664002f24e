//! The users and passwords of connections, which may change while the store runs.

use tokio::sync::watch;

use crate::connection::url::{Credentials, RedisUrl, UrlError};

/// The current credentials for one kind of server, and a notification of each change. Clones share them.
pub(crate) type Login = watch::Sender<Option<Credentials>>;

/// The URL of a store, and its credentials for servers and sentinels.
pub(crate) struct Logins {
    url: RedisUrl,
    pub(crate) servers: Login,
    pub(crate) sentinels: Login,
}

impl Logins {
    pub(crate) fn new(url: RedisUrl) -> Self {
        let (servers, sentinels) = (url.credentials.clone(), url.sentinel_credentials.clone());
        Self { url, servers: Login::new(servers), sentinels: Login::new(sentinels) }
    }

    /// Takes the credentials of `url`, if it names the same store.
    pub(crate) fn renew(&self, url: &str) -> Result<(), CredentialsError> {
        let url = RedisUrl::parse(url)?;
        if !url.names_same_store(&self.url) {
            return Err(CredentialsError::OtherStore);
        }
        for (login, new) in [(&self.servers, url.credentials), (&self.sentinels, url.sentinel_credentials)] {
            login.send_if_modified(|current| {
                let changes = *current != new;
                *current = new;
                changes
            });
        }
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
    one == other
        || matches!((RedisUrl::parse(one), RedisUrl::parse(other)),
            (Ok(one), Ok(other)) if one.names_same_store(&other))
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
                Logins::new(RedisUrl::parse(one).unwrap()).renew(other),
                Err(CredentialsError::OtherStore)
            );
        }
    }
}
