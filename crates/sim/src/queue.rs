//! What is going to happen, in order of time; of things at one instant, in the order in which they were planned.
//!
//! That order, and the one generator of random numbers, are all that a run depends on: so a seed replays it.
//! Times are microseconds of true time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events that are yet to come.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<E> {
    at_us: u64,
    number: u64,
    event: E,
}

impl<E> Queue<E> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }

    /// Plans an event.
    pub(crate) fn push(&mut self, at_us: u64, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Planned { at_us, number: self.planned, event }));
    }

    /// The next event, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(planned)| (planned.at_us, planned.event))
    }
}

impl<E> Planned<E> {
    const fn rank(&self) -> (u64, u64) {
        (self.at_us, self.number)
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}
