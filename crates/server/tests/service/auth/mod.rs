//! Forward-auth: what proxies ask on behalf of a request.

pub(crate) mod proxies;
mod questions;
