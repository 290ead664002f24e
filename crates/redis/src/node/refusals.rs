//! Whether a node refuses to work for us: from its first refusal on, until it writes again.
//!
//! A denial writes nothing, so a node without memory goes on to deny. Only a write shows that the refusals are over. So
//! while they last, a key beside the bucket that was refused is written once a second, whether or not callers come.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use spile_core::Limit;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::node::Node;
use crate::script::call::Call;
use crate::script::error_reply::{ErrorReply, Refusal};
use crate::script::request::{BatchGroup, Operation, Request, Waiting, WireCharge, WireLimit};
use crate::store::stats::Counters;

/// How often it is tried whether the node writes again.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// What follows the hash tag in the key that is written. No limit's name begins with a colon, so no bucket has this key.
const PROBE: &[u8] = b"::probe";

/// The longest text of Redis's that is told.
const LONGEST_TEXT: usize = 300;

/// Why Redis refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// It has no memory left to write to.
    Oom,
    /// The user may not do it.
    Acl,
    /// It cannot save its data, and takes no writes meanwhile.
    Misconf,
    /// It is a replica.
    ReadOnly,
    /// It has fewer replicas than it must have.
    NoReplicas,
    /// It is stuck in a script.
    Busy,
    /// Anything else.
    Other,
}

impl RefusalKind {
    /// Every kind, in the order of [`Stats::refusals`](crate::Stats::refusals).
    pub const ALL: [Self; 7] =
        [Self::Oom, Self::Acl, Self::Misconf, Self::ReadOnly, Self::NoReplicas, Self::Busy, Self::Other];

    /// Its name, for a metric's label.
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

    /// Reads an error reply. The error of a command inside a script has other words before its code, and on Redis 6.2
    /// a missing right has no code at all.
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

/// What a node refuses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Option<Refusing>>);

#[derive(Debug)]
struct Refusing {
    text: String,
    /// False while it may be a failover, which takes care of itself.
    lasts: bool,
}

impl Refusals {
    /// What Redis says, while the node refuses.
    pub(crate) fn trouble(&self) -> Option<String> {
        let refusing = self.0.lock();
        refusing
            .as_ref()
            .filter(|refusing| refusing.lasts)
            .map(|refusing| format!("Redis refuses: {}", refusing.text))
    }

    /// Notes a refusal. Says whether it is the first.
    fn begin(&self, text: &str, lasts: bool) -> bool {
        let mut refusing = self.0.lock();
        let is_first = refusing.is_none();
        let was_lasting = refusing.as_ref().is_some_and(|refusing| refusing.lasts);
        if is_first || (lasts && !was_lasting) {
            let text = text.chars().filter(|letter| !letter.is_control()).take(LONGEST_TEXT).collect();
            *refusing = Some(Refusing { text, lasts });
        }
        is_first
    }

    fn go_on(&self) {
        if let Some(refusing) = &mut *self.0.lock() {
            refusing.lasts = true;
        }
    }

    fn end(&self) {
        *self.0.lock() = None;
    }
}

/// Counts an error reply, if it is a refusal, and looks after the node until it writes again.
pub(crate) fn note(node: &Arc<Node>, counters: &Counters, reply: &ErrorReply, text: &str, call: &Call) {
    let lasts = match reply {
        ErrorReply::NoScript
        | ErrorReply::Moved { .. }
        | ErrorReply::Ask { .. }
        | ErrorReply::TryAgain
        | ErrorReply::ClusterDown => return,
        ErrorReply::WrongNode | ErrorReply::Unreplicated => false,
        ErrorReply::Busy | ErrorReply::Refused | ErrorReply::Other => true,
    };
    counters.refusals[RefusalKind::of(text) as usize].add(call.len() as u64);
    if node.refusals.begin(text, lasts) {
        match probe_beside(call) {
            Some(probe) => drop(tokio::spawn(until_it_writes(Arc::downgrade(node), Arc::new(probe)))),
            None => node.refusals.end(),
        }
    }
}

/// A write to the slot of the call, that is always granted and soon gone.
fn probe_beside(call: &Call) -> Option<Request> {
    let bucket = call.first_key()?;
    let tag = bucket.iter().position(|&byte| byte == b'}')?;
    let key = [&bucket[..=tag], PROBE].concat();
    let limit = Limit::per_second(1_000).build().ok()?;
    let charge = WireCharge { key, limit: WireLimit::from(&limit), cost_micro: 1 };
    Some(Request::new(Operation::Spend, [charge].into_iter().collect()))
}

/// Ends with the refusals, or with the node.
async fn until_it_writes(node: Weak<Node>, probe: Arc<Request>) {
    loop {
        sleep(PROBE_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if writes(&node, Arc::clone(&probe)).await {
            node.refusals.end();
            return;
        }
        node.refusals.go_on();
    }
}

/// Whether the node writes. One that no longer serves the slot has nothing to refuse there.
async fn writes(node: &Node, probe: Arc<Request>) -> bool {
    let (answer, answered) = oneshot::channel();
    probe.not_run();
    let waiting = Waiting::new(probe, BatchGroup::Alone, answer, None);
    if node.submit(waiting).is_err() {
        return false;
    }
    match timeout(PROBE_EVERY, answered).await {
        Ok(Ok(Ok(reply))) => reply.granted > 0,
        Ok(Ok(Err(refusal))) => matches!(refusal, Refusal::Moved { .. } | Refusal::Ask { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_inside_a_script_has_the_kind_of_its_command() {
        let cases = [
            ("OOM command not allowed when used memory > 'maxmemory'.", RefusalKind::Oom),
            (
                "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
                RefusalKind::Oom,
            ),
            ("NOPERM User app has no permissions to run the 'evalsha' command", RefusalKind::Acl),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'hset' command",
                RefusalKind::Acl,
            ),
            ("ERR The user executing the script can't run this command or subcommand", RefusalKind::Acl),
            ("MISCONF Redis is configured to save RDB snapshots", RefusalKind::Misconf),
            ("READONLY You can't write against a read only replica.", RefusalKind::ReadOnly),
            ("NOREPLICAS Not enough good replicas to write.", RefusalKind::NoReplicas),
            ("BUSY Redis is busy running a script.", RefusalKind::Busy),
            ("LOADING Redis is loading the dataset in memory", RefusalKind::Other),
            ("", RefusalKind::Other),
        ];
        for (text, kind) in cases {
            assert_eq!(RefusalKind::of(text), kind, "{text}");
        }
    }

    #[test]
    fn a_refusal_that_may_be_a_failover_is_told_once_it_lasts() {
        let refusals = Refusals::default();
        assert!(refusals.begin("READONLY", false));
        assert_eq!(refusals.trouble(), None);
        refusals.go_on();
        assert_eq!(refusals.trouble().as_deref(), Some("Redis refuses: READONLY"));
        assert!(!refusals.begin("OOM", true), "it has begun");
        refusals.end();
        assert_eq!(refusals.trouble(), None);
        assert!(refusals.begin("READONLY", false) && !refusals.begin("OOM\r\n", true));
        assert_eq!(
            refusals.trouble().as_deref(),
            Some("Redis refuses: OOM"),
            "one that does not wait for a failover"
        );
    }
}
