//! A small language for the tests: start a Spile, ask it, look at the answer.

mod answer;
mod office;
mod process;
mod spile;

pub(crate) use answer::Answer;
pub(crate) use office::{FILE, Office, TOKEN};
pub(crate) use process::Process;
pub(crate) use spile::Spile;

/// A store at which no server listens. Ports below 1024 are given to neither clients nor tests.
pub(crate) const NOBODY: &str = "redis://127.0.0.1:1";

/// Runs each promise on the embedded store and on a real Redis.
macro_rules! on_both_stores {
    ($($promise:ident,)*) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(crate::support::Spile::start().await).await;
            })*
        }

        mod on_redis {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(crate::support::Spile::start_on_redis().await).await;
            })*
        }
    };
}

pub(crate) use on_both_stores;
