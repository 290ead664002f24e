//! Asks a store directly, without a server: the same code decides in this process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use spile_core::Decision;
use spile_memory::SnapshotFile;
use tokio::runtime::Runtime;

use super::ask::Verb;
use super::patience::Patience;
use crate::config::{self, Config, Embedded, Flags, ObserveConfig, StoreUrl};
use crate::decide::Clocks;
use crate::decide::Decider;
use crate::decide::ServerStore;
use crate::decide::buckets::{self, BucketsError, field_of};
use crate::http::write_decision;
use crate::input::typed::{Object, TypedQuestion, parse};
use crate::observe::metrics::Telemetry;

/// Which store to ask itself.
#[derive(Args, Debug)]
pub(super) struct DirectArgs {
    /// Asks this store, without a server: `redis://HOST:PORT` and its like.
    #[arg(long, value_name = "URL", conflicts_with = "path")]
    store: Option<StoreUrl>,
    /// Asks the file of an embedded store, without a server: what a server has last saved there.
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Takes plans, rules and the store from this file, without a server. With --store or --path and no file, the
    /// usual plans.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A store that is used without a server.
pub(super) struct Direct {
    decider: Decider,
    /// The file to which a changed embedded store is saved.
    file: Option<(SnapshotFile, Embedded)>,
    runtime: Runtime,
}

impl DirectArgs {
    /// Opens the store, if one is named. `changes` is true if its buckets will change, which requires that no server uses the file.
    pub(super) fn open(&self, changes: bool, patience: Patience) -> anyhow::Result<Option<Direct>> {
        if self.store.is_none() && self.path.is_none() && self.config.is_none() {
            return Ok(None);
        }
        let mut config = match &self.config {
            Some(path) => Config::load(path, config::environment()?)?,
            None => Config::from_environment(config::environment()?)?,
        };
        config = config.under(Flags { store: self.store.clone(), ..Flags::default() });
        if self.path.is_some() {
            config.store.url = StoreUrl::Memory;
            config.store.path.clone_from(&self.path);
        }
        // People wait longer than requests do, and a first connection takes longer than a decision.
        config.store.timeout = patience.timeout;
        Direct::open(&config, changes).map(Some)
    }
}

impl Direct {
    fn open(config: &Config, changes: bool) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _within = runtime.enter();
        let (clocks, telemetry) = (Clocks::system(), Telemetry::new(&ObserveConfig::default())?);
        let (mut file, mut embedded) = (None, None);
        if config.store.url == StoreUrl::Memory {
            let Some(path) = &config.store.path else {
                bail!(
                    "the buckets of memory: are in the server's own memory: ask it, or give its store a path"
                );
            };
            let builder = config.store.embedded(Arc::clone(&clocks.buckets));
            if changes {
                let opened = SnapshotFile::open(path)?;
                let store = Arc::new(opened.restore(builder)?);
                embedded = Some(Arc::clone(&store));
                file = Some((opened, store));
            } else {
                embedded = Some(Arc::new(SnapshotFile::read(path, builder)?));
            }
        }
        let store = ServerStore::new(&config.store, &clocks, embedded, &telemetry)?;
        let decider = Decider::new(config, store, clocks, telemetry.watch().clone());
        Ok(Self { decider, file, runtime })
    }

    /// The decision, as a server would answer it.
    pub(super) fn ask(mut self, verb: Verb, question: &Value) -> anyhow::Result<Value> {
        let body = question.to_string();
        let Object(typed): Object<TypedQuestion<'_>> =
            parse(body.as_bytes()).map_err(|fault| anyhow!("{fault}"))?;
        let policy = self.decider.policy();
        let owed = match verb {
            Verb::Check => typed.owed_without_permit(&policy),
            Verb::Peek => typed.owed(&policy),
        };
        let owed = owed.map_err(|fault| anyhow!("{fault}"))?;
        let ruling = self.runtime.block_on(async {
            match verb {
                Verb::Check => self.decider.allow(&owed).await,
                Verb::Peek => self.decider.peek(&owed).await,
            }
        });
        if let Some(degraded) = ruling.decisions().find(|decision| decision.degraded()) {
            return self.silent(degraded);
        }
        self.save()?;
        let mut json = Vec::new();
        write_decision(&mut json, &ruling);
        Ok(serde_json::from_slice(&json)?)
    }

    pub(super) fn inspect(self, key: &str, plan: Option<&str>) -> anyhow::Result<Value> {
        let buckets = self.runtime.block_on(buckets::inspect(&self.decider, key, plan));
        let buckets = buckets.map_err(|why| self.unseen(why))?;
        Ok(json!({"key": key, "buckets": buckets}))
    }

    pub(super) fn reset(mut self, key: &str, plan: Option<&str>) -> anyhow::Result<()> {
        let done = self.runtime.block_on(buckets::reset(&self.decider, key, plan));
        done.map_err(|why| self.unseen(why))?;
        self.save()
    }

    fn save(&mut self) -> anyhow::Result<()> {
        if let Some((file, store)) = &mut self.file {
            file.save(store)?;
        }
        Ok(())
    }

    fn silent<T>(&self, decision: &Decision) -> anyhow::Result<T> {
        let reason = || decision.failure().map(|why| why.as_str().to_owned());
        let why = self.decider.store().trouble().or_else(reason).unwrap_or_default();
        bail!("the store does not answer: {why}")
    }

    fn unseen(&self, why: BucketsError) -> anyhow::Error {
        match why {
            BucketsError::Invalid(why) => anyhow!("{}: {why}", field_of(&why)),
            BucketsError::Store => {
                let why = self.decider.store().trouble().unwrap_or_else(|| "no answer in time".to_owned());
                anyhow!("the store does not answer: {why}")
            }
        }
    }
}
