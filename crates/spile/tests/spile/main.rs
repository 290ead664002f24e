//! The crate as its users see it.

mod accepted;
mod attribute;
mod redis_app;
mod refused;
