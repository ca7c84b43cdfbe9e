//! What every store must do, one function for each rule, and a property that compares a store with the
//! model step by step.
//!
//! A store joins by a [`World`] of its own and one line at the end of this file. The rules say nothing of
//! how a store keeps its counters; a bound on their number, for instance, is the memory store's own.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]
// A check of a shared store is a deep stack of futures.
#![recursion_limit = "256"]

mod model;
mod rules;
mod servers;
mod subject;
mod world;

use rules::{changing, clocks, counting, reserving, together};
use servers::{Clustered, Redis82, Single, Valkey, Watched};
use world::{MemoryWorld, RedisWorld, UsualWorld, World};

/// Whether a world can be had. Those of other releases are absent where `cargo xtask test` could not install them.
fn is_here<W: World>() -> bool {
    let is_here = W::is_here();
    if !is_here {
        eprintln!("skipped: its server is not on this machine");
    }
    is_here
}

macro_rules! rules {
    ($world:ty: $($module:ident { $($rule:ident),+ $(,)? })+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                if is_here::<$world>() {
                    $module::$rule::<$world>().await;
                }
            }
        )+)+
    };
}

/// Holds a store to all rules. A rule that is missing here is reported as dead code.
macro_rules! conformance {
    ($store:ident: $world:ty) => {
        mod $store {
            use super::*;

            rules! { $world:
                counting {
                    a_counter_admits_its_limit_and_no_more,
                    a_limit_of_one_holds_in_any_window,
                    the_promised_wait_is_exact,
                    quota_comes_back_when_it_is_a_whole_window_old_in_continuous_time,
                    a_peek_takes_nothing,
                    a_denied_check_takes_nothing,
                    denied_checks_count_where_the_policy_says_so,
                    a_limit_of_zero_denies_and_promises_no_wait,
                    the_largest_limits_and_costs_are_counted,
                    a_busy_key_is_held_to_its_limit_for_years,
                    waits_that_must_not_exceed_the_longest_delay_are_told,
                }
                together {
                    keys_policies_and_limits_have_counters_of_their_own,
                    any_key_is_an_ordinary_key,
                    a_check_charges_all_its_counters_or_none,
                    the_order_of_policies_does_not_matter,
                    a_shadow_policy_counts_and_never_denies,
                    equal_checks_at_once_are_granted_as_if_one_after_another,
                    checks_at_the_same_time_never_pass_the_limit,
                    checks_of_several_counters_at_the_same_time_stay_all_or_nothing,
                    a_check_that_was_never_polled_has_charged_nothing,
                }
                changing {
                    a_raised_limit_admits_at_once,
                    a_lowered_limit_denies_until_enough_has_slid_out,
                    a_limit_that_was_zero_for_a_while_remembers,
                    a_changed_window_acts_on_the_same_history,
                    two_limits_on_one_history_stay_below_the_larger,
                    a_changed_algorithm_starts_from_the_old_count,
                    a_reset_empties_one_counter_and_no_other,
                }
                clocks {
                    a_clock_that_stands_still_gives_nothing_back,
                    a_small_step_back_is_waited_for,
                    a_large_step_back_neither_locks_out_nor_admits_twice,
                    a_step_forward_ends_windows_early,
                }
                reserving {
                    what_is_committed_below_the_reserve_is_given_back,
                    what_is_committed_above_the_reserve_is_charged_past_the_limit,
                    a_refund_gives_everything_back,
                    a_reservation_is_settled_once,
                    a_reservation_that_never_was_is_unknown,
                    a_denied_reservation_is_none,
                    a_reservation_ends_with_its_window,
                    a_reservation_may_cost_nothing_at_first,
                    a_reservation_covers_all_its_counters,
                    limits_that_slid_out_sooner_give_back_less,
                    a_reset_in_between_gives_nothing_back,
                    a_history_that_moved_with_the_clock_gives_nothing_back,
                    a_reservation_under_a_changed_window_forgets_nothing,
                    a_reservation_is_settled_once_however_many_try,
                }
            }

            #[test]
            fn every_step_is_decided_as_the_model_decides() {
                if is_here::<$world>() {
                    model::every_step_is_decided_as_the_model_decides::<$world>();
                }
            }
        }
    };
}

conformance!(memory: MemoryWorld);
conformance!(redis: RedisWorld<Single>);
conformance!(sentinel: RedisWorld<Watched>);
conformance!(cluster: RedisWorld<Clustered>);
conformance!(redis_8_2: RedisWorld<Redis82>);
conformance!(valkey: RedisWorld<Valkey>);

/// The rules in which no time passes, for stores as users have them.
macro_rules! usual {
    ($store:ident: $world:ty) => {
        mod $store {
            use super::*;

            rules! { $world:
                counting {
                    a_peek_takes_nothing,
                }
                together {
                    keys_policies_and_limits_have_counters_of_their_own,
                    any_key_is_an_ordinary_key,
                    a_check_charges_all_its_counters_or_none,
                    the_order_of_policies_does_not_matter,
                    a_shadow_policy_counts_and_never_denies,
                    checks_at_the_same_time_never_pass_the_limit,
                    checks_of_several_counters_at_the_same_time_stay_all_or_nothing,
                    a_check_that_was_never_polled_has_charged_nothing,
                }
                changing {
                    a_raised_limit_admits_at_once,
                    a_limit_that_was_zero_for_a_while_remembers,
                    a_reset_empties_one_counter_and_no_other,
                }
                reserving {
                    a_reservation_is_settled_once,
                    a_reservation_that_never_was_is_unknown,
                    a_denied_reservation_is_none,
                    a_reservation_may_cost_nothing_at_first,
                    a_reservation_covers_all_its_counters,
                    a_reset_in_between_gives_nothing_back,
                    a_reservation_is_settled_once_however_many_try,
                }
            }
        }
    };
}

usual!(usual: UsualWorld<Single>);
usual!(usual_cluster: UsualWorld<Clustered>);
