//! What became of each request, and figures of all of them. Times are microseconds since the start of the crowd, on
//! one monotonic clock.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::largest_window;

/// The longest latency that is told from longer ones: an hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// Three decimal digits of each latency are right.
const LATENCY_DIGITS: u8 = 3;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whom it was sent to: the index among the crowd's addresses.
    pub instance: usize,
    /// When it was to be sent. Latency counts from here: a client that had to wait for a connection has waited.
    pub intended_us: u64,
    /// When it was sent.
    pub sent_us: u64,
    /// When the whole answer was there, or was given up.
    pub answered_us: u64,
    /// What it was.
    pub answer: Answer,
    /// Who decided, by the answer.
    pub told: Told,
    /// How often it was sent: once, but for a crowd that goes [elsewhere](super::Crowd::elsewhere).
    pub tries: u8,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With 2xx.
    Allowed,
    /// With 429.
    Denied,
    /// With another status.
    Status(u16),
    /// Not: no connection, an early end, or too late.
    Broken,
}

/// Who decided, as `slidegate-mode` says if the configuration asks for that field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Nothing is said, or a word that is not known here.
    #[default]
    Nothing,
    /// The store.
    Normal,
    /// The denial cache.
    Cached,
    /// A lease.
    Leased,
    /// This instance's share.
    Local,
    /// The policy, which allows.
    AllowAll,
    /// The policy, which denies.
    DenyAll,
}

impl Told {
    pub(super) fn named(name: &str) -> Self {
        match name {
            "normal" => Self::Normal,
            "cached" => Self::Cached,
            "leased" => Self::Leased,
            "local" => Self::Local,
            "allow_all" => Self::AllowAll,
            "deny_all" => Self::DenyAll,
            _ => Self::Nothing,
        }
    }

    /// Whether the promise of the store stands behind the answer.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Normal | Self::Cached | Self::Leased)
    }
}

impl Record {
    /// Whether it was admitted, for certain. A broken one may have been.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.answer == Answer::Allowed
    }
}

/// What became of a crowd.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All requests, in no order.
    pub records: Vec<Record>,
}

impl Outcome {
    /// The records of one instance.
    #[must_use]
    pub fn of_instance(&self, instance: usize) -> Self {
        let own = self.records.iter().filter(|record| record.instance == instance);
        Self { records: own.copied().collect() }
    }

    /// How many were answered so.
    #[must_use]
    pub fn count(&self, answer: Answer) -> usize {
        self.records.iter().filter(|record| record.answer == answer).count()
    }

    /// Those of the records that were to be sent in this time, in microseconds.
    #[must_use]
    pub fn between(&self, from_us: u64, until_us: u64) -> Self {
        let inside = self.records.iter().filter(|record| (from_us..until_us).contains(&record.intended_us));
        Self { records: inside.copied().collect() }
    }

    /// How many were decided so.
    #[must_use]
    pub fn told(&self, told: Told) -> usize {
        self.records.iter().filter(|record| record.told == told).count()
    }

    /// How many were sent more than once.
    #[must_use]
    pub fn sent_again(&self) -> usize {
        self.records.iter().filter(|record| record.tries > 1).count()
    }

    /// How many were neither allowed nor denied.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.records.len() - self.count(Answer::Allowed) - self.count(Answer::Denied)
    }

    /// [`largest_window`] of them.
    #[must_use]
    pub fn largest_window(&self, window: Duration) -> u32 {
        largest_window(&self.records, micros(window))
    }

    /// How far the number admitted is from `permits` per `window`, in millionths of it: positive when more were
    /// admitted. Counted from one window after the first request, when what the first burst found is used up, over
    /// whole windows; `None` when there is no whole one.
    #[must_use]
    pub fn deviation_ppm(&self, permits: u32, window: Duration) -> Option<i64> {
        let window_us = micros(window);
        let first = self.records.iter().map(|record| record.sent_us).min()?;
        let last = self.records.iter().map(|record| record.sent_us).max()?;
        let from = first.saturating_add(window_us);
        let windows = last.checked_sub(from)?.checked_div(window_us)?;
        let until = from + windows * window_us;
        let counted = |record: &&Record| record.is_admitted() && (from..until).contains(&record.answered_us);
        let admitted = i64::try_from(self.records.iter().filter(counted).count()).ok()?;
        let expected = i64::try_from(windows).ok()?.checked_mul(i64::from(permits))?;
        admitted.checked_sub(expected)?.checked_mul(1_000_000)?.checked_div(expected)
    }

    /// Latencies in microseconds, from the intended start, of those that were answered at all.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants that fit.
    #[must_use]
    pub fn latencies_us(&self) -> Histogram<u64> {
        let mut histogram =
            Histogram::new_with_bounds(1, LATENCY_MAX_US, LATENCY_DIGITS).expect("bounds that fit");
        for record in self.records.iter().filter(|record| record.answer != Answer::Broken) {
            histogram.saturating_record(record.answered_us.saturating_sub(record.intended_us));
        }
        histogram
    }

    /// A summary for people: the numbers that a test asserts, and latencies.
    #[must_use]
    pub fn summary(&self) -> String {
        let latencies = self.latencies_us();
        let at = |quantile| latencies.value_at_quantile(quantile);
        format!(
            "{} requests: {} allowed, {} denied, {} failed; latency p50 {} p99 {} p99.9 {} max {} us",
            self.records.len(),
            self.count(Answer::Allowed),
            self.count(Answer::Denied),
            self.failed(),
            at(0.5),
            at(0.99),
            at(0.999),
            latencies.max()
        )
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(times_ms: impl Iterator<Item = u64>, answer: Answer) -> Outcome {
        let records = times_ms.map(|at| at * 1000).map(|at| Record {
            instance: 0,
            intended_us: at,
            sent_us: at + 100,
            answered_us: at + 300,
            answer,
            told: Told::Normal,
            tries: 1,
        });
        Outcome { records: records.collect() }
    }

    #[test]
    fn the_deviation_is_of_whole_windows_after_the_first() {
        let second = Duration::from_secs(1);
        // One each 10 ms, for 3.5 s: after the first second, two whole ones.
        let steady = outcome((0..350).map(|index| index * 10), Answer::Allowed);
        assert_eq!(steady.deviation_ppm(100, second), Some(0));
        assert_eq!(steady.deviation_ppm(80, second), Some(250_000));
        assert_eq!(steady.deviation_ppm(125, second), Some(-200_000));
        assert_eq!(outcome(0..900, Answer::Allowed).deviation_ppm(100, second), None);
        assert_eq!(outcome(0..0, Answer::Allowed).deviation_ppm(100, second), None);
        assert_eq!(steady.largest_window(second), 100);
    }

    #[test]
    fn latency_counts_from_the_intended_start_and_not_for_what_broke() {
        let mut both = outcome(0..10, Answer::Denied);
        both.records.extend(outcome(0..5, Answer::Broken).records);
        let latencies = both.latencies_us();
        assert_eq!((latencies.len(), latencies.value_at_quantile(0.5)), (10, 300));
        assert_eq!(both.failed(), 5);
        assert!(
            both.summary().starts_with("15 requests: 0 allowed, 10 denied, 5 failed; latency p50 300 p99")
        );
    }
}
