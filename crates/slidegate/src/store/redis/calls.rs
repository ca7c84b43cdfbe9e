//! Calls to the server: checks become one script call, its reply their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::redis::{Cmd, Value};
use slidegate_core::algorithm::tick_log::resolution_of;
use slidegate_core::decision::Cost;
use slidegate_core::instance::Era;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::config::{OnSlowStore, RedisConfig, RedisConfigError, Retry};
use super::heartbeat::{Heartbeat, Instances};
use super::ledgers::{Accepted, Ledgers, Said};
use super::link::{Link, LinkFigures, OwnedTask, Script};
use super::names::Names;
use super::records::{self, Reserved};
use super::roll_calls::{self, Sync};
use super::scripts;
use super::skew::{self, Skew};
use super::wire::{Call, Draft, Memory, Reply, Settle, Told, Undecided, read_checks, read_settled};
use crate::clock::Clock;
use crate::error::{Fault, StoreError};
use crate::pipeline::batch::{Batch, Counted, CounterKey, Decided, OwnedCharge, OwnedCheck, Taken};
use crate::policy::Failover;
use crate::store::{Check, Counter, ReservationId, Settled};

/// What a reply that makes no sense comes to: it was executed, somehow.
const NONSENSE: StoreError = StoreError::Lost { fault: Fault::Protocol };

/// What a call comes to that is not answered.
const SILENCE: StoreError = StoreError::Lost { fault: Fault::Timeout };

type Outcome = Result<Decided, StoreError>;

/// A server, or a cluster of them, as a [`Batch`].
pub(super) struct Calls {
    pub(super) link: Arc<Link>,
    /// What checks, settles and resets.
    scripts: [&'static Script; 3],
    pub(super) heartbeat: Heartbeat,
    names: Names,
    pub(super) ledgers: Arc<Ledgers>,
    /// Puts back, beside the traffic, what a new master does not know of.
    _sync: OwnedTask,
    /// Whether calls on one counter are made one after another, so that ledgers can be kept.
    ordered: bool,
    timeout: Millis,
    retry: Option<Retry>,
    /// `None`: the server's own.
    clock: Option<Arc<dyn Clock>>,
    linger: Millis,
    pub(super) skew: Arc<Skew>,
    _skew_watch: Option<OwnedTask>,
    pub(super) instances: Option<u32>,
    pub(super) on_slow_store: OnSlowStore,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Calls {
    pub(super) fn start(config: &RedisConfig, runtime: Handle) -> Result<Self, RedisConfigError> {
        let (clock, linger) = config.own_clock();
        let link = Arc::new(Link::start(config)?);
        let newest = config.newest_format();
        let names = Names::new(config.key_prefix());
        let ledgers = Arc::new(Ledgers::new(link.masters().time()));
        let remembers = ledgers.clone();
        link.masters().listen(move |era| remembers.enter(era));
        let heartbeat = Heartbeat::start(&link, runtime, names.instances(), ledgers.identity(), newest);
        let sync = Sync {
            link: link.clone(),
            ledgers: ledgers.clone(),
            script: scripts::of(newest)[0],
            formats: heartbeat.formats(),
            clock: clock.clone(),
            linger,
            timeout: config.check_retry().map_or(config.check_timeout(), |retry| retry.budget),
        };
        let skew = Arc::new(Skew::default());
        let watched = clock.clone().filter(|_| config.has_client_clock());
        let skew_watch = watched.map(|clock| skew::watch(link.clone(), clock, skew.clone()));
        Ok(Self {
            skew,
            _skew_watch: skew_watch,
            instances: config.instance_count(),
            on_slow_store: config.slow_answer(),
            link,
            scripts: scripts::of(newest),
            heartbeat,
            _sync: OwnedTask::spawn(sync.run()),
            names,
            ledgers,
            ordered: config.has_flights(),
            timeout: config.check_timeout(),
            retry: config.check_retry(),
            clock,
            linger,
        })
    }

    pub(super) fn link_figures(&self) -> LinkFigures {
        self.link.figures()
    }

    /// Who shares the counters.
    pub(super) fn instances(&self) -> Instances {
        self.heartbeat.instances()
    }

    /// Takes leave of the other instances; says whether they know.
    pub(super) async fn leave(&self) -> bool {
        self.heartbeat.leave().await
    }

    pub(super) async fn connected(&self, deadline: Instant) -> bool {
        self.link.connected(deadline).await
    }

    pub(super) async fn info(&self, deadline: Instant) -> Result<String, StoreError> {
        let mut info = Cmd::new();
        info.arg("INFO").arg("everything");
        match self.link.command(0, &info, deadline).await? {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            // RESP3 says what kind of text it is.
            Value::VerbatimString { text, .. } => Ok(text),
            _ => Err(NONSENSE),
        }
    }

    fn draft(&self) -> Draft {
        Draft {
            now: self.clock.as_ref().map(|clock| clock.now()),
            seq: self.ledgers.next_seq(),
            identity: self.ledgers.identity(),
            format: self.heartbeat.writes(),
            linger: self.linger,
        }
    }

    /// The time that is decided by, if it is not the server's.
    fn now_ms(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.now().floor_ms())
    }

    /// Runs a script and returns the bytes of its reply.
    async fn run(
        &self,
        lane: u16,
        script: &Script,
        call: &Call,
        deadline: Instant,
    ) -> Result<Vec<u8>, StoreError> {
        let keys: SmallVec<[&[u8]; 16]> = call.keys.iter().map(|key| &**key).collect();
        match self.link.script(lane, script, &keys, &call.args(), deadline).await? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(NONSENSE),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout.into()
    }

    /// Decides checks in one call, each as far as one call can. `backs`: what is put back first, of each check.
    async fn attempt(
        &self,
        lane: u16,
        checks: &[Counted],
        backs: &[Backs],
        deadline: Instant,
    ) -> Vec<Attempt> {
        let draft = self.draft();
        let line =
            |charge: &OwnedCharge| self.ledgers.line(charge.key.shared_name()).filter(|_| charge.exact);
        let back = |charge: &OwnedCharge| {
            backs.iter().flatten().find(|(key, _)| key == charge.key.shared_name()).map(|(_, back)| back)
        };
        let call = draft.checks_and_put_back(checks, line, back, |check| self.memory(check));
        let replies = self.run(lane, self.scripts[0], &call, deadline).await;
        match replies.and_then(|bytes| read_checks(&bytes, checks).ok_or(NONSENSE)) {
            Ok(replies) => {
                checks.iter().zip(replies).map(|(counted, reply)| self.take(counted, reply, &draft)).collect()
            }
            Err(error) => {
                if matches!(error, StoreError::Lost { .. }) {
                    for charge in checks.iter().flat_map(|counted| &counted.check.charges) {
                        if charge.exact {
                            self.ledgers.lost(charge.key.shared_name(), draft.seq);
                        }
                    }
                }
                checks.iter().map(|_| Attempt::Done(Err(error.clone()))).collect()
            }
        }
    }

    /// Takes note of what a reply granted.
    fn take(&self, counted: &Counted, reply: Reply, draft: &Draft) -> Attempt {
        let unavailable = |fault| Attempt::Done(Err(StoreError::Unavailable { fault }));
        match reply {
            Ok(Told { decided, reset_epochs, long }) => {
                let charges = counted.check.charges.iter().zip(&decided.receipts).zip(reset_epochs);
                for ((charge, receipt), reset_epoch) in charges {
                    if let Some(receipt) = receipt.filter(|_| charge.exact) {
                        let key = charge.key.shared_name();
                        let accepted =
                            Accepted { seq: draft.seq, units: receipt.units, lease: counted.check.lease };
                        self.ledgers.accept(key, &charge.limit, accepted, Said { reset_epoch, long });
                        self.link.masters().granted();
                    }
                }
                Attempt::Done(Ok(decided))
            }
            Err(Undecided::Stale { .. }) => Attempt::Again(None),
            Err(Undecided::Behind { stored }) => Attempt::Again(Some(stored)),
            Err(Undecided::Foreign) => unavailable(Fault::ForeignKey),
            Err(Undecided::Newer) => unavailable(Fault::NewerFormat),
        }
    }

    /// The record of a reservation that is made in the call itself: where all keys may share one.
    fn memory(&self, check: &OwnedCheck) -> Option<Memory> {
        let id = check.reserve.filter(|_| !self.link.is_cluster())?;
        let counters = check.charges.iter();
        let begin = records::begin(counters.map(|charge| (charge.key.name(), &charge.limit, charge.cost)));
        Some(Memory { key: self.names.reservation(id), begin })
    }

    /// Whether to ask again after an error can't grant twice: nothing was executed, or the ledger recognises
    /// what was. Of another program's key nothing else will ever be said.
    fn may_repeat(&self, check: &OwnedCheck, error: &StoreError) -> bool {
        match error {
            StoreError::Unavailable { fault: Fault::ForeignKey | Fault::NewerFormat } => false,
            StoreError::Unavailable { .. } => true,
            StoreError::Lost { .. } => {
                check.reserve.is_none() && check.charges.iter().all(|charge| self.is_known(charge))
            }
            StoreError::ReservationsFull { .. } => false,
        }
    }

    fn is_known(&self, charge: &OwnedCharge) -> bool {
        charge.exact && self.ledgers.line(charge.key.shared_name()).is_some()
    }

    /// Decides checks within the time that a call may take, and asks again where that was chosen.
    async fn decide(&self, lane: u16, checks: &[Counted]) -> Vec<Outcome> {
        let started = Instant::now();
        let Some(retry) = self.retry else {
            return self.decide_once(lane, checks, started + self.timeout.into()).await;
        };
        let end = started + retry.budget.into();
        // A call that can't be made again is not waited for any longer than without a retry.
        let repeats = checks.iter().any(|counted| self.may_repeat(&counted.check, &SILENCE));
        let mut again_at = started + if repeats { retry.after } else { self.timeout }.into();
        let mut outcomes = self.decide_once(lane, checks, again_at.min(end)).await;
        while again_at < end {
            let failed: Vec<usize> = (0..checks.len())
                .filter(|at| {
                    outcomes[*at].as_ref().is_err_and(|error| self.may_repeat(&checks[*at].check, error))
                })
                .collect();
            if failed.is_empty() {
                break;
            }
            sleep_until(again_at).await;
            again_at += retry.after.into();
            let again: Vec<Counted> = failed.iter().map(|at| checks[*at].clone()).collect();
            let decided = self.decide_once(lane, &again, again_at.min(end)).await;
            failed.into_iter().zip(decided).for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        outcomes
    }

    /// Decides checks, within what may be taken of their counters while there is a roll call; those that the store has
    /// forgotten grants of, again with what they were.
    async fn decide_once(&self, lane: u16, checks: &[Counted], deadline: Instant) -> Vec<Outcome> {
        let roll_call = self.roll_call(lane);
        let caps = roll_call
            .map(|era| roll_calls::caps(checks, era, self.heartbeat.place(self.instances), &self.ledgers));
        let cut = caps.as_ref().map(|caps| roll_calls::cut(checks, caps));
        let asked = cut.as_deref().unwrap_or(checks);
        let mut attempts = self.attempt(lane, asked, &[], deadline).await;
        // Each counter of a check may tell something else of what it has forgotten.
        for _ in 0..=asked.iter().map(|counted| counted.check.charges.len()).max().unwrap_or_default() {
            let again: Vec<usize> =
                (0..attempts.len()).filter(|at| matches!(attempts[*at], Attempt::Again(_))).collect();
            if again.is_empty() {
                break;
            }
            let backs: Vec<Backs> =
                again.iter().map(|at| self.backs(&asked[*at].check, &attempts[*at])).collect();
            let some: Vec<Counted> = again.iter().map(|at| asked[*at].clone()).collect();
            let decided = self.attempt(lane, &some, &backs, deadline).await;
            again.into_iter().zip(decided).for_each(|(at, attempt)| attempts[at] = attempt);
        }
        let outcomes = attempts.into_iter().map(Attempt::finish);
        match caps {
            None => outcomes.collect(),
            Some(caps) => roll_calls::refuse(checks, &caps, outcomes),
        }
    }

    fn roll_call(&self, lane: u16) -> Option<Era> {
        let masters = self.link.masters();
        if masters.is_calm() { None } else { masters.roll_call(self.link.master(lane)?) }
    }

    /// What counters of a check are told that know of no call after one of them has said to. It does not say which one
    /// it is: those that know of another take nothing.
    fn backs(&self, check: &OwnedCheck, attempt: &Attempt) -> Backs {
        let Attempt::Again(Some(stored)) = attempt else { return Backs::new() };
        let exact = check.charges.iter().filter(|charge| charge.exact);
        let back = |charge: &OwnedCharge| {
            let key = charge.key.shared_name();
            Some((key.clone(), self.ledgers.missing_after(key, *stored)?))
        };
        exact.filter_map(back).collect()
    }

    async fn settle_parts(&self, parts: Vec<Settle>) -> Result<Vec<(Cost, Cost)>, StoreError> {
        let deadline = self.deadline();
        let mut by_lane: BTreeMap<u16, Vec<Settle>> = BTreeMap::new();
        for part in parts {
            by_lane.entry(self.lane(&part.key)).or_default().push(part);
        }
        let mut settled = Vec::new();
        for (lane, parts) in by_lane {
            let call = self.draft().settle(&parts);
            let bytes = self.run(lane, self.scripts[1], &call, deadline).await?;
            settled.extend(read_settled(&bytes, parts.len()).ok_or(NONSENSE)?);
        }
        Ok(settled)
    }

    fn lane(&self, key: &[u8]) -> u16 {
        if self.link.is_cluster() { Link::slot(key) } else { 0 }
    }
}

impl Batch for Calls {
    fn own(&self, check: &Check<'_>) -> OwnedCheck {
        let charges = check.charges.iter().map(|charge| {
            let limit = *charge.counter.limit.limit();
            let name = self.names.counter(&charge.counter);
            let lane = self.lane(&name);
            let exact = self.ordered
                && charge.counter.policy.failover() == Failover::Exact
                && matches!(limit.algorithm(), Algorithm::SlidingWindow { .. });
            OwnedCharge {
                key: CounterKey::new(name, lane),
                limit,
                cost: charge.cost,
                group: charge.group,
                terms: charge.terms,
                exact,
            }
        });
        OwnedCheck { charges: charges.collect(), reserve: check.reserve, probe: false, lease: Millis::ZERO }
    }

    async fn call(&self, checks: Vec<Counted>) -> Vec<Outcome> {
        let lane = checks.first().map_or(0, |counted| counted.check.lane());
        let mut outcomes = self.decide(lane, &checks).await;
        if self.link.is_cluster() {
            for (outcome, counted) in outcomes.iter_mut().zip(&checks) {
                if let (Ok(decided), Some(id)) = (&*outcome, counted.check.reserve)
                    && decided.answer.granted > 0
                    && let Err(error) = self.remember(id, &whole(&counted.check, decided)).await
                {
                    *outcome = Err(error);
                }
            }
        }
        outcomes
    }

    async fn give_back(&self, taken: &[Taken]) -> Result<(), StoreError> {
        for taken in taken {
            self.ledgers.give_back(taken.key.shared_name(), taken.receipt.units);
        }
        let master = taken.first().and_then(|taken| self.link.master(taken.key.lane()));
        if master.is_some_and(|master| self.link.masters().may_have_forgotten(master)) {
            // The receipt may be of what was lost, and would take what others were granted in the same tick.
            return Err(StoreError::Unavailable { fault: Fault::Disconnected });
        }
        let parts = taken.iter().map(|taken| Settle {
            key: taken.key.shared_name().clone(),
            limit: taken.limit,
            receipt: taken.receipt,
            give_back: taken.receipt.units,
            charge: 0,
        });
        self.settle_parts(parts.collect()).await.map(drop)
    }

    async fn remember(&self, id: ReservationId, taken: &[Taken]) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let ends_ms = self.now_ms().map_or(u64::MAX, |now_ms| {
            // Charged at the end of a tick, which may be yet to come.
            let ends = taken.iter().map(|taken| taken.receipt.at_ms.max(now_ms) + time_in_use(&taken.limit));
            ends.max().unwrap_or_default()
        });
        let ttl = taken.iter().map(|taken| time_in_use(&taken.limit) + tick(&taken.limit)).max();
        let ttl = ttl.unwrap_or_default();
        let key = self.names.reservation(id);
        let mut set = Cmd::new();
        set.arg("SET").arg(&*key).arg(records::whole(taken, ends_ms)).arg("PX").arg(ttl + self.linger.get());
        self.link.command(self.lane(&key), &set, self.deadline()).await.map(drop)
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        let key = self.names.reservation(id);
        let mut take = Cmd::new();
        take.arg("GETDEL").arg(&*key);
        let Value::BulkString(bytes) = self.link.command(self.lane(&key), &take, self.deadline()).await?
        else {
            return Ok(Settled::Unknown);
        };
        let record = records::read(&bytes).ok_or(StoreError::Unavailable { fault: Fault::ForeignKey })?;
        // The server's clock ends records by itself; another one is asked here.
        if record.reserved.is_empty() || self.now_ms().is_some_and(|now_ms| record.ends_ms <= now_ms) {
            return Ok(Settled::Unknown);
        }
        let parts = record.reserved.into_iter().map(|Reserved { key, limit, cost, receipt }| Settle {
            key,
            limit,
            receipt,
            give_back: cost.saturating_sub(actual),
            charge: actual.saturating_sub(cost),
        });
        let unequal = parts.filter(|part| part.give_back > 0 || part.charge > 0);
        let settled = self.settle_parts(unequal.collect()).await?;
        let most = |of: fn(&(Cost, Cost)) -> Cost| settled.iter().map(of).max().unwrap_or_default();
        Ok(Settled::Done {
            given_back: most(|(given_back, _)| *given_back),
            charged: most(|(_, charged)| *charged),
        })
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let key = self.names.counter(counter);
        let lane = self.lane(&key);
        let call = self.draft().reset(key.clone(), counter.limit.limit());
        self.run(lane, self.scripts[2], &call, self.deadline()).await?;
        self.ledgers.reset(&key);
        Ok(())
    }
}

/// What is put back, by counter.
type Backs = Vec<(Arc<[u8]>, PutBack)>;

/// What one call came to for one check.
enum Attempt {
    Done(Outcome),
    /// It was executed and decided nothing: the seq was no higher than one that the counter has seen, or the
    /// counter has forgotten what was granted after this call.
    Again(Option<u64>),
}

impl Attempt {
    /// Nothing was decided several times in a row: others call under this instance's identity, or time runs backwards.
    fn finish(self) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Again(_) => Err(StoreError::Unavailable { fault: Fault::Protocol }),
        }
    }
}

/// For how long what is charged under a limit can still be settled, at the most: until a full bucket has drained.
fn time_in_use(limit: &Limit) -> u64 {
    /// As long as the scripts keep anything: 8,900 years.
    const LONGEST: u64 = (1 << 48) - 1;
    let window = limit.window().get();
    let longest = match limit.algorithm() {
        Algorithm::LeakyBucket { max_delay } => window + max_delay.get(),
        Algorithm::TokenBucket { burst } if limit.permits() > 0 => {
            let drains = (u128::from(burst) * u128::from(window)).div_ceil(limit.permits().into());
            u64::try_from(drains).unwrap_or(LONGEST)
        }
        _ => 0,
    };
    window.max(longest).min(LONGEST)
}

/// How long after its check a charge may be dated: to the end of a tick.
fn tick(limit: &Limit) -> u64 {
    match limit.algorithm() {
        Algorithm::SlidingWindow { .. } => resolution_of(limit).into(),
        _ => 1,
    }
}

/// What settling a check takes: what it took, and what a cost of 0 did not take yet. A counter that only watched
/// and had no room holds nothing, and must not be charged an excess either.
fn whole(check: &OwnedCheck, decided: &Decided) -> Vec<Taken> {
    let nothing = slidegate_core::algorithm::Receipt { epoch: 0, at_ms: 0, units: 0 };
    let charges = check.charges.iter().zip(&decided.receipts);
    let taken = charges.filter_map(|(charge, receipt)| {
        let receipt = receipt.or((charge.cost == 0).then_some(nothing))?;
        Some(Taken { key: charge.key.clone(), limit: charge.limit, receipt })
    });
    taken.collect()
}
