//! Shares of a limit that add up to the whole, to the last permit: what each of several instances may grant when
//! none of them can ask the store.
//!
//! What it is not: it knows no instances. Who is which place of how many is the caller's to say, and shares add up
//! only among those who say the same number and different places.
//!
//! # Invariants
//! * The shares of places 0 to `of - 1` of N add up to N, and no two of them differ by more than 1.
//! * The share of a limit is a limit of the same window and algorithm, and whatever an algorithm counts
//!   besides permits (the burst of a token bucket) is shared out in the same way, or not at all: less, never more.

use crate::limit::{Algorithm, Limit};

/// The most instances that a limit is shared out among. More would have a share of 0 of most limits.
pub const INSTANCES_MAX: u32 = 100_000;

/// Which of how many instances one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0, below `of`.
    place: u32,
    /// At least 1.
    of: u32,
}

impl Place {
    /// The place of the only instance.
    pub const ALONE: Self = Self { place: 0, of: 1 };

    /// Place `place` of `of`. Out of range it is brought into it: the last place, of at least one and at most
    /// [`INSTANCES_MAX`]. Two instances that are given the last place both have no more than a share that
    /// differs from any other by 1.
    pub const fn new(place: u32, of: u32) -> Self {
        let of = if of == 0 {
            1
        } else if of > INSTANCES_MAX {
            INSTANCES_MAX
        } else {
            of
        };
        Self { place: if place < of { place } else { of - 1 }, of }
    }

    /// From 0.
    pub const fn place(self) -> u32 {
        self.place
    }

    /// How many share.
    pub const fn of(self) -> u32 {
        self.of
    }
}

/// This place's share of `n`: `floor((place + 1) n / of) - floor(place n / of)`.
pub const fn share(n: u32, place: Place) -> u32 {
    let (n, at, of) = (n as u64, place.place as u64, place.of as u64);
    let share = (at + 1) * n / of - at * n / of;
    #[expect(clippy::cast_possible_truncation, reason = "at most n")]
    let share = share as u32;
    share
}

/// This place's share of a limit. A token bucket whose share of the burst could hold no permit, or would take
/// longer to refill than any bucket may, has none.
pub fn share_of(limit: &Limit, place: Place) -> Limit {
    let permits = share(limit.permits(), place);
    let algorithm = match limit.algorithm() {
        Algorithm::TokenBucket { burst } => Algorithm::TokenBucket { burst: share(burst, place) },
        other => other,
    };
    with_permits(limit, permits, algorithm).unwrap_or_else(|| nothing(limit))
}

/// The same limit of at most so many permits; never more than it has itself. A token bucket holds no more than
/// that at once, either.
pub fn at_most(limit: &Limit, permits: u32) -> Limit {
    if permits >= limit.capacity() {
        return *limit;
    }
    let algorithm = match limit.algorithm() {
        Algorithm::TokenBucket { burst } => Algorithm::TokenBucket { burst: burst.min(permits) },
        other => other,
    };
    with_permits(limit, permits.min(limit.permits()), algorithm).unwrap_or_else(|| nothing(limit))
}

fn with_permits(limit: &Limit, permits: u32, algorithm: Algorithm) -> Option<Limit> {
    Limit::new(permits.into(), limit.window()).and_then(|shared| shared.with_algorithm(algorithm)).ok()
}

/// The same window without a permit. Every algorithm can be held to that.
fn nothing(limit: &Limit) -> Limit {
    with_permits(limit, 0, limit.algorithm()).unwrap_or(*limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn limits() -> impl Strategy<Value = Limit> {
        let permits = prop_oneof![0..20_u32, 0..1_000_000_u32, Just(u32::MAX)];
        (permits, 1..100_000_u64, 0..5_u8, 1..5_000_u32).prop_map(|(permits, window, which, extra)| {
            let limit = Limit::new(permits.into(), Millis(window)).unwrap();
            let algorithm = match which {
                0 => Algorithm::SLIDING_WINDOW,
                1 => Algorithm::FixedWindow,
                2 => Algorithm::TokenBucket { burst: extra },
                3 => Algorithm::LeakyBucket { max_delay: Millis(extra.into()) },
                _ => Algorithm::SlidingWindow { resolution: Some(Millis(1 + window / 2)) },
            };
            limit.with_algorithm(algorithm).unwrap_or(limit)
        })
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole_and_differ_by_one_at_the_most(n: u32, of in 1..2_000_u32) {
            let shares: Vec<u32> = (0..of).map(|place| share(n, Place::new(place, of))).collect();
            prop_assert_eq!(shares.iter().map(|share| u64::from(*share)).sum::<u64>(), u64::from(n));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn shares_of_a_limit_add_up_and_are_limits_of_the_same_kind(limit in limits(), of in 1..50_u32) {
            let shares: Vec<Limit> = (0..of).map(|place| share_of(&limit, Place::new(place, of))).collect();
            let permits: u64 = shares.iter().map(|share| u64::from(share.permits())).sum();
            let burst: u64 = shares.iter().map(|share| u64::from(share.capacity())).sum();
            prop_assert!(burst <= u64::from(limit.capacity()));
            if !matches!(limit.algorithm(), Algorithm::TokenBucket { .. }) {
                prop_assert_eq!(permits, u64::from(limit.permits()));
            }
            for share in shares {
                prop_assert_eq!(share.window(), limit.window());
                prop_assert_eq!(share.algorithm().name(), limit.algorithm().name());
            }
        }

        #[test]
        fn a_lowered_limit_never_holds_more_than_it_was_lowered_to(limit in limits(), permits: u32) {
            let lowered = at_most(&limit, permits);
            prop_assert!(lowered.capacity() <= permits.min(limit.capacity()));
            prop_assert!(lowered.permits() <= limit.permits());
            prop_assert_eq!(lowered.window(), limit.window());
        }
    }

    #[test]
    fn places_out_of_range_are_brought_into_it() {
        assert_eq!(Place::new(0, 0), Place::ALONE);
        assert_eq!((Place::new(9, 4).place(), Place::new(9, 4).of()), (3, 4));
        assert_eq!(Place::new(0, u32::MAX).of(), INSTANCES_MAX);
        assert_eq!(share(10, Place::ALONE), 10);
    }

    #[test]
    fn a_bucket_too_small_to_share_goes_to_whoever_gets_both_a_permit_and_room_for_it() {
        let limit = Limit::new(1, Millis(1_000)).unwrap();
        let limit = limit.with_algorithm(Algorithm::TokenBucket { burst: 10 }).unwrap();
        let held: Vec<u32> = (0..4).map(|place| share_of(&limit, Place::new(place, 4)).capacity()).collect();
        assert_eq!(held, [0, 0, 0, 3]);
    }
}
