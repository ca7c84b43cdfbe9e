//! What counters are called in Redis: `<prefix>:{<tag>}:<policy>:<limit>`.
//!
//! The tag is the key's text, or the policy's name where it has no key: all limits of one policy and key lie
//! in one slot of a cluster, and so do the policies that count by the same key. Key texts hold no brace and no
//! colon-separated name can hold a colon (they are written `%3A`), so no two counters share a name, whatever
//! clients send. Every part can be read in `redis-cli`.

use std::sync::Arc;

use slidegate_core::key::Key;

use crate::policy::Policy;
use crate::store::{Counter, ReservationId};

/// Names of one store.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Where a counter is kept.
    pub(super) fn counter(&self, counter: &Counter<'_>) -> Arc<[u8]> {
        let Counter { policy, key, limit } = counter;
        let mut name = Vec::with_capacity(self.prefix.len() + key.as_bytes().len() + 64);
        self.begin(&mut name, policy, key);
        name.push(b':');
        push_escaped(&mut name, limit.store_name());
        name.into()
    }

    /// Where a reservation is remembered. Policies' names hold no bare colon, so no counter is called this.
    pub(super) fn reservation(&self, id: ReservationId) -> Arc<[u8]> {
        format!("{}:{{{id}}}:reserved", self.prefix).into_bytes().into()
    }

    /// The sorted set in which live instances announce themselves.
    pub(super) fn instances(&self) -> Arc<[u8]> {
        format!("{}:{{instances}}", self.prefix).into_bytes().into()
    }

    fn begin(&self, name: &mut Vec<u8>, policy: &Policy, key: &Key) {
        name.extend(self.prefix.as_bytes());
        name.extend(b":{");
        if key.as_bytes().is_empty() {
            push_escaped(name, policy.name());
        } else {
            name.extend(key.as_bytes());
        }
        name.extend(b"}:");
        push_escaped(name, policy.name());
    }
}

/// Names are printable ASCII; what separates or ends something here is written `%XX`.
fn push_escaped(name: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        if matches!(byte, b':' | b'{' | b'}' | b'%' | b' ') {
            name.extend(format!("%{byte:02X}").as_bytes());
        } else {
            name.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(policy: &str, limits: &str, parts: &[(&str, &[u8])], limit: usize) -> String {
        let policy = Policy::builder(policy).limits(limits).build().unwrap();
        let key = Key::from_parts(parts.iter().copied());
        let counter = Counter { policy: &policy, key: &key, limit: &policy.limits()[limit] };
        String::from_utf8(Names::new("sg").counter(&counter).to_vec()).unwrap()
    }

    #[test]
    fn the_layout_is_pinned() {
        let parts: &[(&str, &[u8])] = &[("client_ip", b"203.0.113.7"), ("header:x-user-id", b"a b}")];
        assert_eq!(
            name("per-user", "10/s; 100/m", parts, 1),
            "sg:{client_ip=203.0.113.7&header:x-user-id=a%20b%7d}:per-user:2"
        );
        assert_eq!(name("order-create", "10/s", &[], 0), "sg:{order-create}:order-create:1");
        assert_eq!(
            Names::new("sg").reservation("00000000000000000000000000000abc".parse().unwrap())[..],
            *b"sg:{00000000000000000000000000000abc}:reserved"
        );
    }

    // F15: names that hold what separates names must not meet.
    #[test]
    fn names_with_separators_stay_apart() {
        assert_eq!(name("a:b", "10/s", &[], 0), "sg:{a%3Ab}:a%3Ab:1");
        assert_ne!(name("a", "10/s", &[("p", b"}:a:1")], 0), name("a", "10/s", &[("p", b"")], 0));
        assert_ne!(name("%3A", "1/s", &[], 0), name(":", "1/s", &[], 0));
    }

    /// Clients choose keys of any length; what they fill the store with is bounded.
    #[test]
    fn no_name_is_long() {
        let long = vec![b'x'; 10_000];
        assert!(name(&"p".repeat(64), "1/s", &[("k", &long)], 0).len() < 128 + 2 * 64 + 16);
    }
}
