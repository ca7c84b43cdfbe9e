use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Policy;
use crate::error::{Fault, StoreError};
use crate::http::Legacy;
use crate::http::samples::{decision, denied as outcome, limiter, passed, policy};
use crate::limiter::Ask;

fn answer_to(decision: &Decision) -> Response<String> {
    denied(decision, AnswerOptions::default(), 0, None)
}

fn body(answer: &Response<String>) -> Value {
    serde_json::from_str(answer.body()).unwrap()
}

fn header<'a>(answer: &'a Response<String>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

fn kind(answer: &Response<String>) -> String {
    let uri = body(answer)["type"].as_str().unwrap().to_owned();
    uri.rsplit('#').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_denial_by_count_is_429_with_all_its_fields() {
    let (_, limiter) = limiter([policy("minute", "1/m"), policy("hour", "100/h")]);
    let asks = [Ask::new("minute", &[]), Ask::new("hour", &[])];
    assert!(limiter.check_all(&asks).await.unwrap().is_allowed());
    let decision = limiter.check_all(&asks).await.unwrap();
    let answer = denied(&decision, AnswerOptions::default(), 0, Some("01JA3V8Q"));
    assert_eq!(answer.status(), 429);
    let headers: Vec<_> = answer.headers().iter().collect();
    assert_eq!(headers.len(), 5);
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    assert_eq!(header(&answer, "cache-control"), Some("no-store"));
    assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&answer, "ratelimit"), Some(r#""minute";r=0;t=60"#));
    assert_eq!(header(&answer, "ratelimit-policy"), Some(r#""minute";q=1;w=60, "hour";q=100;w=3600"#));
    assert_eq!(
        answer.body(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["minute"],"instance":"01JA3V8Q"}"#
    );
}

#[tokio::test]
async fn a_denial_by_several_limits_names_them_all() {
    let (_, limiter) = limiter([policy("p", "1/s; 1/m; 9/h")]);
    assert!(limiter.check("p", &[]).await.unwrap().is_allowed());
    let answer = answer_to(&limiter.check("p", &[]).await.unwrap());
    assert_eq!(body(&answer)["violated-policies"], json!(["p-1", "p-2"]));
    assert_eq!(body(&answer).get("instance"), None);
}

#[test]
fn denied_for_want_of_a_store_is_503() {
    let answer = answer_to(&decision(Mode::DenyAll, [(policy("p", "1/m"), vec![outcome(1, 0, 0, None)])]));
    assert_eq!(answer.status(), 503);
    assert_eq!(kind(&answer), "temporary-reduced-capacity");
    assert_eq!(body(&answer)["status"], 503);
    assert_eq!(body(&answer)["violated-policies"], json!(["p"]));
    assert_eq!(header(&answer, "retry-after"), None);
}

#[test]
fn denied_by_a_full_store_is_429_for_want_of_capacity() {
    let answer = answer_to(&decision(Mode::Full, [(policy("p", "1/m"), vec![outcome(1, 0, 0, None)])]));
    assert_eq!(answer.status(), 429);
    assert_eq!(kind(&answer), "temporary-reduced-capacity");
    assert_eq!(header(&answer, "retry-after"), None);
}

#[tokio::test]
async fn a_penalty_is_told_as_abnormal_usage() {
    let penal = Policy::builder("penal").limits("1/m").count_denied(true).build().unwrap();
    let (_, limiter) = limiter([penal, policy("p", "1/m")]);
    for name in ["penal", "p"] {
        assert!(limiter.check(name, &[]).await.unwrap().is_allowed());
    }
    let answer = answer_to(&limiter.check("penal", &[]).await.unwrap());
    assert_eq!((answer.status().as_u16(), kind(&answer)), (429, "abnormal-usage-detected".into()));
    let both = [Ask::new("p", &[]), Ask::new("penal", &[])];
    let answer = answer_to(&limiter.check_all(&both).await.unwrap());
    assert_eq!(kind(&answer), "abnormal-usage-detected");
    let answer = answer_to(&limiter.check("p", &[]).await.unwrap());
    assert_eq!(kind(&answer), "quota-exceeded");
}

// F5 in answers: a shadow policy that is over its limit is not what denied the request.
#[test]
fn a_shadow_policy_is_never_named() {
    let shadow = Policy::builder("watched").limits("1/m").count_denied(true).shadow(true);
    let answer = answer_to(&decision(
        Mode::Normal,
        [
            (shadow.build().unwrap(), vec![outcome(1, 1, 100, Some(100))]),
            (policy("p", "5/m"), vec![outcome(5, 5, 2_000, Some(2_000))]),
        ],
    ));
    assert_eq!(kind(&answer), "quota-exceeded");
    assert_eq!(body(&answer)["violated-policies"], json!(["p"]));
    assert!(!format!("{answer:?}").contains("watched"));
}

#[test]
fn options_reach_the_fields() {
    let options = AnswerOptions { legacy: Legacy::Epoch, mode: true };
    let decision = decision(Mode::Local, [(policy("p", "5/m"), vec![outcome(5, 5, 2_000, Some(2_000))])]);
    let answer = denied(&decision, options, 1_000, None);
    assert_eq!(header(&answer, "x-ratelimit-reset"), Some("1003"));
    assert_eq!(header(&answer, "slidegate-mode"), Some("local"));
}

// --- checks without a decision --------------------------------------------------------------------------

fn never() -> CheckError {
    CheckError::Never { policy: "p".into(), limit: "burst".into(), cost: 11, capacity: 10 }
}

// R111: a cost above the limit was a wait of infinity. It is told apart from `try later`.
#[test]
fn a_cost_that_never_fits_says_so_and_when_it_does_not() {
    for (never_is, status, kind) in [
        (NeverIs::Denied, 429, "https://iana.org/assignments/http-problem-types#quota-exceeded"),
        (NeverIs::Unprocessable, 422, "about:blank"),
    ] {
        let answer = refused(&never(), never_is, None);
        assert_eq!(answer.status(), status);
        assert_eq!(header(&answer, "retry-after"), None);
        let body = body(&answer);
        assert_eq!(body["type"], kind);
        assert_eq!(body["status"], status);
        assert_eq!(body["never"], true);
        assert_eq!(body["violated-policies"], json!(["burst"]));
        assert_eq!(body["detail"], "a cost of 11 never fits: limit burst of policy p holds 10");
    }
}

/// Each error, and the status that it is answered with at a proxy.
fn errors() -> Vec<(CheckError, u16)> {
    vec![
        (never(), 429),
        (CheckError::MissingPart { policy: "p".into(), part: "header:x-user-id".into() }, 400),
        (
            CheckError::KeyParts {
                policy: "p".into(),
                expected: 1,
                parts: vec!["client_ip".into()],
                given: 2,
            },
            400,
        ),
        (CheckError::TooManyPolicies { given: 17, most: 16 }, 400),
        (CheckError::DuplicatePolicy { policy: "p".into() }, 400),
        (CheckError::UnknownPolicy { name: "per-usr".into(), nearest: Some("per-user".into()) }, 404),
        (StoreError::ReservationsFull { most: 1 }.into(), 503),
        (StoreError::Unavailable { fault: Fault::Disconnected }.into(), 503),
        (StoreError::Lost { fault: Fault::Timeout }.into(), 503),
    ]
}

#[test]
fn each_error_has_its_status_and_says_what_is_wrong() {
    for (error, status) in errors() {
        let answer = refused(&error, NeverIs::Denied, Some("id"));
        assert_eq!(answer.status(), status, "{error}");
        assert_eq!(body(&answer)["status"], status);
        assert_eq!(body(&answer)["detail"], error.to_string());
        assert_eq!(body(&answer)["instance"], "id");
    }
}

// F11: an error reply carried the default status, which was "under limit".
#[test]
fn no_error_looks_like_allowed() {
    let mut answers: Vec<_> = [NeverIs::Denied, NeverIs::Unprocessable]
        .into_iter()
        .flat_map(|never| errors().into_iter().map(move |(error, _)| refused(&error, never, None)))
        .collect();
    answers.extend(Mode::ALL.map(|mode| {
        let violated = outcome(5, 5, 2_000, Some(2_000));
        answer_to(&decision(mode, [(policy("p", "5/m"), vec![violated])]))
    }));
    // Nor does the answer of a caller that takes an allowed decision for a denial.
    answers.push(answer_to(&decision(Mode::Normal, [(policy("p", "5/m"), vec![passed(5, 1, 100)])])));
    answers.push(problem(StatusCode::NOT_FOUND, "no route matches /x", None));
    for answer in answers {
        let status = answer.status();
        assert!(status.is_client_error() || status.is_server_error(), "{status}");
        assert_eq!(body(&answer)["status"], status.as_u16());
        assert_eq!(header(&answer, "cache-control"), Some("no-store"));
        assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
    }
}

#[test]
fn a_plain_problem_has_the_title_of_its_status() {
    let answer = problem(StatusCode::NOT_FOUND, "no route matches /x", Some("7"));
    assert_eq!(
        answer.body(),
        r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"no route matches /x","instance":"7"}"#
    );
    let unnamed = problem(StatusCode::from_u16(499).unwrap(), "", None);
    assert_eq!(body(&unnamed)["title"], "Error");
}

// --- JSON -----------------------------------------------------------------------------------------------

#[test]
fn what_json_does_not_hold_is_escaped() {
    let mut json = String::new();
    push_string(&mut json, "a\"b\\c\n\r\t\0\u{1f}\u{7f}é😀</script>");
    assert_eq!(json, "\"a\\\"b\\\\c\\n\\r\\t\\u0000\\u001f\u{7f}é😀</script>\"");
}

proptest! {
    // Any text is read back as itself.
    #[test]
    fn any_text_is_read_back(text in any::<String>(), control in 0..0x20_u8) {
        let text = format!("{text}{}{text}", char::from(control));
        let mut json = String::new();
        push_string(&mut json, &text);
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    // Every answer is one JSON object, whatever is in names, details and ids.
    #[test]
    fn every_answer_is_one_object(detail in any::<String>(), id in any::<Option<String>>(), name in "[ -~]{1,64}") {
        let id = id.as_deref();
        let plain = body(&problem(StatusCode::BAD_REQUEST, &detail, id));
        prop_assert_eq!(plain["detail"].as_str().unwrap(), detail.as_str());
        let error = CheckError::UnknownPolicy { name: detail.as_str().into(), nearest: None };
        prop_assert_eq!(&body(&refused(&error, NeverIs::Denied, id))["detail"], &error.to_string());
        let decision = decision(Mode::Normal, [(policy(&name, "1/m"), vec![outcome(1, 1, 9, Some(9))])]);
        let denied = body(&denied(&decision, AnswerOptions::default(), 0, id));
        prop_assert_eq!(&denied["violated-policies"], &json!([name]));
        prop_assert_eq!(denied.get("instance").and_then(Value::as_str), id);
    }
}
