//! The older entries of a tick log, oldest first.
//!
//! Most keys have a handful of ticks in their window. Those lie in place, beside the header, in the cache
//! lines that a check reads anyway; only a key with more of them gets a buffer of its own. So most keys
//! never allocate. (For the time of a check it makes little difference: docs/benchmarks.md.)

use alloc::collections::VecDeque;

use super::Entry;

/// Entries in place: with them a log, its fingerprint and what eviction asks for fill two cache lines.
const FEW: usize = 5;

/// A queue of entries.
#[derive(Clone, Debug)]
pub(super) enum Ring {
    /// The first `len` of `entries`, without a gap: closing one up moves at most four.
    Few { len: u8, entries: [Entry; FEW] },
    /// Once there were more. Stays a buffer until it is cleared.
    Many(VecDeque<Entry>),
}

impl Ring {
    pub(super) const fn new() -> Self {
        Self::Few { len: 0, entries: [Entry { tick: 0, count: 0 }; FEW] }
    }

    /// A queue of its own for this many entries.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        if capacity <= FEW { Self::new() } else { Self::Many(VecDeque::with_capacity(capacity)) }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Many(queue) => queue.len(),
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Entry> {
        match self {
            Self::Few { len, entries } => entries[..usize::from(*len)].first(),
            Self::Many(queue) => queue.front(),
        }
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut Entry> {
        match self {
            Self::Few { len, entries } => entries[..usize::from(*len)].last_mut(),
            Self::Many(queue) => queue.back_mut(),
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, entry: Entry) {
        match self {
            Self::Few { len, entries } if usize::from(*len) < FEW => {
                entries[usize::from(*len)] = entry;
                *len += 1;
            }
            Self::Few { entries, .. } => {
                let mut queue = VecDeque::with_capacity(FEW + 3);
                queue.extend(entries.iter().copied());
                queue.push_back(entry);
                *self = Self::Many(queue);
            }
            Self::Many(queue) => queue.push_back(entry),
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) {
        match self {
            Self::Few { len: 0, .. } => {}
            Self::Few { len, entries } => {
                entries.copy_within(1.., 0);
                *len -= 1;
            }
            Self::Many(queue) => {
                queue.pop_front();
            }
        }
    }

    /// Empties the queue; it keeps a buffer of at most `spare` entries.
    pub(super) fn clear(&mut self, spare: usize) {
        match self {
            Self::Few { len, .. } => *len = 0,
            Self::Many(queue) if queue.capacity() <= spare => queue.clear(),
            Self::Many(_) => *self = Self::new(),
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        match self {
            Self::Few { len, entries } => {
                let mut kept = 0;
                for at in 0..usize::from(*len) {
                    if keep(&entries[at]) {
                        entries[kept] = entries[at];
                        kept += 1;
                    }
                }
                #[expect(clippy::cast_possible_truncation, reason = "at most as many as there were")]
                (*len = kept as u8);
            }
            Self::Many(queue) => queue.retain(keep),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (first, second) = match self {
            Self::Few { len, entries } => (&entries[..usize::from(*len)], &[][..]),
            Self::Many(queue) => queue.as_slices(),
        };
        first.iter().chain(second)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        let (first, second) = match self {
            Self::Few { len, entries } => (&mut entries[..usize::from(*len)], &mut [][..]),
            Self::Many(queue) => queue.as_mut_slices(),
        };
        first.iter_mut().chain(second)
    }

    /// The entry of this age, by an order in which ages fall.
    pub(super) fn find_mut(&mut self, age: u64, age_of: impl Fn(&Entry) -> u64) -> Option<&mut Entry> {
        let by_age = |entry: &Entry| age.cmp(&age_of(entry));
        match self {
            Self::Few { len, entries } => {
                let entries = &mut entries[..usize::from(*len)];
                let at = entries.binary_search_by(by_age).ok()?;
                entries.get_mut(at)
            }
            Self::Many(queue) => {
                let at = queue.binary_search_by(by_age).ok()?;
                queue.get_mut(at)
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(queue) => queue.capacity(),
        }
    }
}

/// Equal entries, wherever they lie.
impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ring {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is done to it, a ring holds what a plain queue would hold.
        #[test]
        fn holds_what_a_queue_holds(steps in proptest::collection::vec((0u8..6, 1u32..4), 0..200)) {
            let (mut ring, mut queue) = (Ring::new(), VecDeque::new());
            for (tick, (step, count)) in (0u32..).zip(steps) {
                match step {
                    0..=2 => {
                        ring.push_back(Entry { tick, count });
                        queue.push_back(Entry { tick, count });
                    }
                    3 => {
                        ring.pop_front();
                        queue.pop_front();
                    }
                    4 => {
                        ring.retain(|entry| entry.count != count);
                        queue.retain(|entry| entry.count != count);
                    }
                    _ if tick % 7 == 0 => {
                        ring.clear(count as usize * 4);
                        queue.clear();
                    }
                    _ => {
                        ring.iter_mut().for_each(|entry| entry.count += 1);
                        queue.iter_mut().for_each(|entry| entry.count += 1);
                    }
                }
                prop_assert_eq!(ring.len(), queue.len());
                prop_assert_eq!(ring.front(), queue.front());
                prop_assert_eq!(ring.back_mut(), queue.back_mut());
                prop_assert!(ring.iter().eq(queue.iter()));
                for entry in &queue {
                    // Ticks rise, so ages against any later tick fall.
                    let age = |entry: &Entry| u64::from(1_000 - entry.tick);
                    prop_assert_eq!(ring.find_mut(age(entry), age).copied(), Some(*entry));
                }
            }
        }
    }
}
