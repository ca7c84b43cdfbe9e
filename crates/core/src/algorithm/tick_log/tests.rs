//! What is particular to the tick log: its resolution and its ring.

use super::*;

fn sliding(permits: u64, window: u64) -> Limit {
    Limit::new(permits, Millis(window)).unwrap()
}

fn charged(limit: &Limit, at_ms: impl IntoIterator<Item = u64>) -> TickLog {
    let mut log = TickLog::new(1);
    for ms in at_ms {
        let now = Now::from_millis(ms);
        log.settle(now, limit);
        log.charge(now, limit, 1);
    }
    log
}

#[test]
fn the_resolution_is_1_ms_while_the_log_fits_in_4096_entries() {
    let r_ms = |permits, window, lease| wanted_r_ms(&sliding(permits, window), Millis(lease));
    assert_eq!(r_ms(5_000, 1_000, 0), 1); // W is short
    assert_eq!(r_ms(4_096, 86_400_000, 0), 1); // N is small
    assert_eq!(r_ms(4_097, 4_096, 0), 1);
    assert_eq!(r_ms(4_097, 8_191, 0), 1);
    assert_eq!(r_ms(4_097, 8_192, 0), 2);
    assert_eq!(r_ms(4_097, 8_191, 1), 2); // W + l counts
    assert_eq!(r_ms(400_000, 60_000, 0), 8);
    assert_eq!(r_ms(70_000, 86_400_000, 0), 16_384);
    // Ages stay below 2^31 ticks.
    assert_eq!(r_ms(1, (1 << 31) - 1, 0), 1);
    assert_eq!(r_ms(1, 1 << 31, 0), 2);
    assert_eq!(r_ms(1, 366 * 86_400_000, 0), 16);
}

/// For every window, automatic resolution keeps the log at 4096 to 8192 entries or at 1 ms, and quota comes
/// back at most 0.025 % of W late.
#[test]
fn automatic_resolution_keeps_to_its_figures() {
    for shift in 0..35 {
        for window in [1u64 << shift, (1 << shift) + 1, (2 << shift) - 1, 3 << shift] {
            let window = window.min(366 * 86_400_000);
            let r_ms = u64::from(wanted_r_ms(&sliding(u64::from(u32::MAX), window), Millis::ZERO));
            assert!(r_ms.is_power_of_two());
            assert!(r_ms == 1 || (4096..=8192).contains(&(window / r_ms)), "{window} {r_ms}");
            assert!(r_ms == 1 || r_ms * 4096 <= window);
        }
    }
}

/// A full window of the automatic resolution fits into the ring: it must not be what raises r.
#[test]
fn a_full_window_never_raises_r_by_itself() {
    for window in [8_191, 16_383, 16_380] {
        let limit = sliding(5_000_000, window);
        let mut log = TickLog::new(1);
        for us in (0..3 * window * 1000).step_by(470) {
            let now = Now::from_micros(1_700_000_000_000_000 + us);
            log.settle(now, &limit);
            log.charge(now, &limit, 1);
        }
        assert_eq!(log.r_ms, wanted_r_ms(&limit, Millis::ZERO));
        assert!(log.entries() > 8_100);
    }
}

#[test]
fn memory_depends_on_the_window_and_not_on_the_rate() {
    let limit = sliding(1_000_000, 1_000);
    let mut log = TickLog::new(1);
    for us in (0..2_000_000).step_by(10) {
        let now = Now::from_micros(1_700_000_000_000_000 + us);
        log.settle(now, &limit);
        log.charge(now, &limit, 1);
    }
    assert!((100_000..=100_100).contains(&log.used()));
    assert!(log.entries() <= 1_001, "{}", log.entries());
}

#[test]
fn a_full_ring_first_squeezes_out_what_refunds_have_emptied() {
    let limit = sliding(10, 86_400_000);
    let mut log = TickLog::new(1);
    // One permit stays, for a day; the others are given back, so that there is always room for more.
    for ms in 0..100_000u64 {
        let now = Now::from_millis(1_000_000_000 + ms);
        log.settle(now, &limit);
        let at_ms = log.charge(now, &limit, 1);
        if ms > 0 {
            assert_eq!(log.refund(at_ms, 1), 1);
        }
    }
    assert_eq!((log.used(), log.r_ms), (1, 1));
    assert!(log.entries() <= 8_193);
}

#[test]
fn a_coarser_resolution_raises_r_to_a_multiple_and_keeps_every_permit() {
    let coarse = |ms| {
        sliding(100, 60_000)
            .with_algorithm(Algorithm::SlidingWindow { resolution: Some(Millis(ms)) })
            .unwrap()
    };
    let mut log = charged(&coarse(3), 1_000_000..1_000_050);
    assert_eq!((log.r_ms, log.used()), (3, 50));
    log.settle(Now::from_millis(1_000_050), &coarse(10));
    assert_eq!((log.r_ms, log.used()), (12, 50));
    log.settle(Now::from_millis(1_000_050), &coarse(3));
    assert_eq!(log.r_ms, 12);
    // Once it is empty, r is free.
    log.settle(Now::from_millis(1_100_000), &coarse(3));
    assert_eq!((log.r_ms, log.used()), (3, 0));
}

/// Making space may raise r so far that the new charge lies in what was the newest tick: it must not be
/// split over two entries of one tick, where a refund would find only one.
#[test]
fn a_charge_that_raises_r_joins_its_own_tick() {
    let limit = sliding(5, 86_400_000);
    let mut log = charged(&limit, 1_000_001..=1_000_001 + u64::from(ENTRIES_MAX));
    assert_eq!((log.r_ms, log.older.len()), (1, 8192));
    let now = Now::from_millis(1_008_194);
    let at_ms = log.charge(now, &limit, 3);
    assert_eq!((log.r_ms, at_ms), (2, 1_008_194));
    let mut ticks: std::vec::Vec<u64> = log.older.iter().map(|entry| log.age(*entry)).collect();
    assert!(ticks.iter().all(|age| *age > 0));
    ticks.dedup();
    assert_eq!(ticks.len(), log.older.len());
    assert_eq!(log.used, 8196);
}

/// Everything was given back, the clock went back a little, and the next charge comes without another look.
#[test]
fn a_log_that_refunds_have_emptied_begins_anew() {
    let limit = sliding(10, 60_000);
    let mut log = charged(&limit, [1_000_000, 1_000_005, 1_000_009]);
    for at_ms in [1_000_000, 1_000_005, 1_000_009] {
        assert_eq!(log.refund(at_ms, 1), 1);
    }
    log.charge(Now::from_millis(1_000_002), &limit, 1);
    assert_eq!((log.entries(), log.last_tick), (1, 1_000_002));
}

/// The clock went back to the very millisecond of an old receipt, and the ticks had become shorter on the
/// way: it is still an old receipt.
#[test]
fn an_old_receipt_is_old_whatever_the_ticks_were() {
    let coarse = sliding(5_000, 409_600);
    let fine = sliding(10, 1_000);
    let mut log = charged(&coarse, [1_000_000]);
    let (old_epoch, at_ms) = (log.epoch(), log.end_ms(log.last_tick));
    assert!(log.r_ms > 1);
    log.settle(Now::from_millis(2_000_000), &fine);
    log.settle(Now::from_millis(at_ms), &fine);
    assert_eq!(log.charge(Now::from_millis(at_ms), &fine, 3), at_ms);
    assert_ne!(log.epoch(), old_epoch);
}

/// Set back by an hour with a lease in the window, it must not stay open for that hour.
#[test]
fn a_lease_goes_back_with_the_clock() {
    let limit = sliding(10, 1_000);
    let mut log = TickLog::new(1);
    log.settle(Now::from_millis(10_000_000), &limit);
    log.lease(Now::from_millis(10_000_000), &limit, 1, Millis(20));
    log.settle(Now::from_millis(6_400_000), &limit);
    assert_eq!(log.lease_span(), LeaseSpan { longest: Millis(20), end_ms: 6_400_020 });
}

#[test]
fn an_empty_log_frees_a_large_ring_and_keeps_a_small_one() {
    let limit = sliding(5_000, 1_000);
    let emptied = |entries: u64| {
        let mut log = charged(&limit, 1_000_000..1_000_000 + entries);
        log.settle(Now::from_millis(1_010_000), &limit);
        log.older.capacity()
    };
    assert_eq!(emptied(900), 0);
    assert!(emptied(10) > 0);
}

/// An emptied entry at the front would hide when the next permit leaves, for whoever reads only the front.
#[test]
fn the_oldest_entry_always_holds_permits() {
    let limit = sliding(10, 1_000);
    let mut log = charged(&limit, [1_000_000, 1_000_100, 1_000_200, 1_000_300]);
    let oldest = |log: &TickLog| log.older.front().map(|entry| log.entry_end_ms(*entry));
    // From the middle: it stays, since everything before it is still there.
    assert_eq!(log.refund(1_000_100, 1), 1);
    assert_eq!((oldest(&log), log.older.len()), (Some(1_000_000), 3));
    // From the front: both go.
    assert_eq!(log.refund(1_000_000, 1), 1);
    assert_eq!((oldest(&log), log.older.len()), (Some(1_000_200), 1));

    // The same when the front slides out.
    let mut log = charged(&limit, [1_000_000, 1_000_100, 1_000_200, 1_000_300]);
    assert_eq!(log.refund(1_000_100, 1), 1);
    log.settle(Now::from_millis(1_001_000), &limit);
    assert_eq!((oldest(&log), log.used()), (Some(1_000_200), 2));
}
