//! Rate limits, costs that answers tell, adaptive limits and caps on concurrency.

mod answer_costs;
mod disconnects;
mod overload;
mod permits;
mod rate;
