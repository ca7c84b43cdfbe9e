//! What time it is, asked in one place: the memory store asks its [`Clock`], everything below it takes
//! `now` as an argument.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use slidegate_core::time::Now;

/// A source of the time that decisions are made by.
///
/// It may stand still. If it goes back a little, limits behave as if it stood still until it has caught
/// up; if it goes back far, counters move back with it: never over the limit, either way.
pub trait Clock: Send + Sync + 'static {
    /// The current instant, in microseconds since the Unix epoch.
    fn now(&self) -> Now;
}

/// The system's monotonic clock, set once per process to the wall clock.
///
/// It never steps: a wall clock that is corrected while the process runs changes no limit. Time that the
/// machine spends suspended is not counted, so a window may last longer then, never shorter.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        static START: OnceLock<(Instant, u64)> = OnceLock::new();
        let (start, start_micros) = START.get_or_init(read_both);
        let elapsed = monotonic().duration_since(*start);
        let elapsed_micros = elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros());
        Now::from_micros(start_micros + elapsed_micros)
    }
}

/// The machine's wall clock as it is, corrections and steps included: for stores that several machines decide by
/// their own time.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock;

#[cfg(feature = "redis")]
impl Clock for WallClock {
    fn now(&self) -> Now {
        Now::from_micros(wall_micros())
    }
}

fn read_both() -> (Instant, u64) {
    (monotonic(), wall_micros())
}

fn wall_micros() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_micros()).unwrap_or(u64::MAX / 2)
}

fn monotonic() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    Instant::now()
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Now {
        (**self).now()
    }
}
