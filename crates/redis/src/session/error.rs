//! Why a session has no reply.

use std::time::Duration;

/// Why a session has no reply.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no connection, and none can be opened.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The script was sent, and no reply came.
    #[error("Redis gave no answer within {0:?}")]
    TimedOut(Duration),
    /// The script was sent, and the connection broke before the reply was whole.
    #[error("the connection to Redis broke: {0}")]
    Broken(String),
    /// Redis replied with an error: it did not run the script, or the script failed.
    #[error("Redis refused: {0}")]
    Refused(String),
}

impl SessionError {
    /// Whether the script may have run to its end all the same. Only a script that does nothing when it is run again
    /// may be sent again then.
    pub const fn may_have_run(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Broken(_))
    }
}
