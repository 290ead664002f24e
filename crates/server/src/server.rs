//! The whole server: listeners in, requests answered, until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use metrics_exporter_prometheus::PrometheusHandle;
use spile_core::Clock;
use spile_memory::Keeper;
use spile_observe::trace::{Exporting, Tracer};
use spile_observe::{Analytics, MinuteSums, share};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::admin::{Admin, Readiness};
use crate::admin_api::Office;
use crate::clock::Clocks;
use crate::config::{Bounds, Config};
use crate::control::{self, Control};
use crate::decider::Decider;
use crate::gateway::Front;
use crate::grpc::{Grpc, Health};
use crate::hooks::Hooks;
use crate::http::{Api, Reply};
use crate::kept::Kept;
use crate::listen::Listeners;
use crate::metrics::{HttpMetrics, RpcMetrics, StoreMetrics, Telemetry, Unmatched};
use crate::minutes::{self, RedisMinutes};
use crate::resp::Resp;
use crate::serve::{Answer, serve};
use crate::store::AnyStore;
use crate::watcher;

/// How often histograms are folded, so that they do not grow between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a server that stops tries to bring its last counts to where instances meet, and its last spans to their
/// collector.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A server that is set up and not yet running.
pub struct Server {
    decider: Arc<Decider>,
    control: Arc<Control>,
    /// Where minutes are summed over all instances, if they meet anywhere.
    sums: Option<Arc<dyn MinuteSums>>,
    hangup: Signal,
    tracer: Option<Tracer>,
    exporting: Option<Exporting>,
    grpc: Option<(Grpc, Health)>,
    resp: Option<Resp>,
    gateway: Option<Arc<Front>>,
    keeper: Option<Keeper>,
    bounds: Bounds,
    /// How long the store may take to answer.
    patience: Duration,
    telemetry: Telemetry,
}

impl Server {
    /// A server on the machine's clock.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Self::with_clocks(config, Clocks::system())
    }

    /// A server whose time is told by `clock`, so that tests can move it.
    pub fn on_clock(config: &Config, clock: impl Clock + Clone + 'static) -> anyhow::Result<Self> {
        Self::with_clocks(config, Clocks::all(clock))
    }

    fn with_clocks(config: &Config, clocks: Clocks) -> anyhow::Result<Self> {
        let telemetry = Telemetry::new(&config.observe)?;
        let timings = StoreMetrics::new(&telemetry);
        let kept = Kept::open(&config.store, &clocks.buckets, &telemetry)?;
        let (store, keeper) = kept.map(|Kept { store, keeper }| (store, keeper)).unzip();
        let store = AnyStore::new(&config.store, &clocks, store, timings)?;
        let clock = Arc::clone(&clocks.buckets);
        let decider = Arc::new(Decider::new(config, store, clocks, telemetry.watch().clone()));
        let otlp = config.observe.otlp.as_ref().map(|config| config.otlp.clone());
        let (tracer, exporting) = otlp.map(|otlp| otlp.start(telemetry.watch())).unzip();
        let gateway = Front::new(config, &decider, clock, &telemetry, tracer.as_ref())?.map(Arc::new);
        let control = Arc::new(Control::new(config, Arc::clone(&decider), gateway.clone(), &telemetry)?);
        let resp = config.listen.resp.map(|_| {
            let metrics = RpcMetrics::new(&telemetry, "resp").traced_by(tracer.clone());
            Resp::new(Arc::clone(&decider), metrics, config.listen.bounds, &config.resp)
        });
        let grpc = match config.listen.grpc {
            Some(_) => {
                let health = Health::new(Arc::clone(&control));
                let (metrics, unmatched) = (RpcMetrics::new(&telemetry, "grpc"), Unmatched::new(&telemetry));
                let server = health.server();
                Some((Grpc::new(Arc::clone(&decider), metrics, unmatched, &config.grpc, server)?, health))
            }
            None => None,
        };
        telemetry.watch().watch_store(crate::health::of_store(&decider, config));
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
            bounds: config.listen.bounds,
            patience: config.store.timeout,
            telemetry,
        })
    }

    /// Serves until `shutdown` resolves, then stops accepting and lets requests under way finish.
    ///
    /// The admin listener stays until the last caller is gone, so that whoever watches sees the draining.
    pub async fn run(self, listeners: Listeners, shutdown: impl Future<Output = ()>) {
        // Callers wait in the kernel's queue meanwhile: the first is answered by what the registry says, too, unless the
        // store cannot be reached.
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
                (analytics, Some(tokio::spawn(share(watch, sums, minutes::FLUSH))))
            }
        };
        let office = Office { control: Arc::clone(&self.control), decider: Arc::clone(&self.decider) };
        let admin = Admin::new(office, analytics, readiness.clone(), &self.telemetry);
        let api = Api::new(Arc::clone(&self.decider));
        let (stop_http, http_stopped) = watch::channel(false);
        let (stop_admin, admin_stopped) = watch::channel(false);
        let metrics = |listener| HttpMetrics::new(self.telemetry.clone(), listener);
        let envoy = metrics("grpc").traced_by(self.tracer.clone());
        let http = metrics("http").traced_by(self.tracer);
        let http = tokio::spawn(serve(listeners.http, api, http, self.bounds, http_stopped));
        let admin = tokio::spawn(serve(listeners.admin, admin, metrics("admin"), self.bounds, admin_stopped));
        let gateway = tokio::spawn(forward(self.gateway, listeners.gateway, stop_http.subscribe()));
        let grpc = limit_for_envoy(self.grpc, listeners.grpc, envoy, self.bounds, stop_http.subscribe());
        let grpc = tokio::spawn(grpc);
        let resp = tokio::spawn(throttle(self.resp, listeners.resp, stop_http.subscribe()));
        let upkeep = tokio::spawn(fold_histograms(self.telemetry.handle()));
        let changes = tokio::spawn(control::follow(Arc::clone(&self.control)));
        let reloads = tokio::spawn(watcher::follow(self.control, self.hangup));
        let hooks = tokio::spawn(Hooks::follow(configs, self.telemetry.watch().clone()));

        shutdown.await;
        readiness.start_draining();
        stop_http.send_replace(true);
        finished(http).await;
        finished(grpc).await;
        finished(resp).await;
        finished(gateway).await;
        // Nobody spends any more. Saving waits for the disk, which no thread that answers may do.
        finished(tokio::task::spawn_blocking(|| drop(self.keeper))).await;
        self.telemetry.watch().close();
        // At the same time: a stop takes no longer than the slowest of them.
        tokio::join!(finished(hooks), last_minutes(sharing), last_spans(self.exporting));
        stop_admin.send_replace(true);
        finished(admin).await;
        upkeep.abort();
        reloads.abort();
        changes.abort();
    }
}

impl Answer for Api {
    type Body = http_body_util::Full<bytes::Bytes>;

    fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> impl Future<Output = Reply> + Send {
        Self::answer(self, peer, request)
    }
}

impl Answer for Admin {
    type Body = axum::body::Body;

    fn answer(
        &self,
        _peer: SocketAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<axum::body::Body>> + Send {
        Self::answer(self, request)
    }
}

/// Serves Envoy, where it is served, until `stop` says so.
async fn limit_for_envoy(
    grpc: Option<(Grpc, Health)>,
    listener: Option<TcpListener>,
    metrics: HttpMetrics,
    bounds: Bounds,
    stop: watch::Receiver<bool>,
) {
    if let (Some((grpc, health)), Some(listener)) = (grpc, listener) {
        health.tell_now().await;
        tokio::join!(health.follow(stop.clone()), serve(listener, grpc, metrics, bounds, stop));
    }
}

/// Serves the Redis protocol, where it is spoken, until `stop` says so.
async fn throttle(resp: Option<Resp>, listener: Option<TcpListener>, stop: watch::Receiver<bool>) {
    if let (Some(resp), Some(listener)) = (resp, listener) {
        resp.serve(listener, stop).await;
    }
}

/// Serves the gateway, where there is one, until `stop` says so.
async fn forward(front: Option<Arc<Front>>, listener: Option<TcpListener>, mut stop: watch::Receiver<bool>) {
    if let (Some(front), Some(listener)) = (front, listener) {
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        front.gateway.serve(listener, stopped).await;
    }
}

/// What does not arrive in time is lost, with the instance that counted it.
async fn last_minutes(sharing: Option<tokio::task::JoinHandle<()>>) {
    if let Some(sharing) = sharing {
        let _in_time = timeout(LAST_WORDS, sharing).await;
    }
}

async fn last_spans(exporting: Option<Exporting>) {
    if let Some(exporting) = exporting {
        exporting.finish(LAST_WORDS).await;
    }
}

/// A listener's task never fails unless the program is wrong, and then it should say so.
async fn finished(listener: tokio::task::JoinHandle<()>) {
    if let Err(why) = listener.await
        && why.is_panic()
    {
        std::panic::resume_unwind(why.into_panic());
    }
}

async fn fold_histograms(metrics: PrometheusHandle) {
    let mut tick = tokio::time::interval(UPKEEP);
    loop {
        tick.tick().await;
        metrics.run_upkeep();
    }
}
