//! Settings of the command line, which override file and environment.

use std::net::SocketAddr;

use spile_core::FailurePolicy;

use super::log::LogConfig;
use super::{Listen, LogFormat, LogLevel, StoreConfig, StoreUrl};

/// Settings of the command line. They override file and environment, also after a reload.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Where buckets live.
    pub store: Option<StoreUrl>,
    /// Where the decision API listens.
    pub http: Option<SocketAddr>,
    /// Where health and metrics listen.
    pub admin: Option<SocketAddr>,
    /// Where Envoy's rate limit service listens.
    pub grpc: Option<SocketAddr>,
    /// Where the Redis protocol is spoken.
    pub resp: Option<SocketAddr>,
    /// Where the reverse proxy listens.
    pub gateway: Option<SocketAddr>,
    /// The policy while the store fails.
    pub on_failure: Option<FailurePolicy>,
    /// How much is logged.
    pub log_level: Option<LogLevel>,
    /// How lines of the log are written.
    pub log_format: Option<LogFormat>,
}

impl Flags {
    pub(super) fn apply(&self, listen: &mut Listen, store: &mut StoreConfig, log: &mut LogConfig) {
        if let Some(url) = &self.store {
            store.url = url.clone();
        }
        store.on_failure = self.on_failure.unwrap_or(store.on_failure);
        listen.http = self.http.unwrap_or(listen.http);
        listen.admin = self.admin.unwrap_or(listen.admin);
        listen.grpc = self.grpc.or(listen.grpc);
        listen.resp = self.resp.or(listen.resp);
        listen.gateway = self.gateway.or(listen.gateway);
        if let Some(level) = &self.log_level {
            log.level = level.clone();
        }
        log.format = self.log_format.unwrap_or(log.format);
    }
}
