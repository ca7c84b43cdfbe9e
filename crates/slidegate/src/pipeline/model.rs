//! A store without IO for the tests of the stages: the core's own decisions over a map, with calls that
//! take as long as a test says, in the runtime's (virtual) time.
//!
//! It is a model of what a shared store promises, not of Redis, and it holds the stages to what they promise
//! it: two calls at once that touch the same counter, or a call of several lanes, are noted as a fault.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use slidegate_core::algorithm::{Receipt, State};
use slidegate_core::check::{self, Terms, decide};
use slidegate_core::decision::{Cost, Mode};
use slidegate_core::instance::Era;
use slidegate_core::instance::share::Place;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::{Millis, Now};
use tokio::time::Instant;

use super::batch::{Batch, Counted, CounterKey, Decided, OwnedCharge, OwnedCheck, Taken};
use super::nodes::{Away, History, Nodes};
use crate::error::{Fault, StoreError};
use crate::store::{Answer, Certainty, Check, Counter, ReservationId, Settled};

/// The store's clock when the runtime's stands at the model's beginning.
const START_MS: u64 = 1_700_000_000_000;

/// What one call shall be like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    /// Time until it is decided, in milliseconds.
    pub(crate) there_ms: u64,
    /// Time from then until the reply comes, in milliseconds.
    pub(crate) back_ms: u64,
    /// `None`: it succeeds. Lost calls are executed all the same.
    pub(crate) fails: Option<Fails>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    Unavailable,
    Lost,
    Panics,
}

/// A call that was executed.
#[derive(Clone, Debug)]
pub(crate) struct Executed {
    pub(crate) now: Now,
    pub(crate) checks: Vec<Counted>,
}

/// The model. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    world: Mutex<World>,
    /// Counters that calls under way touch.
    touched: Mutex<HashSet<CounterKey>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    faults: AtomicUsize,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) states: HashMap<CounterKey, State>,
    pub(crate) reserved: HashMap<ReservationId, Vec<Taken>>,
    /// Calls of checks that were executed, in order.
    pub(crate) executed: Vec<Executed>,
    /// What was given back, in order.
    pub(crate) returned: Vec<Taken>,
    /// What the next calls are like; the default after that.
    pub(crate) courses: VecDeque<Course>,
    /// The round trip of a store that is slow.
    pub(crate) slow: Option<Duration>,
    /// Lanes whose node is not to be asked.
    pub(crate) away: HashSet<u16>,
    /// What calls are like when `courses` is empty.
    pub(crate) usual: Course,
}

impl Model {
    /// On the clock of the runtime that it is made in.
    pub(crate) fn new(usual: Course) -> Self {
        let world = Mutex::new(World { usual, ..Default::default() });
        let shared = Shared {
            start: Instant::now(),
            world,
            touched: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn now(&self) -> Now {
        let passed = u64::try_from(self.shared.start.elapsed().as_micros()).unwrap();
        Now::from_micros(START_MS * 1000 + passed)
    }

    pub(crate) fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.shared.world.lock())
    }

    /// Units that are charged at a counter.
    pub(crate) fn used(&self, key: &CounterKey) -> u32 {
        self.world(|world| world.states.get(key).map_or(0, State::used))
    }

    /// Broken promises of those who call it.
    pub(crate) fn faults(&self) -> usize {
        self.shared.faults.load(Ordering::Relaxed)
    }

    /// The most calls that were under way at once.
    pub(crate) fn most_under_way(&self) -> usize {
        self.shared.most_under_way.load(Ordering::Relaxed)
    }

    /// Takes the time of a call; `execute` is what happens in the store.
    async fn call<T>(
        &self,
        keys: Vec<CounterKey>,
        execute: impl FnOnce(&mut World, Now) -> T,
    ) -> Result<T, StoreError> {
        let _touching = Touching::new(&self.shared, keys);
        let course = self.world(|world| world.courses.pop_front().unwrap_or(world.usual));
        pass(course.there_ms).await;
        match course.fails {
            Some(Fails::Unavailable) => return Err(StoreError::Unavailable { fault: Fault::Disconnected }),
            Some(Fails::Panics) => panic!("the model was told to"),
            Some(Fails::Lost) | None => {}
        }
        let result = self.world(|world| execute(world, self.now()));
        pass(course.back_ms).await;
        match course.fails {
            Some(_) => Err(StoreError::Lost { fault: Fault::Timeout }),
            None => Ok(result),
        }
    }
}

/// Lets virtual time pass, and all happen that is due meanwhile; no time is over at the first poll.
pub(crate) async fn pass(length_ms: u64) {
    if length_ms > 0 {
        tokio::time::sleep(Duration::from_millis(length_ms)).await;
    }
}

/// Counters of a call under way.
struct Touching<'a> {
    shared: &'a Shared,
    keys: HashSet<CounterKey>,
}

impl<'a> Touching<'a> {
    fn new(shared: &'a Shared, keys: Vec<CounterKey>) -> Self {
        let keys: HashSet<CounterKey> = keys.into_iter().collect();
        let mut touched = shared.touched.lock();
        let alone = keys.iter().all(|key| touched.insert(key.clone()));
        let lanes: HashSet<u16> = keys.iter().map(CounterKey::lane).collect();
        if !alone || lanes.len() > 1 {
            shared.faults.fetch_add(1, Ordering::Relaxed);
        }
        drop(touched);
        let under_way = shared.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        shared.most_under_way.fetch_max(under_way, Ordering::Relaxed);
        Self { shared, keys }
    }
}

impl Drop for Touching<'_> {
    fn drop(&mut self) {
        self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut touched = self.shared.touched.lock();
        self.keys.iter().for_each(|key| _ = touched.remove(key));
    }
}

/// One check in the core's words.
pub(crate) fn decide_in(
    states: &mut HashMap<CounterKey, State>,
    now: Now,
    check: &OwnedCheck,
    times: u32,
) -> Decided {
    let mut drawn: Vec<State> = check
        .charges
        .iter()
        .map(|charge| states.remove(&charge.key).unwrap_or_else(|| State::new(&charge.limit, 1)))
        .collect();
    let before = drawn.clone();
    let mut charges: Vec<check::Charge<'_>> = drawn
        .iter_mut()
        .zip(&check.charges)
        .map(|(state, charge)| {
            check::Charge::new(state, &charge.limit, charge.cost, charge.group, charge.terms)
        })
        .collect();
    let granted = decide(now, times, &mut charges);
    let mut outcomes: Vec<_> = charges.iter().map(|charge| charge.outcome).collect();
    let mut receipts: Vec<_> = charges.iter().map(|charge| charge.receipt).collect();
    if check.lease > Millis::ZERO {
        // The same charge once more, and this time the window is held open for it.
        drawn.clone_from(&before);
        for ((state, charge), receipt) in drawn.iter_mut().zip(&check.charges).zip(&mut receipts) {
            state.settle(now, &charge.limit);
            let State::TickLog(log) = state else { panic!("only sliding windows are leased") };
            let units = granted * charge.cost;
            *receipt =
                Some(log.lease(now, &charge.limit, units, check.lease)).filter(|taken| taken.units > 0);
        }
    }
    if check.probe {
        drawn = before;
        receipts.fill(None);
        for ((state, charge), outcome) in drawn.iter_mut().zip(&check.charges).zip(&mut outcomes) {
            state.settle(now, &charge.limit);
            *outcome = state.outcome(now, &charge.limit, charge.cost, outcome.violated);
        }
    }
    for (state, charge) in drawn.into_iter().zip(&check.charges) {
        states.insert(charge.key.clone(), state);
    }
    let (outcomes, certainty) = (outcomes.into(), Certainty::Exact);
    let answer = Answer { granted, outcomes, mode: Mode::Normal, certainty };
    Decided { answer, receipts: receipts.into() }
}

fn refund(world: &mut World, now: Now, taken: &Taken, units: u32) -> u32 {
    let Some(state) = world.states.get_mut(&taken.key) else { return 0 };
    state.settle(now, &taken.limit);
    state.refund(now, &taken.limit, &taken.receipt, units)
}

/// Nodes that are as a test says, of an instance that knows of no other and remembers nothing.
impl Nodes for Model {
    fn are_troubled(&self) -> bool {
        self.world(|world| world.slow.is_some() || !world.away.is_empty())
    }

    fn away(&self, lane: u16) -> Option<Away> {
        let era = Era { number: 1, began_us: 0 };
        self.world(|world| world.away.contains(&lane))
            .then_some(Away { era, fault: Some(Fault::Disconnected) })
    }

    fn slow_round_trip(&self, _: u16) -> Option<Duration> {
        self.world(|world| world.slow)
    }

    fn doubt(&self, _: u16) -> Option<Era> {
        None
    }

    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        Batch::own(self, check)
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn history(&self, _: &CounterKey, _: &Limit, _: Option<Era>, _: u64) -> History {
        History::default()
    }

    fn granted(&self, _: &CounterKey, _: &Limit, _: Option<Era>, _: u32) -> u64 {
        0
    }

    fn now_us(&self) -> u64 {
        self.now().as_micros()
    }
}

impl Batch for Model {
    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        let charges = check.charges.iter().map(|charge| OwnedCharge {
            key: name_of(&charge.counter),
            limit: *charge.counter.limit.limit(),
            cost: charge.cost,
            group: charge.group,
            terms: charge.terms,
            exact: false,
        });
        OwnedCheck { charges: charges.collect(), reserve: check.reserve, probe: false, lease: Millis::ZERO }
    }

    async fn call(&self, checks: Vec<Counted>) -> Vec<Result<Decided, StoreError>> {
        let keys = checks.iter().flat_map(|counted| &counted.check.charges);
        let keys = keys.map(|charge| charge.key.clone()).collect();
        let asked = checks.len();
        let result = self
            .call(keys, |world, now| {
                let decided = |counted: &Counted| {
                    let decided = decide_in(&mut world.states, now, &counted.check, counted.times);
                    if let (Some(id), true) = (counted.check.reserve, decided.answer.granted > 0) {
                        let taken = counted.check.taken(&decided.receipts);
                        world.reserved.insert(id, taken.into_vec());
                    }
                    decided
                };
                let answers: Vec<Decided> = checks.iter().map(decided).collect();
                world.executed.push(Executed { now, checks });
                answers
            })
            .await;
        match result {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); asked],
        }
    }

    async fn give_back(&self, taken: &[Taken]) -> Result<(), StoreError> {
        let keys = taken.iter().map(|taken| taken.key.clone()).collect();
        self.call(keys, |world, now| {
            for taken in taken {
                refund(world, now, taken, taken.receipt.units);
                world.returned.push(taken.clone());
            }
        })
        .await
    }

    async fn remember(&self, id: ReservationId, taken: &[Taken]) -> Result<(), StoreError> {
        self.call(Vec::new(), |world, _| _ = world.reserved.insert(id, taken.to_vec())).await
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.call(Vec::new(), |world, now| {
            let Some(taken) = world.reserved.remove(&id) else { return Settled::Unknown };
            let mut given_back = 0;
            for taken in taken {
                let units = taken.receipt.units.saturating_sub(actual);
                given_back = given_back.max(refund(world, now, &taken, units));
            }
            Settled::Done { given_back, charged: 0 }
        })
        .await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let key = name_of(counter);
        self.call(Vec::new(), |world, _| _ = world.states.remove(&key)).await
    }
}

/// The counter's name; the lane is the first digit of its key, if there is one.
fn name_of(counter: &Counter<'_>) -> CounterKey {
    let (policy, key) = (counter.policy.name(), counter.key.as_str());
    let lane = key.bytes().find(u8::is_ascii_digit).map_or(0, |digit| u16::from(digit - b'0'));
    CounterKey::new(format!("{policy}:{key}:{}", counter.limit.public_name()).into_bytes(), lane)
}

/// A caller who never gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

/// A counter of the tests.
pub(crate) fn key(name: &str, lane: u16) -> CounterKey {
    CounterKey::new(name.as_bytes(), lane)
}

/// One charge of the tests: enforced, of cost 1, in a group of its own.
pub(crate) fn charge(name: &str, lane: u16, permits: u64, window_ms: u64) -> OwnedCharge {
    let limit = Limit::new(permits, Millis(window_ms)).unwrap();
    OwnedCharge { key: key(name, lane), limit, cost: 1, group: 0, terms: Terms::default(), exact: false }
}

/// A check of the tests, its charges numbered as groups of their own.
pub(crate) fn check(charges: impl IntoIterator<Item = OwnedCharge>) -> OwnedCheck {
    let charges = (0..).zip(charges).map(|(group, charge)| OwnedCharge { group, ..charge });
    OwnedCheck { charges: charges.collect(), reserve: None, probe: false, lease: Millis::ZERO }
}

/// Any algorithm, with small numbers.
pub(crate) fn any_limit() -> impl proptest::strategy::Strategy<Value = Limit> {
    use proptest::prelude::*;
    let algorithm = prop_oneof![
        Just(Algorithm::SLIDING_WINDOW),
        Just(Algorithm::SlidingWindow { resolution: Some(Millis(4)) }),
        Just(Algorithm::SlidingLog),
        Just(Algorithm::FixedWindow),
        (1u32..8).prop_map(|burst| Algorithm::TokenBucket { burst }),
        (0u64..40).prop_map(|delay| Algorithm::LeakyBucket { max_delay: Millis(delay) }),
    ];
    let size = (prop_oneof![1 => Just(0u64), 12 => 1u64..12], 4u64..60);
    (size, algorithm).prop_map(|((permits, window), algorithm)| {
        let plain = Limit::new(permits, Millis(window)).unwrap();
        plain.with_algorithm(algorithm).unwrap_or(plain)
    })
}

/// What a party of one was told, for comparing.
pub(crate) type Plain = (u32, Vec<slidegate_core::decision::Outcome>, Vec<Option<Receipt>>);

/// An answer in a form that can be compared.
pub(crate) fn plain(decided: &Decided) -> Plain {
    (decided.answer.granted, decided.answer.outcomes.to_vec(), decided.receipts.to_vec())
}

/// A round trip of 4 ms.
pub(crate) const ROUND_TRIP: Course = Course { there_ms: 2, back_ms: 2, fails: None };

/// Lets all that is under way come to its end, in virtual time.
pub(crate) async fn settle_down() {
    pass(1000).await;
}

/// Runs on a paused clock, in one thread: the same steps each time.
pub(crate) fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

/// Polls a future once: then it has asked.
pub(crate) async fn ask<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context)))
        .await
}
