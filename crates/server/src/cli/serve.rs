//! `spile serve`: runs the service.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use spile_core::FailurePolicy;
use tokio::signal::unix::{SignalKind, signal};

use super::banner::Banner;
use super::print;

use crate::config::{self, Config, Flags, LoadError, LogFormat, LogLevel, StoreUrl, listen_address};
use crate::control::watcher;
use crate::observe::log;
use crate::secret::Secret;
use crate::serve::{ConnectionShares, Listeners, Server, raise_limit};

/// Random bytes in a generated token.
const TOKEN_BYTES: usize = 32;

/// The flags. They override file and environment.
#[derive(Args, Clone, Debug)]
pub(super) struct ServeArgs {
    /// The file to run with; without one, the defaults.
    #[arg(long, value_name = "FILE", env = "SPILE_CONFIG")]
    config: Option<PathBuf>,
    /// Where buckets live: `memory:`, `redis://HOST:PORT`, `rediss://…`, `unix://…`, `redis-sentinel://…` or
    /// `redis-cluster://…`.
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// Where the decision API listens.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    http: Option<SocketAddr>,
    /// Where health and metrics listen.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    admin: Option<SocketAddr>,
    /// Where Envoy's rate limit service listens, for gRPC; off by default.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    grpc: Option<SocketAddr>,
    /// Where the Redis protocol is spoken, for `CL.THROTTLE`; off by default.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    resp: Option<SocketAddr>,
    /// Where the reverse proxy over the file's routes listens; off by default.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    gateway: Option<SocketAddr>,
    /// Policy while the store fails: `allow`, `deny` or `local`.
    #[arg(long, value_name = "POLICY")]
    on_failure: Option<FailurePolicy>,
    /// How much is logged: off, error, warn, info, debug or trace, or levels by target as in
    /// `info,spile::gateway=debug`.
    #[arg(long, value_name = "LEVEL", env = "SPILE_LOG_LEVEL")]
    log_level: Option<LogLevel>,
    /// How log lines are written; with `json`, all that the server writes.
    #[arg(long, value_enum, value_name = "FORMAT", env = "SPILE_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    /// Threads that answer requests; as many as there are cores, unless said otherwise.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

impl ServeArgs {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = self.config()?;
        log::start(&config.log);
        config.store.check()?;
        config.check_runs(None)?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        // Polling the sockets more often costs more than it finds: most events are handled before the next poll anyway.
        runtime.thread_name("spile-worker").event_interval(256);
        if let Some(workers) = self.workers {
            runtime.worker_threads(workers.into());
        }
        runtime.enable_all().build()?.block_on(serve(&config))
    }

    /// The configuration file, if one is named.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.config.clone()
    }

    /// Returns these flags with this file.
    pub(super) fn with_file(self, file: PathBuf) -> Self {
        Self { config: Some(file), ..self }
    }

    /// The file, overridden by the environment, overridden by these flags.
    pub(super) fn config(&self) -> Result<Config, LoadError> {
        let variables = config::environment()?;
        let config = match &self.config {
            Some(path) => Config::load(path, variables)?,
            None => Config::from_environment(variables)?,
        };
        Ok(config.under(Flags {
            store: self.store.clone(),
            http: self.http,
            admin: self.admin,
            grpc: self.grpc,
            resp: self.resp,
            gateway: self.gateway,
            on_failure: self.on_failure,
            log_level: self.log_level.clone(),
            log_format: self.log_format,
        }))
    }
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    raise_limit();
    if let Some(warning) = ConnectionShares::of(config).warning() {
        tracing::warn!(target: "spile::serve", "{warning}");
    }
    if config.admin.token.as_ref().is_some_and(Secret::is_guessable) {
        let strong = Secret::STRONG_BYTES;
        tracing::warn!(
            "the admin token has fewer than {strong} bytes and can be guessed, so it is not checked while an address \
             presents wrong ones: `openssl rand -hex 32` makes a longer one"
        );
    }
    if config.resp.password.as_ref().is_some_and(Secret::is_guessable) {
        let strong = Secret::STRONG_BYTES;
        tracing::warn!(
            "the RESP password has fewer than {strong} bytes and can be guessed, so it is not checked while an address \
             presents wrong ones: `openssl rand -hex 32` makes a longer one"
        );
    }
    let shutdown = termination()?;
    // From here on, SIGHUP does not end the process. One that arrives before the server is set up has nothing to reload.
    let _ignored_until_then = watcher::hangup()?;
    let listeners = Listeners::bind(&config.listen).await?;
    let token = one_time_token(config)?;
    let secret = token.as_deref().map(Secret::new).transpose()?;
    let server = Server::new(config)?.one_time_token(secret);
    // The server runs whether or not its banner can be read.
    let banner = Banner::new(config, &listeners, token.as_deref())?;
    let _printed = if log::is_json() { print::all(banner.json()) } else { print::all(banner) };
    server.run(listeners, shutdown).await;
    Ok(())
}

/// A token for this run alone, if none is configured and only this machine reaches the admin listener. It is made only if a terminal
/// shows the banner: in a file or a log collector, a secret would persist.
fn one_time_token(config: &Config) -> Result<Option<String>, getrandom::Error> {
    let is_local = config.listen.admin.ip().to_canonical().is_loopback();
    if config.admin.token.is_some() || !is_local || log::is_json() || !io::stdout().is_terminal() {
        return Ok(None);
    }
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(Some(hex::encode(bytes)))
}

/// Resolves on the first SIGINT or SIGTERM. The handlers are in place once this returns, not only once it is
/// polled, so that no signal slips through while the server starts.
fn termination() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        let signal = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!(target: "spile::serve", "{signal} received: stopping");
    })
}
