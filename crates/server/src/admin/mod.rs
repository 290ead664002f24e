//! The `admin` listener: health, metrics, the dashboard, and `/admin/v1`, by which operators change the registry while the server runs.
//! Callers never share this listener.

pub(crate) mod audit;
mod buckets;
mod condition;
mod config;
mod entries;
mod explain;
mod extract;
mod gateway_routes;
mod keys;
mod kinds;
mod listener;
mod token;
mod usage;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::kinds::{plans, rules, tenants};
pub(crate) use self::listener::{Admin, Readiness, document};
pub(crate) use self::token::TokenGuard;
use self::token::{require, require_if_any};
use crate::control::Control;
use crate::decide::Decider;

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct AdminState {
    pub(crate) control: Arc<Control>,
    pub(crate) decider: Arc<Decider>,
}

/// The router of `/admin/v1` and its `OpenAPI` description.
fn api() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(plans::list, plans::create))
        .routes(routes!(plans::show, plans::put, plans::remove))
        .routes(routes!(rules::list, rules::create))
        .routes(routes!(rules::show, rules::put, rules::remove))
        .routes(routes!(tenants::list, tenants::create))
        .routes(routes!(tenants::show, tenants::put, tenants::remove))
        .routes(routes!(keys::add_key))
        .routes(routes!(usage::show))
        .routes(routes!(buckets::inspect, buckets::reset))
        .routes(routes!(explain::show))
        .routes(routes!(gateway_routes::list))
        .routes(routes!(config::show))
        .routes(routes!(config::reload))
        .routes(routes!(config::store))
}
