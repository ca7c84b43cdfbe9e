use std::vec;

use proptest::prelude::*;

use super::*;
use crate::algorithm::tests::world::CASES;
use crate::limit::{Algorithm, Limit};
use crate::time::Now;

fn limit(permits: u64, window: u64, resolution: Option<u64>) -> Limit {
    let resolution = resolution.map(Millis);
    Limit::new(permits, Millis(window))
        .and_then(|limit| limit.with_algorithm(Algorithm::SlidingWindow { resolution }))
        .unwrap()
}

/// Two older ticks and the newest, one row, one lease, ticks of 2 ms.
fn example() -> Image {
    let limit = limit(100, 1_000, Some(2));
    let mut log = TickLog::new(7);
    for (at_ms, units) in [(1_700_000_000_001, 3), (1_700_000_000_009, 1), (1_700_000_000_500, 2)] {
        let now = Now::from_millis(at_ms);
        log.settle(now, &limit);
        log.lease(now, &limit, units, Millis(if units == 2 { 20 } else { 0 }));
    }
    Image {
        log,
        reset_epoch: 1_600_000_000_000,
        ledger: vec![Row {
            identity: 0xfedc_ba98_7654_3210,
            seq: 1_000,
            count: 2,
            tick: low_32(1_700_000_000_500 / 2),
        }],
    }
}

/// What some traffic leaves behind: settled or not, with emptied entries, leases, after steps of the clock.
fn image() -> impl Strategy<Value = Image> {
    let charge = (0u64..400_000, 1u32..50, 0u32..60, 0u64..30, 0u64..30);
    let row = (any::<u64>(), 0..=NUMBER_MAX, any::<u32>(), prop_oneof![4 => 0u32..1000, 1 => any::<u32>()]);
    (
        (1u64..20_000, 1u64..100_000, prop_oneof![Just(None), (1u64..100).prop_map(Some)]),
        (any::<u32>(), 0..=NUMBER_MAX),
        prop_oneof![Just(0u64), Just(1_700_000_000_000_000), 0..Now::MAX.as_micros()],
        proptest::collection::vec(charge, 0..60),
        prop_oneof![
            proptest::collection::vec(row.clone(), 0..6),
            proptest::collection::vec(row, 0..=ROWS_MAX),
        ],
    )
        .prop_map(|((permits, window, r_ms), (epoch, reset_epoch), begin, charges, rows)| {
            let limit = limit(permits, window, r_ms.map(|r_ms| r_ms.min(window)));
            let mut log = TickLog::new(epoch);
            let mut at_us = begin;
            for (gap, units, back, lease, step) in charges {
                at_us = (at_us + gap).saturating_sub(if step == 0 { 50_000_000 } else { 0 });
                let now = Now::from_micros(at_us);
                log.settle(now, &limit);
                let receipt = log.lease(now, &limit, units, Millis(lease.saturating_sub(20)));
                log.refund(receipt.at_ms, back);
            }
            let last = log.last_tick;
            let mut ledger: Vec<Row> = Vec::new();
            for (identity, seq, count, age) in rows {
                if ledger.iter().all(|row| row.identity != identity) {
                    let tick = low_32(last.wrapping_sub(u64::from(age)));
                    ledger.push(Row { identity, seq, count, tick });
                }
            }
            Image { log, reset_epoch, ledger }
        })
}

/// Uses a log in every way there is, at any times.
fn exercise(image: Image, times: &[u64]) {
    let mut log = image.log;
    let limits = [
        limit(10, 1_000, None),
        limit(u64::from(u32::MAX), 366 * 86_400_000, None),
        limit(5_000, 60_000, Some(7)),
    ];
    for (turn, at_us) in times.iter().enumerate() {
        let (now, limit) = (Now::from_micros(*at_us), limits[turn % 3]);
        log.settle(now, &limit);
        log.retry_after(now, &limit, 5);
        log.freed_after(now, &limit, u64::from(log.used()));
        let receipt = log.lease(now, &limit, u32::MAX / 3, Millis(*at_us));
        log.expires_at_ms(&limit);
        log.refund(receipt.at_ms, 3);
        log.refund(*at_us, u32::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// What is written is read again, to the last field.
    #[test]
    fn images_round_trip(image in image()) {
        let bytes = encode(&image);
        prop_assert_eq!(decode(&bytes), Ok(image));
    }

    /// A value may end right after the last entry written, or have room behind it, or lie across the end of
    /// its ring: the same image.
    #[test]
    fn where_the_ring_begins_makes_no_difference(image in image(), turn in any::<u32>()) {
        let bytes = encode(&image);
        let capacity = u32::from_be_bytes(bytes[RING_CAPACITY_AT..][..4].try_into().unwrap());
        if capacity == 0 {
            return Ok(());
        }
        let len = u32::from_be_bytes(bytes[HEAD_AT..][..4].try_into().unwrap());
        let tail = turn % capacity;
        let ring = bytes.len() - len as usize * ENTRY_LEN;
        let mut turned = bytes[..ring].to_vec();
        turned.resize(ring + capacity as usize * ENTRY_LEN, 0xaa);
        for (place, entry) in (tail..).zip(bytes[ring..].chunks_exact(ENTRY_LEN)) {
            let at = ring + (place % capacity) as usize * ENTRY_LEN;
            turned[at..at + ENTRY_LEN].copy_from_slice(entry);
        }
        turned[TAIL_AT..][..4].copy_from_slice(&tail.to_be_bytes());
        turned[HEAD_AT..][..4].copy_from_slice(&(tail + len).to_be_bytes());
        prop_assert_eq!(decode(&turned), Ok(image));
    }

    /// No bytes make `decode` panic, and bytes that are not a log are not taken for one.
    #[test]
    fn any_bytes_are_refused_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), honest in any::<bool>()) {
        if honest && !bytes.is_empty() {
            bytes[FORMAT_AT] = FORMAT;
        }
        if let Ok(image) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&image)), Ok(image));
        }
    }

    /// A value that was damaged a little is refused, or is a log that works: nothing that `decode` lets pass
    /// makes an algorithm panic, at any time, under any limit. (Overflow checks are on in tests.)
    #[test]
    fn what_passes_decode_works(
        image in image(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        in_header in any::<bool>(),
        cut in prop_oneof![3 => Just(0usize), 1 => 1usize..40],
        times in proptest::collection::vec(prop_oneof![any::<u64>(), 1_700_000_000_000_000u64..1_700_000_000_900_000], 1..12),
    ) {
        let mut bytes = encode(&image);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        for (index, byte) in damage {
            let reach = if in_header { HEADER_LEN.min(bytes.len()) } else { bytes.len() };
            if reach > 0 {
                bytes[index.index(reach)] = byte;
            }
        }
        if let Ok(image) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&image)), Ok(image.clone()));
            exercise(image, &times);
        }
    }
}

/// The bytes are a promise to every other instance, and to the next release.
#[test]
fn the_encoding_is_pinned() {
    let mut expected: Vec<u8> = vec![];
    expected.extend([1, 0, 1, 1]); // format, kind, rows, room for rows
    expected.extend([0, 0, 0, 20, 0, 0, 0, 2]); // longest lease, r
    assert_eq!(expected.len(), HOT_AT);
    expected.extend([0, 0, 0, 8]); // capacity
    expected.extend([0, 0, 0, 7]); // epoch
    expected.extend([0xe7, 0xf2, 0xb4, 0x01]); // the oldest tick
    expected.extend([0, 0, 0, 0, 0, 0, 0, 2]); // tail, head
    expected.extend([0, 0, 0, 6, 0, 0, 0, 2]); // in use, of the last tick
    expected.extend([0x00, 0x00, 0x00, 0xc5, 0xe7, 0xf2, 0xb4, 0xfa]); // 1,700,000,000,500 / 2
    assert_eq!(expected.len(), HOT_AT + HOT_LEN);
    expected.extend([0x00, 0x00, 0x01, 0x74, 0x87, 0x6e, 0x80, 0x00]); // reset at 1,600,000,000,000
    expected.extend([0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x6a, 0x08]); // end of the last lease
    assert_eq!(expected.len(), HEADER_LEN);
    expected.extend([0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10]); // identity
    expected.extend([0xe7, 0xf2, 0xb4, 0xfa, 0, 0, 0, 2]); // tick, count
    expected.extend([0, 0, 0, 0, 0, 0, 0x03, 0xe8]); // seq
    expected.extend([0, 0, 0, 3, 0xe7, 0xf2, 0xb4, 0x01]);
    expected.extend([0, 0, 0, 1, 0xe7, 0xf2, 0xb4, 0x05]);
    assert_eq!(encode(&example()), expected);
    assert_eq!(decode(&expected), Ok(example()));
}

#[test]
fn what_a_script_replies_with_says_what_the_log_says() {
    let bytes = encode(&example());
    let hot = Hot::read(bytes[HOT_AT..HOT_AT + HOT_LEN].try_into().unwrap());
    let expected = Hot {
        epoch: 7,
        entries: 2,
        tail_tick: low_32(1_700_000_000_002 / 2),
        used: 6,
        last_tick: 1_700_000_000_500 / 2,
    };
    assert_eq!(hot, expected);
    assert_eq!(hot.oldest_tick(), 1_700_000_000_002 / 2);
    assert_eq!(Hot { last_tick: 3, tail_tick: 5, ..hot }.oldest_tick(), 0); // after a shift to before 1970
}

#[test]
fn a_newer_format_is_never_read_whatever_follows() {
    for bytes in [vec![2], vec![15; 200], [vec![2], encode(&example())].concat()] {
        assert_eq!(decode(&bytes), Err(DecodeError::NewerFormat { format: bytes[0] }));
    }
    for other in [&[0][..], b"text", &[255; 200]] {
        assert!(matches!(decode(other), Err(DecodeError::Corrupt { at: FORMAT_AT, .. })));
    }
    assert!(matches!(decode(b""), Err(DecodeError::Length { found: 0, .. })));
}

#[test]
fn every_field_that_contradicts_another_is_named() {
    let bytes = encode(&example());
    let rows = HEADER_LEN;
    let ring = HEADER_LEN + ROW_LEN;
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        decode(&bytes)
    };
    for (at, to) in [
        (KIND_AT, &[3][..]),
        (ROWS_AT, &[2]),
        (ROWS_CAPACITY_AT, &[65]),
        (RESET_EPOCH_AT, &[255; 8]),
        (R_AT, &[0, 0, 0, 0]),
        (LAST_TICK_AT, &[255; 8]),
        (LAST_TICK_AT, &[0, 0x10, 0, 0, 0, 0, 0, 0]), // 2^52 ticks of 2 ms
        (USED_AT, &[0, 0, 0, 7]),
        (TAIL_TICK_AT, &[2]),
        (RING_CAPACITY_AT, &[0, 0, 0, 9]),
        (RING_CAPACITY_AT, &[0, 0, 0, 4]),
        (RING_CAPACITY_AT, &[0, 2, 0, 0]),
        (TAIL_AT, &[0, 0, 0, 8]),
        (HEAD_AT, &[0, 0, 0, 9]),
        (LONGEST_LEASE_AT, &[255; 4]),
        (LEASE_END_AT, &[255; 8]),
        (rows + 16, &[255; 8]),
        (ring, &[0, 0, 0, 3, 0xe7, 0xf2, 0xb4, 6]), // later than the one behind it
        (ring + 8, &[0, 0, 0, 1, 0xe7, 0xf2, 0xb4, 0xfa]), // the last tick itself
    ] {
        match decode(&changed_bytes(&bytes, at, to)) {
            Err(DecodeError::Corrupt { at: found, fault }) => {
                assert_eq!(found, at.max(if at == ring { ring + 8 } else { 0 }), "{fault}")
            }
            other => panic!("byte {at}: {other:?}"),
        }
    }
    // No lease, but an end of one.
    assert!(matches!(changed(LONGEST_LEASE_AT, &[0; 4]), Err(DecodeError::Corrupt { at: LEASE_END_AT, .. })));
    // A second row of the same identity.
    let mut twice = bytes[..ring].to_vec();
    twice.extend_from_slice(&bytes[rows..]);
    twice[ROWS_AT..=ROWS_CAPACITY_AT].copy_from_slice(&[2, 2]);
    assert!(matches!(decode(&twice), Err(DecodeError::Corrupt { fault, .. }) if fault.contains("identity")));
    // A short value keeps no room for rows; a long one does.
    let mut roomy = bytes[..ring].to_vec();
    roomy.resize(HEADER_LEN + 4 * ROW_LEN, 0);
    roomy.extend_from_slice(&bytes[ring..]);
    roomy[ROWS_CAPACITY_AT] = 4;
    assert!(matches!(decode(&roomy), Err(DecodeError::Corrupt { at: ROWS_CAPACITY_AT, .. })));
}

#[test]
fn a_counter_of_another_algorithm_is_told_from_a_broken_one() {
    for kind in [1, 2] {
        for bytes in [vec![FORMAT, kind], changed_bytes(&encode(&example()), KIND_AT, &[kind])] {
            assert_eq!(decode(&bytes), Err(DecodeError::OtherKind { kind }));
        }
    }
}

/// Short values are written whole and keep no room; from 376 bytes on room is kept, so that rows and entries
/// can be added in place.
#[test]
fn only_a_long_value_keeps_room_for_rows() {
    let row = |identity| Row { identity, seq: 1, count: 1, tick: 0 };
    let written = |rows: u64| {
        let image = Image { ledger: (0..rows).map(row).collect(), ..Image::new(1) };
        let bytes = encode(&image);
        assert_eq!(decode(&bytes), Ok(image));
        (bytes[ROWS_CAPACITY_AT], bytes.len())
    };
    assert_eq!(written(3), (3, HEADER_LEN + 3 * ROW_LEN));
    assert_eq!(written(12), (12, HEADER_LEN + 12 * ROW_LEN));
    assert_eq!(written(13), (16, HEADER_LEN + 16 * ROW_LEN)); // 376 bytes without the room
    assert_eq!(written(33), (64, HEADER_LEN + 64 * ROW_LEN));
}

fn changed_bytes(bytes: &[u8], at: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

#[test]
fn a_value_that_is_cut_or_too_long_says_how_long_it_should_be() {
    let bytes = encode(&example());
    for len in 1..bytes.len() {
        let expected = match len {
            // Of a header that ends before its kind, nobody knows whose it is.
            1 => KIND_AT + 1,
            ..HEADER_LEN => HEADER_LEN,
            _ if len < HEADER_LEN + ROW_LEN => HEADER_LEN + ROW_LEN,
            _ => return assert!(matches!(decode(&bytes[..len]), Err(DecodeError::Length { .. }))),
        };
        assert_eq!(decode(&bytes[..len]), Err(DecodeError::Length { expected, found: len }));
    }
    let most = HEADER_LEN + ROW_LEN + 8 * ENTRY_LEN;
    let long = [bytes, vec![0; 100]].concat();
    assert_eq!(decode(&long), Err(DecodeError::Length { expected: most, found: long.len() }));
}

/// A reset is an empty log of a higher epoch.
#[test]
fn an_empty_log_is_a_header() {
    let image = Image { reset_epoch: 1_700_000_000_000, ..Image::new(8) };
    let bytes = encode(&image);
    assert_eq!(bytes.len(), HEADER_LEN);
    assert_eq!(decode(&bytes), Ok(image));
}

/// Numbers that a caller makes up, beyond what a double holds, are held at its last integer; more rows than
/// there may be lose the oldest.
#[test]
fn a_caller_s_numbers_are_held_to_what_can_be_stored() {
    let row = |identity| Row { identity, seq: u64::MAX, count: 1, tick: 0 };
    let image = Image { reset_epoch: u64::MAX, ledger: (0..70).map(row).collect(), ..Image::new(1) };
    let read = decode(&encode(&image)).unwrap();
    assert_eq!(read.reset_epoch, NUMBER_MAX);
    assert_eq!(read.ledger.len(), ROWS_MAX);
    assert_eq!((read.ledger[0].identity, read.ledger[0].seq), (6, NUMBER_MAX));
}

/// The last instant there is, with the longest ticks, windows and leases behind it: all below 2^53.
#[test]
fn the_end_of_time_can_be_stored() {
    for limit in [limit(5, 366 * 86_400_000, None), limit(5, 366 * 86_400_000, Some(366 * 86_400_000))] {
        let mut log = TickLog::new(1);
        log.settle(Now::MAX, &limit);
        log.lease(Now::MAX, &limit, 5, Millis(u64::MAX));
        log.settle(Now::MAX, &limit);
        assert!(log.expires_at_ms(&limit) < NUMBER_MAX);
        let image = Image { log, ..Image::new(1) };
        assert_eq!(decode(&encode(&image)), Ok(image));
    }
}
