//! The whole server: binds listeners and answers requests until it is asked to stop.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use spile_core::Clock;
use spile_listener::{Bounds, GuessLimiter, Http};
use spile_memory::AutoSave;
use spile_observe::trace::{ExportTask, Tracer};
use spile_observe::{Analytics, MinuteStore, share_minutes};
use spile_policy::HostPattern;
use spile_redis::StoreExaminer;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::time::timeout;

use super::descriptors::ConnectionShares;
use super::listener_set::{Handlers, ListenerSet};
use crate::admin::{Admin, AdminState, Readiness, TokenGuard};
use crate::config::Config;
use crate::control::watcher;
use crate::control::{self, Control};
use crate::decide::Clocks;
use crate::decide::Decider;
use crate::decide::PersistentStore;
use crate::decide::ServerStore;
use crate::gateway::GatewayHandle;
use crate::grpc::{Grpc, GrpcHealth};
use crate::http::{Api, HostCheck};
use crate::observe::metrics::{RpcMetrics, Telemetry, Unmatched};
use crate::observe::minutes::{self, RedisMinutes};
use crate::observe::traced::Traced;
use crate::observe::webhooks::WebhookTasks;
use crate::resp::Resp;
use crate::secret::Secret;
use crate::serve::Listeners;

/// How often histograms are compacted. They grow until that is done.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a server that stops tries to send its last minutes to Redis and its last spans to their collector.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between checks whether Redis still has its buckets.
const EXAMINE_EVERY: Duration = Duration::from_secs(5);

/// A server that is set up and not yet running.
pub struct Server {
    decider: Arc<Decider>,
    control: Arc<Control>,
    /// Sums the minutes of all instances. `None` if the store is embedded.
    sums: Option<Arc<dyn MinuteStore>>,
    hangup: Signal,
    tracer: Option<Tracer>,
    exporting: Option<ExportTask>,
    grpc: Option<(Grpc, GrpcHealth)>,
    resp: Option<Resp>,
    gateway: Option<Arc<GatewayHandle>>,
    keeper: Option<AutoSave>,
    listeners: ListenerSet,
    guesses: Arc<GuessLimiter>,
    /// Opens the admin API of a server without a configured token.
    one_time_token: Option<Secret>,
    bounds: Bounds,
    /// `listen.hosts`.
    hosts: Vec<HostPattern>,
    /// How long the store may take to answer.
    patience: Duration,
    telemetry: Telemetry,
}

impl Server {
    /// A server on the machine's clock.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Self::with_clocks(config, Clocks::system())
    }

    /// A server on this clock, so that tests can move it.
    pub fn on_clock(config: &Config, clock: impl Clock + Clone + 'static) -> anyhow::Result<Self> {
        Self::with_clocks(config, Clocks::all(clock))
    }

    fn with_clocks(config: &Config, clocks: Clocks) -> anyhow::Result<Self> {
        let telemetry = Telemetry::new(&config.observe)?;
        let kept = PersistentStore::open(&config.store, &clocks.buckets, &telemetry)?;
        let (store, keeper) = kept.map(|PersistentStore { store, keeper }| (store, keeper)).unzip();
        let store = ServerStore::new(&config.store, &clocks, store, &telemetry)?;
        let clock = Arc::clone(&clocks.buckets);
        let decider = Arc::new(Decider::new(config, store, clocks, telemetry.watch().clone()));
        let otlp = config.observe.collector.clone();
        let (tracer, exporting) = otlp.map(|otlp| otlp.start(telemetry.watch())).unzip();
        let shares = ConnectionShares::of(config);
        let gateway =
            GatewayHandle::new(config, shares.gateway, &decider, clock, &telemetry, tracer.as_ref())?;
        let gateway = gateway.map(Arc::new);
        let control = Arc::new(Control::new(config, Arc::clone(&decider), gateway.clone(), &telemetry)?);
        let guesses = Arc::new(GuessLimiter::default());
        let resp = config.listen.resp.map(|_| {
            let metrics = RpcMetrics::new(&telemetry, "resp").traced_by(tracer.clone());
            let (decider, guesses) = (Arc::clone(&decider), Arc::clone(&guesses));
            Resp::new(decider, metrics, guesses, &config.listen.bounds, &config.resp)
        });
        let grpc = match config.listen.grpc {
            Some(_) => {
                let health = GrpcHealth::new(Arc::clone(&control));
                let (metrics, unmatched) = (RpcMetrics::new(&telemetry, "grpc"), Unmatched::new(&telemetry));
                let server = health.server();
                Some((Grpc::new(Arc::clone(&decider), metrics, unmatched, &config.grpc, server)?, health))
            }
            None => None,
        };
        telemetry.watch().set_health_probe(crate::decide::health::of_store(&decider, config));
        telemetry.watch().set_permit_probe(crate::decide::health::of_permits(&decider));
        let sums = decider.store().redis().map(RedisMinutes::new).transpose()?;
        Ok(Self {
            decider,
            control,
            sums: sums.map(|sums| Arc::new(sums) as _),
            hangup: watcher::hangup()?,
            tracer,
            exporting,
            grpc,
            resp,
            gateway,
            keeper,
            listeners: ListenerSet::new(config, &shares, &telemetry),
            guesses,
            one_time_token: None,
            bounds: config.listen.bounds.clone(),
            hosts: config.listen.hosts.clone(),
            patience: config.store.timeout,
            telemetry,
        })
    }

    /// Returns the server with a token that opens the admin API while it runs, if no other is configured.
    #[must_use]
    pub(crate) fn one_time_token(mut self, token: Option<Secret>) -> Self {
        self.one_time_token = token;
        self
    }

    /// Serves until `shutdown` resolves, then stops accepting and lets requests in flight finish.
    ///
    /// The admin listener stays until the last caller is gone, so that probes and scrapers see the draining.
    pub async fn run(self, listeners: Listeners, shutdown: impl Future<Output = ()>) {
        // Callers wait in the kernel's queue meanwhile, so that even the first is answered by the registry's entries, unless the store
        // cannot be reached.
        tokio::select! {
            () = self.control.catch_up() => {}
            () = self.decider.store().out_of_reach(self.patience) => {}
        }
        let readiness = Readiness::default();
        let configs = self.control.follow();
        let watch = self.telemetry.watch().clone();
        let (analytics, sharing) = match self.sums {
            None => (watch.into(), None),
            Some(sums) => {
                let analytics = Analytics::summed(watch.clone(), Arc::clone(&sums));
                (analytics, Some(tokio::spawn(share_minutes(watch, sums, minutes::FLUSH))))
            }
        };
        let state = AdminState { control: Arc::clone(&self.control), decider: Arc::clone(&self.decider) };
        let hosts = |socket: &TcpListener| HostCheck::of(socket, &self.hosts);
        let (admin_hosts, http_hosts) = (hosts(&listeners.admin), hosts(&listeners.http));
        let (control, one_time) = (Arc::clone(&self.control), self.one_time_token);
        let guard = TokenGuard { control, guesses: self.guesses, one_time };
        let admin = Admin::new(state, analytics, readiness.clone(), &self.telemetry, guard, admin_hosts);
        let api = Api::new(Arc::clone(&self.decider), http_hosts);
        let (telemetry, bounds, tracer) = (&self.telemetry, &self.bounds, self.tracer);
        let api = Traced { answer: api, tracer: tracer.clone(), route: Api::route };
        let grpc = self.grpc.map(|(grpc, health)| {
            let answer = Traced { answer: grpc, tracer, route: Grpc::route };
            (Http::new(answer, telemetry.requests("grpc"), bounds), health)
        });
        let handlers = Handlers {
            http: Http::new(api, telemetry.requests("http"), bounds),
            admin: Http::new(admin, telemetry.requests("admin"), bounds),
            grpc,
            resp: self.resp,
            gateway: self.gateway.clone(),
        };
        let access_log = self.gateway;
        let mut running = self.listeners.open(listeners, handlers);
        let upkeep = tokio::spawn(compact_histograms(self.telemetry.handle()));
        let examining = self.decider.store().redis().map(|redis| tokio::spawn(examine(redis.examiner())));
        let changes = tokio::spawn(control::follow(Arc::clone(&self.control)));
        let reloads = tokio::spawn(watcher::follow(self.control, self.hangup));
        let hooks = tokio::spawn(WebhookTasks::follow(configs, self.telemetry.watch().clone()));

        shutdown.await;
        readiness.start_draining();
        running.drain().await;
        // Every caller is gone, so the tokens that were taken in advance are returned for other instances.
        let limiter = self.decider.limiter();
        tokio::join!(limiter.return_leases(), limiter.release_permits());
        // Saving waits for the disk, which no thread that answers may do.
        let _saved = tokio::task::spawn_blocking(move || {
            if let Some(front) = access_log {
                front.gateway.flush_access_log(FLUSH_TIMEOUT);
            }
            drop(self.keeper);
        })
        .await;
        self.telemetry.watch().close();
        // Concurrent, so that a stop takes no longer than the slowest of them.
        let _told = tokio::join!(hooks, last_minutes(sharing), last_spans(self.exporting));
        running.close().await;
        upkeep.abort();
        reloads.abort();
        changes.abort();
        examining.iter().for_each(tokio::task::JoinHandle::abort);
        tracing::info!(target: "spile::serve", "stopped");
    }
}

/// Checks repeatedly whether Redis still has its buckets. The findings are part of the store's warning. Never returns.
async fn examine(mut examiner: StoreExaminer) {
    loop {
        // A Redis that does not answer is reported elsewhere.
        let _looked = examiner.look().await;
        tokio::time::sleep(EXAMINE_EVERY).await;
    }
}

/// Minutes that do not arrive in time are lost.
async fn last_minutes(sharing: Option<tokio::task::JoinHandle<()>>) {
    if let Some(sharing) = sharing {
        let _in_time = timeout(FLUSH_TIMEOUT, sharing).await;
    }
}

async fn last_spans(exporting: Option<ExportTask>) {
    if let Some(exporting) = exporting {
        exporting.finish(FLUSH_TIMEOUT).await;
    }
}

async fn compact_histograms(metrics: PrometheusHandle) {
    let mut tick = tokio::time::interval(UPKEEP);
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}
