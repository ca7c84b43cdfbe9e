//! Denials that are certain for a while: a bounded table, and what it says at a given time.
//!
//! Sets of a few entries, each with its lock: an entry lies in the set that its name says, and a full set
//! forgets what has ended, else what ends first. So it never grows, and nobody waits for a sweep. A denial
//! that was forgotten costs a call and nothing else.
//!
//! Pure: times are microseconds since the start of the cache and come as arguments.

use parking_lot::Mutex;
use slidegate_core::decision::{Cost, Outcome};
use slidegate_core::time::Millis;
use smallvec::SmallVec;

use super::names::{CheckName, Place};
use super::returns::Returns;
use crate::decision::Outcomes;
use crate::store::Charge;

/// Sets of entries. With [`SET_MAX`] it bounds the table to 16,384 entries, some 4 MB, or half a second of
/// an attack with 32,000 different keys a second.
const SETS: usize = 2048;

/// Entries of a set: so many that chance seldom fills one while the others are half empty.
const SET_MAX: usize = 8;

/// Different costs of one check whose waits are held apart. Most policies have one.
pub(super) const COSTS_MAX: usize = 4;

/// A check that is looked up, and learnt from when it was not found.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) name: CheckName,
    pub(super) charges: &'a [Charge<'a>],
    /// When the check arrived, rounded down: before the store can have decided it.
    pub(super) asked_us: u64,
}

/// What is known about a check.
#[derive(Debug)]
pub(super) enum Found {
    /// It is denied for certain.
    Denied(Outcomes),
    /// It has to be asked for; at other costs it is denied.
    Others,
    /// Nothing.
    Nothing,
}

/// The table.
#[derive(Debug)]
pub(super) struct Denials {
    sets: Box<[Mutex<Vec<Entry>>]>,
}

/// What is known about one check, whatever it costs.
#[derive(Debug)]
struct Entry {
    id: u128,
    denials: SmallVec<[Denial; 1]>,
}

/// One denial of the store.
#[derive(Clone, Debug)]
struct Denial {
    /// One for each charge.
    parts: SmallVec<[Part; 2]>,
    asked_us: u64,
    answered_us: u64,
    /// A policy of the check gives permits back as a rule.
    returning: bool,
}

/// What a denial said of one charge.
#[derive(Clone, Debug)]
struct Part {
    cost: Cost,
    outcome: Outcome,
    /// Until when the limit refuses this cost for certain; 0 if it does not refuse it.
    ends_us: u64,
    /// Whether its refusal denies: a shadow policy's does not.
    enforced: bool,
}

impl Default for Denials {
    fn default() -> Self {
        Self { sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }
}

impl Denials {
    /// What is known about a check at the time when it arrived.
    pub(super) fn find(&self, question: &Question<'_>, returns: &Returns) -> Found {
        let now_us = question.asked_us;
        let mut set = self.set(question).lock();
        let Some(at) = position(&set, question) else {
            return Found::Nothing;
        };
        let entry = &mut set[at];
        entry.denials.retain(|denial| denial.holds(now_us, &question.name.places, returns));
        if entry.denials.is_empty() {
            set.swap_remove(at);
            return Found::Nothing;
        }
        entry.told(question.charges, now_us).map_or(Found::Others, Found::Denied)
    }

    /// Remembers a denial, if it says anything that can be repeated; returns whether it does.
    pub(super) fn remember(
        &self,
        question: &Question<'_>,
        outcomes: &[Outcome],
        answered_us: u64,
        bound: Millis,
        returning: bool,
    ) -> bool {
        let parts = question.charges.iter().zip(outcomes);
        let parts =
            parts.map(|(charge, outcome)| Part::new(charge, outcome, question.asked_us, bound)).collect();
        let denial = Denial { parts, asked_us: question.asked_us, answered_us, returning };
        if !denial.denies(answered_us) {
            return false;
        }
        let mut set = self.set(question).lock();
        match position(&set, question) {
            Some(at) => set[at].add(denial),
            None => {
                make_space(&mut set, answered_us);
                let denials = SmallVec::from_buf([denial]);
                set.push(Entry { id: question.name.id, denials });
            }
        }
        true
    }

    /// Forgets the denials of a check at all other costs than this one.
    pub(super) fn keep_only(&self, question: &Question<'_>) {
        let mut set = self.set(question).lock();
        if let Some(at) = position(&set, question) {
            set[at].denials.retain(|denial| denial.is_of(question.charges));
        }
    }

    /// Checks that are denied at this time.
    pub(super) fn count(&self, now_us: u64) -> u64 {
        let of_set = |set: &Mutex<Vec<Entry>>| {
            set.lock().iter().filter(|entry| entry.ends_us() > now_us).count() as u64
        };
        self.sets.iter().map(of_set).sum()
    }

    fn set(&self, question: &Question<'_>) -> &Mutex<Vec<Entry>> {
        &self.sets[(question.name.id % SETS as u128) as usize]
    }
}

fn position(set: &[Entry], question: &Question<'_>) -> Option<usize> {
    set.iter().position(|entry| entry.id == question.name.id)
}

/// Forgets what has ended; if the set is still full, what ends first.
fn make_space(set: &mut Vec<Entry>, now_us: u64) {
    if set.len() < SET_MAX {
        return;
    }
    set.retain(|entry| entry.ends_us() > now_us);
    let first = (0..set.len()).min_by_key(|at| set[*at].ends_us());
    if let Some(first) = first.filter(|_| set.len() >= SET_MAX) {
        set.swap_remove(first);
    }
}

impl Entry {
    fn ends_us(&self) -> u64 {
        self.denials.iter().map(Denial::ends_us).max().unwrap_or_default()
    }

    /// Puts a denial in the place of an older one of the same cost, else of the nearest cost if there are
    /// too many: so the smallest and the largest stay, which say most.
    fn add(&mut self, denial: Denial) {
        let same = self.denials.iter().position(|other| other.costs().eq(denial.costs()));
        let distance = |other: &Denial| other.total().abs_diff(denial.total());
        let nearest = || (0..self.denials.len()).min_by_key(|at| distance(&self.denials[*at]));
        let full = self.denials.len() >= COSTS_MAX;
        match same.or_else(|| nearest().filter(|_| full)) {
            Some(at) => self.denials[at] = denial,
            None => self.denials.push(denial),
        }
    }

    /// What a check at these costs is told, if it is denied for certain and its wait is known.
    fn told(&self, charges: &[Charge<'_>], now_us: u64) -> Option<Outcomes> {
        if let Some(same) = self.denials.iter().find(|denial| denial.is_of(charges)) {
            return Some(same.told(now_us));
        }
        if self.denials.len() < COSTS_MAX
            || !self.denials.iter().any(|denial| denial.refuses(charges, now_us))
        {
            return None;
        }
        let larger = self.denials.iter().filter(|denial| denial.covers(charges));
        larger.min_by_key(|denial| denial.total()).map(|denial| denial.told(now_us))
    }
}

impl Denial {
    fn costs(&self) -> impl Iterator<Item = Cost> {
        self.parts.iter().map(|part| part.cost)
    }

    fn total(&self) -> u64 {
        self.costs().map(u64::from).sum()
    }

    /// Whether it still denies, and nothing was given back since it was asked for.
    fn holds(&self, now_us: u64, places: &[Place], returns: &Returns) -> bool {
        self.denies(now_us) && returns.none_since(self.asked_us, places, self.returning)
    }

    fn denies(&self, now_us: u64) -> bool {
        self.ends_us() > now_us
    }

    fn ends_us(&self) -> u64 {
        self.parts.iter().filter(|part| part.enforced).map(|part| part.ends_us).max().unwrap_or_default()
    }

    /// Whether its costs are exactly these.
    fn is_of(&self, charges: &[Charge<'_>]) -> bool {
        self.pairs(charges).all(|(part, cost)| part.cost == cost)
    }

    /// Whether a limit that refused its cost refuses one of these as well.
    fn refuses(&self, charges: &[Charge<'_>], now_us: u64) -> bool {
        self.pairs(charges).any(|(part, cost)| part.enforced && part.ends_us > now_us && cost >= part.cost)
    }

    /// Whether none of these costs is above its own, so that what is enough for it is enough for them.
    fn covers(&self, charges: &[Charge<'_>]) -> bool {
        self.pairs(charges).all(|(part, cost)| cost <= part.cost)
    }

    fn pairs(&self, charges: &[Charge<'_>]) -> impl Iterator<Item = (&Part, Cost)> {
        self.parts.iter().zip(charges.iter().map(|charge| charge.cost))
    }

    fn told(&self, now_us: u64) -> Outcomes {
        let passed_us = now_us.saturating_sub(self.answered_us);
        self.parts.iter().map(|part| part.told(now_us, passed_us)).collect()
    }
}

impl Part {
    fn new(charge: &Charge<'_>, outcome: &Outcome, asked_us: u64, bound: Millis) -> Self {
        // The store's time to retry is whole milliseconds from the floor of its clock, so it may be up to one
        // sooner than it says.
        let certain =
            outcome.retry_after.map_or(bound, |wait| bound.min(Millis(wait.get().saturating_sub(1))));
        let ends_us = if outcome.violated { asked_us.saturating_add(certain.get() * 1000) } else { 0 };
        Self { cost: charge.cost, outcome: *outcome, ends_us, enforced: !charge.terms.shadow }
    }

    fn told(&self, now_us: u64, passed_us: u64) -> Outcome {
        let left = |wait: Millis| {
            let left_us = wait.get().saturating_mul(1000).saturating_sub(passed_us);
            Millis(left_us.div_ceil(1000).max(1))
        };
        let violated = self.outcome.violated && self.ends_us > now_us;
        let reset_after = self.outcome.reset_after;
        Outcome {
            reset_after: if reset_after == Millis::ZERO { reset_after } else { left(reset_after) },
            violated,
            retry_after: self.outcome.retry_after.filter(|_| violated).map(left),
            ..self.outcome
        }
    }
}
