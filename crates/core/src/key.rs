//! The canonical text of a key: an ordered list of (name, value) parts, written so that two different
//! lists never meet.
//!
//! A part is `name=value`, parts are joined by `&`, and every byte outside `A-Z a-z 0-9 - . _ ~ : / @ + ,`
//! is written `%XX`. So `=` and `&` only ever separate, no brace can end a Redis hash tag, and the text
//! can be read in `redis-cli`. A text longer than [`KEY_LEN_MAX`] is replaced by `#` and the first 128 bits
//! of its SHA-256 in hex, the same on every instance; `#` is not in the alphabet, so no short key can
//! pretend to be a long one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};

/// The longest canonical text that is kept as it is, in bytes.
pub const KEY_LEN_MAX: usize = 128;

/// The longest that a shard's number makes a key.
const SHARD_LEN_MAX: usize = 6;

/// How much of the SHA-256 names a long key: 128 bits, so that nobody finds two that meet.
const HASH_BYTES: usize = 16;

/// A canonical key: at most [`KEY_LEN_MAX`] printable ASCII bytes, held without allocation.
#[derive(Clone, Copy)]
pub struct Key {
    len: u8,
    bytes: [u8; KEY_LEN_MAX],
}

impl Key {
    /// The key without parts: one counter for the whole policy.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; KEY_LEN_MAX] };

    /// A key from its parts, in order.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut builder = KeyBuilder::default();
        for (name, value) in parts {
            builder.part(name, value);
        }
        builder.finish()
    }

    /// The key of one of several counters that the counter of this key is split into: its text, `#`, and the number. `#`
    /// is not in the alphabet, so it meets no other; a text that leaves no room for it is replaced by its hash,
    /// like one that is too long. `place` is below 100,000.
    #[must_use]
    pub fn of_shard(&self, place: u32) -> Self {
        let mut key = *self;
        if self.bytes.len() - usize::from(self.len) < SHARD_LEN_MAX {
            key = hashed(Sha256::new_with_prefix(self.as_bytes()));
        }
        key.append(b'#');
        let mut digits = 10_000;
        while digits > 0 {
            if place >= digits || digits == 1 {
                key.append(b'0' + (place / digits % 10) as u8);
            }
            digits /= 10;
        }
        key
    }

    /// Adds a byte that there is room for.
    fn append(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    /// The canonical text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The canonical text as a string: it is ASCII by construction.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.as_str())
    }
}

/// Writes a [`Key`] part by part.
#[derive(Clone)]
pub struct KeyBuilder {
    key: Key,
    /// Set once the text outgrew the buffer; from then on the buffer is only a queue in front of it.
    /// Boxed, since few keys are long and every key is moved.
    hash: Option<Box<Sha256>>,
    first: bool,
}

impl Default for KeyBuilder {
    fn default() -> Self {
        Self { key: Key::EMPTY, hash: None, first: true }
    }
}

impl KeyBuilder {
    /// Adds a part. Any name and any bytes are fine, the empty ones too.
    pub fn part(&mut self, name: &str, value: &[u8]) {
        self.separate();
        self.push_escaped(name.as_bytes());
        self.push(b'=');
        self.push_escaped(value);
    }

    /// Adds a part whose name was written before: the same key as [`part`](Self::part) makes, for less.
    #[inline]
    pub fn named_part(&mut self, name: &PartName, value: &[u8]) {
        self.separate();
        self.push_all(&name.0);
        self.push_escaped(value);
    }

    fn separate(&mut self) {
        if !self.first {
            self.push(b'&');
        }
        self.first = false;
    }

    /// The finished key.
    #[inline]
    pub fn finish(mut self) -> Key {
        let Some(mut hash) = self.hash.take() else {
            return self.key;
        };
        hash.update(self.key.as_bytes());
        hashed(*hash)
    }

    #[inline]
    fn push_escaped(&mut self, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            let plain = rest.iter().take_while(|byte| is_plain(**byte)).count();
            self.push_all(&rest[..plain]);
            rest = &rest[plain..];
            if let Some((byte, after)) = rest.split_first() {
                let [high, low] = hex(*byte);
                self.push_all(&[b'%', high, low]);
                rest = after;
            }
        }
    }

    /// Most texts are plain and fit: one copy.
    #[inline]
    fn push_all(&mut self, text: &[u8]) {
        let len = usize::from(self.key.len);
        let space = self.key.bytes.get_mut(len..len + text.len());
        if let (Some(space), Ok(more)) = (space, u8::try_from(text.len())) {
            space.copy_from_slice(text);
            self.key.len += more;
        } else {
            text.iter().for_each(|byte| self.push(*byte));
        }
    }

    fn push(&mut self, byte: u8) {
        if usize::from(self.key.len) == KEY_LEN_MAX {
            self.hash.get_or_insert_default().update(self.key.as_bytes());
            self.key.len = 0;
        }
        self.key.append(byte);
    }
}

/// What stands for a text that is too long.
fn hashed(hash: Sha256) -> Key {
    let mut key = Key::EMPTY;
    key.append(b'#');
    for &byte in hash.finalize().iter().take(HASH_BYTES) {
        let [high, low] = hex(byte);
        key.append(high);
        key.append(low);
    }
    key
}

/// The name of a part, written once for many keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartName(Box<[u8]>);

impl PartName {
    /// Writes a name.
    pub fn new(name: &str) -> Self {
        let mut text = Vec::with_capacity(name.len() + 1);
        for &byte in name.as_bytes() {
            if is_plain(byte) {
                text.push(byte);
            } else {
                text.push(b'%');
                text.extend(hex(byte));
            }
        }
        text.push(b'=');
        Self(text.into())
    }
}

/// Bytes that stand for themselves, as a table: keys are built on the hot path.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    // Everything plain is ASCII.
    let mut byte = 0u8;
    while byte < 128 {
        plain[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'@' | b'+' | b',');
        byte += 1;
    }
    plain
};

const fn is_plain(byte: u8) -> bool {
    PLAIN[byte as usize]
}

const fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}

#[cfg(test)]
mod tests {
    use alloc::{string::String, vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    fn key(parts: &[(&str, &str)]) -> Key {
        Key::from_parts(parts.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    #[test]
    fn keys_can_be_read() {
        assert_eq!(key(&[]).as_str(), "");
        assert_eq!(key(&[("client_ip", "203.0.113.7")]).as_str(), "client_ip=203.0.113.7");
        assert_eq!(
            key(&[("client_ip", "2001:db8::/64"), ("header:x-user", "a b")]).as_str(),
            "client_ip=2001:db8::/64&header:x-user=a%20b"
        );
    }

    #[test]
    fn shards_have_keys_of_their_own() {
        assert_eq!(key(&[]).of_shard(0).as_str(), "#0");
        assert_eq!(key(&[("client_ip", "203.0.113.7")]).of_shard(63).as_str(), "client_ip=203.0.113.7#63");
        assert_eq!(key(&[]).of_shard(99_999).as_str(), "#99999");
        // Without room for the number, and with none of its own text left.
        for long in ["x".repeat(121), "x".repeat(300)] {
            let key = key(&[("k", &long)]);
            assert_eq!(key.of_shard(7).as_str().len(), 1 + 32 + 2, "{}", key.as_str());
            assert_ne!(key.of_shard(7), key.of_shard(8));
            assert_ne!(key.of_shard(7), key);
        }
    }

    #[test]
    fn different_lists_never_meet() {
        // F15, R083: parts joined by a separator that values may hold share a counter.
        let pairs = [
            (vec![("a", "b_c")], vec![("a_b", "c")]),
            (vec![("a", "b_c"), ("d", "e")], vec![("a", "b"), ("c_d", "e")]),
            (vec![("p", "a:b"), ("q", "c")], vec![("p", "a"), ("q", "b:c")]),
            (vec![("p", "a:b")], vec![("p", "a_b")]),
            (vec![("user", "127.0.0.1")], vec![("client_ip", "127.0.0.1")]), // R085
            (vec![], vec![("", "")]),
            (vec![("", "")], vec![("", ""), ("", "")]),
            (vec![("a", "1&b=2")], vec![("a", "1"), ("b", "2")]),
            (vec![("a", "%20")], vec![("a", " ")]),
            (vec![("a", "x\0")], vec![("a", "x")]),
            (vec![("a", "}")], vec![("a", "{")]),
        ];
        for (left, right) in pairs {
            assert_ne!(key(&left), key(&right), "{left:?} {right:?}");
        }
    }

    #[test]
    fn long_keys_are_hashed_and_stay_apart() {
        // R088: attacker-chosen long values must neither fill the store nor collide.
        let long = |last: &str| key(&[("header:x-user", &("v".repeat(65_536) + last))]);
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
        assert_eq!(long("a").as_bytes().len(), 33);
        // Pinned: it must be the same on every instance and in every release.
        assert_eq!(long("a").as_str(), "#66159d4de5c57970e55cda20980244a4");
    }

    #[test]
    fn a_hashed_key_cannot_be_forged() {
        let long = key(&[("a", &"v".repeat(500))]);
        let forged = key(&[(long.as_str(), "")]);
        assert_ne!(long, forged);
        assert!(!forged.as_str().starts_with('#'));
    }

    #[test]
    fn the_longest_plain_key_is_kept() {
        let plain = "v".repeat(KEY_LEN_MAX - 2);
        assert_eq!(key(&[("a", &plain)]).as_str().len(), KEY_LEN_MAX);
        assert!(key(&[("a", &(plain + "v"))]).as_str().starts_with('#'));
    }

    proptest! {
        /// Two lists of parts have the same key only if they are the same list.
        #[test]
        fn injective(
            left in proptest::collection::vec((any::<String>(), any::<Vec<u8>>()), 0..4),
            right in proptest::collection::vec((any::<String>(), any::<Vec<u8>>()), 0..4),
        ) {
            let build = |parts: &[(String, Vec<u8>)]| Key::from_parts(parts.iter().map(|(n, v)| (n.as_str(), v.as_slice())));
            prop_assert_eq!(build(&left) == build(&right), left == right);
            let plain = build(&left).as_bytes().iter().all(|byte| byte.is_ascii_graphic() && *byte != b'{' && *byte != b'}');
            prop_assert!(plain);
            let mut named = KeyBuilder::default();
            left.iter().for_each(|(name, value)| named.named_part(&PartName::new(name), value));
            prop_assert_eq!(named.finish(), build(&left));
        }
    }
}
