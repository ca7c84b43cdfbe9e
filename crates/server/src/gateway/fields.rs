//! The decision's fields on an answer of the upstream.
//!
//! `RateLimit` and `RateLimit-Policy` are lists, and an upstream may limit too: its lines are kept, and ours
//! are added (the draft asks intermediaries not to hide the limits of others). The unofficial
//! `X-RateLimit-*` hold one value only; where they are asked for, ours replaces the upstream's. `Retry-After`
//! on an answer that was allowed here is the upstream's own.

use http::{HeaderMap, HeaderValue};
use slidegate::Decision;
use slidegate::http::AnswerOptions;
use slidegate::http::fields::{RATELIMIT, RATELIMIT_POLICY, apply};
use smallvec::SmallVec;

/// Adds the fields of an allowed request.
pub(super) fn add(decision: &Decision, options: AnswerOptions, now_epoch_secs: u64, headers: &mut HeaderMap) {
    let theirs = [RATELIMIT_POLICY, RATELIMIT].map(|name| {
        let lines: SmallVec<[HeaderValue; 1]> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        (name, lines)
    });
    apply(decision, options, now_epoch_secs, headers);
    for (name, lines) in theirs {
        for line in lines {
            headers.append(&name, line);
        }
    }
}
