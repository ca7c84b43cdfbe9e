//! Random numbers from the operating system, for keys and ids that nobody may guess.

/// 128 random bits.
///
/// # Panics
/// If the operating system has none: going on would make counters and reservations predictable.
pub(crate) fn u128() -> u128 {
    let mut bytes = [0; 16];
    #[expect(clippy::expect_used, reason = "there is no safe way to go on")]
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    u128::from_ne_bytes(bytes)
}
