//! Which server program runs, and where its binary is.

use std::path::{Path, PathBuf};

/// The servers that Spile promises to work with.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Flavour {
    /// `redis-server` 7, as the distribution packages it.
    #[default]
    Redis7,
    /// `redis-server` 6.2, the oldest that is supported.
    Redis62,
    /// `valkey-server` 9.
    Valkey9,
}

impl Flavour {
    /// Every flavour, the default first.
    pub const ALL: [Self; 3] = [Self::Redis7, Self::Redis62, Self::Valkey9];

    /// The server's binary.
    ///
    /// # Panics
    /// Where it is not installed: a test that needs a server and has none must fail, not pass unseen.
    pub fn binary(self) -> PathBuf {
        let candidates = self.candidates();
        let found = candidates.iter().find(|path| path.is_file());
        let hint = || {
            let variable = self.variable();
            format!("no server for {self:?}: run ./test, which installs it, or set {variable} to its binary")
        };
        found.cloned().unwrap_or_else(|| panic!("{}", hint()))
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::Redis7 => "SPILE_REDIS7",
            Self::Redis62 => "SPILE_REDIS62",
            Self::Valkey9 => "SPILE_VALKEY9",
        }
    }

    fn candidates(self) -> Vec<PathBuf> {
        if let Some(chosen) = std::env::var_os(self.variable()) {
            return vec![chosen.into()];
        }
        match self {
            Self::Redis7 => on_path("redis-server"),
            Self::Redis62 => vec![cache().join("redis62/redis-server")],
            Self::Valkey9 => vec![cache().join("valkey9/valkey-server")],
        }
    }
}

fn on_path(program: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
}

/// Where `scripts/install-test-deps` unpacks the binaries that no distribution packages.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache")
}
