//! What this instance knows of permits that were given back, so that denials from before are void.
//!
//! Times, not lists: each counter has a place where the time is kept at which it last got permits back, and
//! a denial that was asked for before it is void, even if its answer comes later. Pure: times are
//! microseconds since the start of the cache, from 1, and come as arguments.

use std::array;
use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use super::names::{Naming, PLACES, Place};
use crate::store::{Charge, ReservationId};

/// Reservations whose counters are remembered. One that is pushed out is settled like one that was made by
/// another instance.
const RESERVATIONS_KEPT: usize = 8192;

/// Counters of one reservation.
type Places = SmallVec<[Place; 4]>;

/// The last reservation of those that share a place.
type Kept = Mutex<Option<(ReservationId, Places)>>;

/// The times, and who gives back.
#[derive(Debug)]
pub(super) struct Returns {
    /// For each place, when its counters last got permits back; 0 is never.
    counters: Box<[AtomicU64; PLACES]>,
    /// The same for all counters of policies that reserve: a reservation was settled whose counters are
    /// not known here.
    reserving: AtomicU64,
    /// The same for all counters: a policy was seen to reserve for the first time, and its denials are
    /// held for longer than is right for it.
    all: AtomicU64,
    /// Policies that were seen to reserve, by id. At most as many as there are policies.
    policies: RwLock<HashSet<u64>>,
    /// What was reserved: each id has one place. Made when first needed, since few policies reserve.
    reservations: OnceLock<Box<[Kept]>>,
}

impl Default for Returns {
    fn default() -> Self {
        Self {
            counters: Box::new(array::from_fn(|_| AtomicU64::new(0))),
            reserving: AtomicU64::new(0),
            all: AtomicU64::new(0),
            policies: RwLock::default(),
            reservations: OnceLock::new(),
        }
    }
}

impl Returns {
    /// These counters are being reserved from.
    pub(super) fn reserved(&self, id: ReservationId, charges: &[Charge<'_>], naming: &Naming, now_us: u64) {
        if !charges.iter().all(|charge| self.is_reserving(charge)) {
            let ids = charges.iter().map(|charge| charge.counter.policy.id());
            self.policies.write().extend(ids);
            self.all.fetch_max(now_us, Ordering::Relaxed);
        }
        let places = charges.iter().map(|charge| naming.of_counter(&charge.counter).place).collect();
        *self.reservation(id).lock() = Some((id, places));
    }

    /// A reservation was settled, or may have been.
    pub(super) fn settled(&self, id: ReservationId, now_us: u64) {
        let known = self.reservation(id).lock().take_if(|(reserved, _)| *reserved == id);
        match known {
            Some((_, places)) => places.into_iter().for_each(|place| self.reset(place, now_us)),
            None => _ = self.reserving.fetch_max(now_us, Ordering::Relaxed),
        }
    }

    /// A counter was emptied, or may have been.
    pub(super) fn reset(&self, place: Place, now_us: u64) {
        self.counters[usize::from(place)].fetch_max(now_us, Ordering::Relaxed);
    }

    /// Whether a policy of these was seen to reserve.
    pub(super) fn returning(&self, charges: &[Charge<'_>]) -> bool {
        charges.iter().any(|charge| self.is_reserving(charge))
    }

    /// Whether nothing was given back since a denial was asked for. In the same microsecond it may have been.
    pub(super) fn none_since(&self, asked_us: u64, places: &[Place], returning: bool) -> bool {
        let before = |time: &AtomicU64| time.load(Ordering::Relaxed) < asked_us;
        before(&self.all)
            && (!returning || before(&self.reserving))
            && places.iter().all(|place| before(&self.counters[usize::from(*place)]))
    }

    fn is_reserving(&self, charge: &Charge<'_>) -> bool {
        self.policies.read().contains(&charge.counter.policy.id())
    }

    fn reservation(&self, id: ReservationId) -> &Kept {
        let kept =
            self.reservations.get_or_init(|| (0..RESERVATIONS_KEPT).map(|_| Mutex::default()).collect());
        &kept[(id.as_u128() % RESERVATIONS_KEPT as u128) as usize]
    }
}
