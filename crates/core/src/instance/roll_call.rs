//! Who has yet to put back, after a master change, what a new master does not know of.
//!
//! A roll call begins with everybody of the last heartbeat set, and whoever the new master is told of as not in sync
//! joins: an instance that was started since the last beat has been granted permits, too. An instance has answered when
//! it has beaten after the beginning, by the store's clock, and has said in that beat that it is in sync with this
//! master. One that has not beaten for its life is gone, and with it what it could have put back. When somebody was
//! heard of and nobody is awaited the roll call is over; for each key it is over after a window anyway
//! ([`standing`](super::standing)).
//!
//! It asks nobody and knows no master by name: whoever drives it does.
//!
//! # Units
//! Milliseconds, on the store's clock.

use alloc::vec::Vec;

use crate::time::Millis;

/// Everybody who is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollCall {
    awaited: Vec<u64>,
    /// The store's time at the first beat after the beginning.
    began_ms: Option<u64>,
    life: Millis,
}

/// What the store tells of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Who.
    pub identity: u64,
    /// When it beat last.
    pub at_ms: u64,
    /// Whether it said that it is in sync with the master in question.
    pub in_sync: bool,
}

impl RollCall {
    /// Begins with these identities; that of the caller among them does no harm, nor do doubles. `life`: whoever has
    /// not beaten for so long is gone.
    pub fn begin(awaited: impl IntoIterator<Item = u64>, life: Millis) -> Self {
        let mut awaited: Vec<u64> = awaited.into_iter().collect();
        awaited.sort_unstable();
        awaited.dedup();
        Self { awaited, began_ms: None, life }
    }

    /// Takes note of what the store told of all instances at `now_ms`. Whoever is not told of is awaited still, as
    /// the new master may not have heard of it yet, until its life is over.
    pub fn heard(&mut self, now_ms: u64, beats: &[Beat]) {
        let began_ms = *self.began_ms.get_or_insert(now_ms);
        // A clock that went back, as at a promoted replica's: nobody's beat is of before then.
        let began_ms = if now_ms < began_ms { now_ms } else { began_ms };
        self.began_ms = Some(began_ms);
        let life = self.life.0;
        let alive = |beat: &&Beat| beat.at_ms.saturating_add(life) > now_ms;
        for beat in beats.iter().filter(alive).filter(|beat| !beat.in_sync) {
            if !self.awaited.contains(&beat.identity) {
                self.awaited.push(beat.identity);
            }
        }
        self.awaited.retain(|identity| match beats.iter().find(|beat| beat.identity == *identity) {
            Some(beat) => {
                let answered = beat.in_sync && beat.at_ms >= began_ms;
                let gone = beat.at_ms.saturating_add(life) <= now_ms;
                !(answered || gone)
            }
            None => began_ms.saturating_add(life) > now_ms,
        });
    }

    /// Whether nobody is awaited, and it was heard who is there: an instance that has just started knows of nobody.
    pub fn is_over(&self) -> bool {
        self.began_ms.is_some() && self.awaited.is_empty()
    }

    /// Who is awaited.
    pub fn awaited(&self) -> &[u64] {
        &self.awaited
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::collection::vec as vec_of;
    use proptest::prelude::*;

    use super::*;

    const LIFE: Millis = Millis(5_000);

    fn beat(identity: u64, at_ms: u64, in_sync: bool) -> Beat {
        Beat { identity, at_ms, in_sync }
    }

    #[test]
    fn only_a_beat_after_the_beginning_answers() {
        let mut roll = RollCall::begin([1, 2, 2], LIFE);
        roll.heard(10_000, &[beat(1, 9_999, true), beat(2, 10_000, true)]);
        assert_eq!(roll.awaited(), [1]);
        roll.heard(10_100, &[beat(1, 10_050, false)]);
        assert!(!roll.is_over());
        roll.heard(10_200, &[beat(1, 10_150, true)]);
        assert!(roll.is_over());
    }

    /// The story of seed 278: the last beat was answered before anybody else had beaten.
    #[test]
    fn who_knew_of_nobody_awaits_whom_the_master_tells_of() {
        let mut roll = RollCall::begin([1], LIFE);
        assert!(!roll.is_over(), "nobody was heard of yet");
        roll.heard(10_000, &[beat(1, 10_000, true), beat(2, 9_000, false), beat(3, 9_500, true)]);
        assert_eq!(roll.awaited(), [2]);
        roll.heard(10_100, &[beat(1, 10_100, true), beat(2, 10_050, true)]);
        assert!(roll.is_over());
    }

    #[test]
    fn whoever_does_not_beat_is_awaited_for_its_life() {
        let mut roll = RollCall::begin([1, 2], LIFE);
        roll.heard(10_000, &[beat(1, 6_000, false)]);
        assert_eq!(roll.awaited(), [1, 2]);
        roll.heard(11_000, &[beat(1, 6_000, false)]);
        assert_eq!(roll.awaited(), [2], "2 is not told of: perhaps the new master has not heard of it yet");
        roll.heard(15_000, &[]);
        assert!(roll.is_over());
    }

    proptest! {
        /// A roll call is over exactly when each of those that it began with, or that were told of as not in sync, has
        /// answered or is gone by what was heard.
        #[test]
        fn it_is_over_when_each_has_answered_or_is_gone(
            heard in vec_of((0u64..2_000, vec_of((0u64..4, 0u64..9_000, any::<bool>()), 0..4)), 0..12),
        ) {
            let mut roll = RollCall::begin(0..4, LIFE);
            let mut waiting = vec![true; 4];
            let (mut now_ms, mut began_ms) = (100_000, None);
            for (pause, beats) in heard {
                now_ms += pause;
                let began_ms = *began_ms.get_or_insert(now_ms);
                let mut beats: Vec<Beat> =
                    beats.iter().map(|(who, ago, in_sync)| beat(*who, now_ms - ago, *in_sync)).collect();
                // A store tells of each instance once.
                beats.sort_by_key(|beat| beat.identity);
                beats.dedup_by_key(|beat| beat.identity);
                roll.heard(now_ms, &beats);
                for (who, waiting) in (0u64..).zip(&mut waiting) {
                    let last = beats.iter().find(|beat| beat.identity == who);
                    let answers = last.is_some_and(|beat| beat.in_sync && beat.at_ms >= began_ms);
                    let silent_since = last.map_or(began_ms, |beat| beat.at_ms);
                    *waiting |= last.is_some_and(|beat| !beat.in_sync);
                    *waiting &= !answers && now_ms < silent_since + LIFE.0;
                }
                prop_assert_eq!(roll.is_over(), waiting.iter().all(|waiting| !waiting));
            }
        }
    }
}
