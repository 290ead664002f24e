//! Notifies of messages on the channel of a session.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spile_resp::Value;
use spile_runtime::{BoxFuture, Runtime, SharedTasks};
use tokio::sync::Notify;

use super::KeySpace;
use crate::connection::dial_limiter::Backoff;
use crate::connection::{Connection, ConnectionError, in_time};

/// How long the connection may be silent before a `PING`, and the timeout of its reply.
const QUIET: Duration = Duration::from_secs(2);

/// The pause after a server refused a subscription.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Notifies of every message on one channel, and of every time when messages may have been missed. Reconnects until it
/// is dropped.
pub struct Subscription {
    listener: SubscriptionTask,
    task: SharedTasks,
}

impl Subscription {
    pub(super) fn start(space: Arc<KeySpace>) -> Self {
        let listener = SubscriptionTask { space, news: Arc::default(), trouble: Arc::default() };
        let subscription = Self { listener, task: SharedTasks::default() };
        subscription.keep_listening();
        subscription
    }

    /// Waits for a message, or for a new connection, before which messages may have been missed. Several are reported
    /// as one. If the runtime has ended on which the subscription was made, it goes on with the caller's. Cancel safe.
    pub async fn notified(&self) {
        self.keep_listening();
        self.listener.news.notified().await;
    }

    /// Starts to listen on the current runtime, if that of the former task has ended.
    fn keep_listening(&self) {
        if self.task.have_ended() {
            let (listener, news) = (self.listener.clone(), Arc::clone(&self.listener.news));
            // Callers that wait ask again, and start it on their own runtime.
            let task: BoxFuture<()> = Box::pin(listener.run());
            self.task.start(self.listener.runtime(), || vec![task], move || news.notify_one());
        }
    }

    /// Why the subscription fails. `None` if it works.
    pub fn trouble(&self) -> Option<String> {
        self.listener.trouble.lock().clone()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.stop();
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct SubscriptionTask {
    space: Arc<KeySpace>,
    news: Arc<Notify>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl SubscriptionTask {
    fn runtime(&self) -> &Runtime {
        self.space.runtime()
    }

    async fn run(self) {
        let report = |why: Option<String>| {
            let is_open = why.is_none();
            *self.trouble.lock() = why;
            if is_open {
                self.news.notify_one();
            }
        };
        let heard = |message: &Value| {
            if message.as_array().and_then(|parts| parts.first()?.as_str()) == Some("message") {
                self.news.notify_one();
            }
        };
        keep_subscribed(self.runtime(), || self.subscribed(), report, heard).await;
    }

    async fn subscribed(&self) -> Result<Connection, ConnectionError> {
        let mut connection = self.space.connect().await?;
        let command: [&[u8]; 2] = [b"SUBSCRIBE", self.space.prefix.as_bytes()];
        connection.ask(&command, QUIET, self.runtime()).await?;
        Ok(connection)
    }
}

/// Keeps a subscription open. Reports why it fails, or `None` when it is open again, before which messages may have been missed. Never
/// returns.
pub(crate) async fn keep_subscribed<S: Future<Output = Result<Connection, ConnectionError>>>(
    runtime: &Runtime,
    subscribe: impl Fn() -> S,
    report: impl Fn(Option<String>),
    heard: impl Fn(&Value),
) {
    let mut backoff = Backoff::default();
    loop {
        match subscribe().await {
            Ok(mut connection) => {
                report(None);
                backoff = Backoff::default();
                while let Ok(message) = next_message(&mut connection, runtime).await {
                    heard(&message);
                }
            }
            Err(why) => {
                report(Some(why.to_string()));
                if let ConnectionError::Refused(_) = why {
                    runtime.sleep(REFUSED_PAUSE).await;
                }
            }
        }
        backoff.pause(runtime).await;
    }
}

/// The next message of a subscription, or the reply to a `PING` after silence. Fails if that reply does not arrive, or
/// if the credentials have changed.
async fn next_message(connection: &mut Connection, runtime: &Runtime) -> Result<Value, ConnectionError> {
    if connection.is_outdated() {
        return Err(ConnectionError::Closed);
    }
    if let Ok(message) = runtime.timeout(QUIET, connection.receive()).await {
        return message;
    }
    in_time(runtime, QUIET, connection.command(&[b"PING"])).await
}
