//! The gateway listener of the service: the file's routes, under the file's plans, rules and tenants.

mod explain;
mod limits;
mod reload;
mod routes;
mod settings;
mod support;
