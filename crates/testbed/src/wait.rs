//! Waiting for a condition of the world outside this process, with an end to it.
//!
//! Servers tell nobody when they are ready, in sync or gone: somebody has to ask. This is the one place that
//! asks again and again, so it is the one place that reads the clock for it.

use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take for what it does in milliseconds on an idle machine. Machines that run tests are
/// anything but idle.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The first pause between two looks; each one is twice as long as the last, so that what is quick costs little
/// time and what is slow costs little work.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause: what happened is known this much later at most.
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Looks until there is something, and returns it.
///
/// # Panics
///
/// When there is still nothing after `within`; the message names `what` was waited for.
#[track_caller]
pub fn for_some<T>(what: &str, within: Duration, look: impl FnMut() -> Option<T>) -> T {
    match try_for_some(within, look) {
        Some(found) => found,
        None => panic!("{what}: not within {} ms", within.as_millis()),
    }
}

/// Looks until `holds` does.
///
/// # Panics
///
/// As [`for_some`].
#[track_caller]
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    for_some(what, within, || holds().then_some(()));
}

/// [`for_some`] for those who know what to do without: nothing is returned after `within`.
///
/// It looks once more at the end, so a thread that was not run for all that time does not miss what is there.
#[expect(clippy::disallowed_methods, reason = "other processes know nothing of virtual time")]
pub fn try_for_some<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let late = start.elapsed() >= within;
        let found = look();
        if found.is_some() || late {
            return found;
        }
        thread::sleep(pause.min(within.saturating_sub(start.elapsed())));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_until_there_is_something() {
        let mut looks = 0;
        let found = for_some("the third look", PATIENCE, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    fn it_looks_at_least_once_and_then_gives_up() {
        let mut looks = 0;
        let found: Option<()> = try_for_some(Duration::ZERO, || {
            looks += 1;
            None
        });
        assert_eq!((found, looks), (None, 1));
    }

    #[test]
    #[should_panic(expected = "the moon: not within 0 ms")]
    fn a_wait_in_vain_says_for_what() {
        until("the moon", Duration::ZERO, || false);
    }
}
