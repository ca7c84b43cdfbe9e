//! The largest number of admissions in any window, as far as it can be proved from outside.
//!
//! A client knows when it sent a request and when it got the answer; the admission lies somewhere between. That two
//! admissions were closer than a window is proved only if the earlier was sent, and the later answered, within
//! it. So the number here is never too large: above the limit, the limit was broken.

use super::Record;

/// The largest number of admitted requests that were both sent and answered within one window of `window_us`
/// microseconds: sent at `x` or later, answered before `x + window_us`, for any `x`. Two that are exactly a window
/// apart may both be right, hence *before*.
///
/// Order of records does not matter. It takes the time of sorting.
#[must_use]
pub fn largest_window(records: &[Record], window_us: u64) -> u32 {
    let mut spans: Vec<(u64, u64)> = records
        .iter()
        .filter(|record| record.is_admitted())
        .map(|record| (record.sent_us, record.answered_us.max(record.sent_us)))
        .collect();
    spans.sort_unstable();
    let mut by_answer: Vec<usize> = (0..spans.len()).collect();
    by_answer.sort_unstable_by_key(|index| spans[*index].1);
    let mut arriving = by_answer.into_iter().peekable();

    // A window that can't start later without losing one starts where one was sent: try each of those.
    let mut inside = vec![false; spans.len()];
    let (mut count, mut largest, mut first) = (0_u32, 0, 0);
    for index in 0..spans.len() {
        let start = spans[index].0;
        while spans[first].0 < start {
            count -= u32::from(inside[first]);
            first += 1;
        }
        let end = start.saturating_add(window_us);
        while let Some(next) = arriving.next_if(|next| spans[*next].1 < end) {
            // One that was sent before the window, and answered only in it, is in none from here on.
            if next >= first {
                inside[next] = true;
                count += 1;
            }
        }
        largest = largest.max(count);
    }
    largest
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Answer, Told};
    use super::*;

    fn record(sent_us: u64, took_us: u64, answer: Answer) -> Record {
        let (answered_us, told) = (sent_us + took_us, Told::Nothing);
        Record { instance: 0, intended_us: sent_us, sent_us, answered_us, answer, told, tries: 1 }
    }

    /// Every window that begins at any microsecond, counted one by one.
    fn brute_force(records: &[Record], window_us: u64) -> u32 {
        let last = records.iter().map(|record| record.sent_us).max().unwrap_or(0);
        let is_in = |record: &Record, start: u64| {
            record.answer == Answer::Allowed
                && record.sent_us >= start
                && record.answered_us < start + window_us
        };
        let count = |start| records.iter().filter(|record| is_in(record, start)).count();
        (0..=last).map(count).max().unwrap_or(0).try_into().unwrap()
    }

    fn any_answer() -> impl Strategy<Value = Answer> {
        prop_oneof![4 => Just(Answer::Allowed), 1 => Just(Answer::Denied), 1 => Just(Answer::Broken)]
    }

    proptest! {
        /// It is what counting every window gives, for requests of any length, at any time, in any order.
        #[test]
        fn it_is_the_largest_of_all_windows(
            sent in vec((0..200_u64, 0..60_u64, any_answer()), 0..60),
            window_us in 0..80_u64,
        ) {
            let records: Vec<Record> =
                sent.into_iter().map(|(sent_us, took_us, answer)| record(sent_us, took_us, answer)).collect();
            prop_assert_eq!(largest_window(&records, window_us), brute_force(&records, window_us));
        }
    }

    #[test]
    fn what_is_exactly_a_window_apart_or_may_be_is_no_proof() {
        let allowed = |sent_us, took_us| record(sent_us, took_us, Answer::Allowed);
        assert_eq!(largest_window(&[], 100), 0);
        assert_eq!(largest_window(&[allowed(0, 0), allowed(100, 0)], 100), 1);
        assert_eq!(largest_window(&[allowed(0, 0), allowed(99, 0)], 100), 2);
        assert_eq!(largest_window(&[allowed(0, 0), allowed(50, 60)], 100), 1, "it may be of 110");
        assert_eq!(largest_window(&[allowed(0, 500)], 100), 0, "longer than a window");
    }
}
