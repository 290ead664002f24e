//! Whether a node refuses to run our script: from its first error reply until it writes again.
//!
//! A denial writes nothing, so a node that is out of memory can still deny. Only a write shows that the node has
//! recovered. So after an error reply, a probe key in the same slot is written once a second until that succeeds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::Verdict;
use spile_runtime::Runtime;
use tokio::sync::oneshot;

use crate::node::Node;
use crate::script::call::ScriptCall;
use crate::script::error_reply::{ErrorReply, Rejection};
use crate::script::request::{BatchGroup, PendingRequest, Request, ScriptOp};

/// How often the probe key is written.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The end of the probe key, after the hash tag. No name of a limit begins with a colon, so no bucket has this key.
const PROBE: &[u8] = b"::probe";

/// The longest error text that is kept, in characters.
const LONGEST_TEXT: usize = 300;

/// Why Redis answered with an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RedisErrorKind {
    /// It is out of memory.
    Oom,
    /// The user lacks a permission.
    Acl,
    /// It cannot save its data, and rejects writes meanwhile.
    Misconf,
    /// It is a replica.
    ReadOnly,
    /// It has too few replicas.
    NoReplicas,
    /// It is busy with a script.
    Busy,
    /// Anything else.
    Other,
}

impl RedisErrorKind {
    /// All kinds, in the order of [`Stats::error_replies`](crate::Stats::error_replies).
    pub const ALL: [Self; 7] =
        [Self::Oom, Self::Acl, Self::Misconf, Self::ReadOnly, Self::NoReplicas, Self::Busy, Self::Other];

    /// The value of the metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::Acl => "acl",
            Self::Misconf => "misconf",
            Self::ReadOnly => "readonly",
            Self::NoReplicas => "noreplicas",
            Self::Busy => "busy",
            Self::Other => "other",
        }
    }

    /// Classifies an error reply. The error of a command inside a script has a text before its code, and on Redis 6.2 a
    /// missing permission has no code.
    fn of(text: &str) -> Self {
        let says = |code: &str| text.starts_with(code) || text.contains(&format!("-{code} "));
        let known = [
            ("OOM", Self::Oom),
            ("NOPERM", Self::Acl),
            ("NOAUTH", Self::Acl),
            ("WRONGPASS", Self::Acl),
            ("MISCONF", Self::Misconf),
            ("READONLY", Self::ReadOnly),
            ("NOREPLICAS", Self::NoReplicas),
            ("BUSY", Self::Busy),
        ];
        let missing_right =
            text.contains("ACL failure") || text.contains("The user executing the script can't");
        let found = known.into_iter().find(|(code, _)| says(code)).map(|(_, kind)| kind);
        found.unwrap_or(if missing_right { Self::Acl } else { Self::Other })
    }
}

/// The current refusal of a node, if any.
#[derive(Debug, Default)]
pub(crate) struct WriteFailures(Mutex<Option<WriteFailure>>);

#[derive(Debug)]
struct WriteFailure {
    text: String,
    /// False while it may be a failover, which ends by itself.
    is_lasting: bool,
}

impl WriteFailures {
    /// The error text of Redis. `None` if the node writes, or if it may be a failover.
    pub(crate) fn trouble(&self) -> Option<String> {
        let failure = self.0.lock();
        failure
            .as_ref()
            .filter(|failure| failure.is_lasting)
            .map(|failure| format!("Redis refuses: {}", failure.text))
    }

    /// Records an error reply. Returns whether it is the first since the last write.
    fn record(&self, text: &str, is_lasting: bool) -> bool {
        let mut failure = self.0.lock();
        let is_first = failure.is_none();
        let was_lasting = failure.as_ref().is_some_and(|failure| failure.is_lasting);
        if is_first || (is_lasting && !was_lasting) {
            let text = text.chars().filter(|letter| !letter.is_control()).take(LONGEST_TEXT).collect();
            *failure = Some(WriteFailure { text, is_lasting });
        }
        is_first
    }

    fn mark_lasting(&self) {
        if let Some(failure) = &mut *self.0.lock() {
            failure.is_lasting = true;
        }
    }

    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// Counts an error reply that is not a redirection, and starts to probe the node.
pub(crate) fn record_error(node: &Arc<Node>, reply: &ErrorReply, text: &str, call: &ScriptCall) {
    let is_lasting = match reply {
        ErrorReply::NoScript
        | ErrorReply::Moved { .. }
        | ErrorReply::Ask { .. }
        | ErrorReply::TryAgain
        | ErrorReply::ClusterDown => return,
        ErrorReply::WrongNode | ErrorReply::Unreplicated => false,
        ErrorReply::Busy | ErrorReply::Refused | ErrorReply::Other => true,
    };
    node.context.counters.error_replies[RedisErrorKind::of(text) as usize].add(call.len() as u64);
    if node.write_failures.record(text, is_lasting) {
        match write_probe(call) {
            Some(probe) => probe_later(node, probe),
            None => node.write_failures.clear(),
        }
    }
}

/// A write in the slot of the call, which is always allowed and expires soon.
fn write_probe(call: &ScriptCall) -> Option<Request> {
    let bucket = call.first_key()?;
    let tag = bucket.iter().position(|&byte| byte == b'}')?;
    let key = [&bucket[..=tag], PROBE].concat();
    Request::probe(ScriptOp::Spend, key, 1)
}

/// Starts to probe on the runtime of the lane that got the error. If that ends, the node forgets the failure.
fn probe_later(node: &Arc<Node>, probe: Request) {
    let runtime = node.context.runtime.clone();
    if let Some(spawner) = runtime.spawner() {
        spawner.spawn(probe_until_written(Arc::downgrade(node), Arc::new(probe), runtime));
    }
}

/// Writes the probe key until that succeeds or the node is dropped.
async fn probe_until_written(node: Weak<Node>, probe: Arc<Request>, runtime: Runtime) {
    loop {
        runtime.sleep(PROBE_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if can_write(&node, Arc::clone(&probe)).await {
            node.write_failures.clear();
            return;
        }
        node.write_failures.mark_lasting();
    }
}

/// Whether the node writes. True also if it no longer serves the slot.
async fn can_write(node: &Arc<Node>, probe: Arc<Request>) -> bool {
    let (answer, answered) = oneshot::channel();
    probe.mark_unsent();
    let waiting = PendingRequest { request: probe, group: BatchGroup::Alone, answer, deadline: None };
    if node.submit(waiting).is_err() {
        return false;
    }
    match node.context.runtime.timeout(PROBE_EVERY, answered).await {
        Ok(Ok(Ok(reply))) => reply.verdict == Verdict::Done,
        Ok(Ok(Err(refusal))) => matches!(refusal, Rejection::Moved { .. } | Rejection::Ask { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_inside_a_script_has_the_kind_of_its_command() {
        let cases = [
            ("OOM command not allowed when used memory > 'maxmemory'.", RedisErrorKind::Oom),
            (
                "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
                RedisErrorKind::Oom,
            ),
            ("NOPERM User app has no permissions to run the 'evalsha' command", RedisErrorKind::Acl),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'hset' command",
                RedisErrorKind::Acl,
            ),
            ("ERR The user executing the script can't run this command or subcommand", RedisErrorKind::Acl),
            ("MISCONF Redis is configured to save RDB snapshots", RedisErrorKind::Misconf),
            ("READONLY You can't write against a read only replica.", RedisErrorKind::ReadOnly),
            ("NOREPLICAS Not enough good replicas to write.", RedisErrorKind::NoReplicas),
            ("BUSY Redis is busy running a script.", RedisErrorKind::Busy),
            ("LOADING Redis is loading the dataset in memory", RedisErrorKind::Other),
            ("", RedisErrorKind::Other),
        ];
        for (text, kind) in cases {
            assert_eq!(RedisErrorKind::of(text), kind, "{text}");
        }
    }

    #[test]
    fn a_refusal_that_may_be_a_failover_is_told_once_it_lasts() {
        let failures = WriteFailures::default();
        assert!(failures.record("READONLY", false));
        assert_eq!(failures.trouble(), None);
        failures.mark_lasting();
        assert_eq!(failures.trouble().as_deref(), Some("Redis refuses: READONLY"));
        assert!(!failures.record("OOM", true), "it has begun");
        failures.clear();
        assert_eq!(failures.trouble(), None);
        assert!(failures.record("READONLY", false) && !failures.record("OOM\r\n", true));
        assert_eq!(
            failures.trouble().as_deref(),
            Some("Redis refuses: OOM"),
            "one that does not wait for a failover"
        );
    }
}
