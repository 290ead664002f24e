//! The run of a server: several of them on one Redis, how they are deployed, and how they stop.

mod deployment;
mod instances;
mod logs;
mod shutdown;
