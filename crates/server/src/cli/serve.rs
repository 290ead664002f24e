//! `spile serve`: runs the service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use spile_core::FailurePolicy;

use crate::banner::Banner;
use crate::config::{Config, LoadError, StoreUrl};
use crate::listen::Listeners;
use crate::server::Server;
use crate::signals::termination;

/// The flags that stand above file and environment.
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
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// Where health and metrics listen.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// What to decide when the store fails: `allow`, `deny` or `local`.
    #[arg(long, value_name = "POLICY")]
    on_failure: Option<FailurePolicy>,
}

impl ServeArgs {
    #[tokio::main]
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let config = self.config()?;
        config.store.check()?;
        for listener in config.listen.unserved() {
            eprintln!("spile: listen.{listener} is configured, but this build does not serve it");
        }
        let shutdown = termination()?;
        let listeners = Listeners::bind(&config.listen).await?;
        let server = Server::new(&config)?;
        print!("{}", Banner::new(&config, &listeners)?);
        server.run(listeners, shutdown).await;
        Ok(())
    }

    /// The file, the environment above it, and these flags above both.
    pub(super) fn config(&self) -> Result<Config, LoadError> {
        let mut config = match &self.config {
            Some(path) => Config::load(path, std::env::vars())?,
            None => Config::from_environment(std::env::vars())?,
        };
        if let Some(store) = &self.store {
            config.store.url = store.clone();
        }
        if let Some(http) = self.http {
            config.listen.http = http;
        }
        if let Some(admin) = self.admin {
            config.listen.admin = admin;
        }
        if let Some(policy) = self.on_failure {
            config.store.on_failure = policy;
        }
        Ok(config)
    }
}
