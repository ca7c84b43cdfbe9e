//! Hashing of key parts that must not be readable anywhere: tokens, API keys.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The key of the hash. Instances that share a store need the same one.
#[derive(Clone)]
pub struct SecretKey(Hmac<Sha256>);

/// Bytes of a hashed value: 128 bits, against collisions by chance; the key keeps guesses out.
const HASH_LEN: usize = 16;

impl SecretKey {
    /// A key that lives as long as this process: right for the memory store only.
    pub fn random() -> Self {
        Self::new(&crate::random::u128().to_ne_bytes())
    }

    /// A key from bytes, such as the contents of a file. Any length; 16 random bytes are enough.
    pub fn new(key: &[u8]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// The keyed hash of a value, as 32 hex digits.
    pub(crate) fn hash(&self, value: &[u8]) -> [u8; 2 * HASH_LEN] {
        let mut mac = self.0.clone();
        mac.update(value);
        let digest = mac.finalize().into_bytes();
        let mut hex = [0; 2 * HASH_LEN];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(digest) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        hex
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}
