//! What one caller saw: counted by itself, so that callers share nothing while they run, and added up at the end.
//!
//! Times are nanoseconds since the start of the run.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use slidegate::Mode;

use super::plan::{DURATION_MAX, Load};
use super::subject::{Answer, Verdict};
use super::window::Admitted;

/// Of the admitted rate that is drawn.
pub(super) const STEP: Duration = Duration::from_millis(100);
const STEP_NS: u64 = 100_000_000;

/// The longest latency that is told from longer ones. No check takes a minute; one that does is beyond measuring.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Two digits: a percent. A third would make the histograms of 512 callers outgrow any cache.
const DIGITS: u8 = 2;

/// Admitted requests of the watched key that are remembered, over all callers: 160 MB.
const ADMITTED_MAX: usize = 20_000_000;

/// Nanoseconds to a count.
pub(super) type Latencies<T> = Histogram<T>;

#[expect(clippy::expect_used, reason = "the bounds are constants, and a test makes one")]
fn latencies<T: hdrhistogram::Counter>() -> Latencies<T> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("bounds that a histogram can have")
}

/// Admitted and answered checks in steps of time, while the run goes on.
#[derive(Debug)]
pub(super) struct Timeline {
    admitted: Box<[AtomicU32]>,
    answered: AtomicU64,
}

impl Timeline {
    /// Long enough for a run; what is answered after it is not drawn.
    pub(super) fn new(duration: Duration) -> Self {
        let steps = duration.min(DURATION_MAX).as_nanos().div_ceil(STEP.as_nanos());
        Self { admitted: (0..steps).map(|_| AtomicU32::new(0)).collect(), answered: AtomicU64::new(0) }
    }

    /// How many checks were answered, some tenths of a second ago.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Admitted in each step that began before `end_ns`.
    pub(super) fn admitted(&self, end_ns: u64) -> Vec<u32> {
        let steps = usize::try_from(end_ns.div_ceil(STEP_NS)).unwrap_or(usize::MAX);
        self.admitted.iter().take(steps).map(|step| step.load(Ordering::Relaxed)).collect()
    }
}

/// The counts of one caller, and in the end of all.
#[derive(Debug)]
pub(super) struct Recorder {
    latencies: Latencies<u32>,
    /// How late checks began; of an open loop only, in a closed one none is late.
    delays: Option<Latencies<u32>>,
    pub(super) counts: Counts,
    pub(super) admitted: Vec<Admitted>,
    admitted_max: usize,
    watches: bool,
    step: Step,
}

/// Plain sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    /// Decisions, by mode, in the order of [`Mode::ALL`].
    pub(super) modes: [u64; Mode::ALL.len()],
    /// Answered, of the watched key.
    pub(super) watched: u64,
    /// Denied, of the watched key.
    pub(super) watched_denied: u64,
    /// Admitted, of the watched key, and not remembered for lack of space.
    pub(super) forgotten: u64,
    /// One of the failures.
    pub(super) failure: Option<String>,
}

/// The step of the timeline that a caller is in; added to the shared one when it ends, so that callers don't all
/// write to one place for each check.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    end_ns: u64,
    admitted: u32,
    answered: u32,
}

impl Recorder {
    /// For one of those who ask.
    pub(super) fn new(load: Load, watches: bool) -> Self {
        let callers = usize::try_from(load.callers()).unwrap_or(usize::MAX).max(1);
        Self {
            latencies: latencies(),
            delays: matches!(load, Load::Open { .. }).then(latencies),
            counts: Counts::default(),
            admitted: Vec::new(),
            admitted_max: ADMITTED_MAX / callers,
            watches,
            step: Step::default(),
        }
    }

    /// Counts a check that should have begun at `intended`.
    pub(super) fn note(&mut self, timeline: &Timeline, key: u32, times: Times, answer: Answer) {
        self.latencies.saturating_record(times.answered.saturating_sub(times.intended));
        if let Some(delays) = &mut self.delays {
            delays.saturating_record(times.sent.saturating_sub(times.intended));
        }
        if times.answered >= self.step.end_ns {
            self.flush(timeline);
            self.step.end_ns = (times.answered / STEP_NS + 1) * STEP_NS;
        }
        self.step.answered += 1;
        let watched = self.watches && key == 0;
        self.counts.watched += u64::from(watched);
        let decided = !matches!(answer.verdict, Verdict::Failed(_));
        self.counts.modes[answer.mode as usize] += u64::from(decided);
        match answer.verdict {
            Verdict::Allowed => {
                self.counts.allowed += 1;
                self.step.admitted += 1;
                if watched {
                    self.remember(times);
                }
            }
            Verdict::Denied => {
                self.counts.denied += 1;
                self.counts.watched_denied += u64::from(watched);
            }
            Verdict::Failed(reason) => {
                self.counts.failed += 1;
                self.counts.failure.get_or_insert(reason);
            }
        }
    }

    fn remember(&mut self, times: Times) {
        if self.admitted.len() >= self.admitted_max {
            self.counts.forgotten += 1;
            return;
        }
        let micros = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
        let sent_us = micros(times.sent / 1000);
        self.admitted.push(Admitted { sent_us, answered_us: micros(times.answered.div_ceil(1000)) });
    }

    /// Adds the step that ends to the shared timeline.
    pub(super) fn flush(&mut self, timeline: &Timeline) {
        let step = std::mem::take(&mut self.step);
        timeline.answered.fetch_add(step.answered.into(), Ordering::Relaxed);
        let index = step.end_ns.checked_sub(STEP_NS).map(|start| usize::try_from(start / STEP_NS));
        if let Some(Ok(index)) = index
            && let Some(admitted) = timeline.admitted.get(index)
        {
            admitted.fetch_add(step.admitted, Ordering::Relaxed);
        }
    }
}

/// When a check should have begun, began, and was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) intended: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
}

/// All callers together.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) latencies: Latencies<u64>,
    /// How late checks began; empty for a closed loop.
    pub(super) delays: Latencies<u64>,
    pub(super) counts: Counts,
    pub(super) admitted: Vec<Admitted>,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self { latencies: latencies(), delays: latencies(), counts: Counts::default(), admitted: Vec::new() }
    }

    pub(super) fn add(&mut self, one: Recorder) {
        sum_up(&mut self.latencies, &one.latencies);
        if let Some(delays) = &one.delays {
            sum_up(&mut self.delays, delays);
        }
        self.admitted.extend(one.admitted);
        let (sum, more) = (&mut self.counts, one.counts);
        sum.allowed += more.allowed;
        sum.denied += more.denied;
        sum.failed += more.failed;
        sum.modes.iter_mut().zip(more.modes).for_each(|(sum, more)| *sum += more);
        sum.watched += more.watched;
        sum.watched_denied += more.watched_denied;
        sum.forgotten += more.forgotten;
        sum.failure = sum.failure.take().or(more.failure);
    }

    /// Checks that were due and never begun: they have waited at least until the end.
    pub(super) fn add_unsent(&mut self, due_ns: &[u64], end_ns: u64) {
        for due in due_ns {
            self.latencies.saturating_record(end_ns.saturating_sub(*due));
            self.delays.saturating_record(end_ns.saturating_sub(*due));
        }
    }
}

fn sum_up(sum: &mut Latencies<u64>, more: &Latencies<u32>) {
    for value in more.iter_recorded() {
        sum.saturating_record_n(value.value_iterated_to(), value.count_at_value().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn times(sent_ms: u64, answered_ms: u64) -> Times {
        Times { intended: sent_ms * MS, sent: sent_ms * MS, answered: answered_ms * MS }
    }

    #[test]
    fn callers_add_up() {
        let timeline = Timeline::new(Duration::from_millis(250));
        let mut totals = Totals::new();
        for caller in 0..2 {
            let mut recorder = Recorder::new(Load::Closed { callers: 2 }, true);
            recorder.note(&timeline, 0, times(0, 1), Answer::of(Verdict::Allowed));
            recorder.note(&timeline, 5, times(1, 4), Answer::of(Verdict::Allowed));
            recorder.note(&timeline, 0, times(120, 130), Answer::of(Verdict::Denied));
            recorder.note(
                &timeline,
                0,
                times(240, 900),
                Answer::of(Verdict::Failed(format!("gone {caller}"))),
            );
            recorder.flush(&timeline);
            totals.add(recorder);
        }
        let expected = Counts {
            allowed: 4,
            denied: 2,
            failed: 2,
            watched: 6,
            watched_denied: 2,
            modes: [6, 0, 0, 0, 0, 0, 0],
            failure: Some("gone 0".into()),
            ..Counts::default()
        };
        assert_eq!(totals.counts, expected);
        assert_eq!(totals.admitted, [Admitted { sent_us: 0, answered_us: 1000 }; 2]);
        assert_eq!((timeline.answered(), timeline.admitted(250 * MS)), (8, vec![4, 0, 0]));
        assert_eq!(totals.latencies.len(), 8);
        assert!(totals.latencies.equivalent(totals.latencies.max(), 660 * MS));
    }

    #[test]
    fn what_never_began_counts_with_the_time_it_has_waited() {
        let mut totals = Totals::new();
        totals.add_unsent(&[100 * MS, 900 * MS], 1000 * MS);
        assert!(totals.latencies.equivalent(totals.latencies.max(), 900 * MS));
        assert_eq!((totals.latencies.len(), totals.delays.len()), (2, 2));
    }

    #[test]
    fn how_late_an_open_loop_began_is_told_apart_from_the_rest() {
        let timeline = Timeline::new(Duration::from_secs(1));
        let mut recorder = Recorder::new(Load::Open { rate: 1, callers: 1 }, true);
        let times = Times { intended: 0, sent: 3 * MS, answered: 10 * MS };
        recorder.note(&timeline, 0, times, Answer::of(Verdict::Allowed));
        let mut totals = Totals::new();
        totals.add(recorder);
        assert!(totals.latencies.equivalent(totals.latencies.max(), 10 * MS));
        assert!(totals.delays.equivalent(totals.delays.max(), 3 * MS));
    }

    #[test]
    fn records_have_a_cap_and_say_what_they_left_out() {
        let timeline = Timeline::new(Duration::from_secs(1));
        let mut recorder = Recorder::new(Load::Closed { callers: 1 }, true);
        recorder.admitted_max = 1;
        for _ in 0..3 {
            recorder.note(&timeline, 0, times(0, 1), Answer::of(Verdict::Allowed));
        }
        assert_eq!((recorder.admitted.len(), recorder.counts.forgotten, recorder.counts.allowed), (1, 2, 3));
    }
}
