//! What is wrong at the moment, and what all connections share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Counts, Fate, Way, Wire};
use crate::random::Random;

/// The index of each way in the arrays here.
pub(super) const REQUESTS: usize = 0;
pub(super) const REPLIES: usize = 1;

/// All that is wrong now. Connections are numbered in the order in which they were accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) delay: [Duration; 2],
    /// Connections with a lower number are frozen.
    pub(super) stalled_below: [u64; 2],
    pub(super) black_hole: [bool; 2],
    /// Connections with a lower number have to end.
    pub(super) reset_below: u64,
    pub(super) spoil: Option<(u64, Fate)>,
    pub(super) hold: Option<Hold>,
    /// Holds with a lower number are over.
    pub(super) released: u64,
}

/// Which requests are kept back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) percent: u8,
    pub(super) until: Until,
}

/// How long one is kept back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Released,
    After(Duration),
}

/// What all connections of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: SocketAddr,
    pub(super) wire: Wire,
    pub(super) faults: watch::Sender<Faults>,
    pub(super) next_connection: AtomicU64,
    /// The number of the next hold.
    pub(super) holds: AtomicU64,
    random: Mutex<Random>,
    pub(super) tally: Tally,
}

/// [`Counts`] while they are counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    connections: AtomicU64,
    messages: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    held: AtomicU64,
    spoiled: AtomicU64,
    /// Replies since the test decided about their fate.
    pub(super) since_spoiled: AtomicU64,
}

impl Way {
    pub(super) fn each(self, mut change: impl FnMut(usize)) {
        if self != Self::Replies {
            change(REQUESTS);
        }
        if self != Self::Requests {
            change(REPLIES);
        }
    }
}

impl Shared {
    pub(super) fn new(target: SocketAddr, wire: Wire) -> Self {
        Self {
            target,
            wire,
            faults: watch::Sender::new(Faults::default()),
            next_connection: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            random: Mutex::new(Random::new(0)),
            tally: Tally::default(),
        }
    }

    pub(super) fn seed(&self, seed: u64) {
        *self.random.lock().unwrap_or_else(PoisonError::into_inner) = Random::new(seed);
    }

    /// The number of a connection that was just accepted.
    pub(super) fn number_connection(&self) -> u64 {
        self.tally.connections.fetch_add(1, Ordering::SeqCst);
        self.next_connection.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether the request that just came is kept back.
    pub(super) fn choose_hold(&self, hold: Option<Hold>) -> Option<Until> {
        let hold = hold?;
        let chosen = self.random.lock().unwrap_or_else(PoisonError::into_inner).percent(hold.percent);
        if !chosen {
            return None;
        }
        self.tally.held.fetch_add(1, Ordering::SeqCst);
        Some(hold.until)
    }

    /// What becomes of the reply that just came, if the test decides about it.
    pub(super) fn choose_fate(&self, spoil: Option<(u64, Fate)>) -> Option<Fate> {
        let (every, fate) = spoil?;
        let count = self.tally.since_spoiled.fetch_add(1, Ordering::SeqCst) + 1;
        if !count.is_multiple_of(every) {
            return None;
        }
        self.tally.spoiled.fetch_add(1, Ordering::SeqCst);
        Some(fate)
    }
}

impl Tally {
    pub(super) fn count(&self, way: usize, bytes: usize) {
        self.messages[way].fetch_add(1, Ordering::SeqCst);
        self.bytes[way].fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            connections: read(&self.connections),
            requests: read(&self.messages[REQUESTS]),
            request_bytes: read(&self.bytes[REQUESTS]),
            replies: read(&self.messages[REPLIES]),
            reply_bytes: read(&self.bytes[REPLIES]),
            held: read(&self.held),
            spoiled: read(&self.spoiled),
        }
    }
}
