//! `spile health`: reports by its exit code whether a server is ready, or alive. An image without a shell has no other means to check.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use spile_core::{Clock, SystemClock};

use super::client::Client;
use super::patience::{Patience, timeout};
use super::print;
use super::server_url::ServerUrl;

/// Which server.
#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Where the server's admin listener is: `HOST:PORT`, `:PORT` on this machine, or a URL of http or https.
    #[arg(long, value_name = "ADDRESS", env = "SPILE_ADMIN", default_value = "http://127.0.0.1:8081")]
    admin: ServerUrl,
    /// Asks only whether the process runs (`/livez`), for engines that restart what is not healthy: a store that is away is
    /// no reason to.
    #[arg(long)]
    live: bool,
    /// Asks again until the server is ready, for at most this long: for scripts that have just started it.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    wait: Option<Duration>,
    #[command(flatten)]
    patience: Patience,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// How long `--wait` pauses between two questions.
const PAUSE: Duration = Duration::from_millis(100);

impl HealthArgs {
    /// Asks, and repeats the question while there is time to wait and the server is missing or not ready.
    fn ask(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        let (clock, most_us) = (SystemClock::new(), self.wait.unwrap_or_default().as_micros());
        let began = clock.now();
        loop {
            let answer = Client::new(&self.admin, None, self.patience).ask(Method::GET, path, None);
            let is_fine = answer.as_ref().is_ok_and(|(status, _)| status.is_success());
            if is_fine || u128::from(clock.now().since_us(began)) >= most_us {
                return answer;
            }
            // Blocking the thread is fine, because a command has nothing else to do.
            std::thread::park_timeout(PAUSE);
        }
    }

    pub(super) fn run(self) -> anyhow::Result<()> {
        let (path, word) = if self.live { ("/livez", "alive") } else { ("/readyz", "ready") };
        let (status, said) = self.ask(path)?;
        let said = said.as_str().unwrap_or_default();
        if !status.is_success() {
            let why = if said.is_empty() { status.to_string() } else { said.replace('\n', "; ") };
            bail!("the server at {} is not {word}: {why}", self.admin);
        }
        // A ready server may still report a problem, such as a lost store.
        let (_, more) = said.split_once('\n').unwrap_or((said, ""));
        match (self.json, more) {
            (true, "") => print::line(json!({word: true})),
            (true, more) => print::line(json!({word: true, "but": more.lines().collect::<Vec<_>>()})),
            (false, "") => print::line(word),
            (false, more) => print::line(format_args!("{word}\n{more}")),
        }
    }
}
