//! How many of the last second's calls failed, counted in tenths of a second: the tenth that goes on and the nine
//! before it.

/// How long a part is.
const PART_US: u64 = 100_000;
const PARTS: usize = 10;

/// Calls, and those of them that failed. Counts stop at their maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) calls: u32,
    pub(super) failed: u32,
}

/// The last second.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    parts: [Counted; PARTS],
    /// The number of the part that goes on, counted from time 0.
    current: u64,
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { parts: [Counted { calls: 0, failed: 0 }; PARTS], current: 0 }
    }

    /// Adds a call, and tells what the last second comes to with it. `now_us` never goes back.
    pub(super) fn add(&mut self, now_us: u64, failed: bool) -> Counted {
        let part = now_us / PART_US;
        for passed in 1..=(part - self.current).min(PARTS as u64) {
            self.parts[place(self.current + passed)] = Counted::default();
        }
        self.current = part;
        let now = &mut self.parts[place(part)];
        now.calls = now.calls.saturating_add(1);
        now.failed = now.failed.saturating_add(u32::from(failed));
        self.parts.iter().fold(Counted::default(), |sum, part| Counted {
            calls: sum.calls.saturating_add(part.calls),
            failed: sum.failed.saturating_add(part.failed),
        })
    }
}

fn place(part: u64) -> usize {
    usize::try_from(part % PARTS as u64).unwrap_or(0)
}
