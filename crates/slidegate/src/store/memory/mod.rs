//! The embedded store: counters in this process, exact, bounded, and fast.
//!
//! # Shape
//! Keys are spread over shards, each a mutex around a slab of slots and an index into it. A key is held as
//! a 128-bit fingerprint under a random key, so that clients who choose their own keys can't aim at one
//! shard or at each other. All limits of one policy and key lie in the same shard: a check locks one shard,
//! unless it names several policies; then it locks theirs in ascending order.
//!
//! # Bounds
//! At most `max_keys` counters. A shard that is full makes room by looking at a few slots: one that has
//! expired goes first, else the one with most permits left; one that is denied now never does, since
//! dropping it would let its client go on. When only such slots are found, the *new* key is denied
//! ([`Mode::Full`]) and counted. Nothing runs in the background: [`MemoryStore::sweep`] gives memory
//! of expired keys back, and whoever owns the store calls it when it suits.
//!
//! A slot takes 128 bytes, and 6 to 12 more in the index; a log of more than six ticks takes 8 bytes for
//! each tick with admissions, 64 kB at the most.

use parking_lot::{Mutex, MutexGuard};
use siphasher::sip128::SipHasher13;
use slidegate_core::algorithm::{Receipt, State};
use slidegate_core::check::{self, decide};
use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::time::Now;
use smallvec::{SmallVec, smallvec};

use super::{Answer, Certainty, Check, Counter, ReservationId, Settled, Store};
use crate::clock::{Clock, SystemClock};
use crate::error::StoreError;

mod index;
mod reservations;
mod shard;

pub use reservations::RESERVATIONS_MAX;

use reservations::{Reservations, Reserved};
use shard::{Place, Shard};

/// The default of [`MemoryStoreBuilder::max_keys`].
pub const MAX_KEYS_DEFAULT: usize = 1_000_000;

/// Keys of a shard, about: so many that chance fills the shards evenly, within a percent or two.
const KEYS_PER_SHARD: usize = 16_384;

const _: () = assert!(2 * KEYS_PER_SHARD <= index::SLOTS_MAX, "a shard may have nearly twice as many");

/// Small stores are split too, for the threads' sake, but not below this many keys in a shard.
const KEYS_PER_SHARD_MIN: usize = 1024;

/// Shards of a small store, if it is large enough for them: as many as the cores of a usual machine.
const SHARDS_MIN: usize = 16;

/// The most that [`MemoryStoreBuilder::max_keys`] can ask for: some 14 GB. More is taken as this many.
pub const MAX_KEYS_MOST: usize = 100_000_000;

/// Counters in this process.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    shards: Box<[Mutex<Shard>]>,
    reservations: Mutex<Reservations>,
    fingerprint_key: (u64, u64),
}

/// Configures a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryStoreBuilder<C> {
    clock: C,
    max_keys: usize,
}

impl<C> MemoryStoreBuilder<C> {
    /// The most counters to hold: a key takes one for each limit of its policy. From 1 to
    /// [`MAX_KEYS_MOST`]; what lies outside is taken as the nearest of these.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.clamp(1, MAX_KEYS_MOST);
        self
    }

    /// The clock that decides: a fake one in tests.
    pub fn clock<D>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { clock, max_keys: self.max_keys }
    }

    /// The store.
    pub fn build(self) -> MemoryStore<C> {
        let small = SHARDS_MIN.min(self.max_keys / KEYS_PER_SHARD_MIN).max(1);
        let shards = (self.max_keys / KEYS_PER_SHARD).max(small);
        let (each, rest) = (self.max_keys / shards, self.max_keys % shards);
        let random = crate::random::u128();
        #[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
        let fingerprint_key = (random as u64, (random >> 64) as u64);
        MemoryStore {
            clock: self.clock,
            shards: (0..shards)
                .map(|index| Mutex::new(Shard::new(each + usize::from(index < rest))))
                .collect(),
            reservations: Mutex::default(),
            fingerprint_key,
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl MemoryStore {
    /// Starts a store on the system's clock.
    pub const fn builder() -> MemoryStoreBuilder<SystemClock> {
        MemoryStoreBuilder { clock: SystemClock, max_keys: MAX_KEYS_DEFAULT }
    }
}

/// What the store holds, and what its bound has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Counters held, those that have expired and were not swept included.
    pub keys: u64,
    /// Counters dropped although they still held permits: each let its client start afresh.
    pub live_evictions: u64,
    /// Checks denied because the store held only keys that were denied ([`Mode::Full`]).
    pub full_denials: u64,
    /// Reservations that wait to be settled.
    pub reservations: u64,
}

/// A counter's address: the shard it lies in, and its identity there.
#[derive(Clone, Copy)]
struct Address {
    shard: usize,
    id: u128,
}

impl<C: Clock> MemoryStore<C> {
    /// Frees what has expired: memory of keys that nobody asks for any more. Looks at every counter, a few
    /// at a time, so that no check waits for more than some microseconds. Returns how many were dropped.
    pub fn sweep(&self) -> u64 {
        self.reservations.lock().forget_expired(self.clock.now().floor_ms());
        self.shards.iter().map(|shard| self.sweep_shard(shard)).sum()
    }

    fn sweep_shard(&self, shard: &Mutex<Shard>) -> u64 {
        let (mut next, mut dropped) = (Some(0), 0);
        while let Some(at) = next {
            let mut shard = shard.lock();
            let (after, some) = shard.sweep(at, self.clock.now().floor_ms());
            next = after;
            dropped += some;
        }
        dropped
    }

    /// The store's own figures.
    pub fn figures(&self) -> MemoryFigures {
        let mut figures =
            MemoryFigures { reservations: self.reservations.lock().len(), ..Default::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            figures.keys += shard.len() as u64;
            figures.live_evictions += shard.live_evictions;
            figures.full_denials += shard.full_denials;
        }
        figures
    }

    fn address(&self, counter: &Counter<'_>) -> Address {
        // Each policy has a hash function of its own, so its name need not be hashed each time.
        let (key_0, key_1) = self.fingerprint_key;
        let hasher = SipHasher13::new_with_keys(key_0 ^ counter.policy.id(), key_1);
        let tag = hasher.hash(counter.key.as_bytes()).as_u128();
        let limit = u128::from(counter.limit.id());
        // The shard comes from the high half, the slot from the low one; limits differ in both halves.
        let shard = ((tag >> 64) * self.shards.len() as u128) >> 64;
        #[expect(clippy::cast_possible_truncation, reason = "below the number of shards")]
        Address { shard: shard as usize, id: tag ^ (limit << 64 | limit) }
    }

    fn check_now(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        let Some(id) = check.reserve else {
            let answer = self.decide_in_place(check);
            return Ok(answer.unwrap_or_else(|| self.decide(check, |_| {})));
        };
        let mut reservations = self.reservations.lock();
        reservations.make_space(self.clock.now().floor_ms())?;
        let mut reserved = SmallVec::new();
        let answer = self.decide(check, |entry| reserved.push(entry));
        if answer.granted > 0 {
            reservations.remember(id, reserved);
        }
        Ok(answer)
    }

    /// The short way, for the check that nearly all are: one limit, whose counter is there.
    fn decide_in_place(&self, check: &Check<'_>) -> Option<Answer> {
        let [charge] = check.charges else { return None };
        let address = self.address(&charge.counter);
        let mut shard = self.shards[address.shard].lock();
        let (granted, outcome) = shard.decide(address.id, self.clock.now(), check.times, charge)?;
        let (outcomes, certainty) = (smallvec![outcome], Certainty::Exact);
        Some(Answer { granted, outcomes, mode: Mode::Normal, certainty })
    }

    /// Decides a check under the locks of its shards, and tells `reserve` what was charged where.
    ///
    /// The clock is read *under* the locks, here and everywhere: a thread that read it before and then
    /// waited would be admitted at an instant at which the window was still full.
    fn decide(&self, check: &Check<'_>, mut reserve: impl FnMut(Reserved)) -> Answer {
        let addresses: SmallVec<[Address; 2]> =
            check.charges.iter().map(|charge| self.address(&charge.counter)).collect();
        let mut locked = Locked::new(&self.shards, &addresses);
        let now = self.clock.now();
        let mut drawn: SmallVec<[(Place, State); 2]> = SmallVec::new();
        let claimed: SmallVec<[Option<usize>; 2]> =
            addresses.iter().map(|address| locked.shard(*address).claim(address.id)).collect();
        for ((charge, address), claimed) in check.charges.iter().zip(&addresses).zip(claimed) {
            let limit = charge.counter.limit.limit();
            drawn.push(locked.shard(*address).draw(claimed, now.floor_ms(), limit));
        }
        // A shadow policy's key that finds no place is not counted; it must not deny anybody.
        let homeless: SmallVec<[bool; 2]> = check
            .charges
            .iter()
            .zip(&drawn)
            .map(|(charge, (place, _))| *place == Place::Full && charge.cost > 0 && !charge.terms.shadow)
            .collect();
        let full = homeless.contains(&true);
        let (granted, told) = ask(now, if full { 0 } else { check.times }, check, &mut drawn);

        let mut answer = Answer {
            granted,
            outcomes: told.iter().map(|(outcome, _)| *outcome).collect(),
            mode: Mode::Normal,
            certainty: Certainty::Exact,
        };
        for (index, (place, state)) in drawn.into_iter().enumerate() {
            let (address, charge, receipt) = (addresses[index], &check.charges[index], told[index].1);
            let limit = charge.counter.limit.limit();
            if receipt.is_some() || charge.cost == 0 {
                let in_use_until = if state.used() > 0 { state.expires_at_ms(limit) } else { 0 };
                let expires_ms = in_use_until.max(now.floor_ms() + limit.window().get());
                reserve(Reserved { address, limit: *limit, receipt, cost: charge.cost, expires_ms });
            }
            locked.shard(address).put_back(place, address.id, state, now, limit, &told[index].0);
        }
        locked.finish(full);
        if full {
            answer.mode = Mode::Full;
            for (outcome, homeless) in answer.outcomes.iter_mut().zip(homeless) {
                outcome.violated |= homeless;
            }
        }
        answer
    }

    fn settle_now(&self, id: ReservationId, actual: Cost) -> Settled {
        let Some(entries) = self.reservations.lock().take(id, self.clock.now().floor_ms()) else {
            return Settled::Unknown;
        };
        let (mut given_back, mut charged) = (0, 0);
        for entry in entries {
            let mut shard = self.shards[entry.address.shard].lock();
            let now = self.clock.now();
            if actual < entry.cost {
                given_back = shard.refund(&entry, now, entry.cost - actual).max(given_back);
            } else if actual > entry.cost && shard.charge(&entry, now, actual - entry.cost) {
                charged = (actual - entry.cost).max(charged);
            }
        }
        Settled::Done { given_back, charged }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        self.check_now(check)
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        Ok(self.settle_now(id, actual))
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let address = self.address(counter);
        self.shards[address.shard].lock().remove(address.id);
        Ok(())
    }
}

/// What the core says of one charge: the outcome, and what was taken.
type Told = (Outcome, Option<Receipt>);

/// Puts the question to the core: how many are granted, and what each charge is told and took.
fn ask(now: Now, times: u32, check: &Check<'_>, drawn: &mut [(Place, State)]) -> (u32, SmallVec<[Told; 2]>) {
    let mut charges: SmallVec<[check::Charge<'_>; 2]> = SmallVec::new();
    for (charge, (_, state)) in check.charges.iter().zip(drawn) {
        let limit = charge.counter.limit.limit();
        charges.push(check::Charge::new(state, limit, charge.cost, charge.group, charge.terms));
    }
    let granted = decide(now, times, &mut charges);
    (granted, charges.into_iter().map(|charge| (charge.outcome, charge.receipt)).collect())
}

/// The shards of one check, locked in ascending order, so that two checks never wait for each other.
struct Locked<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); 1]>);

impl<'a> Locked<'a> {
    fn new(shards: &'a [Mutex<Shard>], addresses: &[Address]) -> Self {
        let mut indexes: SmallVec<[usize; 2]> = addresses.iter().map(|address| address.shard).collect();
        indexes.sort_unstable();
        indexes.dedup();
        Self(indexes.into_iter().map(|index| (index, shards[index].lock())).collect())
    }

    fn shard(&mut self, address: Address) -> &mut Shard {
        let at = self.0.iter().position(|(index, _)| *index == address.shard);
        &mut self.0[at.unwrap_or_default()].1
    }

    fn finish(mut self, full: bool) {
        for (_, shard) in &mut self.0 {
            shard.finish();
        }
        if full && let Some((_, shard)) = self.0.first_mut() {
            shard.full_denials += 1;
        }
    }
}

#[cfg(test)]
mod tests;
