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

/// Microseconds since some start, rounded down, on a clock that never steps and goes on while the machine is
/// suspended: what is leased must not outlive a night in a bag. Where the system has no such clock, it is the
/// monotonic one.
#[cfg(feature = "redis")]
pub(crate) fn since_boot_us() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    // Goes on while the machine sleeps on Apple's systems.
    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(CLOCK);
        let whole = u64::try_from(time.tv_sec).unwrap_or_default().saturating_mul(1_000_000);
        whole.saturating_add(u64::try_from(time.tv_nsec / 1000).unwrap_or_default())
    }
    #[cfg(not(unix))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(monotonic().duration_since(*START.get_or_init(monotonic)).as_micros())
            .unwrap_or(u64::MAX)
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Now {
        (**self).now()
    }
}
