//! The paths `/admin/v1/plans`, `/admin/v1/rules` and `/admin/v1/tenants`, the same for each kind. The logic of their handlers is in
//! `entries`.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use utoipa::ToSchema;

use super::AdminState;
use super::audit::Audit;
use super::entries;
use super::extract::{JsonBody, Name};
use crate::config::{PlanSpec, RuleSpec, TenantSpec};
use crate::http::Problem;
use crate::openapi::{
    AuthErrors, BadName, Conditions, CreateErrors, CreatedResponse, DeleteConditions, DeleteErrors, Missing,
    PutErrors, PutResponse, ShowResponse,
};
use crate::registry::{EntryId, Kind};

/// Defines the five handlers of a kind. utoipa describes concrete functions only, so they cannot be generic.
macro_rules! api {
    ($module:ident, $kind:ident, $spec:ident, $list:ident, $one:literal, $Ones:literal, $One:literal, $member:literal,
     ($($bounds:tt)*)) => {
        pub(super) mod $module {
            use super::*;

            #[doc = concat!("All ", stringify!($module), ", by name.")]
            #[derive(ToSchema)]
            #[expect(dead_code, reason = "entries are JSON already when they are listed")]
            pub(crate) struct $list {
                $module: Vec<$spec>,
            }

            #[utoipa::path(
                get,
                path = concat!("/admin/v1/", stringify!($module)),
                tag = "registry",
                operation_id = concat!("list", $Ones),
                summary = concat!("Lists the ", stringify!($module), "."),
                security(("token" = [])),
                responses((status = 200, description = "All of them.", body = $list), AuthErrors)
            )]
            pub(crate) async fn list(State(state): State<AdminState>) -> Response {
                entries::list(&state, Kind::$kind)
            }

            #[utoipa::path(
                post,
                path = concat!("/admin/v1/", stringify!($module)),
                tag = "registry",
                operation_id = concat!("create", $One),
                summary = concat!("Makes a ", $one, " under the `", $member, "` that it brings along, unless that is taken."),
                security(("token" = [])),
                request_body = $spec,
                responses(CreatedResponse<$spec>, CreateErrors, AuthErrors)
            )]
            pub(crate) async fn create(
                State(state): State<AdminState>,
                audit: Audit,
                body: JsonBody,
            ) -> Result<Response, Problem> {
                entries::create(state, Kind::$kind, audit, body).await
            }

            #[utoipa::path(
                get,
                path = concat!("/admin/v1/", stringify!($module), "/{", $member, "}"),
                tag = "registry",
                operation_id = concat!("show", $One),
                summary = concat!("Shows a ", $one, "."),
                security(("token" = [])),
                params(($member = String, Path, description = "The name.", $($bounds)*)),
                responses(ShowResponse<$spec>, BadName, Missing, AuthErrors)
            )]
            pub(crate) async fn show(State(state): State<AdminState>, Name(name): Name) -> Result<Response, Problem> {
                entries::show(&state, Kind::$kind, name)
            }

            #[utoipa::path(
                put,
                path = concat!("/admin/v1/", stringify!($module), "/{", $member, "}"),
                tag = "registry",
                operation_id = concat!("put", $One),
                summary = concat!("Puts a ", $one, " in place of what has its name, also of what the file says."),
                security(("token" = [])),
                params(($member = String, Path, description = "The name.", $($bounds)*), Conditions),
                request_body = $spec,
                responses(PutResponse<$spec>, PutErrors, AuthErrors)
            )]
            pub(crate) async fn put(
                State(state): State<AdminState>,
                Name(name): Name,
                headers: HeaderMap,
                body: JsonBody,
            ) -> Result<Response, Problem> {
                entries::put(state, EntryId { kind: Kind::$kind, name }, headers, body).await
            }

            #[utoipa::path(
                delete,
                path = concat!("/admin/v1/", stringify!($module), "/{", $member, "}"),
                tag = "registry",
                operation_id = concat!("remove", $One),
                summary = concat!("Removes a ", $one, " from the registry. What the file says about that name holds again."),
                security(("token" = [])),
                params(($member = String, Path, description = "The name.", $($bounds)*), DeleteConditions),
                responses((status = 204, description = "It is gone."), BadName, DeleteErrors, AuthErrors)
            )]
            pub(crate) async fn remove(
                State(state): State<AdminState>,
                Name(name): Name,
                headers: HeaderMap,
            ) -> Result<StatusCode, Problem> {
                entries::remove(state, Kind::$kind, name, headers).await
            }
        }
    };
}

api!(
    plans,
    Plans,
    PlanSpec,
    PlanList,
    "plan",
    "Plans",
    "Plan",
    "name",
    (min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")
);
api!(
    rules,
    Rules,
    RuleSpec,
    RuleList,
    "rule",
    "Rules",
    "Rule",
    "id",
    (min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")
);
api!(
    tenants,
    Tenants,
    TenantSpec,
    TenantList,
    "tenant",
    "Tenants",
    "Tenant",
    "id",
    (min_length = 1, max_length = 1024, format = "identity")
);
