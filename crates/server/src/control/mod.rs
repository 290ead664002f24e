//! Changes the configuration in force while the server runs. A change takes effect as a whole or not at all.

mod change;
mod entry;
mod error;
mod follower;
mod standing;
pub(crate) mod watcher;

use std::sync::Arc;

use parking_lot::Mutex;
use spile_gateway::FoundRoute;
use spile_observe::Watch;
use spile_policy::CleanPath;
use spile_redis::Subscription;
use tokio::sync::watch;

pub(crate) use self::change::{Change, Condition};
pub(crate) use self::entry::Entry;
pub(crate) use self::error::ControlError;
pub(crate) use self::follower::follow;
pub(crate) use self::standing::ConfigStatus;
use self::standing::Trouble;
use crate::config::{Config, Difference, LoadError, Offered, Spec};
use crate::decide::Decider;
use crate::gateway::GatewayHandle;
use crate::observe::log;
use crate::observe::metrics::{RefusedGauges, RegistryMetrics, Telemetry};
use crate::registry::{
    Entries, EntryId, Kind, MOST_NAMED, Quarantine, Registry, RegistryError, Written, split,
};

/// The most entries that a registry holds.
const MOST_ENTRIES: usize = 200_000;
/// The most attempts at a change. An attempt fails if another instance changed the registry first.
const TRIES: usize = 20;

/// The only path of changes, one at a time: a second writer sees what the first one wrote.
pub(crate) struct Control {
    decider: Arc<Decider>,
    gateway: Option<Arc<GatewayHandle>>,
    /// Locked while the configuration in force changes.
    registry: tokio::sync::Mutex<Registry>,
    /// The registry's entries from which the configuration in force was built.
    entries: Mutex<Arc<Entries>>,
    standing: Mutex<ConfigStatus>,
    /// Why the last reload was refused. `None` if it was not.
    refusal: Mutex<Option<String>>,
    /// The configuration in force. Others follow it.
    in_force: watch::Sender<Arc<Config>>,
    /// The configuration at the start, whose settings that need a restart are still in force.
    started: Arc<Config>,
    watch: Watch,
    metrics: RegistryMetrics,
    refused: RefusedGauges,
}

/// The result of a change.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The entry after the change. `None` if it was removed.
    pub(crate) entry: Option<Entry>,
    /// True if no entry had the name before.
    pub(crate) is_new: bool,
}

impl Control {
    /// Opens the registry, whose entries override the configuration. A registry in Redis is read later.
    pub(crate) fn new(
        config: &Config,
        decider: Arc<Decider>,
        gateway: Option<Arc<GatewayHandle>>,
        telemetry: &Telemetry,
    ) -> Result<Self, ControlError> {
        let file = config.registry_file();
        let registry = match (decider.store().redis(), file.as_deref()) {
            (Some(_), Some(_)) => return Err(ControlError::TwoRegistries),
            (Some(redis), None) => Registry::shared(redis),
            (None, file) => Registry::own(file).map_err(RegistryError::from)?,
        };
        let entries = Arc::clone(registry.entries());
        let offered = offered(&registry);
        let config = if registry.is_empty() { config.clone() } else { config.adopt(&offered)? };
        put_to_work(&decider, gateway.as_deref(), &config);
        let started = Arc::new(config);
        let metrics = RegistryMetrics::new(telemetry);
        let watch = telemetry.watch().clone();
        tell_quarantine(&Quarantine::default(), started.quarantine(), &metrics, &watch);
        Ok(Self {
            decider,
            gateway,
            registry: tokio::sync::Mutex::new(registry),
            entries: Mutex::new(entries),
            standing: Mutex::default(),
            refusal: Mutex::default(),
            in_force: watch::Sender::new(Arc::clone(&started)),
            started,
            watch,
            metrics,
            refused: RefusedGauges::new(telemetry),
        })
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force.borrow())
    }

    /// The route that the gateway would choose for a request. `None` if no route matches, or if there is no gateway.
    pub(crate) fn find_route(&self, host: &str, path: &CleanPath) -> Option<FoundRoute> {
        self.gateway.as_ref()?.gateway.find_route(host, path)
    }

    /// The configuration in force, now and after every change.
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

    /// The state of the registry.
    pub(crate) fn standing(&self) -> ConfigStatus {
        self.standing.lock().clone()
    }

    /// Whether changes survive a restart of this server.
    pub(crate) fn keeps_changes(&self) -> bool {
        self.decider.store().redis().is_some() || self.started.registry_file().is_some()
    }

    /// True if traffic should be sent here: not before the registry in Redis has been read, and not while the store is lost if the
    /// failure policy is to deny.
    pub(crate) fn is_ready(&self) -> bool {
        let waits = self.decider.store().redis().is_some() && self.standing.lock().waits();
        !waits && !self.decider.refuses_all()
    }

    /// Why the registry in Redis has not been read since the start. `None` once it has.
    pub(crate) fn unread(&self) -> Option<String> {
        self.decider.store().redis().and_then(|_| self.standing.lock().unread())
    }

    /// Receives the changes of other instances. `None` if the registry is this instance's own.
    pub(crate) async fn subscribe(&self) -> Option<Subscription> {
        self.registry.lock().await.subscribe()
    }

    /// Reads the file again. An invalid file changes nothing, and the reason is kept.
    ///
    /// The access log is reopened in any case.
    pub(crate) async fn reload(&self) -> Result<(), LoadError> {
        if let Some(front) = &self.gateway {
            front.gateway.reopen_access_log();
        }
        let registry = self.registry.lock().await;
        let (current, offered) = (self.config(), offered(&registry));
        let started = Arc::clone(&self.started);
        let read: Result<Config, LoadError> = blocking(move || {
            let config = current.read_again(&offered)?;
            // The address of the listener stays until a restart, even if the file has another by now.
            config.refuse_open_admin(started.listen.admin)?;
            config.check_runs(Some(&started.listen))?;
            Ok(config)
        })
        .await;
        self.refused.show_file(read.is_err());
        match read {
            Ok(config) => {
                let entries = Arc::clone(&self.entries.lock());
                log::set_level(&config.log.level);
                let (before, after) = self.put_to_work(config, entries).await;
                let difference = blocking(move || Difference::between(&before, &after)).await;
                if let Some(front) = self.gateway.clone() {
                    blocking(move || front.gateway.refresh_files()).await;
                }
                *self.refusal.lock() = None;
                self.watch.config_reloaded();
                tracing::info!(target: "spile::reload", "configuration applied: {difference}");
                for setting in self.needing_restart() {
                    tracing::warn!(target: "spile::reload", "{setting} changed: a restart puts it in force");
                }
                if !self.is_in_force(&registry) {
                    // Entries of the registry may be valid with this file.
                    self.adopt(&registry).await;
                }
                Ok(())
            }
            Err(why) => {
                self.watch.config_refused(why.to_string());
                *self.refusal.lock() = Some(why.to_string());
                tracing::error!(target: "spile::reload", "configuration refused, the previous one stays in force: {why}");
                Err(why)
            }
        }
    }

    /// Every entry of a kind, by name.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Entry> {
        Entry::all(&self.config(), kind)
    }

    pub(crate) fn get(&self, which: &EntryId) -> Option<Entry> {
        Entry::one(&self.config(), which)
    }

    /// Makes one change. It is valid and stored, for all instances that share the registry, or it is not made.
    pub(crate) async fn change(
        &self,
        which: &EntryId,
        change: &Change,
        condition: &Condition,
    ) -> Result<Changed, ControlError> {
        let mut registry = self.registry.lock().await;
        for _ in 0..TRIES {
            // Reads changes that were just made through another instance, so that this one builds on them.
            self.catch_up_with(&mut registry).await?;
            let config = self.config();
            let standing = Entry::one(&config, which);
            condition.check(standing.as_ref())?;
            // An entry in quarantine has no tag: no client can have read one.
            if config.quarantine().why(which).is_some() && *condition != Condition::Always {
                return Err(ControlError::Changed);
            }
            let spec = change.spec(which, &config, &registry)?;
            let next = next(&registry, which, spec.clone())?;
            let made = {
                let (which, spec, next) = (which.clone(), spec.clone(), next.clone());
                blocking(move || config.with_change(&which, spec, &next)).await?
            };
            let written = registry.write(which, spec.as_deref(), Arc::clone(&next.entries)).await;
            if written.inspect_err(|why| self.unwritten(which, change, why))? == Written::Yes {
                self.put_to_work(made, next.entries).await;
                self.in_step(&registry);
                return Ok(Changed { entry: self.get(which), is_new: standing.is_none() });
            }
        }
        Err(RegistryError::Busy.into())
    }

    /// Brings the configuration in force up to date with a shared registry. An error is logged, counted and kept, and the configuration
    /// in force stays.
    pub(crate) async fn catch_up(&self) {
        let mut registry = self.registry.lock().await;
        // Errors are logged where they arise.
        let _told = self.catch_up_with(&mut registry).await;
    }

    async fn catch_up_with(&self, registry: &mut Registry) -> Result<(), RegistryError> {
        match registry.catch_up().await {
            Ok(false) if self.is_in_force(registry) => self.in_step(registry),
            // The refused file has not changed since.
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

    /// Puts the registry's entries in force, except for those that conflict.
    async fn adopt(&self, registry: &Registry) {
        let version = registry.version().unwrap_or_default();
        let (current, offered) = (self.config(), offered(registry));
        match blocking(move || current.adopt(&offered)).await {
            Ok(config) => {
                self.put_to_work(config, Arc::clone(registry.entries())).await;
                self.in_step(registry);
                tracing::info!(target: "spile::registry", version, "registry applied");
            }
            Err(why) => {
                let why = why.lines().collect::<Vec<_>>().join("; ");
                let why = format!("version {version} of the registry is not valid: {why}");
                self.out_of_step(Trouble::Refused(why));
            }
        }
    }

    /// Puts the configuration in force. Returns the one before and the new one.
    async fn put_to_work(&self, config: Config, entries: Arc<Entries>) -> (Arc<Config>, Arc<Config>) {
        let (decider, gateway) = (Arc::clone(&self.decider), self.gateway.clone());
        let config = Arc::new(config);
        let config = blocking(move || {
            put_to_work(&decider, gateway.as_deref(), &config);
            config
        })
        .await;
        *self.entries.lock() = entries;
        let before = self.in_force.send_replace(Arc::clone(&config));
        tell_quarantine(before.quarantine(), config.quarantine(), &self.metrics, &self.watch);
        (before, config)
    }

    /// True if the configuration in force was built from all known entries of the registry.
    fn is_in_force(&self, registry: &Registry) -> bool {
        Arc::ptr_eq(&self.entries.lock(), registry.entries())
    }

    /// Records that the configuration in force matches the registry.
    fn in_step(&self, registry: &Registry) {
        if let Some(version) = registry.version() {
            self.metrics.show_version(version);
            self.refused.show_registry(false);
            self.standing.lock().in_step(version);
        }
    }

    /// Records that a change was not stored, or may not have been.
    fn unwritten(&self, which: &EntryId, change: &Change, why: &RegistryError) {
        audit_unsure(which, change, why);
        if matches!(why, RegistryError::File(_)) {
            self.metrics.count_file_failure();
        }
    }

    /// Records why the configuration in force differs from the registry.
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

/// The entries of the registry.
fn offered(registry: &Registry) -> Offered {
    Offered { entries: Arc::clone(registry.entries()), broken: registry.broken().clone() }
}

/// Reports which entries are newly in quarantine, and which are back in force.
fn tell_quarantine(before: &Quarantine, now: &Quarantine, metrics: &RegistryMetrics, watch: &Watch) {
    metrics.show_quarantine(now);
    if before == now {
        return;
    }
    for (entry, why) in now.news_to(before).take(MOST_NAMED) {
        let (kind, name) = split(entry);
        tracing::warn!(target: "spile::registry", kind, name, "entry in quarantine, not in force: {why}");
    }
    for (entry, _) in before.beyond(now).take(MOST_NAMED) {
        let (kind, name) = split(entry);
        tracing::info!(target: "spile::registry", kind, name, "entry out of quarantine");
    }
    if now.len() > MOST_NAMED {
        tracing::warn!(target: "spile::registry", "{} entries in quarantine; GET /admin/v1/store has them", now.len());
    }
    if let (Some(_), Some(why)) = (now.news_to(before).next(), now.named()) {
        watch.config_refused(why);
    }
}

/// Puts this configuration in force everywhere.
fn put_to_work(decider: &Decider, gateway: Option<&GatewayHandle>, config: &Config) {
    decider.replace(config);
    if let Some(gateway) = gateway {
        gateway.follow(config, decider.policy());
    }
    // Called after the last door has the new limits: a question under the old ones would confirm them as still in force.
    decider.limiter().limits_changed();
}

/// The entries of the registry after the change.
fn next(registry: &Registry, which: &EntryId, spec: Option<Arc<Spec>>) -> Result<Offered, ControlError> {
    let mut next = offered(registry);
    next.broken.remove(&which.to_string());
    let entries = Arc::make_mut(&mut next.entries);
    entries.set(which, spec);
    if entries.len() > MOST_ENTRIES { Err(ControlError::Full) } else { Ok(next) }
}

fn audit_unsure(EntryId { kind, name }: &EntryId, change: &Change, why: &RegistryError) {
    if let RegistryError::Unsure(why) = why {
        let (action, kind) = (change.action(), kind.as_str());
        tracing::warn!(target: "spile::audit", action, kind, name, "may have been changed: {why}");
    }
}

/// Runs work on a blocking thread: checking a large configuration takes a while and must not delay other tasks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
