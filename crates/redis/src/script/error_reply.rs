//! What Redis says when it does not do what it was asked, and what that means for whoever asked.

use std::sync::Arc;

use spile_core::StoreError;

use crate::connection::endpoint::Endpoint;

/// Why a request came back without a reply. All but [`Failed`](Self::Failed) mean that Redis did not run it, so it
/// may be tried again.
#[derive(Clone, Debug)]
pub(crate) enum Rejection {
    /// The slot lives on another node, for good.
    Moved { to: Endpoint },
    /// The key of this one request lives on another node while its slot is moving.
    Ask { to: Endpoint },
    /// Part of the slot is moving: ask once more, without the keys of others.
    SendAlone,
    /// Part of the slot is moving, and its keys are on two nodes: ask for each by itself.
    Split,
    /// Not now: the node changes its role, loads its data or does not serve the slot.
    Retry,
    /// There is nothing to try again.
    Failed(StoreError),
}

/// An error reply, by what has to be done about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ErrorReply {
    /// The node does not know the script: send its text.
    NoScript,
    /// The slot lives on that node.
    Moved { to: Endpoint },
    /// This once, ask that node.
    Ask { to: Endpoint },
    /// The slot is being moved, and part of it is elsewhere.
    TryAgain,
    /// The cluster does not serve this slot now.
    ClusterDown,
    /// This node is no master, or not yet, or does not know us any more: connect anew.
    WrongNode,
    /// The node has lost its replicas, and may have been replaced by one of them.
    Unreplicated,
    /// The node is stuck in somebody's script.
    Busy,
    /// The node does not do this for us now: it has no memory to write to, cannot save, or forbids the user.
    /// Nothing was written.
    Refused,
    /// Something else. A script may have been cut short by it.
    Other,
}

impl ErrorReply {
    /// Reads an error reply. `asked` is the node it came from, since a redirection may leave the host out.
    pub(crate) fn parse(text: &str, asked: &Endpoint) -> Self {
        let mut words = text.split_ascii_whitespace();
        let code = words.next().unwrap_or_default();
        match code {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" => redirection(words, asked).map_or(Self::Other, |to| Self::Moved { to }),
            "ASK" => redirection(words, asked).map_or(Self::Other, |to| Self::Ask { to }),
            "TRYAGAIN" => Self::TryAgain,
            "CLUSTERDOWN" => Self::ClusterDown,
            "LOADING" | "READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS" => Self::WrongNode,
            "NOREPLICAS" => Self::Unreplicated,
            "BUSY" => Self::Busy,
            "OOM" | "MISCONF" | "NOPERM" => Self::Refused,
            // Redis 6.2 puts its own words before the error of a command inside a script. These come at the first
            // write or not at all, so nothing was written.
            "ERR" if text.contains("-READONLY ") => Self::WrongNode,
            "ERR" if text.contains("-NOREPLICAS ") => Self::Unreplicated,
            "ERR" if ["-OOM ", "-MISCONF "].iter().any(|code| text.contains(code)) => Self::Refused,
            _ => Self::Other,
        }
    }
}

/// A redirection names the slot and then the node; the map is read again rather than patched slot by slot.
fn redirection<'a>(mut words: impl Iterator<Item = &'a str>, asked: &Endpoint) -> Option<Endpoint> {
    words.nth(1).and_then(|to| asked.redirected(to))
}

/// The store could not be reached, or refused. Nothing was spent.
pub(crate) fn not_run(message: impl Into<Arc<str>>) -> StoreError {
    StoreError::Unavailable { message: message.into(), may_have_run: false }
}

/// The request was on its way when its connection broke.
pub(crate) fn may_have_run(message: impl Into<Arc<str>>) -> StoreError {
    StoreError::Unavailable { message: message.into(), may_have_run: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_redis_gives_before_running_a_script_is_known() {
        let asked = Endpoint::tcp("10.0.0.1", 7000);
        let other = Endpoint::tcp("10.0.0.2", 7001);
        let cases = [
            ("NOSCRIPT No matching script.", ErrorReply::NoScript),
            ("MOVED 42 10.0.0.2:7001", ErrorReply::Moved { to: other.clone() }),
            ("MOVED 42 :7001", ErrorReply::Moved { to: Endpoint::tcp("10.0.0.1", 7001) }),
            ("ASK 42 10.0.0.2:7001", ErrorReply::Ask { to: other }),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorReply::TryAgain),
            ("CLUSTERDOWN Hash slot not served", ErrorReply::ClusterDown),
            ("LOADING Redis is loading the dataset in memory", ErrorReply::WrongNode),
            ("READONLY You can't write against a read only replica.", ErrorReply::WrongNode),
            (
                "ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write",
                ErrorReply::WrongNode,
            ),
            ("ERR Error running script (call to f_1): -OOM command not allowed", ErrorReply::Refused),
            ("NOPERM User app has no permissions to run the 'evalsha' command", ErrorReply::Refused),
            ("NOREPLICAS Not enough good replicas to write.", ErrorReply::Unreplicated),
            ("ERR The user executing the script can't run this command or subcommand", ErrorReply::Other),
            ("BUSY Redis is busy running a script.", ErrorReply::Busy),
            ("MOVED x y", ErrorReply::Other),
            ("", ErrorReply::Other),
        ];
        for (text, expected) in cases {
            assert_eq!(ErrorReply::parse(text, &asked), expected, "{text}");
        }
    }
}
