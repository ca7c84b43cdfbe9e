//! How long to wait before the next try to connect: short at first, then longer, never the same for all.

use std::time::Duration;

/// A server that restarts is back within a second; whoever waits longer is late for no gain.
const LONGEST: Duration = Duration::from_millis(200);
const SHORTEST: Duration = Duration::from_millis(10);

/// Doubles from 10 ms to 200 ms, each with a random part: instances that lost the same server at the same moment
/// must not come back at the same moment.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
}

impl Pause {
    pub(super) const fn new() -> Self {
        Self { next: SHORTEST }
    }

    pub(super) const fn reset(&mut self) {
        self.next = SHORTEST;
    }

    /// Between half of the time that is due and all of it.
    pub(super) fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(LONGEST);
        jittered(due)
    }
}

/// Between half of `whole` and all of it.
pub(crate) fn jittered(whole: Duration) -> Duration {
    let part = u32::try_from(crate::random::u128() % 1024).unwrap_or(0);
    whole / 2 + whole / 2048 * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_cap_and_differ() {
        let mut pause = Pause::new();
        let first = pause.next();
        assert!((SHORTEST / 2..=SHORTEST).contains(&first), "{first:?}");
        let later: Vec<_> = (0..20).map(|_| pause.next()).collect();
        assert!(later.iter().all(|pause| *pause <= LONGEST), "{later:?}");
        let last = &later[10..];
        assert!(last.iter().all(|pause| *pause >= LONGEST / 2), "{last:?}");
        assert!(last.iter().any(|pause| *pause != last[0]), "{last:?}");
        pause.reset();
        assert!(pause.next() <= SHORTEST);
    }
}
