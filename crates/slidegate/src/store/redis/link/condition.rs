//! How a node does: its [`Ladder`], driven by the calls that go to it and by probes beside them.
//!
//! What it is not: it answers no check. Who has to answer without the store asks for the [`Standing`].
//!
//! # Which faults count
//! A node fails a call that it can't serve or does not answer in time. It does not fail one that it answered with a
//! refusal of that one counter (another program's key, a newer format), nor one that never left, behind a full queue.
//!
//! # Eras
//! An era without the node begins with the first check that it did not decide ([`Condition::doubt`]), before it is known
//! whether more will fail. The next call that is answered ends it, unless the breaker has tripped: then it lasts until
//! checks are decided with the node again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use slidegate_core::instance::Era;
use slidegate_core::instance::ladder::{Ladder, Step, Thresholds, Transition};
use slidegate_core::time::Millis;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::figures::place;
use super::masters::Masters;
use super::refusal::Refusal;
use crate::error::{Fault, StoreError};

/// What all nodes of a link share.
pub(crate) struct Conditions {
    thresholds: Thresholds,
    /// Whether checks are decided without a node that is slow.
    slow_is_away: bool,
    masters: Arc<Masters>,
    /// How many nodes are not at the step [`Step::Normal`].
    troubled: AtomicUsize,
}

impl Conditions {
    pub(super) const fn new(thresholds: Thresholds, slow_is_away: bool, masters: Arc<Masters>) -> Self {
        Self { thresholds, slow_is_away, masters, troubled: AtomicUsize::new(0) }
    }

    /// Whether any node is slow or failing. One load: this is asked for each check.
    pub(crate) fn are_troubled(&self) -> bool {
        self.troubled.load(Relaxed) != 0
    }

    fn now_us(&self) -> u64 {
        self.masters.time().now_us()
    }

    fn begin_era(&self) -> Era {
        Era { number: self.masters.new_era(), began_us: self.now_us() }
    }

    /// Whether checks are decided without a node at this step.
    const fn is_away(&self, step: Step) -> bool {
        match step {
            Step::Normal => false,
            Step::Slow => self.slow_is_away,
            Step::Failing => true,
        }
    }
}

/// How a node stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The step of its ladder.
    pub(crate) step: Step,
    /// Since it stands there, if checks are decided without it.
    pub(crate) away: Option<Era>,
    /// What its last failed call failed with.
    pub(crate) fault: Fault,
    /// How long its last answer took.
    pub(crate) round_trip: Duration,
}

/// What a node's ladder has been through.
#[derive(Clone, Debug)]
pub(crate) struct ConditionFigures {
    /// Where it stands.
    pub(crate) step: Step,
    /// How often it took each step, in the order of [`Transition::ALL`].
    pub(crate) transitions: [u64; Transition::ALL.len()],
    /// How long it stood at each, in the order of [`Step::ALL`].
    pub(crate) spent: [Millis; Step::ALL.len()],
}

/// How one node does.
pub(super) struct Condition {
    all: Arc<Conditions>,
    name: Box<str>,
    /// Told when checks will be decided with it again, before the first one is.
    comes_back: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    /// The step once more, to be read without the lock.
    step: AtomicU8,
    /// The node has left the step [`Step::Normal`]: probes begin.
    pub(super) troubled: Notify,
}

#[derive(Debug)]
struct State {
    ladder: Ladder,
    /// The era without the node, if it is in one.
    era: Option<Era>,
    fault: Fault,
    round_trip: Duration,
    connect: Option<(Box<str>, Duration)>,
    transitions: [u64; Transition::ALL.len()],
}

impl Condition {
    /// Of a node that goes by this name in logs and metrics. `comes_back` is told when checks will be decided with it
    /// again, before the first one is; not to ask it anything.
    pub(super) fn new(
        all: Arc<Conditions>,
        name: String,
        comes_back: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            ladder: Ladder::new(all.thresholds, all.now_us()),
            era: None,
            fault: Fault::Disconnected,
            round_trip: Duration::ZERO,
            connect: None,
            transitions: [0; Transition::ALL.len()],
        };
        let step = AtomicU8::new(Step::Normal as u8);
        let comes_back = Box::new(comes_back);
        Self { all, name: name.into(), comes_back, state: Mutex::new(state), step, troubled: Notify::new() }
    }

    pub(super) fn is_normal(&self) -> bool {
        self.step.load(Relaxed) == Step::Normal as u8
    }

    pub(super) fn standing(&self) -> Standing {
        let state = self.state.lock();
        let step = state.ladder.step();
        let away = state.era.filter(|_| self.all.is_away(step));
        Standing { step, away, fault: state.fault, round_trip: state.round_trip }
    }

    /// A check was not decided that needed the node. The era in which it is answered: one begins if there is none.
    pub(super) fn doubt(&self) -> Era {
        let mut state = self.state.lock();
        *state.era.get_or_insert_with(|| self.all.begin_era())
    }

    /// Its name, and what it has been through.
    pub(super) fn figures(&self) -> (String, ConditionFigures) {
        let state = self.state.lock();
        let (step, spent) = (state.ladder.step(), state.ladder.spent(self.all.now_us()));
        (self.name.to_string(), ConditionFigures { step, transitions: state.transitions, spent })
    }

    /// A connection was opened. Of one server, the shortest of all first answers counts: one of them may have come
    /// while it was slow.
    pub(super) fn connected(&self, address: &str, took: Duration) {
        let mut state = self.state.lock();
        let shortest = match &state.connect {
            Some((before, shortest)) if **before == *address => took.min(*shortest),
            _ => took,
        };
        state.connect = Some((address.into(), shortest));
        state.ladder.connected(micros(shortest));
    }

    /// A call has ended.
    pub(super) fn call_ended<T>(&self, outcome: &Result<T, Refusal>, took: Duration) {
        let now_us = self.all.now_us();
        match verdict(outcome.as_ref().err()) {
            Some(Ok(())) => self.note(took, None, |ladder| ladder.answered(now_us, micros(took))),
            Some(Err(fault)) => self.note(took, Some(fault), |ladder| ladder.failed(now_us)),
            None => {}
        }
    }

    /// A probe has ended.
    pub(super) fn probe_ended<T>(&self, outcome: &Result<T, Refusal>, took: Duration) {
        let now_us = self.all.now_us();
        match verdict(outcome.as_ref().err()) {
            Some(Ok(())) => self.note(took, None, |ladder| ladder.probe_answered(now_us, micros(took))),
            Some(Err(fault)) => self.note(took, Some(fault), |ladder| ladder.probe_failed(now_us)),
            None => self.note(took, Some(Fault::Timeout), |ladder| ladder.probe_failed(now_us)),
        }
    }

    fn note(
        &self,
        took: Duration,
        fault: Option<Fault>,
        happens: impl FnOnce(&mut Ladder) -> Option<Transition>,
    ) {
        let mut state = self.state.lock();
        match fault {
            Some(fault) => state.fault = fault,
            None => state.round_trip = took,
        }
        if fault.is_none() && !self.all.is_away(state.ladder.step()) {
            state.era = None;
        }
        let since_us = state.ladder.since_us();
        let Some(taken) = happens(&mut state.ladder) else { return };
        let stood = Millis((state.ladder.since_us() - since_us) / 1000);
        match (self.all.is_away(taken.from), self.all.is_away(taken.to)) {
            // Longer away is one era, whatever for.
            (false, true) => _ = state.era.get_or_insert_with(|| self.all.begin_era()),
            (true, false) => {
                state.era = None;
                (self.comes_back)();
            }
            _ => {}
        }
        if let Some(count) = Transition::ALL.iter().position(|known| *known == taken) {
            state.transitions[count] += 1;
        }
        self.step.store(taken.to as u8, Relaxed);
        match (taken.from, taken.to) {
            (Step::Normal, _) => {
                self.all.troubled.fetch_add(1, Relaxed);
                self.troubled.notify_one();
            }
            (_, Step::Normal) => {
                self.all.troubled.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
        let fault = state.fault;
        drop(state);
        self.tell(taken, fault, stood);
    }

    fn tell(&self, taken: Transition, fault: Fault, stood: Millis) {
        let (from, to, cause) = (taken.from.name(), taken.to.name(), taken.cause.name());
        let stood_ms = stood.get();
        let node = &*self.name;
        match taken.to {
            Step::Failing => warn!(
                node,
                from,
                to,
                cause,
                stood_ms,
                fault = fault.name(),
                "the node fails: policies say what is answered"
            ),
            Step::Slow => warn!(node, from, to, cause, stood_ms, "the node is slow"),
            Step::Normal => info!(node, from, to, cause, stood_ms, "the node answers as it should"),
        }
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Condition").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A cluster's node that serves nothing any more is nobody's trouble.
impl Drop for Condition {
    fn drop(&mut self) {
        if !self.is_normal() {
            self.all.troubled.fetch_sub(1, Relaxed);
        }
    }
}

/// What the end of a call says of the node: it answered, it failed, or nothing.
fn verdict(refusal: Option<&Refusal>) -> Option<Result<(), Fault>> {
    match refusal {
        Some(Refusal::Final { error, .. }) => match error {
            StoreError::Unavailable { fault: Fault::QueueFull } => None,
            StoreError::Unavailable { fault } | StoreError::Lost { fault } => match fault {
                Fault::ForeignKey | Fault::NewerFormat => Some(Ok(())),
                fault => Some(Err(*fault)),
            },
            StoreError::ReservationsFull { .. } => Some(Ok(())),
        },
        // It has read the command and said where else to go.
        None | Some(Refusal::Moved(..) | Refusal::Ask(_) | Refusal::TryAgain | Refusal::NoScript) => {
            Some(Ok(()))
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A fault's number, for what is kept in an atomic.
pub(super) fn number(fault: Fault) -> u8 {
    place(fault).and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(slow_is_away: bool) -> Arc<Conditions> {
        let masters = Masters::new(super::super::masters::OwnTime::begin());
        Arc::new(Conditions::new(Thresholds::default(), slow_is_away, masters))
    }

    fn condition(all: &Arc<Conditions>) -> Condition {
        Condition::new(all.clone(), "here:1".to_owned(), || {})
    }

    fn failed(fault: Fault) -> Result<(), Refusal> {
        Err(Refusal::lost(fault, false))
    }

    #[tokio::test(start_paused = true)]
    async fn calls_move_the_ladder_and_trouble_is_seen_from_above() {
        let all = conditions(false);
        let (node, other) = (condition(&all), condition(&all));
        for _ in 0..4 {
            node.call_ended(&failed(Fault::Timeout), Duration::ZERO);
        }
        assert!(node.is_normal() && !all.are_troubled());
        node.call_ended(&failed(Fault::OutOfMemory), Duration::ZERO);
        let standing = node.standing();
        assert_eq!((standing.step, standing.fault), (Step::Failing, Fault::OutOfMemory));
        assert!(all.are_troubled() && other.is_normal());
        assert_eq!((standing.away.map(|era| era.number), other.standing().away), (Some(1), None));
        for _ in 0..4 {
            tokio::time::advance(Duration::from_millis(25)).await;
            node.probe_ended(&Ok(()), Duration::from_micros(300));
        }
        assert!(node.is_normal() && !all.are_troubled());
        assert_eq!(node.standing().away, None);
        let (name, figures) = node.figures();
        assert_eq!((&*name, figures.transitions), ("here:1", [0, 1, 0, 0, 0, 0, 1]));
        assert_eq!(figures.spent[Step::Failing as usize], Millis(75));
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_says_so_before_it_is_asked() {
        let all = conditions(true);
        let back = Arc::new(AtomicUsize::new(0));
        let counts = back.clone();
        let node = Condition::new(all.clone(), "here:1".to_owned(), move || {
            counts.fetch_add(1, Relaxed);
        });
        let slow = Duration::from_millis(6);
        node.call_ended(&Ok(()), slow);
        tokio::time::advance(Duration::from_millis(100)).await;
        node.call_ended(&Ok(()), slow);
        let era = node.standing().away.unwrap();
        assert_eq!(node.standing().step, Step::Slow);
        (0..5).for_each(|_| node.probe_ended(&failed(Fault::Timeout), slow));
        // Longer away, one era.
        assert_eq!(node.standing().step, Step::Failing);
        assert_eq!(node.standing().away, Some(era));
        assert_eq!(back.load(Relaxed), 0);
        for _ in 0..3 {
            node.probe_ended(&Ok(()), Duration::ZERO);
            tokio::time::advance(Duration::from_millis(25)).await;
        }
        assert_eq!((node.is_normal(), back.load(Relaxed)), (true, 1));
    }

    // A key that was first asked for a moment before the breaker tripped had one permit, for a window.
    #[tokio::test(start_paused = true)]
    async fn an_era_begins_with_the_first_check_that_fails() {
        let all = conditions(false);
        let node = condition(&all);
        let first = node.doubt();
        node.call_ended(&Ok(()), Duration::ZERO);
        let second = node.doubt();
        assert_ne!(second.number, first.number);
        for _ in 0..5 {
            tokio::time::advance(Duration::from_millis(10)).await;
            node.call_ended(&failed(Fault::Timeout), Duration::ZERO);
            assert_eq!(node.doubt(), second);
        }
        assert_eq!(node.standing().away, Some(second));
        // What was sent before ends nothing.
        node.call_ended(&Ok(()), Duration::ZERO);
        assert_eq!(node.standing().away, Some(second));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_the_nodes_fault_is_not_held_against_it() {
        let all = conditions(false);
        let node = condition(&all);
        let not_its_fault = [
            failed(Fault::ForeignKey),
            failed(Fault::NewerFormat),
            Err(Refusal::unavailable(Fault::QueueFull)),
            Err(Refusal::TryAgain),
        ];
        for outcome in not_its_fault.iter().cycle().take(1_000) {
            node.call_ended(outcome, Duration::ZERO);
        }
        assert!(node.is_normal());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_dropped_takes_its_trouble_along() {
        let all = conditions(false);
        let node = condition(&all);
        (0..5).for_each(|_| node.call_ended(&failed(Fault::Disconnected), Duration::ZERO));
        assert!(all.are_troubled());
        drop(node);
        assert!(!all.are_troubled());
    }

    // One answer that came while the server was slow must not make it a distant one.
    #[tokio::test(start_paused = true)]
    async fn the_shortest_first_answer_of_a_server_counts() {
        let all = conditions(false);
        let node = condition(&all);
        node.connected("here:1", Duration::from_micros(300));
        node.connected("here:1", Duration::from_millis(400));
        let slow = Duration::from_millis(6);
        node.call_ended(&Ok(()), slow);
        tokio::time::advance(Duration::from_millis(100)).await;
        node.call_ended(&Ok(()), slow);
        assert_eq!(node.standing().step, Step::Slow);
        assert_eq!(node.standing().round_trip, slow);
        node.connected("elsewhere:1", Duration::from_millis(400));
        assert_eq!(node.standing().step, Step::Slow);
    }
}
