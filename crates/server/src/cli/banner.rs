//! The first lines that a newcomer reads: addresses, store, and a command to try.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::Value;
use tokio::net::TcpListener;

use crate::config::{Config, TlsConfig};
use crate::observe::{build_info, log};
use crate::serve::Listeners;

/// The lines that `spile serve` prints once it listens.
#[derive(Debug)]
pub(crate) struct Banner<'a> {
    config: &'a Config,
    http: SocketAddr,
    admin: SocketAddr,
    grpc: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    gateway: Option<SocketAddr>,
    token: Option<&'a str>,
}

impl<'a> Banner<'a> {
    /// The banner of a server on these listeners. It shows the token that was made for this run, if there is one.
    pub(crate) fn new(
        config: &'a Config,
        listeners: &Listeners,
        token: Option<&'a str>,
    ) -> std::io::Result<Self> {
        let (http, admin) = (listeners.http.local_addr()?, listeners.admin.local_addr()?);
        let address =
            |listener: &Option<TcpListener>| listener.as_ref().map(TcpListener::local_addr).transpose();
        let (grpc, resp) = (address(&listeners.grpc)?, address(&listeners.resp)?);
        Ok(Self { config, http, admin, grpc, resp, gateway: address(&listeners.gateway)?, token })
    }
}

impl Banner<'_> {
    /// The banner as one line of JSON, and a line of the log for each warning.
    pub(super) fn json(&self) -> String {
        let Self { config, http, admin, grpc, resp, gateway, .. } = self;
        let url = |plain: &str, secure: &str, tls: &Option<TlsConfig>, address: &SocketAddr| {
            Value::from(format!("{}://{address}", if tls.is_some() { secure } else { plain }))
        };
        let some = |plain, secure, tls, address: &Option<SocketAddr>| {
            address.as_ref().map_or(Value::Null, |address| url(plain, secure, tls, address))
        };
        let plans: Vec<Value> = config.plans.iter().map(|plan| plan.name().to_string().into()).collect();
        let members = [
            ("version", Value::from(build_info::VERSION)),
            ("commit", build_info::COMMIT.into()),
            ("http", url("http", "https", &config.http_tls, http)),
            ("admin", url("http", "https", &config.admin.tls, admin)),
            ("grpc", some("http", "https", &config.grpc.tls, grpc)),
            ("resp", some("redis", "rediss", &config.resp.tls, resp)),
            ("gateway", some("http", "https", &config.gateway.tls, gateway)),
            ("store", config.store.url.to_string().into()),
            ("on_failure", config.store.on_failure.to_string().into()),
            ("plans", plans.into()),
        ];
        for warning in config.warnings() {
            tracing::warn!(target: "spile::config", "{warning}");
        }
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        log::json_line(&format!("spile {} is listening", build_info::VERSION), members)
    }
}

impl fmt::Display for Banner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, http, admin, grpc, resp, gateway, token } = self;
        writeln!(f, "spile {} is listening", build_info::VERSION)?;
        let scheme = |tls: &Option<TlsConfig>| if tls.is_some() { "https" } else { "http" };
        let asked = format!("{}://{}", scheme(&config.http_tls), reached(*http));
        let watched = format!("{}://{}", scheme(&config.admin.tls), reached(*admin));
        let (http, admin) = (
            format!("{}://{http}", scheme(&config.http_tls)),
            format!("{}://{admin}", scheme(&config.admin.tls)),
        );
        writeln!(
            f,
            "  http   {http}   decisions: POST /v1/check, /v1/check/batch, /v1/peek, /v1/refund, /v1/charge"
        )?;
        writeln!(
            f,
            "         work that takes time: POST /v1/reserve, /v1/settle; at most N at once: /v1/acquire, /v1/renew, /v1/release"
        )?;
        writeln!(f, "  admin  {admin}   /livez, /readyz, /metrics, /openapi.json, /admin/v1")?;
        writeln!(f, "  watch  {watched}/dashboard   or in a terminal: spile top --admin {watched}")?;
        if let Some(token) = token {
            writeln!(
                f,
                "  token  export SPILE_ADMIN_TOKEN={token}   opens /admin/v1 until this server ends"
            )?;
        }
        if let Some(grpc) = grpc {
            writeln!(
                f,
                "  grpc   {}://{grpc}   envoy.service.ratelimit.v3.RateLimitService, health, reflection",
                scheme(&config.grpc.tls)
            )?;
        }
        if let Some(resp) = resp {
            writeln!(
                f,
                "  resp   {}://{resp}   CL.THROTTLE key max_burst count period [quantity], SPILE.CHECK rule identity",
                if config.resp.tls.is_some() { "rediss" } else { "redis" }
            )?;
        }
        if let Some(gateway) = gateway {
            let (scheme, routes) = (scheme(&config.gateway.tls), config.routes.len());
            let plural = if routes == 1 { "" } else { "s" };
            writeln!(f, "  gateway {scheme}://{gateway}   forwards {routes} route{plural}")?;
        }
        writeln!(f, "  store  {}   when it fails: {}", config.store.url, config.store.on_failure)?;
        write!(f, "  plans ")?;
        for plan in &config.plans {
            let limits: Vec<String> = plan.limits().iter().map(|limit| limit.limit().to_string()).collect();
            write!(f, " {} ({})", plan.name(), limits.join("; "))?;
        }
        writeln!(f)?;
        for warning in config.warnings() {
            writeln!(f, "  warning: {warning}")?;
        }
        writeln!(f, "Try it:")?;
        writeln!(f, "  curl -i {asked}/api/ping -H 'X-API-Key: demo'")?;
        write!(f, "  curl -i {asked}/v1/check -H 'Content-Type: application/json' ")?;
        writeln!(f, "-d '{{\"ruleId\":\"default\",\"identity\":\"user:123\"}}'")
    }
}

/// The address at which this machine reaches a listener: loopback if the listener is bound to every address.
fn reached(bound: SocketAddr) -> SocketAddr {
    match bound {
        SocketAddr::V4(all) if all.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, all.port()).into(),
        SocketAddr::V6(all) if all.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, all.port()).into(),
        one => one,
    }
}
