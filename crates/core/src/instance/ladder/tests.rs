//! The ladder against its table, read from the list of everything that ever happened.

use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Answered(u64),
    Failed,
    ProbeAnswered(u64),
    ProbeFailed,
}

impl Event {
    fn happens(self, ladder: &mut Ladder, at_us: u64) -> Option<Transition> {
        match self {
            Self::Answered(took_us) => ladder.answered(at_us, took_us),
            Self::Failed => ladder.failed(at_us),
            Self::ProbeAnswered(took_us) => ladder.probe_answered(at_us, took_us),
            Self::ProbeFailed => ladder.probe_failed(at_us),
        }
    }

    /// How long the reply took, if there was one.
    const fn took_us(self) -> Option<u64> {
        match self {
            Self::Answered(took_us) | Self::ProbeAnswered(took_us) => Some(took_us),
            Self::Failed | Self::ProbeFailed => None,
        }
    }
}

/// The table, by the letter: `events` is all that happened since the step was entered, in order, the newest last.
fn by_the_table(step: Step, baseline_us: u64, events: &[(u64, Event)]) -> Option<(Step, Cause)> {
    let scale = |near_us: u64, times: u64| {
        if baseline_us > MS { near_us.max(baseline_us * times) } else { near_us }
    };
    let (slow_us, fast_us) = (scale(5 * MS, 5), scale(2 * MS, 2));
    let now_us = events.last()?.0;
    // The latest stretch in which everything that counts was like this: since its first, to now.
    let lasted = |counts: &dyn Fn(Event) -> bool, like: &dyn Fn(Event) -> bool| {
        let counting: Vec<_> = events.iter().filter(|(_, event)| counts(*event)).collect();
        let stretch = counting.iter().rev().take_while(|(_, event)| like(*event)).last();
        let newest = events.last().is_some_and(|(_, event)| counts(*event) && like(*event));
        stretch.filter(|_| newest).map(|(since_us, _)| now_us - since_us)
    };
    let replies = |event: Event| event.took_us().is_some();
    let everything = |_: Event| true;
    let probes = |event: Event| matches!(event, Event::ProbeAnswered(_) | Event::ProbeFailed);
    if step == Step::Failing {
        let long = lasted(&probes, &|event| event.took_us().is_some())?;
        return (long >= 50 * MS).then_some((Step::Normal, Cause::Probes));
    }
    let failures = |event: Event| event.took_us().is_none();
    let calls: Vec<_> =
        events.iter().copied().filter(|(_, event)| !matches!(event, Event::ProbeAnswered(_))).collect();
    if failures(events.last()?.1) {
        let in_a_row = calls.iter().rev().take_while(|(_, event)| failures(*event)).count();
        let lately = |at_us: u64| at_us / (100 * MS) + 10 > now_us / (100 * MS);
        let recent: Vec<_> = calls.iter().filter(|(at_us, _)| lately(*at_us)).collect();
        let failed = recent.iter().filter(|(_, event)| failures(*event)).count();
        return match (in_a_row >= 5, recent.len() >= 10 && failed * 2 >= recent.len()) {
            (true, _) => Some((Step::Failing, Cause::FailuresInARow)),
            (_, true) => Some((Step::Failing, Cause::FailureRate)),
            _ => None,
        };
    }
    if step == Step::Normal {
        let long = lasted(&replies, &|event| event.took_us().is_some_and(|took_us| took_us > slow_us))?;
        return (long >= 100 * MS).then_some((Step::Slow, Cause::SlowReplies));
    }
    let long = lasted(&everything, &|event| event.took_us().is_some_and(|took_us| took_us < fast_us))?;
    (long >= 500 * MS).then_some((Step::Normal, Cause::FastReplies))
}

fn event() -> impl Strategy<Value = Event> {
    let took = prop_oneof![0..2_500_u64, 1_900..5_200_u64, 4_900..20_000_u64, 100_000..900_000_u64];
    (took, 0..4_u8).prop_map(|(took_us, which)| match which {
        0 => Event::Answered(took_us),
        1 => Event::Failed,
        2 => Event::ProbeAnswered(took_us),
        _ => Event::ProbeFailed,
    })
}

/// Phases of one or two kinds of events, a few microseconds to seconds apart: so that every step is reached.
fn story() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let pause = prop_oneof![Just(0_u64), 1..2_000_u64, 5_000..60_000_u64, 90_000..1_200_000_u64];
    let phase = (event(), event(), 0..4_u8, vec_of(pause, 1..30));
    vec_of(phase, 1..12).prop_map(|phases| {
        let mut now_us = 0;
        let mut story = Vec::new();
        for (usual, other, rarely, pauses) in phases {
            for (index, pause_us) in pauses.into_iter().enumerate() {
                now_us += pause_us;
                let is_other = rarely > 0 && index % (usize::from(rarely) * 3) == 2;
                story.push((now_us, if is_other { other } else { usual }));
            }
        }
        story
    })
}

proptest! {
    #[test]
    fn steps_are_entered_and_left_exactly_when_the_table_says(
        story in story(),
        baseline_us in prop_oneof![Just(0_u64), 1..1_001_u64, 1_001..100_000_u64],
    ) {
        let mut ladder = Ladder::new(Thresholds::default(), 0);
        ladder.connected(baseline_us);
        let mut since: Vec<(u64, Event)> = Vec::new();
        for (at_us, event) in story {
            let before = ladder.step();
            since.push((at_us, event));
            let expected = by_the_table(before, baseline_us, &since);
            let transition = event.happens(&mut ladder, at_us);
            prop_assert_eq!(transition.map(|taken| (taken.to, taken.cause)), expected, "{:?}", since);
            if let Some(taken) = transition {
                prop_assert_eq!((taken.from, taken.to), (before, ladder.step()));
                prop_assert!(Transition::ALL.contains(&taken));
                since.clear();
            }
        }
    }

    #[test]
    fn nothing_that_comes_in_makes_it_flap(story in story()) {
        let mut ladder = Ladder::new(Thresholds::default(), 0);
        let (mut entered_us, mut failures) = (0, 0);
        for (at_us, event) in story {
            failures += u32::from(event.took_us().is_none());
            let Some(taken) = event.happens(&mut ladder, at_us) else { continue };
            let stood_us = at_us - entered_us;
            match taken.cause {
                Cause::FailuresInARow | Cause::FailureRate => prop_assert!(failures >= 5),
                Cause::SlowReplies => prop_assert!(stood_us >= 100 * MS),
                Cause::FastReplies => prop_assert!(stood_us >= 500 * MS),
                Cause::Probes => prop_assert!(stood_us >= 50 * MS),
            }
            (entered_us, failures) = (at_us, 0);
        }
    }

    #[test]
    fn the_times_at_the_steps_add_up_to_all_time(story in story(), rest_us in 0..10_000_000_u64) {
        let mut ladder = Ladder::new(Thresholds::default(), 0);
        let mut now_us = 0;
        for (at_us, event) in story {
            event.happens(&mut ladder, at_us);
            now_us = at_us;
        }
        let spent: u64 = ladder.spent(now_us + rest_us).iter().map(|spent| spent.get()).sum();
        // Each of the three is rounded down.
        prop_assert!((now_us + rest_us) / MS - spent <= 3);
    }

    // A healthy but distant store must not put an instance into `local`, nor into leases for ever.
    #[test]
    fn a_distant_store_is_normal(
        baseline_us in 5_000..200_000_u64,
        jitter in vec_of((0..4_u64, 0..100_000_u64), 1..300),
    ) {
        let mut ladder = Ladder::new(Thresholds::default(), 0);
        ladder.connected(baseline_us);
        let mut now_us = 0;
        for (times, pause_us) in jitter {
            now_us += pause_us;
            prop_assert_eq!(ladder.answered(now_us, baseline_us + times * baseline_us), None);
        }
        prop_assert_eq!(ladder.step(), Step::Normal);
    }
}

fn all(ladder: &mut Ladder, events: impl IntoIterator<Item = (u64, Event)>) -> Vec<(u64, Step)> {
    let taken = |(at_us, event): (u64, Event)| Some((at_us, event.happens(ladder, at_us)?.to));
    events.into_iter().filter_map(taken).collect()
}

#[test]
fn five_failures_in_a_row_trip_the_breaker_and_four_do_not() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    let four = (0..4).map(|at| (at, Event::Failed)).chain([(4, Event::Answered(100))]);
    assert_eq!(all(&mut ladder, four), []);
    assert_eq!(all(&mut ladder, (5..10).map(|at| (at, Event::Failed))), [(9, Step::Failing)]);
}

#[test]
fn every_second_call_that_fails_trips_it_within_ten() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    let calls = (0..20).map(|at| (at, if at % 2 == 0 { Event::Answered(100) } else { Event::Failed }));
    assert_eq!(all(&mut ladder, calls), [(9, Step::Failing)]);
}

#[test]
fn what_was_sent_before_it_tripped_neither_mends_nor_prolongs_it() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    all(&mut ladder, (0..5).map(|at| (at, Event::Failed)));
    assert_eq!(all(&mut ladder, (0..1000).map(|at| (at * MS, Event::Answered(100)))), []);
    let probes = (0..3).map(|nth| (1_000_000 + nth * 30_000, Event::ProbeAnswered(100)));
    let late = (0..3).map(|nth| (1_000_000 + nth * 30_000 + 1, Event::Failed));
    let both = probes.zip(late).flat_map(|(probe, late)| [probe, late]);
    assert_eq!(all(&mut ladder, both), [(1_060_000, Step::Normal)]);
}

#[test]
fn a_probe_that_fails_begins_the_recovery_anew() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    all(&mut ladder, (0..5).map(|at| (at, Event::Failed)));
    let probes = [
        (10_000, Event::ProbeAnswered(100)),
        (40_000, Event::ProbeFailed),
        (70_000, Event::ProbeAnswered(100)),
        (119_999, Event::ProbeAnswered(100)),
        (120_000, Event::ProbeAnswered(100)),
    ];
    assert_eq!(all(&mut ladder, probes), [(120_000, Step::Normal)]);
}

#[test]
fn a_slow_store_that_dies_while_only_probes_are_sent_is_noticed() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    let slow = (0..3).map(|nth| (nth * 60 * MS, Event::Answered(6 * MS)));
    assert_eq!(all(&mut ladder, slow), [(120 * MS, Step::Slow)]);
    let probes = (0..6).map(|nth| ((200 + nth) * MS, Event::ProbeFailed));
    assert_eq!(all(&mut ladder, probes), [(204 * MS, Step::Failing)]);
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut ladder = Ladder::new(Thresholds::default(), 0);
    let events = [1_000, 900, 500, 0, 800].map(|at_ms| (at_ms * MS, Event::Failed));
    assert_eq!(all(&mut ladder, events).len(), 1);
    assert_eq!(ladder.since_us(), 1_000 * MS);
    assert_eq!(ladder.probe_answered(0, 0), None);
    assert_eq!(ladder.spent(0), [Millis(1_000), Millis(0), Millis(0)]);
}
