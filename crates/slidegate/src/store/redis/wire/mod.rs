//! What calls and replies look like on the way: one packed argument, one packed reply.
//!
//! Little-endian integers in one string cost a script less than arguments and arrays of their own: about
//! 0.1 us for each value (docs/algorithms.md). A reply begins with a version byte; a call needs
//! none, since scripts are called by digest.
//!
//! # A call: KEYS and ARGV
//! `ARGV[1]` is a head, the limits (each once), and the parts; `ARGV[2..]` are the TTLs of the limits as text.
//!
//! | head | bytes | | limit, counted from 0 | bytes |
//! |---|---|---|---|---|
//! | the format that counters are written in | 1 | | algorithm: 0 sliding_window, 1 sliding_log, 2 fixed_window, 3 token_bucket, 4 leaky_bucket | 1 |
//! | 1: `now` is given; 0: ask the server | 1 | | permits | 4 |
//! | 1: all parts are plain, and short: read them together | 1 | | window in ms | 6 |
//! | limits | 1 | | resolution (0: automatic), burst, or max_delay in ms | 6 |
//! | shapes | 1 | | length of a tick in ms | 4 |
//! | parts | 2 | | **shape, counted from 1: what counters of plain checks have in common** | |
//! | now in us | 8 | | limit | 1 |
//! | seq | 8 | | sliding_window 0: with ledger; 1: lapsed; 2: without. 3 to 6: the other algorithms | 1 |
//! | identity | 8 | | counters of the check after this one | 1 |
//! | | | | times, cost | 4, 4 |
//! | | | | of the limit: permits, window in ms; length of a tick in ms, burst, or max_delay in ms | 4, 6, 4 |
//!
//! KEYS are the counters in the order of the checks, each check's together, and its record last.
//!
//! | each counter of a plain check | bytes | | any check | bytes |
//! |---|---|---|---|---|
//! | shape | 1 | | 0 | 1 |
//! | ack, reset epoch | 8, 8 | | 1: probe, 2: receipts are wanted, 4: remember | 1 |
//! | | | | charges | 1 |
//! | | | | times, lease in ms | 4, 4 |
//! | | | | for each charge: limit, group, flags, cost, ack, reset epoch | 1, 1, 1, 4, 8, 8 |
//! | | | | and if flags has 16, what is put back: after which call; 1: it was accepted, 2: nothing else; lease in ms; entries | 8, 1, 4, 2 |
//! | | | | and each of these: how many ms ago, permits | 6, 4 |
//! | | | | if remembered: length, so many bytes | 2, n |
//!
//! The last byte repeats the lowest of seq. A call has at most 255 limits and 65,535 keys.
//!
//! # A reply
//! Version 1; then for each check, in order, as below; then the server's time in us, 8 bytes. Big-endian what
//! scripts/plain/ says, so that what changes most comes last: see [`slidegate_core::algorithm::tick_log::layout`].
//!
//! A plain check is told counter by counter. A tick log that granted it whole, by the part of its header that has changed
//! ([`HOT_AT`](slidegate_core::algorithm::tick_log::layout::HOT_AT) and what follows, 36 bytes), which
//! the script has at hand. It begins with a zero, since no ring has room for 2^24 entries.
//!
//! A fixed window or a bucket is told by its whole value, after a byte that says 4; a leaky_bucket's is followed by
//! the delay in ms, 8. A plain sliding_log is told as any check.
//!
//! | plain, refused by this counter: 1, value 5; by others: 3, value 6 | bytes | | any: 2 | bytes |
//! |---|---|---|---|---|
//! | granted | 4 | | status: 0 decided, 1 stale, 2 behind, 3 foreign key, 4 newer format | 1 |
//! | as if granted whole | 36 | | granted | 4 |
//! | | | | not decided: last seq known | 8 |
//! | | | | for each charge: 1 violated, 2 with a wait; used, remaining; reset, wait, delay in ms; reset epoch | 1; 4, 4; 6, 6, 6; 8 |
//! | | | | and, if wanted, its receipt: epoch, ms, units | 4, 8, 4 |

mod call;
mod reply;

pub(super) use call::{Call, Draft, Memory, Settle, push_limit};
pub(super) use reply::{Reply, Told, Undecided, read_checks, read_settled};

/// The version of replies.
const VERSION: u8 = 1;

/// What a call says about this instance's last grant on a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The seq of the last call whose grant was accepted; 0 if there is none.
    pub(super) ack: u64,
    /// The counter's last reset that this instance has seen.
    pub(super) reset_epoch: u64,
    /// Whether everything granted has left its window by this instance's clock.
    pub(super) lapsed: bool,
    /// Whether its value was a long one, which is better not read whole.
    pub(super) long: bool,
}
