use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;

const SECOND: Millis = Millis(1_000);

fn era(number: u32, began_us: u64) -> Era {
    Era { number, began_us }
}

/// A grant as anybody would write it down.
#[derive(Clone, Copy, Debug)]
struct Grant {
    seq: u64,
    spent_us: u64,
    count: u32,
}

proptest! {
    /// Compared with a list of every grant: what is held is no less than what was spent within the window, and no
    /// more than what was spent within it and a 256th (or a millisecond) more; what is put back is never less than
    /// the grants after `stored`, nor dated earlier, at any age.
    #[test]
    fn too_much_or_for_too_long_never_too_little(
        window in prop_oneof![Just(10u64), Just(1_000), Just(60_000)],
        grants in vec_of((0u64..300, 1u32..4, prop_oneof![4 => Just(0u64), 1 => 1u64..20]), 1..400),
        stored_share in 0usize..=100,
    ) {
        let window = Millis(window);
        let mut book = Grants::new();
        let mut list: Vec<Grant> = Vec::new();
        let mut now_us = 7_000_000;
        for ((share, count, lease), seq) in grants.iter().zip(10u64..) {
            now_us += window.0 * share / 10 + 1;
            let lease = Millis(lease * window.0 / 1000);
            book.accept(now_us, window, seq, *count, lease);
            list.push(Grant { seq, spent_us: now_us + lease.0 * 1000, count: *count });
        }
        let count = |grants: &[Grant]| grants.iter().map(|grant| grant.count).sum::<u32>();
        let since = |grants: &[Grant], from_us: u64| -> Vec<Grant> {
            grants.iter().copied().filter(|grant| grant.spent_us > from_us).collect()
        };
        let begin_us = now_us.saturating_sub(window.0 * 1000);
        let longest_us = grants.iter().map(|(.., lease)| lease * window.0 / 1000 * 1000).max().unwrap();
        // A merged entry is dated at its last grant, and no entry before the one before it.
        let late_us = step_us(window) * 2 + longest_us;
        let held = book.held(now_us, window);
        prop_assert!(held >= count(&since(&list, begin_us)));
        prop_assert!(held <= count(&since(&list, begin_us.saturating_sub(late_us))));

        let stored = 10 + (grants.len() * stored_share / 100) as u64;
        let put_back = book.missing_after(now_us, window, stored);
        let missing: Vec<Grant> = list.into_iter().filter(|grant| grant.seq > stored).collect();
        prop_assert!(put_back.entries.len() <= ENTRIES_MAX);
        prop_assert!(put_back.entries.is_sorted_by(|one, next| one.0 >= next.0), "the oldest first");
        for (age, _) in &put_back.entries {
            let from_us = now_us.saturating_sub((age.0 + 1) * 1000);
            let younger: u32 = put_back.entries.iter().filter(|(other, _)| other <= age).map(|entry| entry.1).sum();
            prop_assert!(younger >= count(&since(&missing, from_us.max(begin_us))), "{age:?} of {put_back:?}");
        }
        let all: u32 = put_back.entries.iter().map(|entry| entry.1).sum();
        prop_assert!(all >= count(&since(&missing, begin_us)));
        prop_assert!(all <= held);
        let last_us = missing.iter().map(|grant| grant.spent_us).max().unwrap_or(0);
        prop_assert!(put_back.lease.0 * 1000 >= last_us.saturating_sub(now_us));
    }

    /// What is given back no longer counts, and what stays is dated no earlier than the newest so many were.
    #[test]
    fn what_is_given_back_leaves_the_oldest(
        grants in vec_of((0u64..50, 1u32..5), 1..60),
        count in 0u32..300,
    ) {
        let mut book = Grants::new();
        let (mut now_us, mut newest) = (1_000_000, Vec::new());
        for ((pause, count), seq) in grants.iter().zip(1u64..) {
            now_us += pause * 1000 + 4_000;
            book.accept(now_us, Millis(60_000), seq, *count, Millis::ZERO);
            newest.extend(vec![now_us; usize::try_from(*count).unwrap()]);
        }
        let before = book.held(now_us, Millis(60_000));
        book.give_back(count);
        let held = book.held(now_us, Millis(60_000));
        prop_assert_eq!(held, before.saturating_sub(count));
        let kept = &newest[newest.len() - usize::try_from(held).unwrap()..];
        let put_back = book.missing_after(now_us, Millis(60_000), 0);
        let ages = put_back.entries.iter().flat_map(|(age, count)| vec![*age; usize::try_from(*count).unwrap()]);
        for (age, spent_us) in ages.zip(kept) {
            prop_assert!(now_us - age.0 * 1000 >= *spent_us);
        }
    }
}

#[test]
fn an_entry_leaves_a_window_after_it_was_spent_and_not_before() {
    let mut book = Grants::new();
    book.accept(5_000_000, SECOND, 1, 3, Millis::ZERO);
    assert_eq!(book.oldest_leaves_after(5_000_500, SECOND), Millis(1_000));
    assert_eq!(book.held(5_999_999, SECOND), 3);
    assert_eq!(book.held(6_000_000, SECOND), 0);
    assert_eq!(book.oldest_leaves_after(6_000_000, SECOND), Millis::ZERO);
}

#[test]
fn a_leased_grant_is_dated_at_the_end_of_its_lease() {
    let mut book = Grants::new();
    book.accept(5_000_000, SECOND, 1, 3, Millis(20));
    let put_back = book.missing_after(5_005_000, SECOND, 0);
    assert_eq!(put_back.entries, [(Millis::ZERO, 3)]);
    assert_eq!(put_back.lease, Millis(15));
    assert_eq!(book.held(6_019_999, SECOND), 3);
    assert_eq!(book.held(6_020_000, SECOND), 0);
}

#[test]
fn the_grant_of_a_lost_reply_is_named_as_such_and_only_that() {
    let mut book = Grants::new();
    book.accept(5_000_000, SECOND, 3, 1, Millis::ZERO);
    book.lost(4);
    book.accept(5_100_000, SECOND, 5, 1, Millis::ZERO);
    let of = |stored| book.clone().missing_after(5_200_000, SECOND, stored);
    assert!(of(3).accepted && !of(4).accepted && of(5).accepted && of(0).accepted);
    assert_eq!(of(4).entries, [(Millis(100), 1)]);
    for seq in 6..6 + LOST_MAX as u64 {
        book.lost(seq);
    }
    assert!(book.missing_after(5_200_000, SECOND, 4).accepted, "in doubt it was");
}

#[test]
fn what_was_held_at_the_beginning_of_an_era_is_remembered_for_it() {
    let mut book = Grants::new();
    book.accept(5_000_000, SECOND, 1, 3, Millis::ZERO);
    book.accept(5_500_000, SECOND, 2, 4, Millis::ZERO);
    assert_eq!(book.held_when(era(1, 5_600_000), SECOND), Some(7));
    book.accept(5_700_000, SECOND, 3, 5, Millis::ZERO);
    assert_eq!(book.held(6_550_000, SECOND), 5);
    assert_eq!(book.held_when(era(1, 5_600_000), SECOND), Some(7), "though all of it has left since");
    assert_eq!(book.held_when(era(2, 6_550_000), SECOND), Some(5));
    assert_eq!(book.held_when(era(3, 9_000_000), SECOND), None, "no history is not a history of nothing");
}

#[test]
fn the_busiest_key_keeps_no_more_than_so_many_entries() {
    let mut book = Grants::new();
    for seq in 0..100_000u64 {
        book.accept(5_000_000 + seq * 100, SECOND, seq, 1, Millis::ZERO);
    }
    assert!(book.entries.len() <= ENTRIES_MAX);
    assert!((10_000..10_050).contains(&book.held(14_999_900, SECOND)));
}

#[test]
fn of_the_recent_grants_no_more_is_put_back_than_is_missing() {
    let mut book = Grants::new();
    for seq in 1..=1_000 {
        book.accept(5_000_000 + seq * 10, Millis(3_600_000), seq, 1, Millis::ZERO);
    }
    let missing = |stored| -> u32 {
        let put_back = book.clone().missing_after(5_100_000, Millis(3_600_000), stored);
        put_back.entries.iter().map(|entry| entry.1).sum()
    };
    assert_eq!((missing(1_000), missing(998), missing(980)), (0, 2, 20));
}

#[test]
fn what_was_granted_since_an_era_began_was_not_held_then_though_a_later_one_was_asked_about_meanwhile() {
    let mut book = Grants::new();
    assert_eq!(book.held_when(era(1, 5_000_000), SECOND), None);
    book.accept(5_100_000, SECOND, 1, 7, Millis::ZERO);
    assert_eq!(book.held_when(era(2, 5_200_000), SECOND), Some(7));
    assert_eq!(book.held_when(era(1, 5_000_000), SECOND), None, "of another master, and begun before");
    let mut new = Grants::new();
    new.accept(5_100_000, SECOND, 1, 7, Millis::ZERO);
    assert_eq!(new.held_when(era(1, 5_000_000), SECOND), None, "a key that was new");
    let mut leased = Grants::new();
    leased.accept(5_100_000, SECOND, 1, 7, Millis(20));
    assert_eq!(leased.held_when(era(1, 5_110_000), SECOND), Some(7), "what may still be spent is held");
}
