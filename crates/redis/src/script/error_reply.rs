//! Error replies of Redis, and what they mean for the request.

use std::sync::Arc;

use spile_core::{Micros, StoreError};

use crate::connection::endpoint::Endpoint;

/// Why a lane returned a request without a reply. All but [`Failed`](Self::Failed) mean that Redis did not run it, so
/// that it may be sent again.
#[derive(Clone, Debug)]
pub(crate) enum Rejection {
    /// The slot is on another node (`MOVED`).
    Moved { to: Endpoint },
    /// The slot is moving, and the keys of this request are on another node already (`ASK`).
    Ask { to: Endpoint },
    /// The request must be sent again without other requests in its call, so that the answer is about it only.
    SendAlone,
    /// The slot is moving, and the keys of this request are on two nodes: each must be sent by itself.
    Split,
    /// The node's time is outside the windows that a quota was asked with: the request must be sent again with those around it.
    OutsideWindows { now: Micros },
    /// The node changes its role, loads its data or does not serve the slot: try again later.
    Retry,
    /// The request failed for good.
    Failed(StoreError),
}

impl Rejection {
    /// Whether Redis may have run the request.
    pub(crate) const fn may_have_run(&self) -> bool {
        matches!(self, Self::Failed(why) if why.may_have_run())
    }
}

impl From<StoreError> for Rejection {
    fn from(why: StoreError) -> Self {
        Self::Failed(why)
    }
}

impl From<Rejection> for StoreError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Failed(why) => why,
            Rejection::OutsideWindows { .. } => not_run("its clock jumps"),
            Rejection::Split => not_run("the slot is moving"),
            other => not_run(format!("{other:?}")),
        }
    }
}

/// An error reply, by what has to be done about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ErrorReply {
    /// The node has not cached the script.
    NoScript,
    /// The slot is on that node.
    Moved { to: Endpoint },
    /// For this request only, ask that node.
    Ask { to: Endpoint },
    /// The slot is moving, and the keys are on two nodes.
    TryAgain,
    /// The cluster does not serve the slot now.
    ClusterDown,
    /// The node is not a master, still loads its data, or does not accept the user any more: connect again.
    WrongNode,
    /// The node has lost its replicas. One of them may have replaced it.
    Unreplicated,
    /// The node is busy with another script.
    Busy,
    /// The node is out of memory, cannot save its data, or forbids the user. Nothing was written.
    Refused,
    /// Any other error. It may have interrupted the script.
    Other,
}

impl ErrorReply {
    /// Parses an error reply of the node `asked`. A redirection may leave out the host, which is then that of `asked`.
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
            // Redis 6.2 puts the place in the script before the error of a command.
            _ if text.contains("-READONLY ") => Self::WrongNode,
            _ if text.contains("-NOREPLICAS ") => Self::Unreplicated,
            _ if ["-OOM ", "-MISCONF "].iter().any(|code| text.contains(code)) => Self::Refused,
            _ => Self::Other,
        }
    }
}

/// A redirection holds the slot and the node. The slot is ignored, because the whole map is read again.
fn redirection<'a>(mut words: impl Iterator<Item = &'a str>, asked: &Endpoint) -> Option<Endpoint> {
    words.nth(1).and_then(|to| asked.redirected(to))
}

/// The error of a request that did not run. Nothing was spent.
pub(crate) fn not_run(message: impl Into<Arc<str>>) -> StoreError {
    StoreError::Unavailable { message: message.into(), may_have_run: false }
}

/// The error of a request that may have run.
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
            ("MOVED 42 ?:7001", ErrorReply::Moved { to: Endpoint::tcp("10.0.0.1", 7001) }),
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
            ("@user_script: 1: -OOM command not allowed", ErrorReply::Refused),
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
