//! Whether this instance's configuration matches the shared registry.

use std::fmt;

/// The state of the registry. Every change of it is logged once.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigStatus {
    /// The version that is in force. `None` until the registry has been read.
    version: Option<u64>,
    trouble: Option<Trouble>,
    /// The consecutive failures to reach it before it was read for the first time.
    missed: u32,
}

/// After this many failures to reach the registry, an instance that has never read it starts without it. At two attempts a second that is
/// about five seconds: enough for a network that comes up after the instance, and short enough that an instance which starts while Redis
/// is down serves by its failure policy like those that already run.
const MOST_MISSED: u32 = 10;

/// Why the registry is not in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// It cannot be read.
    OutOfReach(String),
    /// It was read, and is invalid.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::OutOfReach(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

impl ConfigStatus {
    /// The version that is in force. `None` until there is one.
    pub(crate) const fn version(&self) -> Option<u64> {
        self.version
    }

    /// Why the registry is not in force. `None` while it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.as_ref().map(ToString::to_string)
    }

    /// Why the registry has not been read since the start. `None` once it has.
    pub(crate) fn unread(&self) -> Option<String> {
        let why = || self.trouble().unwrap_or_else(|| "it is being read".to_owned());
        self.version.is_none().then(why)
    }

    /// True if no traffic should be sent yet, because the registry's plans, rules and tenants may be missing. The wait for a registry
    /// that is reachable but unreadable has no end; the wait for an unreachable one is short.
    pub(crate) const fn waits(&self) -> bool {
        let goes_without = matches!(self.trouble, Some(Trouble::OutOfReach(_))) && self.missed >= MOST_MISSED;
        self.version.is_none() && !goes_without
    }

    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Refused(_)))
    }

    /// Records that the configuration in force is that of the registry.
    pub(super) fn in_step(&mut self, version: u64) {
        (self.version, self.missed) = (Some(version), 0);
        if self.trouble.take().is_some() {
            let held = if version == 0 {
                "it is empty, so only the file counts"
            } else {
                "all it holds is in force"
            };
            tracing::info!(target: "spile::registry", version, "the registry in Redis is read again: {held}");
        }
    }

    /// Records that the configuration in force differs from that of the registry. Returns whether that is news.
    pub(super) fn out_of_step(&mut self, trouble: Trouble) -> bool {
        if self.version.is_none() && matches!(trouble, Trouble::OutOfReach(_)) {
            self.missed = self.missed.saturating_add(1);
        }
        // The message about a Redis that cannot be reached differs from one attempt to the next.
        let is_news = match (&self.trouble, &trouble) {
            (Some(Trouble::OutOfReach(_)), Trouble::OutOfReach(_)) => false,
            (known, trouble) => known.as_ref() != Some(trouble),
        };
        if is_news {
            let stays = if self.version.is_some() { "what runs" } else { "what the file says" };
            match &trouble {
                Trouble::OutOfReach(why) => {
                    tracing::warn!(target: "spile::registry", "the registry in Redis cannot be read, {stays} stays until it is back: {why}");
                }
                Trouble::Refused(why) => {
                    tracing::error!(target: "spile::registry", "the registry was refused, {stays} stays: {why}");
                }
            }
        }
        self.trouble = Some(trouble);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_waits_for_the_first_version_and_not_for_ever_if_redis_is_out_of_reach() {
        let mut standing = ConfigStatus::default();
        assert!(standing.waits(), "nothing was read yet");
        for _ in 1..MOST_MISSED {
            standing.out_of_step(Trouble::OutOfReach("refused".to_owned()));
            assert!(standing.waits() && standing.unread().as_deref() == Some("refused"));
        }
        standing.out_of_step(Trouble::OutOfReach("refused".to_owned()));
        assert!(!standing.waits() && standing.unread().is_some(), "it goes by the failure policy");
        standing.out_of_step(Trouble::Refused("no right to read".to_owned()));
        assert!(standing.waits(), "it is there, and cannot be read");
        standing.in_step(0);
        assert_eq!(standing.unread(), None, "an empty registry was read, too");
        standing.out_of_step(Trouble::Refused("no right to read".to_owned()));
        assert!(!standing.waits() && standing.unread().is_none(), "what was read once stays");
    }

    #[test]
    fn what_is_known_is_no_news() {
        let mut standing = ConfigStatus::default();
        let refused = |why: &str| Trouble::Refused(why.to_owned());
        assert!(standing.out_of_step(Trouble::OutOfReach("timed out".to_owned())));
        assert!(!standing.out_of_step(Trouble::OutOfReach("refused".to_owned())));
        assert!(standing.out_of_step(refused("a")));
        assert!(!standing.out_of_step(refused("a")));
        assert!(standing.out_of_step(refused("b")) && standing.is_refused());
        standing.in_step(7);
        assert_eq!((standing.version(), standing.trouble()), (Some(7), None));
        assert!(standing.out_of_step(refused("b")), "it was well in between");
    }
}
