//! How many admitted requests provably fell into one window.
//!
//! From outside nobody sees when a request was admitted, only that it was between its sending and its answer. So a
//! set of requests is counted only if all of them were sent *and* answered within less than the window: then any
//! limiter that promises N in every window broke its promise if there are more than N. What is counted is a lower
//! bound, and requests that are not recorded can only make it lower.
//!
//! Times are microseconds since the start of the run, on one monotonic clock: sending is rounded down, the answer
//! up. The limiter's clock is another one; one that is being slewed by NTP may differ by 0.05 % of the window.

/// An admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) sent_us: u32,
    pub(super) answered_us: u32,
}

/// The largest number of requests that were all sent and answered within one stretch of less than `window_us`.
pub(super) fn largest(admitted: &[Admitted], window_us: u64) -> usize {
    // One that took as long as the window is in no such stretch. Without these, whatever was sent before a
    // stretch begins was answered before it ends, so two counts are enough for the pair of conditions.
    let took = |one: &&Admitted| u64::from(one.answered_us) < u64::from(one.sent_us) + window_us;
    let mut sent: Vec<u32> = admitted.iter().filter(took).map(|one| one.sent_us).collect();
    let mut answered: Vec<u32> = admitted.iter().filter(took).map(|one| one.answered_us).collect();
    sent.sort_unstable();
    answered.sort_unstable();
    let (mut largest, mut answered_before_end) = (0, 0);
    for (sent_before, start) in sent.iter().enumerate() {
        let end = u64::from(*start) + window_us;
        while answered.get(answered_before_end).is_some_and(|at| u64::from(*at) < end) {
            answered_before_end += 1;
        }
        largest = largest.max(answered_before_end.saturating_sub(sent_before));
    }
    largest
}

/// What was admitted in whole windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    pub(super) windows: u64,
    pub(super) admitted: u64,
}

/// Counts whole windows, up to `end_us`, that begin one window after the first admitted request was sent; `None` if
/// there is none.
///
/// The first is left out, because a limiter that begins empty may then admit ahead, as buckets do, or in the middle
/// of its own window. And only whole ones count: a sliding window admits N at once, and N more when the window has
/// gone, so any other stretch would hold one burst too many.
pub(super) fn steady(admitted: &[Admitted], window_us: u64, end_us: u64) -> Option<Steady> {
    let first = admitted.iter().map(|one| u64::from(one.sent_us)).min()?;
    let start = first.checked_add(window_us)?;
    let windows = end_us.saturating_sub(start).checked_div(window_us).filter(|windows| *windows > 0)?;
    let stretch = start..start + windows * window_us;
    let inside = admitted.iter().filter(|one| stretch.contains(&one.answered_us.into())).count();
    Some(Steady { windows, admitted: u64::try_from(inside).ok()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admitted(times: &[(u32, u32)]) -> Vec<Admitted> {
        times.iter().map(|&(sent_us, took)| Admitted { sent_us, answered_us: sent_us + took }).collect()
    }

    /// By the definition: every stretch that begins when one was sent.
    fn brute(all: &[Admitted], window_us: u64) -> usize {
        let inside = |start: u32| {
            all.iter()
                .filter(|one| {
                    one.sent_us >= start && u64::from(one.answered_us) < u64::from(start) + window_us
                })
                .count()
        };
        all.iter().map(|one| inside(one.sent_us)).max().unwrap_or(0)
    }

    proptest! {
        /// For any requests, in any order, short or longer than the window: as many as looking at each stretch
        /// finds.
        #[test]
        fn as_many_as_brute_force_finds(
            times in prop::collection::vec((0_u32..300, 0_u32..90), 0..60),
            window_us in 1_u64..100,
        ) {
            let all = admitted(&times);
            prop_assert_eq!(largest(&all, window_us), brute(&all, window_us));
        }
    }

    #[test]
    fn a_window_is_half_open() {
        // Exactly a window apart: a permit that is W old no longer counts.
        assert_eq!(largest(&admitted(&[(0, 0), (1000, 0)]), 1000), 1);
        assert_eq!(largest(&admitted(&[(0, 0), (999, 0)]), 1000), 2);
    }

    #[test]
    fn what_may_have_been_admitted_outside_is_not_held_against_a_limiter() {
        // Sent within the window, answered after it.
        assert_eq!(largest(&admitted(&[(0, 10), (900, 100)]), 1000), 1);
        assert_eq!(largest(&admitted(&[(0, 5000), (10, 10), (20, 10)]), 1000), 2);
        assert_eq!(largest(&[], 1000), 0);
    }

    #[test]
    fn whole_windows_hold_one_burst_each() {
        let bursts = admitted(&[(0, 5), (0, 6), (1002, 5), (1002, 6), (2004, 5), (2004, 6), (3006, 5)]);
        assert_eq!(steady(&bursts, 1000, 3500), Some(Steady { windows: 2, admitted: 4 }));
        assert_eq!(steady(&bursts, 1000, 1900), None);
        assert_eq!(steady(&[], 1000, 9000), None);
    }

    #[test]
    fn a_window_of_the_limiters_own_may_begin_between() {
        // A fixed window whose boundaries lie at 400, 1400, ...: asked first in the middle.
        let bursts =
            admitted(&[(0, 5), (0, 5), (400, 5), (400, 5), (1400, 5), (1400, 5), (2400, 5), (2400, 5)]);
        assert_eq!(steady(&bursts, 1000, 3100), Some(Steady { windows: 2, admitted: 4 }));
    }
}
