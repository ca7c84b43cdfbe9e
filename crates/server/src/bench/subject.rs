//! What a run asks: one question for each check, by callers that share as little as they can.
//!
//! Here the limiter in this process; an HTTP target is in [`super::http`].

use slidegate::core::decision::{Cost, Mode};
use slidegate::core::limit::Limit;
use slidegate::{Ask, Limiter, Policy, Store};

use super::store::{Figured, StoreFigures};

/// Something that can be asked.
pub(super) trait Subject: Send + Sync + 'static {
    /// One of those who ask.
    type Caller: Caller;

    /// Prepares a caller: before the clock starts.
    fn caller(&self) -> impl Future<Output = Result<Self::Caller, String>> + Send;

    /// What the store was asked so far, if there is one and it counts.
    fn figures(&self) -> Option<StoreFigures>;
}

/// Asks one question at a time.
pub(super) trait Caller: Send + 'static {
    /// About one key.
    fn ask(&mut self, key: u32) -> impl Future<Output = Answer> + Send;
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    /// Who decided, as far as this side knows.
    pub(super) mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// No decision, and why.
    Failed(String),
}

impl Answer {
    /// By the store itself.
    pub(super) const fn of(verdict: Verdict) -> Self {
        Self { verdict, mode: Mode::Normal }
    }
}

/// A limiter in this process, over any store.
#[derive(Debug)]
pub(super) struct Direct<S: Store> {
    limiter: Limiter<S>,
    cost: Cost,
    run: u32,
}

const POLICY: &str = "bench";

impl<S: Store> Direct<S> {
    pub(super) fn new(store: S, limit: Limit, cost: Cost) -> Result<Self, String> {
        let policy = Policy::builder(POLICY).limit(None, limit).key("{header:x-key}").build();
        let policy = policy.map_err(|error| error.to_string())?;
        let limiter = Limiter::builder().policy(policy).store(store).build();
        // A shared store may still hold what the last run charged: each run has keys of its own. They choose no
        // key of a distribution, so the seed has no say.
        Ok(Self { limiter: limiter.map_err(|error| error.to_string())?, cost, run: fastrand::u32(..) })
    }
}

impl<S: Figured> Subject for Direct<S> {
    type Caller = DirectCaller<S>;

    async fn caller(&self) -> Result<Self::Caller, String> {
        Ok(DirectCaller { limiter: self.limiter.clone(), cost: self.cost, key: KeyText::new(self.run) })
    }

    fn figures(&self) -> Option<StoreFigures> {
        self.limiter.store().figures()
    }
}

#[derive(Debug)]
pub(super) struct DirectCaller<S: Store> {
    limiter: Limiter<S>,
    cost: Cost,
    key: KeyText,
}

impl<S: Store> Caller for DirectCaller<S> {
    async fn ask(&mut self, key: u32) -> Answer {
        let key = [self.key.of(key)];
        match self.limiter.check_all(&[Ask::new(POLICY, &key).cost(self.cost)]).await {
            Ok(decision) => Answer {
                verdict: if decision.is_allowed() { Verdict::Allowed } else { Verdict::Denied },
                mode: decision.mode(),
            },
            Err(error) => Answer::of(Verdict::Failed(error.to_string())),
        }
    }
}

/// The text of a key, written in place: a check of the embedded store takes less time than an allocation for it
/// would add.
#[derive(Debug)]
struct KeyText([u8; KEY_LEN]);

const KEY_LEN: usize = 17;

impl KeyText {
    fn new(run: u32) -> Self {
        let mut text = [b'-'; KEY_LEN];
        write_hex(&mut text[..8], run);
        Self(text)
    }

    fn of(&mut self, key: u32) -> &str {
        write_hex(&mut self.0[9..], key);
        // Never the other way: hexadecimal digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

fn write_hex(to: &mut [u8], number: u32) {
    let digits = (0..8).rev().map(|index| (number >> (4 * index)) & 0xf);
    for (place, digit) in to.iter_mut().zip(digits) {
        *place = char::from_digit(digit, 16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or(b'0');
    }
}

#[cfg(test)]
mod tests {
    use slidegate::MemoryStore;

    use super::*;

    #[test]
    fn keys_differ_and_say_which_run_they_are_of() {
        let mut key = KeyText::new(0xdead_beef);
        assert_eq!(key.of(0), "deadbeef-00000000");
        assert_eq!(key.of(0x1a), "deadbeef-0000001a");
        assert_eq!(key.of(u32::MAX), "deadbeef-ffffffff");
    }

    #[tokio::test]
    async fn a_limiter_is_asked_at_the_cost_for_each_key_apart() {
        let limit = "3/h".parse().unwrap();
        let subject = Direct::new(MemoryStore::default(), limit, 2).unwrap();
        let mut caller = subject.caller().await.unwrap();
        let mut said = Vec::new();
        for key in [0, 0, 1] {
            said.push(caller.ask(key).await);
        }
        let expected = [Verdict::Allowed, Verdict::Denied, Verdict::Allowed].map(Answer::of);
        assert_eq!(said, expected);
    }
}
