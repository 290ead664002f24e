//! The `gateway` listener: builds the gateway from the configuration, and keeps it up to date.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use spile_core::Clock;
use spile_gateway::{Gateway, RefusalPages, Settings};
use spile_observe::trace::Tracer;
use spile_policy::Policy;

use crate::config::{Clients, Config};
use crate::decide::Decider;
use crate::decide::ServerStore;
use crate::observe::metrics::Telemetry;

/// The gateway, and its settings.
pub(crate) struct GatewayHandle {
    pub(crate) gateway: Gateway<ServerStore>,
    telemetry: Telemetry,
    /// The settings in force without the policy, as text, to find out whether they change.
    applied: Mutex<String>,
}

impl GatewayHandle {
    /// Builds the gateway of the configuration, with at most this many connections. `None` if it has no `gateway` listener.
    pub(crate) fn new(
        config: &Config,
        connections: usize,
        decider: &Decider,
        clock: Arc<dyn Clock>,
        telemetry: &Telemetry,
        tracer: Option<&Tracer>,
    ) -> anyhow::Result<Option<Self>> {
        if config.listen.gateway.is_none() {
            return Ok(None);
        }
        let settings = telemetry.register(|| settings(config, decider.policy()))?;
        let mut bounds = config.gateway.bounds.clone();
        bounds.connections = connections;
        let mut builder = Gateway::builder(decider.limiter())
            .clock(clock)
            .bounds(bounds)
            .detached(config.gateway.detached)
            .settings(settings);
        if let Some(tracer) = tracer {
            builder = builder.tracer(tracer.clone());
        }
        if let Some(log) = &config.gateway.access_log {
            builder = builder.access_log(log.settings(config.log.format));
        }
        if let Some(tls) = &config.gateway.tls {
            builder = builder.tls(tls.tls.clone());
        }
        let gateway = telemetry.register(|| builder.build())?;
        telemetry.routes().follow(&config.routes);
        Ok(Some(Self { gateway, telemetry: telemetry.clone(), applied: Mutex::new(settings_text(config)) }))
    }

    /// Applies a new configuration, and the policy made of it, as far as a gateway can change while it runs. A request
    /// sees all of it or none.
    pub(crate) fn follow(&self, config: &Config, policy: Arc<Policy>) {
        let new = settings_text(config);
        let mut applied = self.applied.lock();
        if *applied == new {
            self.gateway.replace_policy(policy);
            return;
        }
        let replaced = self.telemetry.register(|| Ok(self.gateway.replace(settings(config, policy)?)?));
        match replaced {
            Ok(()) => {
                self.telemetry.routes().follow(&config.routes);
                *applied = new;
            }
            Err::<_, anyhow::Error>(why) => {
                tracing::error!(target: "spile::reload", "the gateway keeps its old routes and rules: {why}");
            }
        }
    }
}

/// The settings as text, without the policy. Two configurations with the same text have the same settings.
fn settings_text(config: &Config) -> String {
    use std::fmt::Write;
    let pages = digest(&config.gateway.refusals.pages);
    let mut text =
        format!("{:?} {} {pages}\n", config.clients.trusted_words, config.clients.principal_header);
    if let Some(jwt) = &config.gateway.jwt {
        let _ = write!(text, "{jwt}");
    }
    for route in &config.routes {
        let _ = write!(text, "{route}{:?}{}", route.upstream_tls.loaded, digest(&route.refusals.pages));
    }
    text
}

/// Distinguishes pages, which may come from files that have changed, without their whole text.
fn digest(pages: &RefusalPages) -> u64 {
    let mut hasher = DefaultHasher::new();
    pages.hash(&mut hasher);
    hasher.finish()
}

fn settings(config: &Config, policy: Arc<Policy>) -> anyhow::Result<Settings> {
    let Clients { trusted_proxies, principal_header, .. } = &config.clients;
    let mut settings = Settings::new()
        .trusted_proxies(trusted_proxies.clone())
        .principal_header(principal_header.clone())
        .refusals(config.gateway.refusals.pages.clone())
        .policy(policy);
    if let Some(jwt) = &config.gateway.jwt {
        settings = settings.jwt(Arc::clone(&jwt.verifier));
    }
    for route in &config.routes {
        settings = settings.route(route.served()?);
    }
    Ok(settings)
}
