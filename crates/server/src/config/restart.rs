//! Settings that a reload cannot change.

use super::{Config, TlsConfig};

impl Config {
    /// The settings that differ in `next` and that only a restart puts in force.
    pub(crate) fn needing_restart(&self, next: &Self) -> Vec<&'static str> {
        let (listen, next_listen) = (&self.listen, &next.listen);
        let (store, next_store) = (&self.store, &next.store);
        let files = |tls: &Option<TlsConfig>| tls.as_ref().map(|tls| tls.files.clone());
        let settings = [
            ("listen.http", listen.http != next_listen.http),
            ("listen.admin", listen.admin != next_listen.admin),
            ("listen.grpc", listen.grpc != next_listen.grpc),
            ("listen.resp", listen.resp != next_listen.resp),
            ("listen.gateway", listen.gateway != next_listen.gateway),
            ("listen.hosts", listen.hosts != next_listen.hosts),
            ("the bounds in listen", listen.bounds != next_listen.bounds),
            ("http.tls", files(&self.http_tls) != files(&next.http_tls)),
            ("admin.tls", files(&self.admin.tls) != files(&next.admin.tls)),
            ("grpc.tls", files(&self.grpc.tls) != files(&next.grpc.tls)),
            ("resp.tls", files(&self.resp.tls) != files(&next.resp.tls)),
            ("grpc.timeout", self.grpc.timeout != next.grpc.timeout),
            ("grpc.rate_limit_headers", self.grpc.rate_limit_headers != next.grpc.rate_limit_headers),
            ("resp.idle_timeout", self.resp.idle_timeout != next.resp.idle_timeout),
            ("store.url", !store.url.names_same_store(&next_store.url)),
            ("store.prefix", store.prefix != next_store.prefix),
            ("store.timeout", store.timeout != next_store.timeout),
            (
                "store.fail_closed_retry_after",
                store.fail_closed_retry_after != next_store.fail_closed_retry_after,
            ),
            ("store.deny_cache", store.deny_cache != next_store.deny_cache),
            ("store.lease_share", store.lease_share.to_bits() != next_store.lease_share.to_bits()),
            ("store.replicas", store.replicas != next_store.replicas),
            ("store.connections", store.connections != next_store.connections),
            ("store.flights", store.flights != next_store.flights),
            ("store.queue", store.queue != next_store.queue),
            ("store.time", store.time != next_store.time),
            ("store.max_keys", store.max_keys != next_store.max_keys),
            ("store.path", store.path != next_store.path),
            ("store.save_every", store.save_every != next_store.save_every),
            ("admin.registry_file", self.registry_file() != next.registry_file()),
            ("observe.enabled", self.observe.enabled != next.observe.enabled),
            ("observe.show_keys", self.observe.show_keys != next.observe.show_keys),
            ("log.format", self.log.format != next.log.format),
            ("gateway.access_log", self.gateway.access_log != next.gateway.access_log),
            ("gateway.tls", files(&self.gateway.tls) != files(&next.gateway.tls)),
            (
                "the bounds in gateway",
                self.gateway.bounds != next.gateway.bounds || self.gateway.detached != next.gateway.detached,
            ),
            ("observe.otlp", self.observe.collector != next.observe.collector),
        ];
        settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}
