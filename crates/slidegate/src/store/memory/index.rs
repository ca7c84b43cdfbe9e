//! From fingerprints to slot numbers: a fixed open-addressing table.
//!
//! Linear probing over 4-byte entries, at most two thirds full, so that a lookup touches one cache line and
//! a million keys' index stays in a processor's last cache. Entries that are removed are closed up from
//! behind (Knuth, TAOCP 6.4, algorithm R), so there are no tombstones, no rehashing and no pauses, however
//! long keys come and go. Its size is given at the start and never changes. A general map came first:
//! it touches two lines for a lookup, and deleted entries can make it grow (docs/benchmarks.md).

/// The most slots that an index can number.
pub(super) const SLOTS_MAX: usize = u16::MAX as usize;

/// Slot numbers by 16 bits of the fingerprint. The caller compares the rest, in the slot.
#[derive(Debug)]
pub(super) struct Index {
    entries: Box<[Entry]>,
    /// One less than the number of entries, a power of two.
    mask: usize,
}

/// `slot` is one more than the slot number; 0 is an empty entry.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u16,
    slot: u16,
}

impl Index {
    /// An index for at most `keys_max` slots, itself at most [`SLOTS_MAX`].
    pub(super) fn new(keys_max: usize) -> Self {
        // One entry is always empty, so that every search ends.
        let len = (keys_max + keys_max / 2 + 1).next_power_of_two().min(1 << 16);
        Self { entries: vec![Entry::default(); len].into(), mask: len - 1 }
    }

    /// The slot of this hash that `is_it` accepts.
    pub(super) fn find(&self, hash: u16, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let entry = self.entries[at];
            let slot = usize::from(entry.slot.checked_sub(1)?);
            if entry.hash == hash && is_it(slot) {
                return Some(slot);
            }
            at = self.after(at);
        }
    }

    /// Adds a slot that is not there.
    pub(super) fn insert(&mut self, hash: u16, slot: usize) {
        let mut at = self.home(hash);
        while self.entries[at].slot != 0 {
            at = self.after(at);
        }
        #[expect(clippy::cast_possible_truncation, reason = "below SLOTS_MAX")]
        let slot = slot as u16 + 1;
        self.entries[at] = Entry { hash, slot };
    }

    /// Removes a slot that is there.
    pub(super) fn remove(&mut self, hash: u16, slot: usize) {
        let mut gap = self.home(hash);
        while usize::from(self.entries[gap].slot) != slot + 1 {
            if self.entries[gap].slot == 0 {
                return;
            }
            gap = self.after(gap);
        }
        // Entries behind the gap move into it, unless their home lies after it.
        let mut at = self.after(gap);
        while self.entries[at].slot != 0 {
            let home = self.home(self.entries[at].hash);
            if self.distance(home, at) >= self.distance(gap, at) {
                self.entries[gap] = self.entries[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.entries[gap] = Entry::default();
    }

    /// Says that a slot has moved.
    pub(super) fn renumber(&mut self, hash: u16, from: usize, to: usize) {
        self.remove(hash, from);
        self.insert(hash, to);
    }

    const fn home(&self, hash: u16) -> usize {
        hash as usize & self.mask
    }

    const fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask
    }

    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask
    }
}

#[cfg(test)]
impl Index {
    pub(super) fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.slot != 0).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is inserted, removed and renumbered, the index finds exactly what a map would, also
        /// when many hashes share a home.
        #[test]
        fn finds_what_a_map_finds(steps in proptest::collection::vec((0u16..24, 0u8..3), 0..400)) {
            let mut index = Index::new(16);
            let mut map: HashMap<u16, usize> = HashMap::new();
            let mut next_slot = 0;
            for (hash, step) in steps {
                match (step, map.get(&hash).copied()) {
                    (0, None) if map.len() < 16 => {
                        index.insert(hash, next_slot);
                        map.insert(hash, next_slot);
                        next_slot += 1;
                    }
                    (1, Some(slot)) => {
                        index.remove(hash, slot);
                        map.remove(&hash);
                    }
                    (2, Some(slot)) => {
                        index.renumber(hash, slot, next_slot);
                        map.insert(hash, next_slot);
                        next_slot += 1;
                    }
                    _ => {}
                }
                for hash in 0..24 {
                    prop_assert_eq!(index.find(hash, |slot| map.get(&hash) == Some(&slot)), map.get(&hash).copied());
                }
            }
        }
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut index = Index::new(4);
        index.insert(1, 0);
        index.remove(2, 7);
        assert_eq!(index.find(1, |_| true), Some(0));
    }
}
