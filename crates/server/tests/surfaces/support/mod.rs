//! A small language for the tests: start a Spile, keep it busy, look at it through real programs.

mod browser;
mod client;
mod peer;
mod receiver;
mod spile;

pub(crate) use browser::Browser;
pub(crate) use client::Client;
pub(crate) use peer::{Peer, output_in, output_of};
pub(crate) use receiver::receiver;
pub(crate) use spile::{Spile, TOKEN};

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long another program may take to see what it is to see.
const PATIENCE: Duration = Duration::from_secs(60);
/// Other programs live by the machine's clock: they are asked again after this long.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited {PATIENCE:?} for {what}");
        sleep(PAUSE).await;
    }
}
