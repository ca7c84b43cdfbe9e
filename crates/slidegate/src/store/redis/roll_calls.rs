//! What an instance does in a roll call: stay below what it held, and put back what the new master does not know of.
//!
//! Which roll calls there are is told by the link's [`Masters`](super::link::Masters); the rules are
//! [`slidegate_core::instance`]'s. What it is not: the checks' own calls put back too, each for its counters, when
//! they are told that the master is behind; what is here is for all other counters, beside the traffic.
//!
//! # Invariants
//! * A call that puts back takes nothing for lost, as a check's reply may be on its way: see
//!   [`put_back`](slidegate_core::ledger::put_back).
//! * No reply of the old master is accepted any more when the first of these calls is made. Whatever was granted by it
//!   later would never be put back.

use std::sync::Arc;

use slidegate_core::check::Terms;
use slidegate_core::decision::Cost;
use slidegate_core::instance::Era;
use slidegate_core::instance::grants::PutBack;
use slidegate_core::instance::share::{Place, share};
use slidegate_core::limit::Limit;
use slidegate_core::time::Millis;
use smallvec::smallvec;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::heartbeat::Formats;
use super::ledgers::{Ledgers, Room};
use super::link::{Link, Master, Script};
use super::wire::{Draft, Undecided, read_checks};
use crate::clock::Clock;
use crate::error::{Fault, StoreError};
use crate::pipeline::batch::{Counted, CounterKey, Decided, OwnedCharge, OwnedCheck};
use crate::store::Certainty;

/// Counters of one call: 0.4 ms of the server's time.
const COUNTERS_MAX: usize = 16;
/// Calls under way. In a cluster each has its own slot, mostly of one counter.
const CALLS_MAX: usize = 4;
/// How long a call may take: nobody waits for it.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Until what could not be put back is tried again, and roll calls are looked for that nobody has told of.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// No call has this number: what is put back after it is nothing, and all that is learnt is what the counter knows.
const NO_CALL: u64 = (1 << 53) - 1;

/// How many times a check may be granted in a roll call.
#[derive(Debug, Default)]
pub(super) struct Cap {
    times: u32,
    /// The counter whose room it is, and when that will be more.
    of: Option<(usize, Millis)>,
}

/// What may be granted of checks that leave together, the earlier first. `place`: this instance's among those that share
/// the limit, if it knows of any.
pub(super) fn caps(checks: &[Counted], era: Era, place: Option<Place>, ledgers: &Ledgers) -> Vec<Cap> {
    let mut taken: Vec<(&Arc<[u8]>, u32)> = Vec::new();
    let mut caps = Vec::with_capacity(checks.len());
    for Counted { check, times } in checks {
        let mut cap = Cap { times: *times, of: None };
        let capped =
            |charge: &OwnedCharge| charge.exact && charge.cost > 0 && !check.probe && !charge.terms.shadow;
        for (index, charge) in check.charges.iter().enumerate().filter(|(_, charge)| capped(charge)) {
            let key = charge.key.shared_name();
            let permits = charge.limit.permits();
            let share = place.map_or(permits, |place| share(permits, place));
            let Some(Room { permits, more_after }) = ledgers.room(key, &charge.limit, era, share) else {
                continue;
            };
            let before: u32 = taken.iter().filter(|(other, _)| *other == key).map(|(_, units)| units).sum();
            let fit = permits.saturating_sub(before) / charge.cost;
            if fit < cap.times {
                cap = Cap { times: fit, of: Some((index, more_after)) };
            }
        }
        for charge in check.charges.iter().filter(|charge| capped(charge)) {
            taken.push((charge.key.shared_name(), cap.times.saturating_mul(charge.cost)));
        }
        caps.push(cap);
    }
    caps
}

/// The checks with as many times as may be granted. With none they are asked nevertheless: for their numbers, and
/// since they put back.
pub(super) fn cut(checks: &[Counted], caps: &[Cap]) -> Vec<Counted> {
    let cut = |(counted, cap): (&Counted, &Cap)| Counted { check: counted.check.clone(), times: cap.times };
    checks.iter().zip(caps).map(cut).collect()
}

/// Says of whom was cut that this instance refuses, if the store did not.
pub(super) fn refuse(
    checks: &[Counted],
    caps: &[Cap],
    outcomes: impl Iterator<Item = Result<Decided, StoreError>>,
) -> Vec<Result<Decided, StoreError>> {
    let all = outcomes.zip(checks).zip(caps);
    all.map(|((outcome, counted), cap)| outcome.map(|decided| cap.refuse(counted, decided))).collect()
}

impl Cap {
    fn refuse(&self, asked: &Counted, mut decided: Decided) -> Decided {
        let answer = &mut decided.answer;
        if let Some((place, more_after)) = self.of
            && answer.granted >= self.times
            && answer.granted < asked.times
            && let Some(outcome) = answer.outcomes.get_mut(place)
        {
            outcome.violated = true;
            outcome.retry_after = Some(outcome.retry_after.unwrap_or_default().max(more_after));
            // It is over as soon as the others have answered.
            answer.certainty = Certainty::Passing;
        }
        decided
    }
}

/// Puts back, for as long as it runs.
pub(super) struct Sync {
    pub(super) link: Arc<Link>,
    pub(super) ledgers: Arc<Ledgers>,
    pub(super) script: &'static Script,
    pub(super) formats: Formats,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) linger: Millis,
    /// How long a check's call may take in all: until then a reply of the old master may be accepted.
    pub(super) timeout: Millis,
}

/// What a counter is asked.
struct Asked {
    key: Arc<[u8]>,
    limit: Limit,
    back: PutBack,
}

impl Sync {
    pub(super) async fn run(self) {
        let this = Arc::new(self);
        let masters = this.link.masters().clone();
        loop {
            let Some((master, era)) = masters.out_of_sync().into_iter().next() else {
                tokio::select! {
                    () = masters.begun() => {}
                    () = sleep(LOOK_EVERY) => {}
                }
                continue;
            };
            let began_ago = Duration::from_micros(masters.time().now_us().saturating_sub(era.began_us));
            let answered = Instant::now() + Duration::from(this.timeout).saturating_sub(began_ago);
            sleep_until(answered).await;
            if this.put_all_back(master).await {
                masters.has_put_back(era);
            } else {
                sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// Compares every counter with what the master knows; false if that could not be done for all.
    async fn put_all_back(self: &Arc<Self>, master: Master) -> bool {
        let mut active = self.ledgers.active(|key| self.link.master(self.lane(key)) == Some(master));
        // Those of one slot can go together.
        active.sort_by_cached_key(|(key, _)| self.lane(key));
        let same_lane =
            |one: &(Arc<[u8]>, Limit), next: &(Arc<[u8]>, Limit)| self.lane(&one.0) == self.lane(&next.0);
        let mut calls = JoinSet::new();
        let mut whole = true;
        for lane in active.chunk_by(same_lane) {
            for counters in lane.chunks(COUNTERS_MAX) {
                if calls.len() >= CALLS_MAX {
                    whole &= matches!(calls.join_next().await, Some(Ok(true)));
                }
                let (this, counters) = (self.clone(), counters.to_vec());
                calls.spawn(async move { this.put_back(counters).await.is_ok() });
            }
        }
        while let Some(done) = calls.join_next().await {
            whole &= matches!(done, Ok(true));
        }
        whole
    }

    /// Asks counters of one slot what they know, and tells those that are behind what they don't.
    async fn put_back(&self, counters: Vec<(Arc<[u8]>, Limit)>) -> Result<(), StoreError> {
        let nothing =
            |(key, limit)| Asked { key, limit, back: PutBack { stored: NO_CALL, ..PutBack::default() } };
        let mut asked: Vec<Asked> = counters.into_iter().map(nothing).collect();
        // A counter may be told by a check meanwhile, whose call may be lost, and so on; more than once is rare.
        for _ in 0..4 {
            let known = self.call(&asked).await?;
            let behind = asked.into_iter().zip(known).filter_map(|(asked, stored)| {
                let line = self.ledgers.line(&asked.key).filter(|line| !line.lapsed)?;
                // In sync, or put back just now, or nobody's business any more.
                let stored = stored.filter(|stored| *stored < line.ack)?;
                let back = self.ledgers.missing_after(&asked.key, stored)?;
                Some(Asked { back, ..asked })
            });
            asked = behind.collect();
            if asked.is_empty() {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable { fault: Fault::Protocol })
    }

    /// One call; for each counter the last call that it knows of, if it has taken nothing back.
    async fn call(&self, asked: &[Asked]) -> Result<Vec<Option<u64>>, StoreError> {
        let checks: Vec<Counted> = asked.iter().map(Asked::check).collect();
        let draft = Draft {
            now: self.clock.as_ref().map(|clock| clock.now()),
            seq: self.ledgers.next_seq(),
            identity: self.ledgers.identity(),
            format: self.formats.writes(),
            linger: self.linger,
        };
        let line = |charge: &OwnedCharge| self.ledgers.line(charge.key.shared_name());
        let back = |charge: &OwnedCharge| {
            asked.iter().find(|asked| asked.key == *charge.key.shared_name()).map(|asked| &asked.back)
        };
        let call = draft.checks_and_put_back(&checks, line, back, |_| None);
        let keys: Vec<&[u8]> = call.keys.iter().map(|key| &**key).collect();
        let lane = asked.first().map_or(0, |asked| self.lane(&asked.key));
        let end = Instant::now() + CALL_MAX;
        let reply = self.link.script_aside(lane, self.script, &keys, &call.args(), end).await?;
        let ::redis::Value::BulkString(bytes) = reply else {
            return Err(StoreError::Lost { fault: Fault::Protocol });
        };
        let replies = read_checks(&bytes, &checks).ok_or(StoreError::Lost { fault: Fault::Protocol })?;
        let known = replies.into_iter().map(|reply| match reply {
            Err(Undecided::Stale { stored } | Undecided::Behind { stored }) => Some(stored),
            // Put back; or another program's key, which no check will be granted.
            Ok(_) | Err(Undecided::Foreign | Undecided::Newer) => None,
        });
        Ok(known.collect())
    }

    fn lane(&self, key: &[u8]) -> u16 {
        if self.link.is_cluster() { Link::slot(key) } else { 0 }
    }
}

impl Asked {
    /// A check of no times.
    fn check(&self) -> Counted {
        const COST: Cost = 1;
        let charge = OwnedCharge {
            key: CounterKey::new(self.key.clone(), 0),
            limit: self.limit,
            cost: COST,
            group: 0,
            terms: Terms::default(),
            exact: true,
        };
        let check =
            OwnedCheck { charges: smallvec![charge], reserve: None, probe: false, lease: Millis::ZERO };
        Counted { check: Arc::new(check), times: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledgers::{Accepted, Said};
    use super::super::link::OwnTime;
    use super::*;
    use crate::pipeline::model::{charge, check};
    use slidegate_core::algorithm::Receipt;
    use slidegate_core::decision::{Mode, Outcome};

    fn counted(key: &str, cost: u32, times: u32) -> Counted {
        let charge = OwnedCharge { exact: true, cost, ..charge(key, 0, 100, 60_000) };
        Counted { check: Arc::new(check([charge])), times }
    }

    fn held(ledgers: &Ledgers, key: &str, units: u32) {
        let accepted = Accepted { seq: ledgers.next_seq(), units, lease: Millis::ZERO };
        let key: Arc<[u8]> = Arc::from(key.as_bytes());
        let limit = Limit::new(100, Millis(60_000)).unwrap();
        ledgers.accept(&key, &limit, accepted, Said { reset_epoch: None, long: false });
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_roll_call_no_more_is_asked_for_than_was_held_when_it_began() {
        let time = OwnTime::begin();
        let ledgers = Ledgers::new(time);
        tokio::time::advance(Duration::from_secs(1)).await;
        held(&ledgers, "a", 10);
        tokio::time::advance(Duration::from_secs(59)).await;
        held(&ledgers, "a", 5);
        let era = Era { number: 1, began_us: time.now_us() + 1 };
        ledgers.enter(era);
        let times = |checks: &[Counted]| -> Vec<u32> {
            caps(checks, era, Some(Place::new(0, 4)), &ledgers).iter().map(|cap| cap.times).collect()
        };
        assert_eq!(times(&[counted("a", 1, 3)]), [0], "15 are held");
        assert_eq!(times(&[counted("b", 2, 30)]), [12], "no history of it: a fourth of 100");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(times(&[counted("a", 2, 30)]), [5], "10 of 15 have left since");
        assert_eq!(
            times(&[counted("a", 2, 3), counted("a", 1, 30)]),
            [3, 4],
            "and what leaves together is counted together"
        );
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(times(&[counted("a", 1, 300)]), [300], "after a window the store alone decides");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_by_this_instance_is_told_when_it_will_be_otherwise() {
        let ledgers = Ledgers::new(OwnTime::begin());
        held(&ledgers, "a", 10);
        let era = Era { number: 1, began_us: 1 };
        ledgers.enter(era);
        let asked = counted("a", 1, 3);
        let cap = caps(std::slice::from_ref(&asked), era, None, &ledgers).remove(0);
        let outcome = Outcome {
            limit: 100,
            used: 10,
            remaining: 90,
            reset_after: Millis(60_000),
            violated: false,
            retry_after: None,
            delay: Millis::ZERO,
        };
        let answer = crate::store::Answer {
            granted: 0,
            outcomes: smallvec![outcome],
            mode: Mode::Normal,
            certainty: Certainty::Exact,
        };
        let decided = Decided { answer, receipts: smallvec![None::<Receipt>] };
        let refused = cap.refuse(&asked, decided).answer;
        assert_eq!(refused.certainty, Certainty::Passing);
        assert!(refused.outcomes[0].violated);
        assert_eq!(refused.outcomes[0].retry_after, Some(Millis(60_001)));
    }
}
