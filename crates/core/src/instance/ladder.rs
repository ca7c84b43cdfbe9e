//! How well a node of the store answers, as a state machine of three steps.
//!
//! | step | is entered when | is left when |
//! |---|---|---|
//! | [`Step::Normal`] | – | – |
//! | [`Step::Slow`] | replies took longer than `slow` for `slow_for` | replies took less than `fast` for `fast_for` |
//! | [`Step::Failing`] | `failures` calls failed one after another, or half of the last second's | probes were answered for `recover_for` |
//!
//! Where the round trip that was measured at connect is above `far`, it is multiplied and stands in place of `slow`
//! and `fast`: a distant store is not a slow one.
//!
//! # What it is not
//! It does not say what is answered meanwhile: policies do. It sends no probes.
//!
//! # Invariants
//! * No flapping: between two transitions lie at least `slow_for`, `fast_for`, `recover_for`, or `failures` failed
//!   calls, whatever comes in.
//! * While a node is failing, what becomes of calls that were sent before changes nothing: only probes do.
//! * `now_us` never goes back. Time that did counts as standing still.

use crate::time::Millis;

mod recent;

use recent::Recent;

/// The thresholds. The defaults are those that the limiter which slidegate replaces has been run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// So many calls that fail one after another trip the breaker; at least 1.
    pub failures: u32,
    /// Half of a second's calls trip it if they were so many; at least 1. Of two calls, one that fails says little.
    pub calls_min: u32,
    /// Replies that take longer are slow.
    pub slow: Millis,
    /// For how long they have to be.
    pub slow_for: Millis,
    /// Replies that take less are fast.
    pub fast: Millis,
    /// For how long they have to be.
    pub fast_for: Millis,
    /// A round trip at connect above this is that of a distant store.
    pub far: Millis,
    /// Of a distant store, so many times that round trip is slow.
    pub slow_times: u32,
    /// And so many times it is fast.
    pub fast_times: u32,
    /// For how long probes have to be answered after a failure.
    pub recover_for: Millis,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            failures: 5,
            calls_min: 10,
            slow: Millis(5),
            slow_for: Millis(100),
            fast: Millis(2),
            fast_for: Millis(500),
            far: Millis(1),
            slow_times: 5,
            fast_times: 2,
            // Two or three probes: one answer may be the last that a dying server gives.
            recover_for: Millis(50),
        }
    }
}

/// A step of the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// The node answers.
    #[default]
    Normal,
    /// It answers, and takes long.
    Slow,
    /// It does not: the breaker has tripped.
    Failing,
}

impl Step {
    /// Every step, in the order of the metrics.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Slow, Self::Failing];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Slow => "slow",
            Self::Failing => "failing",
        }
    }
}

/// Why a step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Calls failed one after another.
    FailuresInARow,
    /// Half of the last second's calls failed.
    FailureRate,
    /// Replies took long.
    SlowReplies,
    /// Replies came fast again.
    FastReplies,
    /// Probes were answered again.
    Probes,
}

impl Cause {
    /// Every cause, in the order of the metrics.
    pub const ALL: [Self; 5] =
        [Self::FailuresInARow, Self::FailureRate, Self::SlowReplies, Self::FastReplies, Self::Probes];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FailuresInARow => "failures_in_a_row",
            Self::FailureRate => "failure_rate",
            Self::SlowReplies => "slow_replies",
            Self::FastReplies => "fast_replies",
            Self::Probes => "probes",
        }
    }
}

/// From one step to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// From here.
    pub from: Step,
    /// To there.
    pub to: Step,
    /// Why.
    pub cause: Cause,
}

impl Transition {
    /// Every transition that there can be, in the order of the metrics.
    pub const ALL: [Self; 7] = [
        Self { from: Step::Normal, to: Step::Slow, cause: Cause::SlowReplies },
        Self { from: Step::Normal, to: Step::Failing, cause: Cause::FailuresInARow },
        Self { from: Step::Normal, to: Step::Failing, cause: Cause::FailureRate },
        Self { from: Step::Slow, to: Step::Normal, cause: Cause::FastReplies },
        Self { from: Step::Slow, to: Step::Failing, cause: Cause::FailuresInARow },
        Self { from: Step::Slow, to: Step::Failing, cause: Cause::FailureRate },
        Self { from: Step::Failing, to: Step::Normal, cause: Cause::Probes },
    ];
}

/// The ladder of one node.
#[derive(Clone, Debug)]
pub struct Ladder {
    thresholds: Thresholds,
    /// The round trip at connect, in microseconds; 0 as long as none was measured.
    baseline_us: u64,
    step: Step,
    now_us: u64,
    since_us: u64,
    spent_us: [u64; Step::ALL.len()],
    in_a_row: u32,
    recent: Recent,
    /// Since when replies have been as they have to be for the step to be left: slow, fast, or there at all.
    turning_since_us: Option<u64>,
}

impl Ladder {
    /// At the step [`Step::Normal`]: nothing is known yet.
    pub const fn new(thresholds: Thresholds, now_us: u64) -> Self {
        Self {
            thresholds,
            baseline_us: 0,
            step: Step::Normal,
            now_us,
            since_us: now_us,
            spent_us: [0; Step::ALL.len()],
            in_a_row: 0,
            recent: Recent::new(),
            turning_since_us: None,
        }
    }

    /// Where it stands.
    pub const fn step(&self) -> Step {
        self.step
    }

    /// Since when, in microseconds.
    pub const fn since_us(&self) -> u64 {
        self.since_us
    }

    /// How long it has stood at each step, in the order of [`Step::ALL`].
    pub fn spent(&self, now_us: u64) -> [Millis; Step::ALL.len()] {
        let mut spent_us = self.spent_us;
        spent_us[self.step as usize] += now_us.saturating_sub(self.since_us);
        spent_us.map(|us| Millis(us / 1000))
    }

    /// A connection was opened, and the server's first answer took so long.
    pub const fn connected(&mut self, round_trip_us: u64) {
        self.baseline_us = round_trip_us;
    }

    /// A call was answered.
    pub fn answered(&mut self, now_us: u64, round_trip_us: u64) -> Option<Transition> {
        self.advance(now_us);
        self.in_a_row = 0;
        if self.step == Step::Failing {
            return None;
        }
        self.recent.add(self.now_us, false);
        self.reply(round_trip_us)
    }

    /// A call failed, or was not answered in time.
    pub fn failed(&mut self, now_us: u64) -> Option<Transition> {
        self.advance(now_us);
        if self.step == Step::Failing {
            return None;
        }
        if self.step == Step::Slow {
            self.turning_since_us = None;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let counted = self.recent.add(self.now_us, true);
        if self.in_a_row >= self.thresholds.failures.max(1) {
            return Some(self.go(Step::Failing, Cause::FailuresInARow));
        }
        let half = u64::from(counted.failed) * 2 >= u64::from(counted.calls);
        (half && counted.calls >= self.thresholds.calls_min.max(1))
            .then(|| self.go(Step::Failing, Cause::FailureRate))
    }

    /// A probe was answered. Where the node isn't failing, that is a reply as any other, but not one of the
    /// calls that failures are held against.
    pub fn probe_answered(&mut self, now_us: u64, round_trip_us: u64) -> Option<Transition> {
        self.advance(now_us);
        if self.step != Step::Failing {
            return self.reply(round_trip_us);
        }
        self.turned_for(self.thresholds.recover_for).then(|| self.go(Step::Normal, Cause::Probes))
    }

    /// A probe was not answered.
    pub fn probe_failed(&mut self, now_us: u64) -> Option<Transition> {
        if self.step != Step::Failing {
            return self.failed(now_us);
        }
        self.advance(now_us);
        self.turning_since_us = None;
        None
    }

    fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    /// What the time of a reply says at the steps at which calls are made.
    fn reply(&mut self, round_trip_us: u64) -> Option<Transition> {
        let (turns, long, to, cause) = match self.step {
            Step::Normal => {
                (round_trip_us > self.slow_us(), self.thresholds.slow_for, Step::Slow, Cause::SlowReplies)
            }
            Step::Slow => {
                (round_trip_us < self.fast_us(), self.thresholds.fast_for, Step::Normal, Cause::FastReplies)
            }
            Step::Failing => return None,
        };
        if !turns {
            self.turning_since_us = None;
            return None;
        }
        self.turned_for(long).then(|| self.go(to, cause))
    }

    /// Whether what began at the first such reply has lasted so long.
    fn turned_for(&mut self, long: Millis) -> bool {
        let since_us = *self.turning_since_us.get_or_insert(self.now_us);
        self.now_us - since_us >= long.0.saturating_mul(1000)
    }

    fn go(&mut self, to: Step, cause: Cause) -> Transition {
        let from = core::mem::replace(&mut self.step, to);
        self.spent_us[from as usize] += self.now_us - self.since_us;
        self.since_us = self.now_us;
        self.in_a_row = 0;
        self.recent = Recent::new();
        self.turning_since_us = None;
        Transition { from, to, cause }
    }

    /// Above this, a reply is slow.
    fn slow_us(&self) -> u64 {
        self.threshold_us(self.thresholds.slow, self.thresholds.slow_times)
    }

    /// Below this, a reply is fast; never above what is slow.
    fn fast_us(&self) -> u64 {
        self.threshold_us(self.thresholds.fast, self.thresholds.fast_times).min(self.slow_us())
    }

    fn threshold_us(&self, near: Millis, times: u32) -> u64 {
        let near_us = near.0.saturating_mul(1000);
        if self.baseline_us <= self.thresholds.far.0.saturating_mul(1000) {
            return near_us;
        }
        // A distant store that is faster than the one that was meant is not held to less.
        self.baseline_us.saturating_mul(times.into()).max(near_us)
    }
}

#[cfg(test)]
mod tests;
