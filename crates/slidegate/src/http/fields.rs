//! The header fields of limited answers: what the limits are, where the client stands, when to come back.
//!
//! Source: draft-ietf-httpapi-ratelimit-headers-10 over RFC 9651 (structured fields), and RFC 9110 for
//! `Retry-After`.
//!
//! # What is said
//! * `RateLimit-Policy` lists every limit that was checked: `q` its permits, `w` its window.
//! * `RateLimit` of an allowed answer has the one limit with least left, since that is what the client
//!   meets next. Of a denied one it has the limits that denied.
//! * `Retry-After` is the time at which *this* request fits in all limits that denied it, and never earlier
//!   than any `t` beside it. Where no wait helps (a limit of 0, a store that is full) there is none.
//!
//! # What is not said
//! * Nothing, where no limit applied.
//! * Shadow policies appear in no field: a client must not see limits that deny nobody.
//! * Where counters did not decide ([`Mode::is_counted`](crate::Mode::is_counted)) there are no numbers
//!   either: they would be made up. `RateLimit-Policy` still holds.
//! * No partition key (`pk`): limits are told to the client they belong to.
//!
//! # Rounding
//! Seconds, rounded up, so that obeying a field always works: a window of 1.5 s is `w=2`, a wait of 200 ms
//! is `Retry-After: 1`. A window below one second has no `w`, since `w=1` would understate the rate.

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate_core::limit::{Algorithm, Limit};
use slidegate_core::time::Millis;
use smallvec::SmallVec;

use super::{AnswerOptions, Legacy};
use crate::decision::{Decision, LimitState};

/// What the limits are.
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Where the client stands.
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// The permits of one limit, for clients that read only the unofficial fields.
pub const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
/// What is left of them.
pub const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
/// When there is more: in seconds from now, or since the epoch.
pub const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
/// Which part of slidegate answered.
pub const SLIDEGATE_MODE: HeaderName = HeaderName::from_static("slidegate-mode");

/// The largest integer of a structured field: 15 digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Room for the fields of a policy with a few limits, so that writing one does not allocate.
type Text = SmallVec<[u8; 256]>;

/// Writes the fields of a decision into the headers of its answer, in place of any of the same name.
///
/// `now_epoch_secs` is the wall clock in whole seconds since the Unix epoch, rounded down; it is used for
/// [`Legacy::Epoch`] only. Headers stay as they are where no limit applied. A denial also gets
/// `Cache-Control: no-store`, since it is true for one client at one moment.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use slidegate::{Limiter, Policy};
/// use slidegate::http::{AnswerOptions, fields};
///
/// let policy = Policy::builder("logins").limits("5/10m").build()?;
/// # let store = slidegate::MemoryStore::builder().clock(slidegate::testing::FakeClock::default()).build();
/// let limiter = Limiter::builder().policy(policy)
/// #     .store(store)
///     .build()?;
/// let decision = limiter.check("logins", &[]).await?;
///
/// let mut headers = http::HeaderMap::new();
/// fields::apply(&decision, AnswerOptions::default(), 0, &mut headers);
/// assert_eq!(headers["ratelimit-policy"], r#""logins";q=5;w=600"#);
/// assert_eq!(headers["ratelimit"], r#""logins";r=4;t=600"#);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub fn apply(decision: &Decision, options: AnswerOptions, now_epoch_secs: u64, headers: &mut HeaderMap) {
    let mut text = Text::new();
    for state in enforced(decision) {
        push_policy(&mut text, &state);
    }
    if text.is_empty() {
        return;
    }
    put(headers, RATELIMIT_POLICY, &mut text);
    if decision.mode().is_counted() {
        for state in told(decision) {
            push_state(&mut text, &state);
        }
        if !text.is_empty() {
            put(headers, RATELIMIT, &mut text);
        }
        put_legacy(decision, options.legacy, now_epoch_secs, headers);
    }
    if options.mode {
        let mode = HeaderValue::from_static(decision.mode().name());
        headers.insert(SLIDEGATE_MODE, mode);
    }
    if !decision.is_allowed() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(secs) = retry_after_secs(decision) {
            headers.insert(RETRY_AFTER, secs.into());
        }
    }
}

/// `Retry-After` of a denial, in seconds: at least 1, and never earlier than any `t` that is told beside it.
/// `None` when allowed, and where no wait helps.
pub fn retry_after_secs(decision: &Decision) -> Option<u64> {
    let exact = secs(decision.retry_after()?);
    let told = decision.violated().filter_map(|state| reset_secs(&state));
    Some(told.fold(exact, u64::max).max(1))
}

fn enforced(decision: &Decision) -> impl Iterator<Item = LimitState<'_>> {
    decision.limits().filter(|state| !state.is_shadow())
}

/// The limits whose state is told: those that denied, or else the one that the client meets next.
fn told(decision: &Decision) -> impl Iterator<Item = LimitState<'_>> {
    let nearest = decision.is_allowed().then(|| nearest_exhaustion(decision));
    decision.violated().chain(nearest.flatten())
}

/// The limit with least left; among equals the one that takes longest to give any back.
fn nearest_exhaustion(decision: &Decision) -> Option<LimitState<'_>> {
    enforced(decision).filter(|state| decision.is_counted(state)).min_by_key(|state| {
        let outcome = state.outcome;
        (outcome.remaining, std::cmp::Reverse(outcome.reset_after))
    })
}

/// Seconds until the limit gives any quota back; `None` when nothing is used, or when it never does.
fn reset_secs(state: &LimitState<'_>) -> Option<u64> {
    let outcome = state.outcome;
    (outcome.used > 0 && outcome.reset_after > Millis::ZERO).then(|| secs(outcome.reset_after))
}

/// Rounded up, and no longer than a structured field can say: 31 million years.
fn secs(time: Millis) -> u64 {
    time.ceil_secs().min(INTEGER_MAX)
}

// --- structured fields ----------------------------------------------------------------------------------

/// The parts of a limit's fields that never change, written once when its policy is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitText {
    /// The name as a structured-field string: in quotes, with `"` and `\` escaped.
    name: Box<str>,
    /// The window as a parameter, such as `;w=60`; empty below one second.
    window: Box<str>,
}

impl LimitText {
    pub(crate) fn new(name: &str, limit: &Limit) -> Self {
        let escaped = name.replace('\\', r"\\").replace('"', r#"\""#);
        let window = told_window(limit);
        let parameter = if window < Millis(1000) { String::new() } else { format!(";w={}", secs(window)) };
        Self { name: format!("\"{escaped}\"").into(), window: parameter.into() }
    }
}

/// The time in which `q` permits pass. A bucket's `q` is its burst, which takes burst x W / N to refill: told
/// with the plain window, q/w would be a rate that it never sustains.
fn told_window(limit: &Limit) -> Millis {
    let window = limit.window();
    match limit.algorithm() {
        Algorithm::TokenBucket { burst } if limit.permits() > 0 => {
            let refill = (u128::from(burst) * u128::from(window.get())).div_ceil(limit.permits().into());
            Millis(u64::try_from(refill).unwrap_or(u64::MAX))
        }
        _ => window,
    }
}

/// Appends `"minute";q=100;w=60`.
fn push_policy(text: &mut Text, state: &LimitState<'_>) {
    push_name(text, state);
    push_number(text, b";q=", state.outcome.limit.into());
    text.extend_from_slice(state.text.window.as_bytes());
}

/// Appends `"minute";r=57;t=43`.
fn push_state(text: &mut Text, state: &LimitState<'_>) {
    push_name(text, state);
    push_number(text, b";r=", state.outcome.remaining.into());
    if let Some(secs) = reset_secs(state) {
        push_number(text, b";t=", secs);
    }
}

fn push_name(text: &mut Text, state: &LimitState<'_>) {
    if !text.is_empty() {
        text.extend_from_slice(b", ");
    }
    text.extend_from_slice(state.text.name.as_bytes());
}

fn push_number(text: &mut Text, before: &[u8], number: u64) {
    text.extend_from_slice(before);
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        let digit = (rest % 10) as u8;
        digits[at] = b'0' + digit;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

/// Moves the text into a field.
fn put(headers: &mut HeaderMap, name: HeaderName, text: &mut Text) {
    #[expect(clippy::expect_used, reason = "names are checked when a policy is built")]
    let value = HeaderValue::from_bytes(text).expect("names are printable ASCII");
    headers.insert(name, value);
    text.clear();
}

// --- the unofficial fields ------------------------------------------------------------------------------

/// Writes `X-RateLimit-*` for one limit: these fields have no room for two.
fn put_legacy(decision: &Decision, legacy: Legacy, now_epoch_secs: u64, headers: &mut HeaderMap) {
    let state = if decision.is_allowed() { nearest_exhaustion(decision) } else { longest_denied(decision) };
    let Some(state) = state.filter(|_| legacy != Legacy::None) else {
        return;
    };
    headers.insert(X_RATELIMIT_LIMIT, state.outcome.limit.into());
    headers.insert(X_RATELIMIT_REMAINING, state.outcome.remaining.into());
    let reset = if decision.is_allowed() {
        Some(reset_secs(&state).unwrap_or(0))
    } else {
        // Who waits for the reset expects to pass afterwards, which takes until the cost fits.
        retry_after_secs(decision)
    };
    let Some(secs) = reset else { return };
    let reset = match legacy {
        // One more for the part of a second that `now` lacks: else the time told would be too early.
        Legacy::Epoch if secs > 0 => now_epoch_secs.saturating_add(secs).saturating_add(1),
        Legacy::Epoch => now_epoch_secs,
        Legacy::Delta | Legacy::None => secs,
    };
    headers.insert(X_RATELIMIT_RESET, reset.into());
}

/// The limit that denied and takes longest until this request fits; one where it never does comes last.
fn longest_denied(decision: &Decision) -> Option<LimitState<'_>> {
    decision.violated().max_by_key(|state| state.outcome.retry_after.unwrap_or(Millis(u64::MAX)))
}

#[cfg(test)]
mod tests;
