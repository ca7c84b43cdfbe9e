//! The model: what a store must decide, said with the core's [`decide`] over a plain map, and a property
//! that walks a store and the model through the same history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use slidegate::Policy;
use slidegate::core::algorithm::{Receipt, State};
use slidegate::core::check::{self, decide};
use slidegate::core::decision::{Cost, Outcome};
use slidegate::core::limit::{Algorithm, Limit};
use slidegate::core::time::{Millis, Now};
use slidegate::policy::Failover;
use slidegate::store::{Charge, Check, ReservationId, Settled, Store};

use crate::subject::Subject;
use crate::world::World;

// --- the model ---------------------------------------------------------------------------------------

/// A counter's policy, key and limit, as texts.
type Name = (String, String, String);

/// Counters and reservations.
#[derive(Default)]
struct Model {
    counters: BTreeMap<Name, Counter>,
    reservations: BTreeMap<ReservationId, Vec<Reserved>>,
    /// The limit that each counter was last checked under.
    limits: BTreeMap<Name, Limit>,
    /// Those that were checked under several limits.
    mixed: BTreeSet<Name>,
    next_epoch: u32,
}

struct Counter {
    state: State,
    /// When it says no more than an absent one, under the limit that it was last used with.
    expires_ms: u64,
}

struct Reserved {
    name: Name,
    limit: Limit,
    receipt: Option<Receipt>,
    cost: Cost,
    expires_ms: u64,
}

impl Model {
    fn check(&mut self, now: Now, check: &Check<'_>) -> (u32, Vec<Outcome>) {
        let names: Vec<_> = check.charges.iter().map(name).collect();
        let mut states: Vec<_> = names
            .iter()
            .zip(check.charges)
            .map(|(name, charge)| self.state(name, charge.counter.limit.limit()))
            .collect();
        let mut charges: Vec<_> = states
            .iter_mut()
            .zip(check.charges)
            .map(|(state, charge)| {
                let limit = charge.counter.limit.limit();
                check::Charge::new(state, limit, charge.cost, charge.group, charge.terms)
            })
            .collect();
        let granted = decide(now, check.times, &mut charges);
        let told: Vec<_> = charges.into_iter().map(|charge| (charge.outcome, charge.receipt)).collect();

        let mut reserved = Vec::new();
        for (((name, state), charge), (_, receipt)) in names.iter().zip(states).zip(check.charges).zip(&told)
        {
            let limit = charge.counter.limit.limit();
            if self.limits.insert(name.clone(), *limit).is_some_and(|before| before != *limit) {
                self.mixed.insert(name.clone());
            }
            let expires_ms = state.expires_at_ms(limit);
            if receipt.is_some() || charge.cost == 0 {
                let in_use_until = if state.used() > 0 { expires_ms } else { 0 };
                let expires_ms = in_use_until.max(now.floor_ms() + limit.window().get());
                let (name, limit, receipt) = (name.clone(), *limit, *receipt);
                reserved.push(Reserved { name, limit, receipt, cost: charge.cost, expires_ms });
            }
            self.put(name, state, expires_ms);
        }
        if let Some(id) = check.reserve
            && granted > 0
        {
            self.reservations.insert(id, reserved);
        }
        (granted, told.into_iter().map(|(outcome, _)| outcome).collect())
    }

    fn state(&mut self, name: &Name, limit: &Limit) -> State {
        // Far apart, since a counter raises its own when its history moves.
        self.next_epoch += 1 << 12;
        let epoch = self.next_epoch;
        self.counters.get(name).map_or_else(|| State::new(limit, epoch), |counter| counter.state.clone())
    }

    /// What is absent and stays unused creates nothing.
    fn put(&mut self, name: &Name, state: State, expires_ms: u64) {
        if self.counters.contains_key(name) || state.used() > 0 {
            self.counters.insert(name.clone(), Counter { state, expires_ms });
        }
    }

    fn settle(&mut self, now: Now, id: ReservationId, actual: Cost) -> Settled {
        if self.has_ended(now, id) {
            return Settled::Unknown;
        }
        let (mut given_back, mut charged) = (0, 0);
        for entry in self.reservations.remove(&id).unwrap_or_default() {
            if actual < entry.cost {
                given_back = self.refund(now, &entry, entry.cost - actual).max(given_back);
            } else if actual > entry.cost {
                let more = actual - entry.cost;
                self.charge(now, &entry, more);
                charged = more.max(charged);
            }
        }
        Settled::Done { given_back, charged }
    }

    fn has_ended(&self, now: Now, id: ReservationId) -> bool {
        self.reservations
            .get(&id)
            .is_none_or(|entries| entries.iter().all(|entry| entry.expires_ms <= now.floor_ms()))
    }

    /// Whether a counter of a reservation was ever under another limit. In Redis what remains of that, and has ended,
    /// is kept when a reservation is settled, and so is the length of its ticks.
    fn has_changed_limits(&self, id: ReservationId) -> bool {
        let mut entries = self.reservations.get(&id).into_iter().flatten();
        entries.any(|entry| {
            self.limits.get(&entry.name) != Some(&entry.limit) || self.mixed.contains(&entry.name)
        })
    }

    /// Whether a part of it lies in a sorted log. In Redis one that is given back its newest unit has no memory
    /// of when that was, so after a step of the clock it may date the next one a little earlier.
    fn is_in_sorted_log(&self, id: ReservationId) -> bool {
        let mut entries = self.reservations.get(&id).into_iter().flatten();
        entries.any(|entry| entry.limit.algorithm() == Algorithm::SlidingLog)
    }

    fn refund(&mut self, now: Now, entry: &Reserved, units: u32) -> u32 {
        let (Some(counter), Some(receipt)) = (self.counters.get_mut(&entry.name), &entry.receipt) else {
            return 0;
        };
        if !counter.is_under(&entry.limit) {
            return 0;
        }
        counter.state.settle(now, &entry.limit);
        let given_back = counter.state.refund(now, &entry.limit, receipt, units);
        counter.expires_ms = counter.state.expires_at_ms(&entry.limit);
        given_back
    }

    fn charge(&mut self, now: Now, entry: &Reserved, units: u32) {
        let mut state = self.state(&entry.name, &entry.limit);
        let under = self.counters.get(&entry.name).is_none_or(|counter| counter.is_under(&entry.limit));
        if under {
            state.settle(now, &entry.limit);
        }
        state.charge(now, &entry.limit, units);
        let mut expires_ms = state.expires_at_ms(&entry.limit);
        if !under && let Some(counter) = self.counters.get(&entry.name) {
            expires_ms = expires_ms.max(counter.expires_ms);
        }
        self.put(&entry.name, state, expires_ms);
    }

    fn tidy(&mut self, now: Now) {
        self.counters.retain(|_, counter| counter.expires_ms > now.floor_ms());
    }
}

impl Counter {
    /// Whether this limit can have been the last to decide: whether the counter ends when it says.
    fn is_under(&self, limit: &Limit) -> bool {
        self.expires_ms == self.state.expires_at_ms(limit)
    }
}

fn name(charge: &Charge<'_>) -> Name {
    let counter = charge.counter;
    (counter.policy.name().to_string(), counter.key.as_str().into(), counter.limit.store_name().into())
}

// --- histories ---------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Check {
        asks: Vec<(usize, usize, Cost)>,
        times: u32,
        reserve: bool,
    },
    /// Settles one of the reservations so far, settled ones too.
    Settle {
        which: prop::sample::Index,
        actual: Cost,
    },
    Reset {
        policy: usize,
        key: usize,
    },
    /// Gives a policy other limits.
    Change {
        policy: usize,
        limits: [usize; 2],
    },
    Advance {
        micros: u64,
    },
    GoBack {
        micros: u64,
    },
    Tidy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asks = proptest::sample::subsequence(vec![0usize, 1, 2, 3], 1..=3).prop_shuffle().prop_flat_map(
        |policies| policies.into_iter().map(|at| (Just(at), 0..2usize, 0..4u32)).collect::<Vec<_>>(),
    );
    let micros = prop_oneof![Just(0), 1..3_000u64, 1..60_000u64, 1..40_000_000u64];
    let step = prop_oneof![
        10 => (asks, 1..4u32, any::<bool>()).prop_map(|(asks, times, reserve)| {
            Step::Check { asks, times: if reserve { 1 } else { times }, reserve }
        }),
        4 => (any::<prop::sample::Index>(), 0..7u32).prop_map(|(which, actual)| Step::Settle { which, actual }),
        1 => (0..4usize, 0..2usize).prop_map(|(policy, key)| Step::Reset { policy, key }),
        2 => (0..4usize, [0..LIMITS, 0..LIMITS]).prop_map(|(policy, limits)| Step::Change { policy, limits }),
        5 => micros.clone().prop_map(|micros| Step::Advance { micros }),
        1 => micros.prop_map(|micros| Step::GoBack { micros }),
        1 => Just(Step::Tidy),
    ];
    proptest::collection::vec(step, 1..80)
}

const LIMITS: usize = 9;

/// Small limits over short windows, so that histories of a few steps fill and empty them.
fn limit(index: usize) -> Limit {
    let (text, algorithm) = [
        ("3/20ms", Algorithm::SLIDING_WINDOW),
        ("5/50ms", Algorithm::SLIDING_WINDOW),
        ("5/40ms", Algorithm::SlidingWindow { resolution: Some(Millis(8)) }),
        ("4/7ms", Algorithm::SlidingLog),
        ("6/30ms", Algorithm::FixedWindow),
        ("2/10ms", Algorithm::TokenBucket { burst: 4 }),
        ("4/20ms", Algorithm::LeakyBucket { max_delay: Millis(12) }),
        ("4/30s", Algorithm::SLIDING_WINDOW),
        ("0/20ms", Algorithm::SLIDING_WINDOW),
    ][index];
    text.parse::<Limit>().unwrap().with_algorithm(algorithm).unwrap()
}

/// Four policies: one limit, two limits, two that only watch, one that counts what it denies. No ledgers: an instance's
/// own clock goes on while the store's is moved by hand, and what it was granted a moment ago it would put back.
fn subject(policy: usize, key: usize, limits: [usize; 2]) -> Subject {
    let builder = Policy::builder(["one", "two", "watching", "counting"][policy])
        .shadow(policy == 2)
        .count_denied(policy == 3)
        .failover(Failover::Fast)
        .limit(None, limit(limits[0]));
    let builder = if matches!(policy, 1 | 2) { builder.limit(None, limit(limits[1])) } else { builder };
    Subject::of(builder).keyed(&[("key", [b"a", b"b"][key])])
}

// --- the walk ----------------------------------------------------------------------------------------

/// The store and the model, side by side.
struct Walk<W> {
    world: W,
    model: Model,
    limits: [[usize; 2]; 4],
    reservations: Vec<ReservationId>,
    /// The limits in force when each was made.
    reserved_under: BTreeMap<ReservationId, [[usize; 2]; 4]>,
    /// Whether the clock will step back.
    goes_back: bool,
}

impl<W: World> Walk<W> {
    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Check { asks, times, reserve } => self.check(asks, *times, *reserve).await?,
            Step::Settle { which, actual } if !self.reservations.is_empty() => {
                let id = *which.get(&self.reservations);
                let unlike_the_model = self.model.has_changed_limits(id)
                    || self.reserved_under.get(&id) != Some(&self.limits)
                    || self.goes_back && self.model.is_in_sorted_log(id);
                // In a cluster it is remembered as long as it may say something, however little there is left.
                let is_kept_longer = W::SCATTERS && self.model.has_ended(self.world.now(), id);
                if !W::TELLS_LIMITS_APART && (unlike_the_model || is_kept_longer) {
                    return Ok(());
                }
                let settled = self.world.store().settle(id, *actual).await.unwrap();
                prop_assert_eq!(settled, self.model.settle(self.world.now(), id, *actual));
                if !W::TELLS_LIMITS_APART {
                    self.peek_everywhere().await?;
                }
            }
            Step::Settle { .. } => {}
            Step::Reset { policy, key } => {
                let subject = subject(*policy, *key, self.limits[*policy]);
                for charge in subject.charges(0, 0) {
                    self.world.store().reset(&charge.counter).await.unwrap();
                    self.model.counters.remove(&name(&charge));
                }
            }
            Step::Change { policy, limits } => self.limits[*policy] = *limits,
            Step::Advance { micros } => self.world.advance(Duration::from_micros(*micros)),
            Step::GoBack { micros } => {
                // What has ended may be forgotten for good, or come back with the clock: nothing is promised.
                let now = self.world.now();
                self.reservations.retain(|id| !self.model.has_ended(now, *id));
                if !W::TELLS_LIMITS_APART {
                    self.peek_everywhere().await?;
                }
                self.world.step_back(Duration::from_micros(*micros));
            }
            Step::Tidy => {
                self.world.tidy().await;
                if W::FORGETS_WHEN_TIDIED {
                    self.model.tidy(self.world.now());
                }
            }
        }
        Ok(())
    }

    /// Brings every counter up to now, in case settling has left in one what had expired.
    async fn peek_everywhere(&mut self) -> Result<(), TestCaseError> {
        for (policy, key) in (0..4).flat_map(|policy| [(policy, 0), (policy, 1)]) {
            self.check(&[(policy, key, 0)], 1, false).await?;
        }
        Ok(())
    }

    async fn check(
        &mut self,
        asks: &[(usize, usize, Cost)],
        times: u32,
        reserve: bool,
    ) -> Result<(), TestCaseError> {
        let subjects: Vec<_> = asks
            .iter()
            .map(|(policy, key, cost)| (subject(*policy, *key, self.limits[*policy]), *cost))
            .collect();
        let charges: Vec<_> =
            (0..).zip(&subjects).flat_map(|(group, (subject, cost))| subject.charges(*cost, group)).collect();
        let keys: BTreeSet<usize> = asks.iter().map(|(_, key, _)| *key).collect();
        // In several slots no more than one is granted.
        let times = if W::SCATTERS && keys.len() > 1 { 1 } else { times };
        let reserve = reserve.then(ReservationId::random);
        self.reservations.extend(reserve);
        self.reserved_under.extend(reserve.map(|id| (id, self.limits)));
        let check = Check { times, charges: &charges, reserve };
        let expected = self.model.check(self.world.now(), &check);
        let answer = self.world.store().check(&check).await.unwrap();
        prop_assert_eq!((answer.granted, answer.outcomes.into_vec()), expected);
        Ok(())
    }
}

/// Whatever is checked, at whatever costs, reserved, settled, reset and changed, and however the clock
/// walks: at every step the store decides and tells what the model does.
pub(crate) fn every_step_is_decided_as_the_model_decides<W: World>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // As many as were asked for (`PROPTEST_CASES`), or this world's share of them.
    let asked = ProptestConfig::default();
    let cases = (asked.cases.saturating_mul(W::WALKS) / 256).max(1);
    proptest!(ProptestConfig { cases, ..asked }, |(steps in steps(), limits in proptest::array::uniform4([0..LIMITS, 0..LIMITS]))| {
        runtime.block_on(async {
            let mut walk = Walk {
                world: W::fresh().await,
                model: Model::default(),
                limits,
                reservations: Vec::new(),
                reserved_under: BTreeMap::new(),
                goes_back: steps.iter().any(|step| matches!(step, Step::GoBack { .. })),
            };
            for step in &steps {
                walk.step(step).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    });
}
