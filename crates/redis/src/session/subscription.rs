//! Hears of what is published, for as long as somebody listens.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_resp::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::KeySpace;
use crate::connection::dial_limiter::Backoff;
use crate::connection::{Connection, ConnectionError};

/// How long the other side may say nothing before it is asked whether it is still there, and then to answer.
const QUIET: Duration = Duration::from_secs(2);

/// How long to leave a server alone that does not let us subscribe.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Hears of every message of one space, and of every moment in which some may have been missed. Connects again for
/// ever; ends when dropped.
pub struct Subscription {
    news: Arc<Notify>,
    trouble: Arc<Mutex<Option<String>>>,
    task: AbortHandle,
}

impl Subscription {
    pub(super) fn start(space: Arc<KeySpace>) -> Self {
        let (news, trouble) = <(Arc<Notify>, Arc<Mutex<Option<String>>>)>::default();
        let task_state = SubscriptionTask { space, news: news.clone(), trouble: trouble.clone() };
        let task = tokio::spawn(task_state.run()).abort_handle();
        Self { news, trouble, task }
    }

    /// Waits until there may be news: a message, or a connection on which the last ones may have been missed. Many at
    /// once are heard as one. May be dropped at any time.
    pub async fn notified(&self) {
        self.news.notified().await;
    }

    /// Why nothing can be heard, while that is so.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}

struct SubscriptionTask {
    space: Arc<KeySpace>,
    news: Arc<Notify>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl SubscriptionTask {
    async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            match self.subscribed().await {
                Ok(connection) => {
                    backoff = Backoff::default();
                    *self.trouble.lock() = None;
                    self.listen(connection).await;
                }
                Err(why) => {
                    *self.trouble.lock() = Some(why.to_string());
                    match why {
                        ConnectionError::Refused(_) => sleep(REFUSED_PAUSE).await,
                        _ => backoff.pause().await,
                    }
                }
            }
        }
    }

    async fn subscribed(&self) -> Result<Connection, ConnectionError> {
        let mut connection = self.space.connect().await?;
        let channel = self.space.prefix.as_bytes();
        let subscribed = timeout(QUIET, connection.command(&[b"SUBSCRIBE", channel])).await;
        match subscribed.unwrap_or(Err(ConnectionError::Stalled(QUIET)))? {
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            _ => Ok(connection),
        }
    }

    async fn listen(&self, mut connection: Connection) {
        // Whatever was published before this is missed, so there may be news.
        self.news.notify_one();
        while let Ok(message) = next_message(&mut connection).await {
            let kind = message.as_array().and_then(|parts| parts.first()?.as_str());
            if kind == Some("message") {
                self.news.notify_one();
            }
        }
    }
}

/// What the other side of a subscription says next; one that says nothing is asked, and given up if it does not
/// answer, or if its credentials have been replaced.
pub(crate) async fn next_message(connection: &mut Connection) -> Result<Value, ConnectionError> {
    if connection.is_outdated() {
        return Err(ConnectionError::Closed);
    }
    if let Ok(message) = timeout(QUIET, connection.receive()).await {
        return message;
    }
    timeout(QUIET, connection.command(&[b"PING"])).await.unwrap_or(Err(ConnectionError::Stalled(QUIET)))
}
