//! A small language for the tests: start a Spile, ask it, look at the answer.

mod answer;
mod office;
mod process;
mod spile;

pub(crate) use answer::Answer;
pub(crate) use office::{FILE, Office, TOKEN};
pub(crate) use process::Process;
pub(crate) use spile::Spile;

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
