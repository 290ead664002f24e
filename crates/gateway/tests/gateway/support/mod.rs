//! A client, a gateway and upstreams, all on loopback and on free ports.

mod backend;
mod client;
mod gateway;
mod lax;
mod metered;
mod raw;

pub(crate) use backend::{Backend, text};
pub(crate) use client::Client;
pub(crate) use gateway::{
    Running, by_tenant_or_address, changeable, limiter_on, open, plan, policy, policy_for, running, tenant,
    to, under,
};
pub(crate) use lax::LaxBackend;
pub(crate) use metered::{Metrics, metered};
pub(crate) use raw::{RawBackend, exchange, in_time, read_until, until};
