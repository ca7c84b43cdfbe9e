//! The only place in xtask that reads the clock or pauses: what it drives are other processes, whose time is
//! the real one.
#![expect(
    clippy::disallowed_methods,
    reason = "other processes don't run on virtual time, and their ports can't be waited on, only tried"
)]

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at something that can't be waited on: short against anything a person notices, long
/// against the cost of a look.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time since it was started.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Whole seconds, rounded down.
    pub(crate) fn seconds(&self) -> u64 {
        self.0.elapsed().as_secs()
    }
}

/// Looks again and again until there is something to see, and at least once; `None` after `patience`.
pub(crate) fn until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if started.elapsed() >= patience {
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Waits as long as a server asked its client to wait.
pub(crate) fn wait(asked_for: Duration) {
    thread::sleep(asked_for);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_ends_with_what_was_seen() {
        let mut looks = 0;
        let seen = until(Duration::from_secs(60), || {
            looks += 1;
            (looks == 3).then_some("it")
        });
        assert_eq!((seen, looks), (Some("it"), 3));
    }

    #[test]
    fn without_patience_there_is_still_one_look() {
        assert_eq!(until(Duration::ZERO, || Some(1)), Some(1));
        assert_eq!(until(Duration::ZERO, || None::<u8>), None);
    }
}
