//! Shards: a counter that is split into several, in different slots, whose shares of the limit add up to it.
//!
//! One key lies on one node of a cluster, whatever leases save. A policy with `shards: n` has n counters for each key
//! instead, each held to its share of the limit: no window of all of them holds more than N. A check is charged to one
//! of them. Each asks another one first, in turn, beginning at a random one: so instances and requests spread.
//!
//! # A shard that is full
//! Then the others are looked at, all at once and without charging, and the emptiest are asked, up to
//! [`TRIES_MAX`]. The check is refused if none of them grants it. Where permits are leased, the others are
//! simply asked, since most of that is answered on this instance: up to [`LEASED_TRIES_MAX`].
//!
//! # What is told
//! The limit itself. Of a check that was allowed only one shard is known, and `used` and `remaining` are its own, scaled
//! to the limit: an estimate. A peek, and a refusal after a look, tell sums. `reset_after` is the soonest of the shards
//! that are known. So is `retry_after`: exact at a cost of 1 without leases; at a higher cost it is when more appears in
//! the first of them, which may not be enough.
//!
//! # What differs
//! * A cost must fit into the smallest share: the limiter refuses a higher one
//!   ([`CheckError::Never`](crate::CheckError::Never)).
//! * A few large costs may find no shard with room for them, while all together have it.
//! * Penalties and shadow policies are not split: see [`Policy::split`](crate::Policy::shards).
//!
//! # A node that is away
//! Its shards are left out: what they hold can't be had for as long. Once none can be asked, it is as for any other
//! check: the policies say.
//!
//! A check of several policies takes the same turn in each of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use slidegate_core::decision::{Cost, Mode, Outcome};
use slidegate_core::key::Key;
use slidegate_core::time::Millis;
use smallvec::SmallVec;

use super::denial_cache::{DenialCache, DenialFigures};
use super::nodes::Nodes;
use crate::decision::Outcomes;
use crate::error::{Fault, StoreError};
use crate::policy::Lease;
use crate::store::{Answer, Certainty, Charge, Check, Counter, ReservationId, Settled, Store};

/// Shards that are asked after one was full and the others were looked at: the first of them seldom refuses, as it was
/// the emptiest.
const TRIES_MAX: usize = 3;

/// The same where permits are leased: each may take a round trip, and all of them must fit into one deadline.
const LEASED_TRIES_MAX: u32 = 8;

/// Splits counters.
#[derive(Debug)]
pub(crate) struct Shards<S, N> {
    nodes: Arc<N>,
    /// Denials of single shards.
    each: DenialCache<S>,
    /// Whose turn it is.
    turn: AtomicU32,
}

impl<S, N> Shards<S, N> {
    /// In front of `inner`, which asks these nodes; `denial_cache`: whether denials of single shards are remembered.
    pub(crate) fn new(inner: S, nodes: Arc<N>, denial_cache: bool) -> Self {
        let random = crate::random::u128().to_le_bytes();
        let turn = AtomicU32::new(u32::from_le_bytes([random[0], random[1], random[2], random[3]]));
        Self { nodes, each: DenialCache::new(inner, denial_cache), turn }
    }

    /// The stage behind.
    pub(crate) const fn inner(&self) -> &S {
        self.each.inner()
    }

    /// Denials of single shards.
    pub(crate) fn figures(&self) -> DenialFigures {
        self.each.figures()
    }
}

/// How many shards a check has, which is how many the policy has that has most.
fn shards_of(check: &Check<'_>) -> u32 {
    check.charges.iter().map(|charge| charge.counter.policy.split()).max().unwrap_or(1)
}

impl<S: Store, N: Nodes> Shards<S, N> {
    /// Asks one shard of each counter; `looks`: charges nothing.
    async fn ask(&self, check: &Check<'_>, place: u32, looks: bool) -> Result<Answer, StoreError> {
        let key = |charge: &Charge<'_>| match charge.counter.policy.split() {
            1 => *charge.counter.key,
            shards => charge.counter.key.of_shard(place % shards),
        };
        let keys: SmallVec<[Key; 2]> = check.charges.iter().map(key).collect();
        let charges: SmallVec<[Charge<'_>; 2]> = (check.charges.iter().zip(&keys))
            .map(|(charge, key)| {
                let Counter { policy, limit, .. } = charge.counter;
                let limit = limit.share(place % policy.split());
                let cost = if looks { 0 } else { charge.cost };
                Charge { counter: Counter { policy, key, limit }, cost, ..*charge }
            })
            .collect();
        let reserve = check.reserve.filter(|_| !looks);
        let check = Check { charges: &charges, reserve, ..*check };
        if self.nodes.are_troubled() {
            let owned = self.nodes.own(&check);
            let away = owned.charges.iter().find_map(|charge| self.nodes.away(charge.key.lane()));
            if let Some(away) = away {
                // A node that is slow and not to be asked is as good as none.
                let fault = away.fault.unwrap_or(Fault::Timeout);
                return Err(StoreError::Unavailable { fault });
            }
        }
        self.each.check(&check).await
    }

    /// Asks the shard whose turn it is; if its node can't be asked, another one.
    async fn ask_first(&self, check: &Check<'_>, shards: u32) -> Result<(u32, Answer), StoreError> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % shards;
        let mut result = self.ask(check, first, false).await;
        let mut place = first;
        for step in 1..shards {
            // What was lost may have been charged.
            if !matches!(result, Err(StoreError::Unavailable { .. })) {
                break;
            }
            place = (first + step) % shards;
            result = self.ask(check, place, false).await;
        }
        result.map(|answer| (place, answer))
    }

    /// All shards but one, at once.
    async fn look(&self, check: &Check<'_>, places: impl Iterator<Item = u32>) -> Vec<(u32, Answer)> {
        let one =
            |place| async move { self.ask(check, place, true).await.ok().map(|answer| (place, answer)) };
        let looks = places.map(|place| Box::pin(one(place)) as Pin<Box<dyn Future<Output = _> + Send>>);
        all(looks.collect()).await.into_iter().flatten().collect()
    }

    async fn charge(&self, check: &Check<'_>, shards: u32) -> Result<Answer, StoreError> {
        let (first, answer) = self.ask_first(check, shards).await?;
        if !may_pass_elsewhere(check, &answer) {
            return Ok(scaled(check, first, answer));
        }
        if check.charges.iter().any(|charge| charge.counter.policy.lease() != Lease::None) {
            return self.charge_in_turn(check, shards, first, answer).await;
        }
        let others = (1..shards).map(|step| (first + step) % shards);
        let seen = self.look(check, others).await;
        let mut rooms: SmallVec<[(u32, u32); 8]> = seen
            .iter()
            .map(|(place, look)| (room(check, look), *place))
            .filter(|(room, _)| *room > 0)
            .collect();
        rooms.sort_by_key(|(room, _)| std::cmp::Reverse(*room));
        for (_, place) in rooms.into_iter().take(TRIES_MAX) {
            let Ok(again) = self.ask(check, place, false).await else { continue };
            if again.granted > 0 {
                return Ok(scaled(check, place, again));
            }
        }
        Ok(refused(check, answer, seen.iter().map(|(_, look)| look)))
    }

    /// One shard after another, until one grants it.
    async fn charge_in_turn(
        &self,
        check: &Check<'_>,
        shards: u32,
        first: u32,
        answer: Answer,
    ) -> Result<Answer, StoreError> {
        let (mut place, mut soonest) = (first, answer);
        for step in 1..shards.min(LEASED_TRIES_MAX) {
            let at = (first + step) % shards;
            let Ok(again) = self.ask(check, at, false).await else { continue };
            if again.granted > 0 {
                return Ok(scaled(check, at, again));
            }
            if wait(&again) < wait(&soonest) {
                (place, soonest) = (at, again);
            }
        }
        Ok(scaled(check, place, soonest))
    }

    async fn peek(&self, check: &Check<'_>, shards: u32) -> Result<Answer, StoreError> {
        let first = self.ask(check, 0, true).await?;
        let seen = self.look(check, 1..shards).await;
        Ok(Answer { outcomes: sum(check, &first, seen.iter().map(|(_, look)| look)), ..first })
    }
}

/// Whether a check that was refused may pass at another shard: not if a counter refused it that is not split. Of several
/// equal checks some may have been granted; they are not asked for twice.
fn may_pass_elsewhere(check: &Check<'_>, answer: &Answer) -> bool {
    let whole = |(charge, outcome): (&Charge<'_>, &Outcome)| {
        outcome.violated && !charge.terms.shadow && charge.counter.policy.split() == 1
    };
    let counted = answer.mode.is_counted() && !answer.mode.is_degraded();
    answer.granted == 0 && counted && !check.charges.iter().zip(&answer.outcomes).any(whole)
}

/// How often a check fits where it was looked.
fn room(check: &Check<'_>, look: &Answer) -> u32 {
    let of_one = |(charge, outcome): (&Charge<'_>, &Outcome)| {
        if charge.terms.shadow { u32::MAX } else { outcome.remaining / charge.cost.max(1) }
    };
    check.charges.iter().zip(&look.outcomes).map(of_one).min().unwrap_or_default()
}

/// How long a refused check would wait; the longest there is, if no wait helps.
fn wait(answer: &Answer) -> Millis {
    let violated = answer.outcomes.iter().filter(|outcome| outcome.violated);
    violated.map(|outcome| outcome.retry_after.unwrap_or(Millis(u64::MAX))).max().unwrap_or_default()
}

/// The answer of one shard, in numbers of the whole limit.
fn scaled(check: &Check<'_>, place: u32, answer: Answer) -> Answer {
    let of_one = |(charge, outcome): (&Charge<'_>, &Outcome)| {
        let (policy, limit) = (charge.counter.policy, charge.counter.limit);
        let (whole, part) =
            (limit.limit().capacity(), limit.share(place % policy.split()).limit().capacity());
        let scale = |n: u32, up: u64| {
            let product = u64::from(n) * u64::from(whole);
            let divisor = u64::from(part.max(1));
            u32::try_from((product + up * (divisor - 1)) / divisor).unwrap_or(u32::MAX).min(whole)
        };
        // Rounded as what a client has used, and as what it may still use.
        Outcome {
            limit: whole,
            used: scale(outcome.used, 1),
            remaining: scale(outcome.remaining, 0),
            ..*outcome
        }
    };
    let outcomes = check.charges.iter().zip(&answer.outcomes).map(of_one).collect();
    Answer { outcomes, ..answer }
}

/// A refusal after a look at all other shards.
fn refused<'a>(check: &Check<'_>, answer: Answer, seen: impl Iterator<Item = &'a Answer> + Clone) -> Answer {
    let mut outcomes = sum(check, &answer, seen.clone());
    for (index, outcome) in outcomes.iter_mut().enumerate().filter(|(_, outcome)| outcome.violated) {
        let appears =
            |look: &Answer| look.outcomes.get(index).map(|outcome| outcome.reset_after.max(Millis(1)));
        let soonest = seen.clone().filter_map(appears).min();
        outcome.retry_after =
            outcome.retry_after.map(|wait| soonest.map_or(wait, |soonest| wait.min(soonest)));
    }
    let certainty = seen.map(|look| look.certainty).fold(answer.certainty, Certainty::max);
    Answer {
        outcomes,
        certainty,
        mode: if answer.mode == Mode::Cached { Mode::Normal } else { answer.mode },
        ..answer
    }
}

/// The numbers of all shards together; of counters that are not split, those of the first answer.
fn sum<'a>(check: &Check<'_>, first: &Answer, seen: impl Iterator<Item = &'a Answer> + Clone) -> Outcomes {
    let of_one = |(index, (charge, outcome)): (usize, (&Charge<'_>, &Outcome))| {
        let whole = charge.counter.limit.limit().capacity();
        if charge.counter.policy.split() == 1 {
            return *outcome;
        }
        let mut told = *outcome;
        // The policy with fewer shards than another is looked at more than once: each place once is enough.
        let once = usize::try_from(charge.counter.policy.split()).unwrap_or(usize::MAX) - 1;
        for other in seen.clone().take(once).filter_map(|look| look.outcomes.get(index)) {
            told.used = told.used.saturating_add(other.used);
            told.remaining = told.remaining.saturating_add(other.remaining);
            let resets =
                [told.reset_after, other.reset_after].into_iter().filter(|reset| *reset > Millis::ZERO);
            told.reset_after = resets.min().unwrap_or_default();
        }
        Outcome { limit: whole, used: told.used.min(whole), remaining: told.remaining.min(whole), ..told }
    };
    check.charges.iter().zip(&first.outcomes).enumerate().map(of_one).collect()
}

/// Waits for all of them at once.
async fn all<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

impl<S: Store, N: Nodes> Store for Shards<S, N> {
    async fn check(&self, check: &Check<'_>) -> Result<Answer, StoreError> {
        match shards_of(check) {
            1 => self.inner().check(check).await,
            shards if check.charges.iter().all(|charge| charge.cost == 0) => {
                Box::pin(self.peek(check, shards)).await
            }
            shards => Box::pin(self.charge(check, shards)).await,
        }
    }

    async fn settle(&self, id: ReservationId, actual: Cost) -> Result<Settled, StoreError> {
        self.each.settle(id, actual).await
    }

    async fn reset(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        let Counter { policy, key, limit } = *counter;
        if policy.split() == 1 {
            return self.inner().reset(counter).await;
        }
        for place in 0..policy.split() {
            let key = key.of_shard(place);
            self.each.reset(&Counter { policy, key: &key, limit: limit.share(place) }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
