//! One shard: a slab of slots, and an index from fingerprints to slots.
//!
//! The slab is dense, so a random slot is a random counter: that is what eviction samples. A check *draws*
//! the states that it needs, decides on them, and *puts them back*; in between no slot moves.

use slidegate_core::algorithm::{EPOCH_STRIDE, State};
use slidegate_core::check;
use slidegate_core::decision::Outcome;
use slidegate_core::limit::Limit;
use slidegate_core::time::Now;
use smallvec::SmallVec;

use super::index::Index;
use super::reservations::Reserved;
use crate::store::Charge;

/// Slots looked at for one that may go. With eight, an expired slot is found nine times in ten once a
/// quarter of the shard has expired.
const SAMPLE: usize = 8;

/// Slots swept under one hold of the lock: some microseconds, about as long as a check or two.
const SWEEP_STEP: usize = 64;

#[derive(Debug)]
pub(super) struct Shard {
    index: Index,
    slots: Vec<Slot>,
    keys_max: usize,
    /// Slots in use by the check under way: none of them may be evicted for it.
    claimed: SmallVec<[usize; 4]>,
    /// New counters that the check under way may add without evicting.
    promised: usize,
    next_epoch: u32,
    random: u64,
    pub(super) live_evictions: u64,
    pub(super) full_denials: u64,
}

/// Two cache lines: aligned, so that no slot touches a third.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    id: u128,
    /// When the state says no more than an absent one would.
    expires_ms: u64,
    /// When permits come back; 0 while there are some.
    frees_ms: u64,
    remaining: u32,
    state: State,
}

impl Slot {
    /// Keeps at hand what eviction asks for.
    fn summarize(&mut self, now: Now, limit: &Limit, outcome: &Outcome) {
        self.expires_ms = self.state.expires_at_ms(limit);
        self.remaining = outcome.remaining;
        self.frees_ms = if outcome.remaining == 0 { now.floor_ms() + outcome.reset_after.get() } else { 0 };
    }

    /// Whether this limit can have been the last to decide on the counter: whether it ends at the same time.
    fn is_under(&self, limit: &Limit) -> bool {
        self.expires_ms == self.state.expires_at_ms(limit)
    }
}

/// Where a drawn state goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It was there.
    Slot(usize),
    /// It is new, and there is space.
    New,
    /// It is new, and takes the place of another.
    Instead(usize),
    /// It is new, and there is no place for it.
    Full,
}

impl Shard {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            index: Index::new(keys_max),
            slots: Vec::with_capacity(keys_max),
            keys_max,
            claimed: SmallVec::new(),
            promised: 0,
            next_epoch: 0,
            // Any odd number will do: eviction needs spread, not secrecy.
            random: 0x9e37_79b9_7f4a_7c15,
            live_evictions: 0,
            full_denials: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    // --- a check of one counter ----------------------------------------------------------------------

    /// Decides on a counter where it lies; `None` when it is not there.
    pub(super) fn decide(
        &mut self,
        id: u128,
        now: Now,
        times: u32,
        charge: &Charge<'_>,
    ) -> Option<(u32, Outcome)> {
        let at = self.find(id)?;
        let slot = &mut self.slots[at];
        let limit = charge.counter.limit.limit();
        let mut charges =
            [check::Charge::new(&mut slot.state, limit, charge.cost, charge.group, charge.terms)];
        let granted = check::decide(now, times, &mut charges);
        let [check::Charge { outcome, .. }] = charges;
        slot.summarize(now, limit, &outcome);
        Some((granted, outcome))
    }

    // --- a check of several: draw, put back, finish --------------------------------------------------

    /// The slot of a counter, which the check under way will not evict. All counters of a check are claimed
    /// before the first is drawn: else one that is new could be given the slot of one that is there.
    pub(super) fn claim(&mut self, id: u128) -> Option<usize> {
        let slot = self.find(id)?;
        self.claimed.push(slot);
        Some(slot)
    }

    /// Takes the state of a claimed counter out, or a fresh one with the place that it would get.
    pub(super) fn draw(&mut self, claimed: Option<usize>, now_ms: u64, limit: &Limit) -> (Place, State) {
        if let Some(slot) = claimed {
            let fresh = State::new(limit, 0);
            return (Place::Slot(slot), std::mem::replace(&mut self.slots[slot].state, fresh));
        }
        self.next_epoch = self.next_epoch.wrapping_add(EPOCH_STRIDE);
        (self.new_place(now_ms), State::new(limit, self.next_epoch))
    }

    fn new_place(&mut self, now_ms: u64) -> Place {
        if self.slots.len() + self.promised < self.keys_max {
            self.promised += 1;
            return Place::New;
        }
        match self.victim(now_ms) {
            Some(slot) => {
                self.claimed.push(slot);
                Place::Instead(slot)
            }
            None => Place::Full,
        }
    }

    /// An expired slot of a sample, else the one with most permits left; never one that is denied now.
    fn victim(&mut self, now_ms: u64) -> Option<usize> {
        let mut best: Option<usize> = None;
        for _ in 0..SAMPLE {
            let slot = self.random_slot()?;
            if self.claimed.contains(&slot) {
                continue;
            }
            let candidate = &self.slots[slot];
            if candidate.expires_ms <= now_ms {
                return Some(slot);
            }
            let denied = candidate.remaining == 0 && now_ms < candidate.frees_ms;
            if !denied && best.is_none_or(|best| self.slots[best].remaining < candidate.remaining) {
                best = Some(slot);
            }
        }
        best
    }

    /// Xorshift: Marsaglia, "Xorshift RNGs", 2003.
    fn random_slot(&mut self) -> Option<usize> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let slots = u64::try_from(self.slots.len()).ok()?;
        usize::try_from(self.random.checked_rem(slots)?).ok()
    }

    /// Puts a drawn state back. One that is new and was not charged is dropped: reading and denying create
    /// nothing.
    pub(super) fn put_back(
        &mut self,
        place: Place,
        id: u128,
        state: State,
        now: Now,
        limit: &Limit,
        outcome: &Outcome,
    ) {
        let mut slot = Slot { id, expires_ms: 0, frees_ms: 0, remaining: 0, state };
        slot.summarize(now, limit, outcome);
        match place {
            Place::Slot(at) => self.slots[at] = slot,
            Place::Full => {}
            Place::New | Place::Instead(_) if slot.state.used() == 0 => {}
            Place::New => {
                self.index.insert(hash(id), self.slots.len());
                self.slots.push(slot);
            }
            Place::Instead(at) => {
                if self.slots[at].expires_ms > now.floor_ms() {
                    self.live_evictions += 1;
                }
                self.index.remove(hash(self.slots[at].id), at);
                self.index.insert(hash(id), at);
                self.slots[at] = slot;
            }
        }
    }

    pub(super) fn finish(&mut self) {
        self.claimed.clear();
        self.promised = 0;
    }

    // --- reservations, reset, sweep ------------------------------------------------------------------

    // A reservation brings its own limit, which may have changed since. To bring the counter up to now under
    // a window that was shorter would drop what the new one still counts.

    /// Gives back what is left of a reserved charge: nothing if the counter has since come under another
    /// limit.
    pub(super) fn refund(&mut self, entry: &Reserved, now: Now, units: u32) -> u32 {
        let (Some(at), Some(receipt)) = (self.find(entry.address.id), &entry.receipt) else {
            return 0;
        };
        let slot = &mut self.slots[at];
        if !slot.is_under(&entry.limit) {
            return 0;
        }
        slot.state.settle(now, &entry.limit);
        let given_back = slot.state.refund(now, &entry.limit, receipt, units);
        let outcome = slot.state.outcome(now, &entry.limit, 1, false);
        slot.summarize(now, &entry.limit, &outcome);
        given_back
    }

    /// Charges units on top, whether they fit or not. On a counter that is gone they start a new one; `false`
    /// if there is no place for it.
    pub(super) fn charge(&mut self, entry: &Reserved, now: Now, units: u32) -> bool {
        let claimed = self.claim(entry.address.id);
        if let Some(at) = claimed
            && !self.slots[at].is_under(&entry.limit)
        {
            self.charge_unsettled(at, entry, now, units);
            self.finish();
            return true;
        }
        let (place, mut state) = self.draw(claimed, now.floor_ms(), &entry.limit);
        state.settle(now, &entry.limit);
        state.charge(now, &entry.limit, units);
        let outcome = state.outcome(now, &entry.limit, 1, false);
        self.put_back(place, entry.address.id, state, now, &entry.limit, &outcome);
        self.finish();
        place != Place::Full
    }

    /// The next check brings the counter up to now, under the right limit; until then it keeps its place.
    fn charge_unsettled(&mut self, at: usize, entry: &Reserved, now: Now, units: u32) {
        let slot = &mut self.slots[at];
        slot.state.charge(now, &entry.limit, units);
        slot.expires_ms = slot.expires_ms.max(slot.state.expires_at_ms(&entry.limit));
        slot.remaining = 0;
        slot.frees_ms = slot.expires_ms;
    }

    /// Drops a counter. One that comes after it has another epoch, so old receipts don't fit it.
    pub(super) fn remove(&mut self, id: u128) {
        if let Some(at) = self.find(id) {
            self.remove_at(at);
        }
    }

    /// Drops expired counters among the next few from slot `at` on. Returns where to go on, if anywhere,
    /// and how many were dropped.
    pub(super) fn sweep(&mut self, at: usize, now_ms: u64) -> (Option<usize>, u64) {
        let (mut at, before) = (at, self.slots.len());
        for _ in 0..SWEEP_STEP {
            let Some(slot) = self.slots.get(at) else { break };
            if slot.expires_ms <= now_ms {
                self.remove_at(at);
            } else {
                at += 1;
            }
        }
        ((at < self.slots.len()).then_some(at), (before - self.slots.len()) as u64)
    }

    /// The last slot moves into the gap.
    fn remove_at(&mut self, at: usize) {
        self.index.remove(hash(self.slots[at].id), at);
        self.slots.swap_remove(at);
        if let Some(moved) = self.slots.get(at) {
            self.index.renumber(hash(moved.id), self.slots.len(), at);
        }
    }

    // --- the index -----------------------------------------------------------------------------------

    fn find(&self, id: u128) -> Option<usize> {
        self.index.find(hash(id), |slot| self.slots[slot].id == id)
    }
}

/// Fingerprints are uniform: any 16 bits of them are a hash.
#[expect(clippy::cast_possible_truncation, reason = "takes the low 16 bits")]
const fn hash(id: u128) -> u16 {
    id as u16
}

#[cfg(test)]
impl Shard {
    /// Every slot is found by its own id, and the index holds nothing else.
    pub(super) fn assert_sound(&self) {
        for (at, slot) in self.slots.iter().enumerate() {
            assert_eq!(self.find(slot.id), Some(at));
        }
        assert_eq!(self.index.len(), self.slots.len());
        assert!(self.slots.len() <= self.keys_max);
        assert!(self.claimed.is_empty() && self.promised == 0);
    }

    pub(super) fn epoch(&self, id: u128) -> Option<u32> {
        Some(self.slots[self.find(id)?].state.epoch())
    }
}
