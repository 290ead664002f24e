//! The command line: what was typed, and what it changes.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};
use spile_core::FailurePolicy;

use crate::config::{Config, StoreUrl};

/// A distributed token-bucket rate limiter.
#[derive(Debug, Parser)]
#[command(name = "spile", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `spile` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the service.
    Serve(ServeArgs),
}

/// The flags of `spile serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
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
    /// The configuration with these flags applied.
    pub fn config(self) -> Config {
        let mut config = Config::default();
        if let Some(store) = self.store {
            config.store.url = store;
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
        config
    }
}
