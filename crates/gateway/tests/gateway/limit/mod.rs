//! Rate limits, costs that answers tell, adaptive limits and caps on concurrency.

mod answer_costs;
mod answer_prices;
mod disconnects;
mod hang_ups;
mod overload;
mod permits;
mod rate;
