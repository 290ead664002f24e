//! How a registry that instances share stands with this one.

use std::fmt;

/// How the registry stands. What changes is logged, once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The version that is part of what is in force, once it has been read.
    version: Option<u64>,
    trouble: Option<Trouble>,
}

/// Why the registry is not what is in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// It cannot be read.
    OutOfReach(String),
    /// It was read, and does not work.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::OutOfReach(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

impl Standing {
    /// The version that is in force, once there is one.
    pub(crate) const fn version(&self) -> Option<u64> {
        self.version
    }

    /// Why the registry is not what is in force, while it is not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.as_ref().map(ToString::to_string)
    }

    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Refused(_)))
    }

    /// What runs is what the registry holds.
    pub(super) fn in_step(&mut self, version: u64) {
        self.version = Some(version);
        if self.trouble.take().is_some() {
            tracing::info!(target: "spile::registry", version, "what runs is the registry's again");
        }
    }

    /// What runs is not what the registry holds. Says whether that is news.
    pub(super) fn out_of_step(&mut self, trouble: Trouble) -> bool {
        // What is said about a Redis that is out of reach differs from one look to the next.
        let is_news = match (&self.trouble, &trouble) {
            (Some(Trouble::OutOfReach(_)), Trouble::OutOfReach(_)) => false,
            (known, trouble) => known.as_ref() != Some(trouble),
        };
        if is_news {
            let stays = if self.version.is_some() { "what runs" } else { "what the file says" };
            match &trouble {
                Trouble::OutOfReach(why) => {
                    tracing::warn!(target: "spile::registry", "{stays} stays until it is back: {why}");
                }
                Trouble::Refused(why) => {
                    tracing::error!(target: "spile::registry", "refused, {stays} stays: {why}");
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
    fn what_is_known_is_no_news() {
        let mut standing = Standing::default();
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
