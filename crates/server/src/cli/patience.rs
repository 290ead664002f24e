//! How long a command waits for an answer.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;

/// The longest timeout that can be asked for.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a command waits for an answer.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long the answer may take, from 1ms to 1day.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = timeout)]
    pub(super) timeout: Duration,
}

impl Patience {
    /// The output of `question`, if it is ready in time.
    pub(super) async fn bound<T>(
        self,
        asked: &str,
        question: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::time::timeout(self.timeout, question).await.unwrap_or_else(|_| {
            let waited = humantime::format_duration(self.timeout);
            Err(anyhow!("no answer from {asked} within {waited}; `--timeout` says how long to wait"))
        })
    }
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|why| format!("{why}: write a time as in `500ms`"))?;
    if (Duration::from_millis(1)..=LONGEST).contains(&time) {
        Ok(time)
    } else {
        Err("takes 1ms to 1day".to_owned())
    }
}
