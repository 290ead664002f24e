//! What a reload cannot change.

use super::Config;

impl Config {
    /// The settings that differ in `next` and that only a restart puts in force.
    pub(crate) fn needing_restart(&self, next: &Self) -> Vec<&'static str> {
        let (listen, next_listen) = (&self.listen, &next.listen);
        let (store, next_store) = (&self.store, &next.store);
        let settings = [
            ("listen.http", listen.http != next_listen.http),
            ("listen.admin", listen.admin != next_listen.admin),
            ("listen.grpc", listen.grpc != next_listen.grpc),
            ("listen.resp", listen.resp != next_listen.resp),
            ("listen.gateway", listen.gateway != next_listen.gateway),
            ("listen.max_connections", listen.bounds.max_connections != next_listen.bounds.max_connections),
            ("listen.header_timeout", listen.bounds.header_timeout != next_listen.bounds.header_timeout),
            ("listen.drain_timeout", listen.bounds.drain_timeout != next_listen.bounds.drain_timeout),
            ("grpc.timeout", self.grpc.timeout != next.grpc.timeout),
            ("resp.idle_timeout", self.resp.idle_timeout != next.resp.idle_timeout),
            ("store.url", !store.url.names_same_store(&next_store.url)),
            ("store.prefix", store.prefix != next_store.prefix),
            ("store.timeout", store.timeout != next_store.timeout),
            (
                "store.fail_closed_retry_after",
                store.fail_closed_retry_after != next_store.fail_closed_retry_after,
            ),
            ("store.replicas", store.replicas != next_store.replicas),
            ("store.connections", store.connections != next_store.connections),
            ("store.flights", store.flights != next_store.flights),
            ("store.queue", store.queue != next_store.queue),
            ("store.time", store.time != next_store.time),
            ("store.max_keys", store.max_keys != next_store.max_keys),
            ("store.path", store.path != next_store.path),
            ("store.save_every", store.save_every != next_store.save_every),
            ("admin.registry_file", self.admin.registry_file != next.admin.registry_file),
            ("observe.enabled", self.observe.enabled != next.observe.enabled),
            ("observe.show_keys", self.observe.show_keys != next.observe.show_keys),
            ("gateway.tls", self.gateway.tls_files() != next.gateway.tls_files()),
            ("the bounds in gateway", self.gateway.bounds != next.gateway.bounds),
            ("observe.otlp", self.observe.otlp != next.observe.otlp),
        ];
        settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}
