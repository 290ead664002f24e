//! `/admin/v1`: what operators change while the server runs, behind a bearer token.

mod buckets;
mod config;
mod entries;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use spile_observe::{Watch, dashboard};

use crate::control::Control;
use crate::decider::Decider;

/// The largest document, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// What the handlers work with.
#[derive(Clone)]
struct Office {
    control: Arc<Control>,
    decider: Arc<Decider>,
}

/// Every path, closed to whoever does not know the token; to everybody where there is none.
pub(crate) fn router(control: Arc<Control>, decider: Arc<Decider>, watch: &Watch) -> Router {
    let door = Arc::clone(&control);
    Router::new()
        .merge(dashboard::api(watch.clone()))
        .route("/admin/v1/config", get(config::show))
        .route("/admin/v1/config/reload", post(config::reload))
        .route("/admin/v1/store", get(config::store))
        .route("/admin/v1/tenants/{id}/keys", post(entries::add_key))
        .route("/admin/v1/buckets/{key}", delete(buckets::reset).get(buckets::inspect))
        .route("/admin/v1/{kind}", get(entries::list))
        .route("/admin/v1/{kind}/{name}", get(entries::show).put(entries::put).delete(entries::remove))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BYTES))
        .layer(axum::middleware::from_fn_with_state(door, token::require))
        .with_state(Office { control, decider })
}
