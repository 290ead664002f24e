//! Rate limits, adaptive limits and caps on concurrency.

mod overload;
mod rate;
