//! Who watches: all permits that were spent, by true time, and what may be spent in a window.
//!
//! It knows nothing of how anything is decided. A permit is spent
//! * when the store decided, if the answer was accepted: that is what the store's promise is about;
//! * when it was taken from a lease, or granted by an instance alone: then.
//!
//! # What is allowed in a window
//! The limit, and what the specification excepts. Each exception is an [`Allowance`]: a [`Rule`], a time, and how many
//! permits more it allows in a window that touches that time. Nothing else is ever excused.

use std::fmt;

use slidegate_core::limit::Limit;

/// Why a window may hold more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A server's clock went forward, or a replica with a faster one was promoted: what was charged before is taken for
    /// older than it is. Up to N more, once.
    ClockForward,
    /// The counter was emptied: up to N more, once.
    Reset,
    /// An instance is gone, and with it what it would have put back after the failover: as much as it was granted and
    /// the new master does not know of.
    DiedWithGrants,
    /// An old master still took writes beside the new one: what it granted meanwhile.
    SplitBrain,
    /// The share of an instance that decides alone: N (1 + p/k) for p of k.
    LocalShare,
    /// An instance that held nothing of a key when a roll call began may be granted its share of it, although others
    /// have not put back yet what they held.
    NoHistory,
    /// An instance that was started less than a beat ago, when the store lost the set of instances as well: nobody knows
    /// that it has something to put back.
    Unheard,
    /// A key was given a longer window: what had left the shorter one is forgotten. And where instances have different
    /// limits for a moment, the largest holds.
    LimitChange,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ClockForward,
        Self::Reset,
        Self::DiedWithGrants,
        Self::SplitBrain,
        Self::LocalShare,
        Self::NoHistory,
        Self::Unheard,
        Self::LimitChange,
    ];
}

/// What a window may hold beyond the limit, if it touches this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) rule: Rule,
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    pub(crate) units: u32,
}

/// A time in which a limit was in force for somebody.
#[derive(Clone, Copy, Debug)]
struct InForce {
    limit: Limit,
    from_us: u64,
    to_us: u64,
}

/// Everything that is known of one key.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Vec<InForce>,
    /// When, how many, by whom.
    spent: Vec<(u64, u32, usize)>,
    allowances: Vec<Allowance>,
    /// Clocks of instances run fast or slow by up to so many millionths: the ages that they tell, and the ends of their
    /// leases, are wrong by that. Windows are looked at that are shorter by it.
    drift_ppm: u64,
}

/// A window that holds more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which key.
    pub key: usize,
    /// The window's length, in microseconds.
    pub window_us: u64,
    /// The window's last instant, in microseconds of true time since the start.
    pub at_us: u64,
    /// Permits spent in it.
    pub spent: u64,
    /// Permits allowed in it.
    pub allowed: u64,
    /// Of these, by exceptions.
    pub excused: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "key {}: {} permits in the {} us that end at {} us, where {} are allowed ({} of them by exceptions)",
            self.key, self.spent, self.window_us, self.at_us, self.allowed, self.excused
        )
    }
}

impl Watch {
    pub(crate) fn new(limit: Limit, drift_ppm: u64) -> Self {
        let always = InForce { limit, from_us: 0, to_us: u64::MAX };
        Self { limits: vec![always], spent: Vec::new(), allowances: Vec::new(), drift_ppm }
    }

    /// Permits were spent.
    pub(crate) fn spend(&mut self, at_us: u64, units: u32, who: usize) {
        if units > 0 {
            self.spent.push((at_us, units, who));
        }
    }

    pub(crate) fn allow(&mut self, allowance: Allowance) {
        if allowance.units > 0 {
            self.allowances.push(allowance);
        }
    }

    /// From `at_us` on somebody uses another limit; after `done_us` nobody uses the one before.
    pub(crate) fn change_limit(&mut self, limit: Limit, at_us: u64, done_us: u64) {
        if let Some(last) = self.limits.last_mut() {
            last.to_us = done_us;
        }
        self.limits.push(InForce { limit, from_us: at_us, to_us: u64::MAX });
    }

    /// The most permits of the limits that are in use.
    pub(crate) fn permits_in_use(&self, at_us: u64) -> u32 {
        let in_use = self.limits.iter().filter(|force| force.from_us <= at_us && force.to_us >= at_us);
        in_use.map(|force| force.limit.permits()).max().unwrap_or_default()
    }

    /// A call with this limit was executed. One that was late may bring a limit that nobody uses any more.
    pub(crate) fn executed(&mut self, limit: &Limit, at_us: u64) {
        if self.limits.len() > 1 {
            let of_it = self.limits.iter_mut().filter(|force| force.limit == *limit);
            of_it.for_each(|force| force.to_us = force.to_us.max(at_us));
        }
    }

    /// Permits spent in (from, to].
    pub(crate) fn spent_in(&self, from_us: u64, to_us: u64) -> u64 {
        let within = self.spent.iter().filter(|(at_us, ..)| *at_us > from_us && *at_us <= to_us);
        within.map(|(_, units, _)| u64::from(*units)).sum()
    }

    /// Permits that one instance has spent since.
    pub(crate) fn spent_by(&self, who: usize, since_us: u64) -> u32 {
        let within = self.spent.iter().filter(|(at_us, _, by)| *at_us > since_us && *by == who);
        within.map(|(_, units, _)| *units).sum()
    }

    /// All permits that were spent.
    pub(crate) fn total(&self) -> u64 {
        self.spent.iter().map(|(_, units, _)| u64::from(*units)).sum()
    }

    /// Looks at every window that ends with a permit. The first that holds too much, if there is one.
    pub(crate) fn judge(&mut self, key: usize) -> Option<Violation> {
        self.spent.sort_unstable();
        let longest_us = self.limits.iter().map(|force| window_us(&force.limit)).max().unwrap_or_default();
        let (mut first, mut sum, mut window_before_us) = (0, 0, 0);
        for at in 0..self.spent.len() {
            let (at_us, units, _) = self.spent[at];
            let (permits, window_us) = self.limit_at(at_us, longest_us);
            if window_us != window_before_us {
                // Another window: counted from its beginning.
                (first, sum, window_before_us) = (0, 0, window_us);
                sum += self.spent[..at].iter().map(|(_, units, _)| u64::from(*units)).sum::<u64>();
            }
            sum += u64::from(units);
            while self.spent[first].0 + window_us <= at_us {
                sum -= u64::from(self.spent[first].1);
                first += 1;
            }
            if sum > permits {
                let excused = self.excused(at_us, window_us);
                if sum > permits + excused {
                    let allowed = permits + excused;
                    return Some(Violation { key, window_us, at_us, spent: sum, allowed, excused });
                }
            }
        }
        None
    }

    /// The most permits and the shortest window of the limits in force lately. While a longer window fills, what had
    /// left the shorter one is not known.
    fn limit_at(&self, at_us: u64, longest_us: u64) -> (u64, u64) {
        let since_us = at_us.saturating_sub(longest_us);
        let lately = self.limits.iter().filter(|force| force.from_us <= at_us && force.to_us >= since_us);
        let most = lately.clone().map(|force| u64::from(force.limit.permits())).max();
        let shortest = lately.map(|force| window_us(&force.limit)).min();
        let window_us = shortest.unwrap_or_default();
        (most.unwrap_or_default(), window_us - (window_us * self.drift_ppm).div_ceil(1_000_000))
    }

    fn excused(&self, at_us: u64, window_us: u64) -> u64 {
        let from_us = (at_us + 1).saturating_sub(window_us);
        let touched = self
            .allowances
            .iter()
            .filter(|allowance| allowance.from_us <= at_us && allowance.to_us >= from_us);
        touched.map(|allowance| u64::from(allowance.units)).sum()
    }

    /// The rules that were needed in this run, for those who wonder what is excused.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        self.allowances.iter().map(|allowance| allowance.rule)
    }
}

fn window_us(limit: &Limit) -> u64 {
    limit.window().get() * 1000
}
