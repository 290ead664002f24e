//! Rate limits, costs that answers tell, adaptive limits and caps on concurrency.

mod answer_costs;
mod overload;
mod rate;
