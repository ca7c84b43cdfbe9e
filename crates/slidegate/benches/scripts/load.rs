//! What is asked of the server, call after call.

use std::collections::VecDeque;

use fastrand::Rng;
use sha1_smol::Sha1;
use slidegate::core::limit::{Algorithm, Limit};
use slidegate::core::time::{Millis, Now};
use slidegate::store::redis::bench::{BenchCheck, Instance, Sent};

use crate::client::{Client, Reply, push_command};

/// Out of reach, so that every check is admitted, and large enough for all ticks of the window to be kept.
pub(crate) const PERMITS: u64 = 1 << 30;

/// Instances that share the counters.
const INSTANCES: usize = 8;

/// The sliding window that everybody writes first.
const SORTED_SET: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local window = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window * 1000)
local used = redis.call('ZCARD', KEYS[1])
if used < limit then
  redis.call('ZADD', KEYS[1], now, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], window)
  return {1, limit - used - 1}
end
return {0, 0}
";

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The plain script, one check in each call.
    SortedSet,
    /// A policy of one limit.
    One { algorithm: Algorithm, exact: bool },
    /// A policy of two limits: the window's, and one of an hour.
    Two,
}

impl Subject {
    /// `sliding_window` with everything on, beside the sorted set what the bars are about.
    pub(crate) const EXACT: Self =
        Self::One { algorithm: Algorithm::SlidingWindow { resolution: None }, exact: true };

    pub(crate) const ALL: [Self; 8] = [
        Self::SortedSet,
        Self::EXACT,
        Self::One { algorithm: Algorithm::SlidingWindow { resolution: None }, exact: false },
        Self::Two,
        Self::One { algorithm: Algorithm::SlidingLog, exact: false },
        Self::One { algorithm: Algorithm::FixedWindow, exact: false },
        Self::One { algorithm: Algorithm::TokenBucket { burst: 0 }, exact: false },
        Self::One { algorithm: Algorithm::LeakyBucket { max_delay: Millis(1000) }, exact: false },
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SortedSet => "plain sorted-set script",
            Self::One { algorithm: Algorithm::SlidingWindow { .. }, exact: true } => "sliding_window",
            Self::One { algorithm: Algorithm::SlidingWindow { .. }, .. } => "sliding_window, failover: fast",
            Self::One { algorithm, .. } => algorithm.name(),
            Self::Two => "sliding_window, two limits",
        }
    }

    fn limits(self, permits: u64, window: Millis) -> Vec<Limit> {
        let limit = |window, algorithm| {
            // As many as there may be: nothing is denied here.
            let most = u64::from(slidegate::core::limit::SLIDING_LOG_PERMITS_MAX);
            let permits = if algorithm == Algorithm::SlidingLog { permits.min(most) } else { permits };
            let limit = Limit::new(permits, window).expect("a limit");
            limit.with_algorithm(algorithm).expect("a limit of the algorithm")
        };
        let sliding = Algorithm::SlidingWindow { resolution: None };
        match self {
            Self::SortedSet => Vec::new(),
            Self::One { algorithm: Algorithm::TokenBucket { .. }, .. } => {
                let burst = u32::try_from(permits).unwrap_or(u32::MAX);
                vec![limit(window, Algorithm::TokenBucket { burst })]
            }
            Self::One { algorithm, .. } => vec![limit(window, algorithm)],
            Self::Two => vec![limit(window, sliding), limit(Millis(3_600_000), sliding)],
        }
    }
}

/// Checks of one subject on so many keys, so many in a call.
pub(crate) struct Load {
    pub(crate) subject: Subject,
    pub(crate) keys: usize,
    pub(crate) per_call: usize,
    window: Millis,
    sha: String,
    checks: Vec<BenchCheck>,
    instances: Vec<Instance>,
    members: u64,
    under_way: VecDeque<(usize, Sent)>,
    /// Calls of which check.lua decided a part.
    pub(crate) general: u64,
}

impl Load {
    /// Makes the script known to the server. Keys are this load's own.
    pub(crate) fn new(
        client: &mut Client,
        script: &str,
        subject: Subject,
        keys: usize,
        per_call: usize,
        permits: u64,
        window: Millis,
    ) -> Self {
        let text = if subject == Subject::SortedSet { SORTED_SET } else { script };
        client.command(&["SCRIPT", "LOAD", text]);
        let exact = matches!(subject, Subject::One { exact: true, .. } | Subject::Two);
        let limits = subject.limits(permits, window);
        let checks = (0..keys).map(|key| {
            let counters = limits.iter().enumerate();
            let named = counters.map(|(n, limit)| (Self::name_of(subject, keys, per_call, key, n), *limit));
            BenchCheck::new(&named.collect::<Vec<_>>(), 1, exact)
        });
        Self {
            subject,
            keys,
            per_call,
            window,
            sha: Sha1::from(text).digest().to_string(),
            checks: checks.collect(),
            instances: (0..INSTANCES).map(|_| Instance::default()).collect(),
            members: 0,
            under_way: VecDeque::new(),
            general: 0,
        }
    }

    /// By so many instances, in place of eight.
    #[allow(dead_code, reason = "of the two benchmarks that include this file one asks for it")]
    pub(crate) fn by_instances(mut self, count: usize) -> Self {
        self.instances = (0..count).map(|_| Instance::default()).collect();
        self
    }

    /// As long as the names of a deployment are.
    fn name_of(subject: Subject, keys: usize, per_call: usize, key: usize, limit: usize) -> String {
        let place = Subject::ALL.iter().position(|known| *known == subject).unwrap_or(0);
        format!("sg:{{{key}}}:{place}.{keys}.{per_call}:{limit}")
    }

    /// A key that every call names.
    pub(crate) fn first_key(&self) -> String {
        Self::name_of(self.subject, self.keys, self.per_call, 0, 0)
    }

    /// Writes the next call.
    pub(crate) fn push_call(&mut self, rng: &mut Rng, now: Option<Now>, out: &mut Vec<u8>) {
        if self.subject == Subject::SortedSet {
            return self.push_sorted_set(rng, out);
        }
        // Several checks of the one key are counted, not listed: that is what a flight makes of them.
        let times = if self.keys == 1 { u32::try_from(self.per_call).unwrap_or(1) } else { 1 };
        let chosen: Vec<(&BenchCheck, u32)> = match self.keys {
            1 => vec![(&self.checks[0], times)],
            keys => {
                let mut places: Vec<usize> = Vec::with_capacity(self.per_call);
                while places.len() < self.per_call {
                    let place = rng.usize(..keys);
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
                places.into_iter().map(|place| (&self.checks[place], 1)).collect()
            }
        };
        let instance = rng.usize(..self.instances.len());
        let sent = self.instances[instance].call(&chosen, now);
        let count = sent.keys.len().to_string();
        let head = [b"EVALSHA".as_slice(), self.sha.as_bytes(), count.as_bytes()];
        let words: Vec<&[u8]> = (head.into_iter())
            .chain(sent.keys.iter().map(|key| &**key))
            .chain(sent.args.iter().map(Vec::as_slice))
            .collect();
        push_command(out, words.iter());
        self.under_way.push_back((instance, sent));
    }

    fn push_sorted_set(&mut self, rng: &mut Rng, out: &mut Vec<u8>) {
        self.members += 1;
        let key = Self::name_of(self.subject, self.keys, self.per_call, rng.usize(..self.keys), 0);
        let (window, permits) = (self.window.get().to_string(), PERMITS.to_string());
        let member = format!("{}:{}", self.members, rng.u32(..));
        let words = ["EVALSHA", &self.sha, "1", &key, &window, &permits, &member];
        push_command(out, words.iter());
    }

    /// A benchmark of refusals would be another one.
    pub(crate) fn look_at(&mut self, reply: &Reply) {
        match reply {
            Reply::Number(1) => {}
            Reply::Bytes(bytes) => {
                let (instance, sent) = self.under_way.pop_front().expect("a call that was sent");
                let plain = self.instances[instance].received(&sent, bytes);
                // An instance whose row has left before it took its grant for lapsed is told that it is behind.
                let behind = plain.is_none() && bytes.windows(2).any(|pair| pair == [2, 2]);
                assert!(behind || plain.is_some(), "not admitted: {bytes:?}");
                self.general += u64::from(plain != Some(true));
            }
            other => panic!("not admitted: {other:?}"),
        }
    }
}
