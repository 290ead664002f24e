//! Calls of the script without a connection, for a simulation that runs the script itself.

use std::sync::Arc;

use spile_core::{Charges, Micros, Operation, Reply, StoreError};
use spile_resp::Value;
use tokio::sync::oneshot;

use super::call::{RefusedCall, ScriptCall};
use super::error_reply::{Rejection, may_have_run, not_run};
use super::key::KeyPrefix;
use super::request::{BatchGroup, PendingRequest, Request};

/// One call of the script: the questions that share it, as a [`RedisStore`](crate::RedisStore) encodes them.
#[derive(Debug)]
pub struct WireCall(ScriptCall);

/// The answer to one question of a call.
#[derive(Clone, Debug)]
pub enum WireAnswer {
    /// The reply.
    Reply(Reply),
    /// Nothing was done: a quota has to be asked again with the windows around this moment.
    OutsideWindows(Micros),
    /// The question failed.
    Failed(StoreError),
}

impl WireCall {
    /// A call with these questions. The windows of quotas are those around `now`, the time that the script is expected to see.
    ///
    /// # Panics
    /// If the prefix is not that of a store.
    pub fn new(prefix: &str, questions: &[(Operation<'_>, &Charges<'_>)], now: Micros) -> Self {
        let prefix = KeyPrefix::new(prefix).expect("a prefix of letters, digits and `._-:/`");
        let waiting = questions.iter().map(|(operation, charges)| {
            let request = Arc::new(Request::encode(&prefix, operation, charges).at_time(now));
            let answer = oneshot::channel().0;
            PendingRequest { request, group: BatchGroup::Any, answer, deadline: None }
        });
        Self(ScriptCall::new(1, waiting.collect()))
    }

    /// The source of the script that decides it.
    pub fn script(&self) -> &'static str {
        self.0.script().source()
    }

    /// `KEYS`, and the only element of `ARGV`. If `time` is `None`, the script asks for the time.
    pub fn arguments(&self, time: Option<Micros>) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (keys, argument) = self.0.arguments(time.map_or(0, Micros::get));
        (keys.into_iter().map(<[u8]>::to_vec).collect(), argument)
    }

    /// The answers in the order of the questions. `None` if this is not a reply of the script to this call.
    pub fn read(&self, reply: &Value) -> Option<Vec<WireAnswer>> {
        match self.0.read(reply) {
            Ok(Ok(answers)) => Some(answers.replies.into_iter().map(WireAnswer::from).collect()),
            Ok(Err(RefusedCall { text, wrote })) => {
                let why = if wrote == Some(false) { not_run(text) } else { may_have_run(text) };
                Some(vec![WireAnswer::Failed(why); self.0.len()])
            }
            Err(_) => None,
        }
    }
}

impl From<Result<Reply, Rejection>> for WireAnswer {
    fn from(answer: Result<Reply, Rejection>) -> Self {
        match answer {
            Ok(reply) => Self::Reply(reply),
            Err(Rejection::OutsideWindows { now }) => Self::OutsideWindows(now),
            Err(other) => Self::Failed(other.into()),
        }
    }
}
