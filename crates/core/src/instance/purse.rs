//! The purse of one check: what this instance has leased of it and not spent yet, and how much to lease next.
//!
//! The store's half of a lease is in [`lease`](crate::lease): every caller counts a window of W + l, so that what
//! was leased at s may be spent until s + l. This is the other half: it must not be spent later.
//!
//! # Units
//! Checks, not permits: a purse belongs to one list of counters at one list of costs, and what was leased for
//! `n` of them is spent one check at a time. Time is microseconds on the instance's clock, which must go on
//! while the machine is suspended.
//!
//! # Invariants
//! * A lease ends [`DRIFT_PARTS`] early, counted from when its call was *sent*: the store decided after that, so
//!   nothing is spent after s + l on the store's clock.
//! * A purse has one lease at a time. What an older one still holds is taken out first, to be given back.
//! * Nothing is asked for that nobody has been asking for lately: an instance that took more than it spends
//!   would make others be denied.
//!
//! # A limit that is reached
//! Where a call was granted less than it asked for, the next one would mostly learn that nothing has changed.
//! The purse is then *dry*, and checks are denied without asking: until the store said that something fits, and
//! in any case for half a lease, which costs as much utilisation as a lease half as long ([`DRY_MAX`] at the
//! most, since others may give back). Without that pause a limit that is always full would be asked for its one
//! free permit as often as without leases.

use crate::time::Millis;

/// A lease ends a thousandth of its length early. Clocks of computers drift apart by a tenth of that, and
/// are slewed by half of it at the most.
pub const DRIFT_PARTS: u64 = 1000;

/// The longest that a purse is dry: so long may permits that were given back elsewhere go unnoticed, as in the
/// denial cache.
pub const DRY_MAX: Millis = Millis(50);

/// Below so many checks in the time of a lease, each asks for itself: leases would save two or three calls, and
/// cost one that gives back what was not spent.
pub const CHECKS_MIN: u32 = 4;

/// The most checks that are leased at once. With any cost the permits of a call stay below 2^53.
pub const CHECKS_MAX: u32 = 1 << 20;

/// What is leased of one check, and how often it was asked lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purse {
    demand: Demand,
    /// Checks that are left of the lease.
    left: u32,
    /// The first instant at which nothing of it may be spent any more.
    end_us: u64,
    dry_until_us: u64,
}

/// What to do with a check that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was taken from the lease.
    Spent,
    /// The limit is reached: asking again would not help for so long.
    Dry {
        /// In microseconds.
        for_us: u64,
    },
    /// Nothing is left: lease for those who wait and so many more.
    Ask {
        /// Checks to expect within a lease.
        forecast: u32,
    },
    /// It is asked too seldom for a lease: let it ask for itself.
    Plain,
}

impl Purse {
    /// `times` equal checks arrive that would be leased for `length`.
    pub fn arrive(&mut self, now_us: u64, length: Millis, times: u32) -> Step {
        self.demand.note(now_us, length, times);
        if self.spend(now_us, times) {
            return Step::Spent;
        }
        if now_us < self.dry_until_us {
            return Step::Dry { for_us: self.dry_until_us - now_us };
        }
        match self.demand.forecast() {
            forecast @ CHECKS_MIN.. => Step::Ask { forecast },
            _ => Step::Plain,
        }
    }

    /// Takes `times` checks from the lease, all or none.
    pub fn spend(&mut self, now_us: u64, times: u32) -> bool {
        let spends = now_us < self.end_us && times <= self.left;
        if spends {
            self.left -= times;
        }
        spends
    }

    /// Checks to expect within a lease.
    pub fn forecast(&self) -> u32 {
        self.demand.forecast()
    }

    /// A call that was sent at `sent_us` has leased `granted` checks. What an older lease still held must have been
    /// [taken out](Self::take_out) before.
    pub fn fill(&mut self, sent_us: u64, length: Millis, granted: u32) {
        self.left = granted;
        self.end_us = end_us(sent_us, length);
        self.dry_until_us = 0;
    }

    /// The same call was granted less than it had asked for: what is short will fit after `retry_after`, by the store's
    /// clock, if it ever will.
    pub fn run_dry(&mut self, sent_us: u64, length: Millis, retry_after: Option<Millis>) {
        // The store counts from the floor of its clock, so it is up to a millisecond sooner. A call that came before it
        // would be for nothing, and the pause after it all the longer.
        let wait = retry_after.unwrap_or(DRY_MAX);
        let pause_us = length.0.saturating_mul(500);
        let dry_us = wait.0.saturating_mul(1000).max(pause_us).min(DRY_MAX.0 * 1000);
        self.dry_until_us = sent_us.saturating_add(dry_us);
    }

    /// Until when checks are denied without asking; in the past if they are not.
    pub const fn dry_until_us(&self) -> u64 {
        self.dry_until_us
    }

    /// When the lease ends; in the past if there is none.
    pub const fn end_us(&self) -> u64 {
        self.end_us
    }

    /// Checks that are left of the lease, whether it has ended or not.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Puts back what was spent for somebody who does not want it any more. Only into the lease that it came from.
    pub const fn put_back(&mut self, times: u32) {
        self.left = self.left.saturating_add(times);
    }

    /// Ends the lease, and returns what was left of it.
    pub const fn take_out(&mut self) -> u32 {
        let left = self.left;
        self.left = 0;
        self.end_us = 0;
        left
    }

    /// Forgets the lease and what is known of the limit: the counters were emptied.
    pub const fn reset(&mut self) {
        self.left = 0;
        self.end_us = 0;
        self.dry_until_us = 0;
    }

    /// Whether it says no more than a new one: nothing is leased, and nobody has asked for `idle`.
    pub const fn is_idle(&self, now_us: u64, idle: Millis) -> bool {
        self.left == 0
            && self.dry_until_us <= now_us
            && self.demand.begun_us.saturating_add(idle.0.saturating_mul(1000)) < now_us
    }
}

/// Rounded down: something ends.
const fn end_us(sent_us: u64, length: Millis) -> u64 {
    let length_us = length.0.saturating_mul(1000);
    sent_us.saturating_add(length_us - length_us.div_ceil(DRIFT_PARTS))
}

/// How many checks came in the time of a lease lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    /// When the count began.
    begun_us: u64,
    count: u32,
    /// Checks in the time of a lease, over the last few of them.
    usual: u32,
}

impl Demand {
    fn note(&mut self, now_us: u64, length: Millis, times: u32) {
        let length_us = length.0.saturating_mul(1000).max(1);
        let passed_us = now_us.saturating_sub(self.begun_us);
        if passed_us >= length_us {
            let sample = u64::from(self.count).saturating_mul(length_us) / passed_us;
            let sample = u32::try_from(sample).unwrap_or(u32::MAX);
            // Whoever comes back after a pause is met as a stranger.
            let paused = passed_us / length_us >= 4;
            self.usual = if paused { sample } else { u32::midpoint(self.usual, sample) };
            self.begun_us = now_us;
            self.count = 0;
        }
        self.count = self.count.saturating_add(times);
    }

    /// As many as usual, or as came already since the count began, less than a lease ago: so a rush is met at once.
    fn forecast(&self) -> u32 {
        self.usual.max(self.count).min(CHECKS_MAX)
    }
}

#[cfg(test)]
mod tests;
