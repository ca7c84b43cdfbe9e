//! Short names for counters and for what a check asks of them.
//!
//! Names are fingerprints under a random key: clients choose keys, and must not be able to make two of them
//! meet. Nothing here outlives the process.

use std::hash::{Hash, Hasher};
use std::ptr;

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use crate::store::{Charge, Counter};

/// Where the time is kept at which a counter last got permits back: one of [`PLACES`]. Counters may share
/// one, which makes them forget together.
pub(crate) type Place = u16;

/// Places: so many that a busy policy that gives permits back seldom makes others forget.
pub(crate) const PLACES: usize = 4096;

/// A check, as far as its denial can be repeated: its counters in order, with limits and terms as they
/// stand; whatever is changed has another name. Costs are compared apart.
#[derive(Clone, Debug)]
pub(crate) struct CheckName {
    pub(crate) id: u128,
    /// One for each charge.
    pub(crate) places: SmallVec<[Place; 2]>,
}

/// A counter, whatever its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterName {
    pub(crate) id: u128,
    pub(crate) place: Place,
}

/// Makes names.
#[derive(Debug)]
pub(crate) struct Naming {
    secret: (u64, u64),
}

impl Naming {
    pub(crate) fn random() -> Self {
        let random = crate::random::u128();
        #[expect(clippy::cast_possible_truncation, reason = "takes the two halves")]
        Self { secret: (random as u64, (random >> 64) as u64) }
    }

    pub(crate) fn of_counter(&self, counter: &Counter<'_>) -> CounterName {
        let mut hasher = self.hasher();
        counter.policy.id().hash(&mut hasher);
        hasher.write(counter.key.as_bytes());
        name(hasher.finish128().as_u128(), counter)
    }

    pub(crate) fn of_check(&self, charges: &[Charge<'_>]) -> CheckName {
        let mut hasher = self.hasher();
        let mut places = SmallVec::new();
        let mut before: Option<(&Charge<'_>, CounterName)> = None;
        for charge in charges {
            let counter = match &before {
                // The limits of one policy and key follow each other: the key is read once.
                Some((other, named)) if is_sibling(&other.counter, &charge.counter) => {
                    sibling(*named, &other.counter, &charge.counter)
                }
                _ => self.of_counter(&charge.counter),
            };
            counter.id.hash(&mut hasher);
            charge.counter.limit.limit().hash(&mut hasher);
            charge.terms.hash(&mut hasher);
            charge.group.hash(&mut hasher);
            places.push(counter.place);
            before = Some((charge, counter));
        }
        CheckName { id: hasher.finish128().as_u128(), places }
    }

    /// The name of what is leased together: checks of the same counters at the same costs.
    pub(crate) fn of_purse(&self, charges: &[Charge<'_>]) -> u128 {
        let mut hasher = self.hasher();
        self.of_check(charges).id.hash(&mut hasher);
        charges.iter().for_each(|charge| charge.cost.hash(&mut hasher));
        hasher.finish128().as_u128()
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.secret.0, self.secret.1)
    }
}

/// A counter's name, from the fingerprint of its policy and key: limits differ in both halves.
fn name(tag: u128, counter: &Counter<'_>) -> CounterName {
    let limit = u128::from(counter.limit.id());
    let id = tag ^ (limit << 64 | limit);
    #[expect(clippy::cast_possible_truncation, reason = "below PLACES")]
    CounterName { id, place: (id % PLACES as u128) as Place }
}

/// Whether both are known at a glance to have the same policy and key.
fn is_sibling(of: &Counter<'_>, counter: &Counter<'_>) -> bool {
    ptr::eq(of.key, counter.key) && of.policy.id() == counter.policy.id()
}

/// The name of another limit of the same policy and key.
fn sibling(named: CounterName, of: &Counter<'_>, counter: &Counter<'_>) -> CounterName {
    let limit = u128::from(of.limit.id());
    name(named.id ^ (limit << 64 | limit), counter)
}
