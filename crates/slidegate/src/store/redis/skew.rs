//! How far this machine's clock is from the server's: looked after where the machine's decides (`clock: client`).
//!
//! Then all instances count by their own clocks, and permits of a window are counted in the window of whoever looks.
//! A machine whose clock is wrong would grant what others have used. So the difference is measured with each new
//! connection and every [`CHECK_EVERY`]; beyond [`SKEW_MAX`] this instance decides as if the store were away, and says
//! so once.
//!
//! A reply that took long proves little: the difference is known to half of the round trip, and the smallest that it can
//! be is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use ::redis::Value;
use parking_lot::Mutex;
use slidegate_core::instance::Era;
use slidegate_core::time::Millis;
use tokio::time::{Instant, sleep};

use super::link::{Link, OwnedTask};
use crate::clock::Clock;

/// The most that clocks may differ by.
pub(super) const SKEW_MAX: Millis = Millis(1_000);
/// How often it is measured while nothing happens.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// How often somebody looks whether there is a new connection.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a server may take to tell the time.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What was measured last.
#[derive(Debug, Default)]
pub(super) struct Skew {
    /// This machine's clock less the server's, of the node that differs most.
    ms: AtomicI64,
    too_much: AtomicBool,
    /// The era that began when it became too much.
    era: Mutex<Option<Era>>,
}

impl Skew {
    /// Whether the clocks differ by too much to share counters.
    pub(super) fn is_too_much(&self) -> bool {
        self.too_much.load(Relaxed)
    }

    /// The era in which they do.
    pub(super) fn too_much_since(&self) -> Option<Era> {
        if self.is_too_much() { *self.era.lock() } else { None }
    }

    /// This machine's clock less the server's, in milliseconds.
    pub(super) fn ms(&self) -> i64 {
        self.ms.load(Relaxed)
    }

    fn note(&self, skew_ms: i64, new_era: impl FnOnce() -> Era, comes_back: impl FnOnce()) {
        self.ms.store(skew_ms, Relaxed);
        let too_much = skew_ms.unsigned_abs() > SKEW_MAX.get();
        match (self.is_too_much(), too_much) {
            (false, true) => *self.era.lock() = Some(new_era()),
            (true, false) => comes_back(),
            _ => {}
        }
        match (self.too_much.swap(too_much, Relaxed), too_much) {
            (false, true) => tracing::warn!(
                skew_ms,
                "this machine's clock and the store's differ by more than a second: policies say what is answered \
                 until they agree"
            ),
            (true, false) => tracing::info!(skew_ms, "this machine's clock and the store's agree again"),
            _ => {}
        }
    }
}

/// Measures for as long as the task lives.
pub(super) fn watch(link: Arc<Link>, clock: Arc<dyn Clock>, skew: Arc<Skew>) -> OwnedTask {
    OwnedTask::spawn(async move {
        loop {
            let reconnects = link.figures().reconnects;
            let measured = measure(&link, &*clock).await;
            if let Some(skew_ms) = measured {
                let era = || {
                    let masters = link.masters();
                    Era { number: masters.new_era(), began_us: masters.time().now_us() }
                };
                skew.note(skew_ms, era, || link.comes_back());
            }
            let due = Instant::now() + if measured.is_some() { CHECK_EVERY } else { LOOK_EVERY };
            while Instant::now() < due && link.figures().reconnects == reconnects {
                sleep(LOOK_EVERY).await;
            }
        }
    })
}

/// The largest difference to any node; `None` if none answers.
async fn measure(link: &Link, clock: &dyn Clock) -> Option<i64> {
    let time = ::redis::cmd("TIME");
    let before_us = clock.now().as_micros();
    let answers = link.ask_all(&time, ANSWER_MAX).await;
    let after_us = clock.now().as_micros();
    let skews = answers.iter().filter_map(server_us).map(|server_us| least(before_us, after_us, server_us));
    skews.max_by_key(|skew_ms| skew_ms.unsigned_abs())
}

/// The smallest difference, in milliseconds, that is possible when the server read its clock between these two.
fn least(before_us: u64, after_us: u64, server_us: u64) -> i64 {
    let ms = |us: u64| i64::try_from(us / 1000).unwrap_or(i64::MAX);
    if server_us < before_us {
        ms(before_us - server_us)
    } else if server_us > after_us {
        -ms(server_us - after_us)
    } else {
        0
    }
}

/// What `TIME` answers: seconds and microseconds.
fn server_us(reply: &Value) -> Option<u64> {
    let Value::Array(words) = reply else { return None };
    let number = |word: &Value| match word {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = words.as_slice() else { return None };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_possible_difference_counts() {
        assert_eq!(least(10_000_000, 10_004_000, 10_002_000), 0);
        assert_eq!(least(12_000_000, 12_004_000, 10_500_000), 1_500);
        assert_eq!(least(10_000_000, 10_004_000, 12_504_000), -2_500);
        // A round trip of three seconds says nothing about two.
        assert_eq!(least(10_000_000, 13_000_000, 12_000_000), 0);
    }

    #[test]
    fn above_a_second_it_is_too_much_in_both_directions() {
        const ERA: Era = Era { number: 7, began_us: 1 };
        let (skew, mut before) = (Skew::default(), false);
        for (ms, too_much) in [(1_000, false), (1_001, true), (-1_000, false), (-1_001, true), (0, false)] {
            let mut back = false;
            skew.note(ms, || ERA, || back = true);
            assert_eq!(back, before && !too_much);
            before = too_much;
            assert_eq!((skew.ms(), skew.is_too_much()), (ms, too_much));
            assert_eq!(skew.too_much_since(), too_much.then_some(ERA));
        }
    }

    #[test]
    fn the_time_is_read_as_servers_tell_it() {
        let word = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(
            server_us(&Value::Array(vec![word("1700000000"), word("42")])),
            Some(1_700_000_000_000_042)
        );
        assert_eq!(server_us(&Value::Array(vec![word("1700000000")])), None);
        assert_eq!(server_us(&Value::Okay), None);
    }
}
