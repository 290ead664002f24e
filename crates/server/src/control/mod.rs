//! Who changes what the server runs with, while it runs: all of a change, or none of it.

mod change;
mod error;
mod follower;
mod standing;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use spile_observe::Watch;
use spile_redis::Subscription;
use tokio::sync::watch;

pub(crate) use self::change::{Change, Condition, Entry};
pub(crate) use self::error::ControlError;
pub(crate) use self::follower::follow;
pub(crate) use self::standing::Standing;
use self::standing::Trouble;
use crate::config::{Config, LoadError};
use crate::decider::Decider;
use crate::document;
use crate::gateway::Front;
use crate::metrics::{RefusedGauges, RegistryGauge, Telemetry};
use crate::registry::{Entries, Kind, Registry, RegistryError, Which, Written};

/// The most entries that a registry holds.
const MOST_ENTRIES: usize = 200_000;
/// How often a change is worked out anew because another instance came first.
const TRIES: usize = 20;

/// The one place that changes go through. One at a time: a second writer sees what the first one wrote.
pub(crate) struct Control {
    decider: Arc<Decider>,
    gateway: Option<Arc<Front>>,
    /// Held by whoever changes what is in force.
    registry: tokio::sync::Mutex<Registry>,
    /// The registry's entries that are part of what is in force.
    entries: Mutex<Arc<Entries>>,
    standing: Mutex<Standing>,
    /// Why the last reload was refused, until one is not.
    refusal: Mutex<Option<String>>,
    /// What is in force, for whoever follows it.
    in_force: watch::Sender<Arc<Config>>,
    /// What the server started with: what only a restart changes is still so.
    started: Arc<Config>,
    watch: Watch,
    gauge: RegistryGauge,
    refused: RefusedGauges,
}

/// What a change has led to.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The entry as it is now, unless it is gone.
    pub(crate) entry: Option<Entry>,
    /// Whether nothing had the name before.
    pub(crate) is_new: bool,
}

impl Control {
    /// Opens the registry, and puts its entries above the configuration. One in Redis is read later.
    pub(crate) fn new(
        config: &Config,
        decider: Arc<Decider>,
        gateway: Option<Arc<Front>>,
        telemetry: &Telemetry,
    ) -> Result<Self, ControlError> {
        let file = config.admin.registry_file.as_deref();
        let registry = match (decider.store().redis(), file) {
            (Some(_), Some(_)) => return Err(ControlError::TwoRegistries),
            (Some(redis), None) => Registry::shared(redis),
            (None, file) => Registry::own(file).map_err(RegistryError::from)?,
        };
        let entries = Arc::clone(registry.entries());
        let config = if entries.is_empty() { config.clone() } else { config.with_entries(&entries)? };
        put_to_work(&decider, gateway.as_deref(), &config);
        let started = Arc::new(config);
        Ok(Self {
            decider,
            gateway,
            registry: tokio::sync::Mutex::new(registry),
            entries: Mutex::new(entries),
            standing: Mutex::default(),
            refusal: Mutex::default(),
            in_force: watch::Sender::new(Arc::clone(&started)),
            started,
            watch: telemetry.watch().clone(),
            gauge: RegistryGauge::new(telemetry),
            refused: RefusedGauges::new(telemetry),
        })
    }

    /// What the server runs with.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.borrow())
    }

    /// What the server runs with, now and from every change on.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Config>> {
        self.in_force.subscribe()
    }

    /// The settings that have changed since the server started and wait for a restart.
    pub(crate) fn needing_restart(&self) -> Vec<&'static str> {
        self.started.needing_restart(&self.in_force.borrow())
    }

    /// Why the last reload was refused, if it was.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// How the registry stands.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Hears of others' changes, where there are others.
    pub(crate) async fn subscribe(&self) -> Option<Subscription> {
        self.registry.lock().await.subscribe()
    }

    /// Reads the file once more. One that does not work changes nothing, and is remembered.
    pub(crate) async fn reload(&self) -> Result<(), LoadError> {
        let registry = self.registry.lock().await;
        let (current, entries) = self.both();
        let read: Result<Config, LoadError> = {
            let entries = Arc::clone(&entries);
            let listening = self.started.listen.admin;
            blocking(move || {
                let config = current.read_again(&entries)?;
                // Where the listener is stays until a restart, whatever the file says now.
                config.refuse_open_admin([listening, config.listen.admin])?;
                Ok(config)
            })
            .await
        };
        self.refused.show_file(read.is_err());
        match read {
            Ok(config) => {
                self.put_to_work(config, entries).await;
                if let Some(front) = self.gateway.clone() {
                    blocking(move || front.gateway.refresh_files()).await;
                }
                *self.refusal.lock() = None;
                self.watch.config_reloaded();
                tracing::info!(target: "spile::reload", "configuration applied");
                for setting in self.needing_restart() {
                    tracing::warn!(target: "spile::reload", "{setting} changed: a restart puts it in force");
                }
                if !self.is_in_force(&registry) {
                    // What the registry holds may work with this file.
                    self.adopt(&registry).await;
                }
                Ok(())
            }
            Err(why) => {
                self.watch.config_refused(why.to_string());
                *self.refusal.lock() = Some(why.to_string());
                tracing::error!(target: "spile::reload", "configuration refused, the old one stays: {why}");
                Err(why)
            }
        }
    }

    /// Every entry of a kind, by name.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Entry> {
        let (config, entries) = self.both();
        document::all(&config, &entries, kind)
    }

    pub(crate) fn get(&self, which: &Which) -> Option<Entry> {
        let (config, entries) = self.both();
        document::one(&config, &entries, which)
    }

    /// Makes one change: it works and is kept, here and for all who share the registry, or it is not made.
    pub(crate) async fn change(
        &self,
        which: &Which,
        change: &Change,
        condition: &Condition,
    ) -> Result<Changed, ControlError> {
        let mut registry = self.registry.lock().await;
        for _ in 0..TRIES {
            // What somebody has just put through another instance must be there to build on.
            self.catch_up_with(&mut registry).await?;
            let (config, entries) = self.both();
            let standing = document::one(&config, &entries, which);
            condition.check(standing.as_ref())?;
            // What others have put and does not work here has no tag that anybody could have read.
            let same =
                registry.entries().get(which.kind, &which.name) == entries.get(which.kind, &which.name);
            if !same && *condition != Condition::Always {
                return Err(ControlError::Changed);
            }
            let document = change.document(which, &config, &registry)?;
            let next = Arc::new(next(&registry, which, document.clone())?);
            let made = {
                let next = Arc::clone(&next);
                blocking(move || config.with_entries(&next)).await?
            };
            let written = registry.write(which, document.as_ref(), Arc::clone(&next)).await;
            if written.inspect_err(|why| audit_unsure(which, change, why))? == Written::Yes {
                audit(which, change);
                self.put_to_work(made, next).await;
                self.in_step(&registry);
                return Ok(Changed { entry: self.get(which), is_new: standing.is_none() });
            }
        }
        Err(RegistryError::Busy.into())
    }

    /// Brings what runs up to date with the registry, where others change it too. Whatever is wrong is logged, counted
    /// and remembered, and what runs stays.
    pub(crate) async fn catch_up(&self) {
        let mut registry = self.registry.lock().await;
        // What is wrong is told where it arises.
        let _told = self.catch_up_with(&mut registry).await;
    }

    async fn catch_up_with(&self, registry: &mut Registry) -> Result<(), RegistryError> {
        match registry.catch_up().await {
            Ok(false) if self.is_in_force(registry) => self.in_step(registry),
            // What was refused before has not changed since.
            Ok(false) if self.standing.lock().is_refused() => {}
            Ok(_) => self.adopt(registry).await,
            Err(why) => {
                self.out_of_step(match &why {
                    RegistryError::Unreadable(_) => Trouble::Refused(why.to_string()),
                    _ => Trouble::OutOfReach(why.to_string()),
                });
                return Err(why);
            }
        }
        Ok(())
    }

    /// Puts what the registry holds to work, if it works.
    async fn adopt(&self, registry: &Registry) {
        let version = registry.version().unwrap_or_default();
        let (current, entries) = (self.config(), Arc::clone(registry.entries()));
        let made = if let Some(fault) = registry.fault() {
            Err(fault)
        } else {
            let made = blocking(move || current.with_entries(&entries)).await;
            made.map_err(|why| why.lines().collect::<Vec<_>>().join("; "))
        };
        match made {
            Ok(config) => {
                self.put_to_work(config, Arc::clone(registry.entries())).await;
                self.in_step(registry);
                tracing::info!(target: "spile::registry", version, "registry applied");
            }
            Err(why) => {
                let why = format!("version {version} of the registry does not work: {why}");
                self.out_of_step(Trouble::Refused(why));
            }
        }
    }

    async fn put_to_work(&self, config: Config, entries: Arc<Entries>) {
        let (decider, gateway) = (Arc::clone(&self.decider), self.gateway.clone());
        let config = Arc::new(config);
        let config = blocking(move || {
            put_to_work(&decider, gateway.as_deref(), &config);
            config
        })
        .await;
        let mut standing = self.entries.lock();
        *standing = entries;
        self.in_force.send_replace(config);
    }

    /// What is in force, and the entries that are part of it.
    fn both(&self) -> (Arc<Config>, Arc<Entries>) {
        let entries = self.entries.lock();
        (self.config(), Arc::clone(&entries))
    }

    /// Whether all that is known of the registry is part of what is in force.
    fn is_in_force(&self, registry: &Registry) -> bool {
        registry.fault().is_none() && Arc::ptr_eq(&self.entries.lock(), registry.entries())
    }

    /// Notes that what runs is what the registry holds.
    fn in_step(&self, registry: &Registry) {
        if let Some(version) = registry.version() {
            self.gauge.show(version);
            self.refused.show_registry(false);
            self.standing.lock().in_step(version);
        }
    }

    /// Notes why what runs is not what the registry holds.
    fn out_of_step(&self, trouble: Trouble) {
        let is_refusal = matches!(trouble, Trouble::Refused(_));
        let why = trouble.to_string();
        if is_refusal {
            self.refused.show_registry(true);
        }
        if self.standing.lock().out_of_step(trouble) && is_refusal {
            self.watch.config_refused(why);
        }
    }
}

/// Has everybody work by this configuration.
fn put_to_work(decider: &Decider, gateway: Option<&Front>, config: &Config) {
    decider.replace(config);
    if let Some(gateway) = gateway {
        gateway.follow(config, decider.policy());
    }
}

/// The entries after the change.
fn next(registry: &Registry, which: &Which, document: Option<Value>) -> Result<Entries, ControlError> {
    if let Some(fault) = registry.fault_beside(which) {
        return Err(ControlError::Broken(fault));
    }
    let mut entries = Entries::clone(registry.entries());
    match document {
        Some(document) => entries.put(which.kind, &which.name, document),
        None => drop(entries.remove(which.kind, &which.name)),
    }
    if entries.len() > MOST_ENTRIES { Err(ControlError::Full) } else { Ok(entries) }
}

fn audit(Which { kind, name }: &Which, change: &Change) {
    let (action, kind) = (change.action(), kind.as_str());
    tracing::info!(target: "spile::audit", action, kind, name, "changed");
}

fn audit_unsure(Which { kind, name }: &Which, change: &Change, why: &RegistryError) {
    if let RegistryError::Unsure(why) = why {
        let (action, kind) = (change.action(), kind.as_str());
        tracing::warn!(target: "spile::audit", action, kind, name, "may have been changed: {why}");
    }
}

/// Checking a large configuration takes a while, and must not keep others waiting.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
