//! A client, a gateway and upstreams, all on loopback and on ports of the kernel's choice.

mod backend;
mod client;
mod gateway;

pub(crate) use backend::{Backend, Seen, text};
pub(crate) use client::{Answer, Client};
pub(crate) use gateway::{Running, by_tenant_or_address, limiter, limiter_on, plan, running};
