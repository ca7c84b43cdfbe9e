//! Probes: what a node is asked while it is slow or fails, beside the traffic and never in its way.
//!
//! A probe does what checks do, a script that writes a key, so that it fails where they would: a server that is full,
//! that may not be written to or that lacks a permission answers `PING` as if all were well. Its key lives for a
//! second and stands for nothing.

use std::time::Duration;

use ::redis::Cmd;
use tokio::time::Instant;

use super::slots;

/// Between two probes, less a random part: instances that lost a server at the same moment must not come back at
/// the same moment.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(50);

/// How long a probe's key lives, in milliseconds.
const KEY_LIFE_MS: u32 = 1_000;
/// Short enough to be sent as a text each time: a node that has just come back knows no scripts.
const SCRIPT: &str = "return redis.call('SET',KEYS[1],'1','PX',ARGV[1])";
/// Tags that are tried for a slot: among so many, one is missing once in 10^13 slots.
const TAGS_MAX: u32 = 500_000;

/// How nodes are probed.
#[derive(Clone, Debug)]
pub(super) struct Probing {
    /// What the names of all keys begin with.
    pub(super) prefix: String,
    /// How long an answer may take: as long as a check's.
    pub(super) timeout: Duration,
}

impl Probing {
    /// The probe of a node, which in a cluster serves this slot.
    pub(super) fn command(&self, slot: Option<u16>) -> Cmd {
        let mut probe = ::redis::cmd("EVAL");
        probe.arg(SCRIPT).arg(1).arg(self.key(slot)).arg(KEY_LIFE_MS);
        probe
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn key(&self, slot: Option<u16>) -> String {
        let Some(slot) = slot else { return format!("{}:{{probe}}", self.prefix) };
        let tag = (0..TAGS_MAX).find(|tag| slots::of(tag.to_string().as_bytes()) == slot).unwrap_or(0);
        format!("{}:{{{tag}}}:probe", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_a_cluster_names_a_key_of_the_slot() {
        let probing = Probing { prefix: "shop".to_owned(), timeout: Duration::from_millis(10) };
        assert_eq!(probing.key(None), "shop:{probe}");
        for slot in [0, 1, 8_191, 16_383] {
            let key = probing.key(Some(slot));
            assert_eq!(slots::of(key.as_bytes()), slot, "{key}");
            assert!(key.starts_with("shop:{") && key.ends_with("}:probe"), "{key}");
        }
    }
}
