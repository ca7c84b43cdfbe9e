use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use slidegate_core::algorithm::State;
use slidegate_core::decision::Outcome;
use slidegate_core::time::Now;

use super::*;
use crate::http::samples::{decision, denied, limiter, ms, passed, policy};
use crate::limiter::Ask;
use crate::{MemoryStore, Mode, Policy};

const NOW: u64 = 1_767_225_600;

fn fields(decision: &Decision) -> HeaderMap {
    fields_with(decision, AnswerOptions::default())
}

fn fields_with(decision: &Decision, options: AnswerOptions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    apply(decision, options, NOW, &mut headers);
    headers
}

fn legacy(decision: &Decision, legacy: Legacy) -> [Option<String>; 3] {
    let headers = fields_with(decision, AnswerOptions { legacy, mode: false });
    [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET].map(|name| text(&headers, name.as_str()))
}

/// The one value of a field; `None` when the field is absent.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    assert!(headers.get_all(name).iter().count() <= 1, "two lines of {name}");
    let value = headers.get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// A policy of limits with names.
fn named(name: &str, limits: &[(&str, Limit)]) -> Policy {
    let builder =
        limits.iter().fold(Policy::builder(name), |builder, (name, limit)| builder.limit(Some(name), *limit));
    builder.build().unwrap()
}

// --- RateLimit-Policy and RateLimit ---------------------------------------------------------------------

#[tokio::test]
async fn an_allowed_answer_lists_all_limits_and_the_state_of_the_nearest() {
    let burst_and_minute = named("p", &[("burst", limit("10/s")), ("minute", limit("100/60s"))]);
    let (clock, limiter) = limiter([burst_and_minute]);
    for _ in 0..50 {
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
        clock.advance(ms(345));
    }
    let headers = fields(&limiter.check("p", &[]).await.unwrap());
    let (policy, state) = (text(&headers, "ratelimit-policy"), text(&headers, "ratelimit"));
    assert_eq!(policy.unwrap(), r#""burst";q=10;w=1, "minute";q=100;w=60"#);
    assert_eq!(state.unwrap(), r#""burst";r=7;t=1"#);
    assert_eq!(headers.len(), 2);
}

// R132: which of several limits do the fields show? The one with least left.
#[tokio::test]
async fn the_limit_with_least_left_is_shown() {
    let (clock, limiter) = limiter([named("p", &[("sec", limit("10/s")), ("min", limit("100/60s"))])]);
    for _ in 0..95 {
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
        clock.advance(ms(200));
    }
    let headers = fields(&limiter.check("p", &[]).await.unwrap());
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""min";r=4;t=41"#);
    assert_eq!(text(&headers, "ratelimit-policy").unwrap(), r#""sec";q=10;w=1, "min";q=100;w=60"#);
}

#[test]
fn among_equals_the_limit_that_takes_longest_is_shown() {
    let both = named("p", &[("a", limit("5/s")), ("b", limit("5/m"))]);
    let decision = decision(Mode::Normal, [(both, vec![passed(5, 3, 900), passed(5, 3, 59_000)])]);
    assert_eq!(text(&fields(&decision), "ratelimit").unwrap(), r#""b";r=2;t=59"#);
}

// F26: one limit's name with another's remaining, `w` rounded down, names not escaped.
#[tokio::test]
async fn each_limit_has_its_own_name_numbers_and_window() {
    let odd = named("p", &[(r#"say "hi" \o/"#, limit("3/1500ms"))]);
    let (_, limiter) = limiter([odd, policy("q", "7/m")]);
    let asks = [Ask::new("p", &[]), Ask::new("q", &[]).cost(5)];
    let headers = fields(&limiter.check_all(&asks).await.unwrap());
    assert_eq!(text(&headers, "ratelimit-policy").unwrap(), r#""say \"hi\" \\o/";q=3;w=2, "q";q=7;w=60"#);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""q";r=2;t=60"#);
    let headers = fields(&limiter.check_all(&asks).await.unwrap());
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""q";r=2;t=60"#);
    assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    let headers = fields(&limiter.check("p", &[]).await.unwrap());
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""say \"hi\" \\o/";r=0;t=2"#);
}

#[test]
fn windows_are_rounded_up_and_left_out_below_a_second() {
    for (text, told) in [
        ("5/1ms", r#""p";q=5"#),
        ("5/999ms", r#""p";q=5"#),
        ("5/1s", r#""p";q=5;w=1"#),
        ("5/1001ms", r#""p";q=5;w=2"#),
        ("5/366d", r#""p";q=5;w=31622400"#),
        ("0/m", r#""p";q=0;w=60"#),
    ] {
        let policy = policy("p", text);
        let permits = policy.limits()[0].limit().capacity();
        let decision = decision(Mode::Normal, [(policy, vec![passed(permits, 0, 0)])]);
        assert_eq!(self::text(&fields(&decision), "ratelimit-policy").unwrap(), told);
    }
}

// A bucket of 100 that refills at 10/s: `q=100;w=1` would be read as 100 per second, for ever.
#[test]
fn the_window_of_a_bucket_is_the_time_it_takes_to_refill() {
    for (rate, burst, told) in [
        ("10/s", 100, r#""p";q=100;w=10"#),
        ("10/s", 5, r#""p";q=5"#),
        ("3/s", 10, r#""p";q=10;w=4"#),
        ("100/m", 100, r#""p";q=100;w=60"#),
        ("500000000/366d", 500_000_000, r#""p";q=500000000;w=31622400"#),
        ("0/m", 0, r#""p";q=0;w=60"#),
    ] {
        let bucket = limit(rate).with_algorithm(Algorithm::TokenBucket { burst }).unwrap();
        let policy = Policy::builder("p").limit(None, bucket).build().unwrap();
        let decision = decision(Mode::Normal, [(policy, vec![passed(bucket.capacity(), 0, 0)])]);
        assert_eq!(text(&fields(&decision), "ratelimit-policy").unwrap(), told);
    }
}

#[tokio::test]
async fn nothing_used_has_no_reset() {
    let (clock, limiter) = limiter([policy("p", "5/10s")]);
    let unused = limiter.peek("p", &[]).await.unwrap();
    assert_eq!(text(&fields(&unused), "ratelimit").unwrap(), r#""p";r=5"#);
    let used = limiter.check("p", &[]).await.unwrap();
    assert_eq!(text(&fields(&used), "ratelimit").unwrap(), r#""p";r=4;t=10"#);
    clock.advance(ms(9_100));
    let used = limiter.peek("p", &[]).await.unwrap();
    assert_eq!(text(&fields(&used), "ratelimit").unwrap(), r#""p";r=4;t=1"#);
}

// A queue whose wait is short has room for all its permits, though it is not empty yet.
#[test]
fn a_queue_with_all_its_room_has_no_reset() {
    let decision = decision(Mode::Normal, [(policy("p", "5/m"), vec![passed(5, 0, 700)])]);
    assert_eq!(text(&fields(&decision), "ratelimit").unwrap(), r#""p";r=5"#);
}

#[tokio::test]
async fn without_a_policy_there_are_no_fields() {
    let (_, limiter) = limiter([policy("p", "5/10s")]);
    let nothing = limiter.check_all(&[]).await.unwrap();
    let options = AnswerOptions { legacy: Legacy::Delta, mode: true };
    assert!(fields_with(&nothing, options).is_empty());
}

// R157: a shadow policy over its limit showed `remaining 0` on answers that passed.
#[tokio::test]
async fn shadow_policies_appear_in_no_field() {
    let shadow = Policy::builder("watched").limits("1/h").shadow(true).build().unwrap();
    let (_, limiter) = limiter([shadow, policy("p", "5/10s")]);
    let options = AnswerOptions { legacy: Legacy::Delta, mode: true };
    for _ in 0..3 {
        let alone = limiter.check("watched", &[]).await.unwrap();
        assert!(alone.is_allowed() && fields_with(&alone, options).is_empty());
    }
    let both = limiter.check_all(&[Ask::new("watched", &[]), Ask::new("p", &[])]).await.unwrap();
    assert!(both.is_shadow_denied());
    let headers = fields_with(&both, options);
    assert_eq!(text(&headers, "ratelimit-policy").unwrap(), r#""p";q=5;w=10"#);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""p";r=4;t=10"#);
    assert_eq!(text(&headers, "x-ratelimit-limit").unwrap(), "5");
}

// R049: with the store away, answers passed with X-RateLimit-Remaining: -1.
#[test]
fn numbers_that_nobody_counted_are_not_told() {
    let options = AnswerOptions { legacy: Legacy::Delta, mode: true };
    for (mode, outcome) in [
        (Mode::AllowAll, passed(5, 0, 0)),
        (Mode::DenyAll, denied(5, 0, 0, None)),
        (Mode::Full, denied(5, 0, 0, None)),
    ] {
        let headers = fields_with(&decision(mode, [(policy("p", "5/m"), vec![outcome])]), options);
        assert_eq!(text(&headers, "ratelimit-policy").unwrap(), r#""p";q=5;w=60"#);
        assert_eq!(text(&headers, "slidegate-mode").unwrap(), mode.name());
        for absent in ["ratelimit", "retry-after", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            assert_eq!(text(&headers, absent), None, "{mode} {absent}");
        }
    }
}

#[tokio::test]
async fn a_full_store_gives_no_time_to_come_back_at() {
    let clock = std::sync::Arc::new(crate::testing::FakeClock::default());
    let store = MemoryStore::builder().max_keys(1).clock(clock).build();
    let policy = Policy::builder("p").limits("1/m").key("{client_ip}").build().unwrap();
    let limiter = crate::Limiter::builder().policy(policy).store(store).build().unwrap();
    let mut full = None;
    for client in 0..100_000 {
        let decision = limiter.check("p", &[&client.to_string()]).await.unwrap();
        if !decision.is_allowed() {
            full = Some(decision);
            break;
        }
    }
    let full = full.expect("a store of few keys that are all denied is full");
    assert_eq!(full.mode(), Mode::Full);
    let headers = fields(&full);
    assert_eq!(text(&headers, "retry-after"), None);
    assert_eq!(text(&headers, "ratelimit"), None);
}

#[tokio::test]
async fn the_mode_is_told_on_request() {
    let (_, limiter) = limiter([policy("p", "5/10s")]);
    let decision = limiter.check("p", &[]).await.unwrap();
    assert_eq!(text(&fields(&decision), "slidegate-mode"), None);
    let headers = fields_with(&decision, AnswerOptions { mode: true, ..AnswerOptions::default() });
    assert_eq!(text(&headers, "slidegate-mode").unwrap(), "normal");
}

#[tokio::test]
async fn fields_of_the_same_name_are_replaced() {
    let (_, limiter) = limiter([policy("p", "5/10s")]);
    let mut headers = HeaderMap::new();
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"] {
        headers.append(name, HeaderValue::from_static("upstream"));
        headers.append(name, HeaderValue::from_static("upstream too"));
    }
    headers.insert("cache-control", HeaderValue::from_static("max-age=60"));
    let options = AnswerOptions { legacy: Legacy::Delta, mode: false };
    apply(&limiter.check("p", &[]).await.unwrap(), options, NOW, &mut headers);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""p";r=4;t=10"#);
    assert_eq!(text(&headers, "x-ratelimit-limit").unwrap(), "5");
    assert_eq!(text(&headers, "cache-control").unwrap(), "max-age=60");
}

// --- denials --------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_denied_answer_has_the_violated_limits_only() {
    let limits = [("second", limit("2/s")), ("minute", limit("3/m")), ("hour", limit("100/h"))];
    let (_, limiter) = limiter([named("p", &limits)]);
    for _ in 0..2 {
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    }
    let headers = fields(&limiter.check_all(&[Ask::new("p", &[]).cost(2)]).await.unwrap());
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""second";r=0;t=1, "minute";r=1;t=60"#);
    assert_eq!(
        text(&headers, "ratelimit-policy").unwrap(),
        r#""second";q=2;w=1, "minute";q=3;w=60, "hour";q=100;w=3600"#
    );
    assert_eq!(text(&headers, "retry-after").unwrap(), "60");
    assert_eq!(text(&headers, "cache-control").unwrap(), "no-store");
}

// F4, R128: 200 ms left was `Retry-After: 0`, 2001 ms was 2: obeying it gave another 429.
#[tokio::test]
async fn waits_are_rounded_up_and_obeying_them_works() {
    for (left_ms, told) in [(1, "1"), (200, "1"), (1_000, "1"), (1_001, "2"), (2_001, "3")] {
        let (clock, limiter) = limiter([policy("p", "1/10s")]);
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
        clock.advance(ms(10_000 - left_ms));
        let headers = fields(&limiter.check("p", &[]).await.unwrap());
        assert_eq!(text(&headers, "retry-after").unwrap(), told, "{left_ms} ms left");
        clock.advance(std::time::Duration::from_secs(told.parse().unwrap()));
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    }
}

// R131: the reset of the yearly limit was told when the minute denied.
#[tokio::test]
async fn the_wait_is_that_of_the_limit_that_denied() {
    let (_, limiter) = limiter([named("p", &[("minute", limit("5/m")), ("year", limit("100000/365d"))])]);
    for _ in 0..5 {
        assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    }
    let decision = limiter.check("p", &[]).await.unwrap();
    let headers = fields(&decision);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""minute";r=0;t=60"#);
    assert_eq!(text(&headers, "retry-after").unwrap(), "60");
    assert_eq!(legacy(&decision, Legacy::Delta).map(Option::unwrap), ["5", "0", "60"]);
}

// R135: the wait was a default of 60 s, whatever was left of 100.
#[tokio::test]
async fn the_wait_falls_as_time_goes_by() {
    let (clock, limiter) = limiter([policy("p", "1/100s")]);
    assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    for left in (1..=100).rev() {
        let headers = fields(&limiter.check("p", &[]).await.unwrap());
        assert_eq!(text(&headers, "retry-after").unwrap(), left.to_string());
        clock.advance(ms(1_000));
    }
}

// R106, R111: without a time at which the request fits there is no Retry-After: not 0, not -1, not for ever.
#[tokio::test]
async fn a_limit_of_zero_gives_no_time_to_come_back_at() {
    let (_, limiter) = limiter([policy("closed", "0/m"), policy("p", "1/m")]);
    let closed = limiter.check("closed", &[]).await.unwrap();
    let headers = fields(&closed);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""closed";r=0"#);
    assert_eq!(text(&headers, "retry-after"), None);
    assert_eq!(text(&headers, "cache-control").unwrap(), "no-store");
    assert_eq!(legacy(&closed, Legacy::Epoch), [Some("0".into()), Some("0".into()), None]);
    // Nor beside a limit that would fit in a minute.
    assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    let both = limiter.check_all(&[Ask::new("p", &[]), Ask::new("closed", &[])]).await.unwrap();
    assert_eq!(text(&fields(&both), "ratelimit").unwrap(), r#""p";r=0;t=60, "closed";r=0"#);
    assert_eq!(text(&fields(&both), "retry-after"), None);
    assert_eq!(legacy(&both, Legacy::Delta), [Some("0".into()), Some("0".into()), None]);
}

/// What a policy says after `hits`, each at a second, when a check at the given second finds its limit
/// lowered from `before` to `after`.
fn lowered(before: &str, hits: &[u64], after: &str, at: u64) -> Decision {
    let (before, after) = (limit(before), limit(after));
    let mut state = State::new(&before, 0);
    for second in hits {
        let now = Now::from_millis((NOW + second) * 1000);
        state.settle(now, &before);
        state.charge(now, &before, 1);
    }
    let now = Now::from_millis((NOW + at) * 1000);
    state.settle(now, &after);
    let outcome = state.outcome(now, &after, 1, true);
    let policy = Policy::builder("p").limit(None, after).build().unwrap();
    decision(Mode::Normal, [(policy, vec![outcome])])
}

// R104: the limit was lowered below its use: no Retry-After, and a reset that came too early.
#[test]
fn a_lowered_limit_tells_when_enough_has_left() {
    let hits: Vec<u64> = (0..10).collect();
    let headers = fields(&lowered("10/60s", &hits, "3/60s", 10));
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""p";r=0;t=57"#);
    assert_eq!(text(&headers, "retry-after").unwrap(), "57");
}

// F8, R134: remaining was an unsigned difference, and -1 or 1.8e19 after an overshoot or a lowered limit.
#[test]
fn remaining_never_wraps() {
    let decision = lowered("20/60s", &[0; 15], "10/60s", 10);
    assert_eq!(text(&fields(&decision), "ratelimit").unwrap(), r#""p";r=0;t=50"#);
    assert_eq!(legacy(&decision, Legacy::Delta).map(Option::unwrap), ["10", "0", "50"]);
}

// A queue lets the next one in once the wait is short enough, which is before it is empty.
#[test]
fn the_wait_is_never_earlier_than_a_reset_beside_it() {
    let decision = decision(
        Mode::Normal,
        [(
            named("p", &[("a", limit("5/m")), ("b", limit("5/m"))]),
            vec![denied(5, 5, 12_000, Some(500)), denied(5, 5, 3_500, Some(700))],
        )],
    );
    let headers = fields(&decision);
    assert_eq!(text(&headers, "ratelimit").unwrap(), r#""a";r=0;t=12, "b";r=0;t=4"#);
    assert_eq!(text(&headers, "retry-after").unwrap(), "12");
}

// --- X-RateLimit-* --------------------------------------------------------------------------------------

#[tokio::test]
async fn the_unofficial_fields_are_sent_on_request_only() {
    let (_, limiter) = limiter([policy("p", "5/10s")]);
    let decision = limiter.check("p", &[]).await.unwrap();
    assert_eq!(legacy(&decision, Legacy::None), [None, None, None]);
    assert_eq!(legacy(&decision, Legacy::Delta).map(Option::unwrap), ["5", "4", "10"]);
    // One second more than ten from now: `now` was rounded down.
    let reset = (NOW + 11).to_string();
    assert_eq!(legacy(&decision, Legacy::Epoch).map(Option::unwrap), ["5", "4", &reset]);
}

#[tokio::test]
async fn the_unofficial_fields_have_a_reset_of_now_when_nothing_is_used() {
    let (_, limiter) = limiter([policy("p", "5/10s")]);
    let unused = limiter.peek("p", &[]).await.unwrap();
    assert_eq!(legacy(&unused, Legacy::Delta).map(Option::unwrap), ["5", "5", "0"]);
    assert_eq!(legacy(&unused, Legacy::Epoch).map(Option::unwrap), ["5", "5", &NOW.to_string()]);
}

#[tokio::test]
async fn the_unofficial_fields_show_the_limit_nearest_exhaustion() {
    let (_, limiter) = limiter([named("p", &[("minute", limit("5/m")), ("hour", limit("3/h"))])]);
    let allowed = limiter.check("p", &[]).await.unwrap();
    assert_eq!(legacy(&allowed, Legacy::Delta).map(Option::unwrap), ["3", "2", "3600"]);
    // Denied by both: the one that takes longest, at the time at which the request fits.
    let denied = limiter.check_all(&[Ask::new("p", &[]).cost(3)]).await.unwrap();
    assert_eq!(legacy(&denied, Legacy::Delta).map(Option::unwrap), ["3", "2", "3600"]);
}

// --- properties -----------------------------------------------------------------------------------------

/// One limit of an answer as a client reads it: its name and its integer parameters.
type Read = (String, Vec<(String, i64)>);

/// Reads a field as a structured-field list of strings.
fn read(field: &str) -> Vec<Read> {
    let list = Parser::new(field).parse::<List>().unwrap();
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an inner list in {field}"),
    };
    list.into_iter()
        .map(item)
        .map(|item| {
            let BareItem::String(name) = item.bare_item else {
                panic!("not a string in {field}");
            };
            let integer = |value: &BareItem| value.as_integer().map(i64::from);
            let parameters = item.params.iter();
            let parameters = parameters.map(|(name, value)| (name.to_string(), integer(value).unwrap()));
            (name.to_string(), parameters.collect())
        })
        .collect()
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let number = || prop_oneof![0..10_u32, any::<u32>(), Just(u32::MAX)];
    let wait = || prop_oneof![0..100_000_u64, any::<u64>(), Just(u64::MAX)];
    (number(), number(), number(), wait(), any::<bool>(), prop::option::of(wait())).prop_map(
        |(limit, used, remaining, reset_ms, violated, retry_ms)| Outcome {
            limit,
            used,
            remaining,
            reset_after: Millis(reset_ms),
            violated,
            retry_after: retry_ms.filter(|_| violated).map(Millis),
            delay: Millis::ZERO,
        },
    )
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(Mode::ALL.to_vec())
}

/// Policies of one or more limits with any names that a configuration may have.
fn parts() -> impl Strategy<Value = Vec<(Policy, Vec<Outcome>)>> {
    let limits = prop::collection::vec((1..40_000_000_u64, outcomes()), 1..4);
    let part = ("[ -~]{1,40}", limits, any::<bool>()).prop_map(|(name, limits, shadow)| {
        let (windows, outcomes): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
        let mut builder = Policy::builder(name).shadow(shadow);
        for window in windows {
            builder = builder.limit(None, Limit::new(5, Millis(window)).unwrap());
        }
        (builder.build().unwrap(), outcomes)
    });
    prop::collection::vec(part, 0..3)
}

proptest! {
    // Every field is what a parser of structured fields reads as the same names and numbers, whatever the
    // names and numbers are; and Retry-After is whole seconds, at least 1 and no less than any `t`.
    #[test]
    fn every_field_is_read_back_as_it_was_meant(parts in parts(), mode in modes()) {
        let decision = decision(mode, parts);
        let enforced: Vec<_> = decision.limits().filter(|state| !state.is_shadow()).collect();
        let headers = fields(&decision);
        let Some(policies) = text(&headers, "ratelimit-policy") else {
            prop_assert!(enforced.is_empty() && headers.is_empty());
            return Ok(());
        };
        for (told, state) in read(&policies).into_iter().zip(&enforced) {
            let window = state.limit.window();
            let mut parameters = vec![("q".to_string(), i64::from(state.outcome.limit))];
            if window.get() >= 1000 {
                parameters.push(("w".into(), i64::try_from(window.ceil_secs()).unwrap()));
            }
            prop_assert_eq!(told, (state.name.to_string(), parameters));
        }
        prop_assert_eq!(read(&policies).len(), enforced.len());

        let states = text(&headers, "ratelimit").map(|field| read(&field));
        prop_assert_eq!(states.is_some(), mode.is_counted());
        let states = states.unwrap_or_default();
        let names: Vec<_> = states.iter().map(|(name, _)| name.as_str()).collect();
        if decision.is_allowed() {
            prop_assert!(names.len() <= 1);
        } else if mode.is_counted() {
            prop_assert_eq!(names, decision.violated().map(|state| state.name).collect::<Vec<_>>());
        }
        let retry = text(&headers, "retry-after");
        prop_assert_eq!(retry.is_some(), decision.retry_after().is_some());
        if let Some(retry) = retry {
            prop_assert!(retry.bytes().all(|byte| byte.is_ascii_digit()) && !retry.starts_with('0'));
            let resets = states.iter().flat_map(|(_, parameters)| parameters).filter(|(name, _)| name == "t");
            for (_, reset) in resets {
                prop_assert!(retry.parse::<i64>().unwrap() >= *reset && *reset >= 1);
            }
        }
    }

    // R129: whoever obeys Retry-After passes, under every algorithm, at any cost and at any instant between
    // two milliseconds.
    #[test]
    fn whoever_obeys_retry_after_passes(
        algorithm in prop::sample::select(vec![
            Algorithm::SLIDING_WINDOW,
            Algorithm::SlidingLog,
            Algorithm::FixedWindow,
            Algorithm::TokenBucket { burst: 7 },
            Algorithm::LeakyBucket { max_delay: Millis(300) },
        ]),
        window in 1..5_000_u64,
        steps in prop::collection::vec((0..900_000_u64, 1..=5_u32), 1..40),
    ) {
        let limit = Limit::new(5, Millis(window)).unwrap().with_algorithm(algorithm).unwrap();
        let (clock, limiter) = limiter([Policy::builder("p").limit(None, limit).build().unwrap()]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (micros, cost) in steps {
            clock.advance(std::time::Duration::from_micros(micros));
            let asks = [Ask::new("p", &[]).cost(cost)];
            let decision = runtime.block_on(limiter.check_all(&asks)).unwrap();
            if decision.is_allowed() {
                continue;
            }
            let retry = text(&fields(&decision), "retry-after").unwrap();
            prop_assert!(retry.bytes().all(|byte| byte.is_ascii_digit()) && !retry.starts_with('0'));
            clock.advance(std::time::Duration::from_secs(retry.parse().unwrap()));
            prop_assert!(runtime.block_on(limiter.check_all(&asks)).unwrap().is_allowed());
        }
    }
}
