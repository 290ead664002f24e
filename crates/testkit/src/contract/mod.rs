//! The contract of every store. Each promise is a test. To run all of them on your store:
//!
//! ```
//! # #[derive(Clone)] struct Guard;
//! use spile_core::FakeClock;
//! use spile_testkit::store::ModelStore;
//!
//! /// Makes an empty store on this clock, and a guard that must live as long as the store.
//! async fn make(clock: FakeClock) -> (ModelStore<FakeClock>, ()) {
//!     (ModelStore::new(clock), ())
//! }
//!
//! spile_testkit::store_contract!(make);
//! # fn main() {}
//! ```

mod chains;
mod clocks;
mod keys;
mod late_charges;
mod permits;
mod quotas;
mod refunds;
mod reservations;
mod spending;
mod subject;

pub use spile_core::FakeClock;

pub use chains::*;
pub use clocks::*;
pub use keys::*;
pub use late_charges::*;
pub(crate) use permits::permit_id;
pub use permits::*;
pub use quotas::*;
pub use refunds::*;
pub use reservations::*;
pub use spending::*;
pub use subject::{ChargeSpec, StoreUnderTest, built, charges};

/// Makes one test per promise. Takes an async function from a `FakeClock` to the store and what keeps it
/// alive.
#[macro_export]
macro_rules! store_contract {
    ($make:path) => {
        $crate::store_contract! { @each $make;
            a_bucket_starts_full
            a_spend_takes_what_it_costs
            a_charge_without_a_list_answers_like_a_spend_or_takes_nothing
            a_denial_takes_nothing
            a_polling_client_does_not_starve_itself
            tokens_come_back_at_the_rate
            a_bucket_never_holds_more_than_its_capacity
            a_denied_caller_who_waits_retry_after_is_let_in_and_not_a_microsecond_before
            cost_zero_asks_for_a_token_and_spends_none
            a_peek_answers_like_a_spend_and_writes_nothing
            the_slowest_and_the_fastest_rates_work
            the_smallest_and_the_largest_capacities_work
            a_changed_limit_carries_tokens_over_and_clamps_them
            a_tightened_limit_gives_nobody_a_fresh_start
            many_callers_at_once_share_exactly_one_bucket
            a_chain_is_spent_whole_or_not_at_all
            a_denied_chain_names_the_limit_with_the_longest_wait
            an_allowed_chain_names_the_limit_that_will_deny_first
            a_chain_across_keys_is_spent_whole_or_not_at_all
            crossing_chains_conserve_every_token
            a_refund_gives_back_what_was_spent
            a_refund_never_rises_above_the_capacity
            a_refund_never_creates_a_bucket
            a_refund_of_a_quota_returns_to_the_window_that_it_was_spent_in
            a_refund_with_an_id_is_given_once
            a_refund_with_an_id_of_a_chain_across_keys_is_given_once
            the_id_of_a_refund_belongs_to_a_key_and_is_remembered_for_an_hour
            a_reset_fills_the_bucket
            a_partial_spend_takes_what_is_there
            a_partial_spend_of_a_chain_takes_what_every_limit_has
            a_late_charge_takes_the_bucket_into_debt_and_the_refill_repays_it
            a_late_charge_beyond_the_debt_is_told_as_uncovered
            a_late_charge_of_a_chain_is_taken_from_each_limit
            a_debt_is_kept_when_its_limit_changes
            a_quota_comes_back_when_the_next_window_starts_and_not_a_microsecond_before
            a_quota_and_a_rate_are_spent_together_or_not_at_all
            a_changed_quota_keeps_what_was_used
            a_quota_in_place_of_a_rate_is_unused
            a_debt_of_a_quota_ends_with_its_window
            a_reservation_is_charged_at_once_and_settled_once
            a_reservation_that_is_settled_at_nothing_is_given_back
            a_reservation_that_cost_more_takes_the_bucket_into_debt
            an_expired_reservation_stays_charged
            a_reservation_of_a_chain_is_settled_in_each_limit
            a_reservation_of_an_earlier_window_gives_nothing_back_to_this_one
            of_many_that_settle_a_reservation_at_once_one_does
            at_most_so_many_permits_are_held_at_once
            a_released_permit_frees_its_place_once
            a_permit_ends_when_its_hold_time_has_passed_and_not_a_microsecond_before
            a_permit_that_is_renewed_in_time_is_held_for_another_hold_time
            a_permit_and_tokens_are_taken_together_or_not_at_all
            a_permit_that_is_taken_again_counts_once
            permits_across_keys_are_taken_together_or_not_at_all
            what_takes_no_permit_takes_no_place
            a_reset_frees_all_permits
            holders_are_reported_with_the_time_at_which_they_end
            a_limit_that_shrinks_takes_no_permit_from_its_holder
            a_clock_that_steps_back_holds_no_place_for_ever
            of_many_that_ask_for_a_permit_at_once_as_many_get_one_as_may
            a_clock_that_steps_back_over_the_start_of_a_window_mints_nothing
            a_clock_that_steps_back_a_little_mints_nothing
            a_clock_that_steps_far_back_locks_nobody_out
            a_frozen_clock_mints_nothing
            a_clock_that_jumps_ahead_fills_to_the_capacity_only
            a_clock_that_swings_by_a_second_mints_nothing
            a_clock_that_swings_far_gives_what_the_time_it_shows_is_worth
            keys_have_buckets_of_their_own
            limits_of_one_key_have_buckets_of_their_own
            odd_keys_are_kept_apart
        }
    };
    (@each $make:path; $($promise:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let clock = $crate::contract::FakeClock::default();
                let (store, _alive) = $make(clock.clone()).await;
                $crate::contract::$promise($crate::contract::StoreUnderTest::new(store, clock)).await;
            }
        )+
    };
}
