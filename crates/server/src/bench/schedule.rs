//! Open loop: checks arrive when the schedule says, however slowly they are answered.
//!
//! Two copies of one seeded schedule run side by side. The *pacer*, a thread, waits for each arrival and releases a
//! permit; callers take permits, and take the time at which the check should have begun from the other copy. So
//! nothing is queued but a number, no check allocates, and a late start counts as latency: leaving it out
//! ("coordinated omission") would hide every pause.
//!
//! A thread, because tokio's timer is good to a millisecond and the waits are shorter. Times are nanoseconds since
//! the start.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Semaphore;

use super::Clock;

/// Arrivals that are closer than this are released together: waking a thread takes about as long, so finer steps
/// would only load the machine that is measured.
const STEP: Duration = Duration::from_micros(50);

/// Arrivals that may wait. A run with more has shown that its target can't carry the rate, and could end with more of
/// them than memory.
const WAITING_MAX: usize = 1_000_000;

/// A Poisson process: what many independent clients look like.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Rng,
    mean_s: f64,
    at_s: f64,
}

impl Schedule {
    pub(super) fn new(rate: u32, seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), mean_s: 1.0 / f64::from(rate.max(1)), at_s: 0.0 }
    }

    /// When the next check begins.
    fn next_ns(&mut self) -> u64 {
        // From (0, 1], whose logarithm is finite.
        let chance = 1.0 - self.random.f64();
        self.at_s -= chance.ln() * self.mean_s;
        super::nanos(Duration::try_from_secs_f64(self.at_s).unwrap_or(Duration::MAX))
    }
}

/// Arrivals that are due, shared by pacer and callers.
#[derive(Debug)]
pub(super) struct Arrivals {
    due: Semaphore,
    taken: Mutex<Schedule>,
}

impl Arrivals {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self { due: Semaphore::new(0), taken: Mutex::new(schedule) }
    }

    /// Waits for the next arrival, and takes it: when it should have begun. `None` when the run is over.
    pub(super) async fn next_ns(&self) -> Option<u64> {
        self.due.acquire().await.ok()?.forget();
        Some(self.taken_ns())
    }

    /// Whether so many wait that going on would show nothing new.
    pub(super) fn are_too_many(&self) -> bool {
        self.due.available_permits() > WAITING_MAX
    }

    /// No more are handed out. Returns those that were due and never begun.
    pub(super) fn close(&self) -> Vec<u64> {
        self.due.close();
        (0..self.due.available_permits()).map(|_| self.taken_ns()).collect()
    }

    /// The lock is held for a few nanoseconds, and never across a wait.
    fn taken_ns(&self) -> u64 {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).next_ns()
    }
}

/// Releases arrivals as they come due, until `end_ns` or until `stop` is closed.
pub(super) fn pace(
    mut schedule: Schedule,
    arrivals: &Arc<Arrivals>,
    clock: Clock,
    end_ns: u64,
    stop: &Receiver<()>,
) {
    let mut at = schedule.next_ns();
    while at < end_ns {
        let now = clock.now_ns();
        let mut due = 0;
        while at <= now && at < end_ns {
            due += 1;
            at = schedule.next_ns();
        }
        if due > 0 {
            arrivals.due.add_permits(due);
        }
        let wait = Duration::from_nanos(at.min(end_ns).saturating_sub(now)).max(STEP);
        match stop.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_and_without_a_pattern() {
        let mut schedule = Schedule::new(1000, 3);
        let times: Vec<u64> = (0..100_000).map(|_| schedule.next_ns()).collect();
        let seconds = f64::from(u32::try_from(times[99_999] / 1_000_000).unwrap()) / 1000.0;
        assert!((99.0..101.0).contains(&seconds), "{seconds}");
        // Of a Poisson process, 1/e of the gaps are longer than their mean.
        let long = times.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count();
        assert!((36_200..37_400).contains(&long), "{long}");
    }

    #[tokio::test]
    async fn what_is_due_is_handed_out_with_its_intended_start_and_the_rest_is_told() {
        let schedule = Schedule::new(20_000, 5);
        let expected: Vec<u64> = {
            let mut schedule = schedule.clone();
            std::iter::repeat_with(|| schedule.next_ns()).take_while(|at| *at < 5_000_000).collect()
        };
        let arrivals = Arc::new(Arrivals::new(schedule.clone()));
        let (_running, stop) = mpsc::channel();
        let (clock, pacing) = (Clock::start(), arrivals.clone());
        let pacer = std::thread::spawn(move || pace(schedule, &pacing, clock, 5_000_000, &stop));
        let mut times = Vec::new();
        for _ in 0..10 {
            let intended = arrivals.next_ns().await.unwrap();
            assert!(clock.now_ns() >= intended);
            times.push(intended);
        }
        pacer.join().unwrap();
        times.extend(arrivals.close());
        assert_eq!(times, expected);
        assert_eq!(arrivals.next_ns().await, None);
    }

    #[test]
    fn a_pacer_ends_when_it_is_told_to() {
        let schedule = Schedule::new(1, 1);
        let arrivals = Arc::new(Arrivals::new(schedule.clone()));
        let (running, stop) = mpsc::channel();
        drop(running);
        pace(schedule, &arrivals, Clock::start(), u64::MAX, &stop);
        assert!(arrivals.close().len() <= 1);
    }
}
