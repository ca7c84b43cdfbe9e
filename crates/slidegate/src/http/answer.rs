//! Whole answers for requests that do not go on: a status, the fields, and a problem that says why.
//!
//! Source: RFC 9457 (`application/problem+json`), and the problem types of
//! draft-ietf-httpapi-ratelimit-headers-10.
//!
//! | | status | type |
//! |---|---|---|
//! | a limit denied | 429 | `quota-exceeded` |
//! | a limit denied whose policy counts denied requests as a penalty | 429 | `abnormal-usage-detected` |
//! | the memory store is full ([`Mode::Full`]) | 429 | `temporary-reduced-capacity` |
//! | the store is away and the policy denies ([`Mode::DenyAll`]) | 503 | `temporary-reduced-capacity` |
//! | a check that is no decision ([`CheckError`]) | 4xx, 503 | see [`refused`] |
//!
//! A full store answers 429, as the one client's denial that it is, but with the type of a shortage: its
//! quota is not exceeded. The penalty type needs only one such policy among those that denied: what keeps
//! the client out is that it goes on trying, and that is what it has to be told.
//!
//! # Invariants
//! * An answer made here never looks like an allowed one: its status is an error, it is `no-store`, and its
//!   body is a problem.
//! * `instance` is the id of the request, never anything about the client.
//! * The body is there whatever the method: whoever answers HEAD leaves it out.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use super::{AnswerOptions, fields};
use crate::decision::{Decision, LimitState, Mode};
use crate::error::CheckError;

/// A problem's media type.
const PROBLEM_JSON: &str = "application/problem+json";

/// What a cost above what a limit can hold is to the caller: see [`CheckError::Never`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverIs {
    /// 429: at a proxy the client knows of no cost. Without `Retry-After`, since no wait helps.
    Denied,
    /// 422: at the check API the caller named the cost, and a smaller one may pass.
    Unprocessable,
}

/// The answer to a denied request, for one client at one moment.
///
/// `now_epoch_secs` is as in [`fields::apply`]; `request_id` becomes the problem's `instance`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use slidegate::{Limiter, Policy};
/// use slidegate::http::{AnswerOptions, answer};
///
/// let policy = Policy::builder("logins").limits("1/10m").build()?;
/// # let store = slidegate::MemoryStore::builder().clock(slidegate::testing::FakeClock::default()).build();
/// let limiter = Limiter::builder().policy(policy)
/// #     .store(store)
///     .build()?;
/// assert!(limiter.check("logins", &[]).await?.is_allowed());
///
/// let denied = limiter.check("logins", &[]).await?;
/// let answer = answer::denied(&denied, AnswerOptions::default(), 0, None);
/// assert_eq!(answer.status(), 429);
/// assert_eq!(answer.headers()["retry-after"], "600");
/// assert_eq!(answer.headers()["ratelimit"], r#""logins";r=0;t=600"#);
/// assert!(answer.body().contains(r#""violated-policies":["logins"]"#));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub fn denied(
    decision: &Decision,
    options: AnswerOptions,
    now_epoch_secs: u64,
    request_id: Option<&str>,
) -> Response<String> {
    let (status, kind) = match decision.mode() {
        Mode::DenyAll => (StatusCode::SERVICE_UNAVAILABLE, Kind::ReducedCapacity),
        Mode::Full => (StatusCode::TOO_MANY_REQUESTS, Kind::ReducedCapacity),
        _ if decision.violated().any(counts_denied) => (StatusCode::TOO_MANY_REQUESTS, Kind::AbnormalUsage),
        _ => (StatusCode::TOO_MANY_REQUESTS, Kind::QuotaExceeded),
    };
    let mut body = Body::new(kind, status);
    body.violated(decision.violated().map(|state| state.name));
    let mut response = body.finish(request_id);
    fields::apply(decision, options, now_epoch_secs, response.headers_mut());
    response
}

fn counts_denied(state: LimitState<'_>) -> bool {
    state.policy.counts_denied()
}

/// The answer to a request whose check came to no decision.
///
/// | error | status |
/// |---|---|
/// | [`Never`](CheckError::Never) | 429 or 422 by `never`, with `"never": true` |
/// | [`MissingPart`](CheckError::MissingPart), [`KeyParts`](CheckError::KeyParts), [`TooManyPolicies`](CheckError::TooManyPolicies), [`DuplicatePolicy`](CheckError::DuplicatePolicy) | 400 |
/// | [`UnknownPolicy`](CheckError::UnknownPolicy) | 404 |
/// | [`Store`](CheckError::Store) | 503 |
///
/// ```
/// use slidegate::CheckError;
/// use slidegate::http::answer::{NeverIs, refused};
///
/// let error = CheckError::MissingPart { policy: "per-user".into(), part: "header:x-user-id".into() };
/// let answer = refused(&error, NeverIs::Denied, Some("01JA3V"));
/// assert_eq!(answer.status(), 400);
/// assert_eq!(
///     answer.body(),
///     r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"policy per-user needs header:x-user-id, which the request lacks","instance":"01JA3V"}"#
/// );
/// ```
pub fn refused(error: &CheckError, never: NeverIs, request_id: Option<&str>) -> Response<String> {
    let detail = error.to_string();
    match error {
        CheckError::Never { limit, .. } => {
            let mut body = match never {
                NeverIs::Denied => Body::new(Kind::QuotaExceeded, StatusCode::TOO_MANY_REQUESTS),
                NeverIs::Unprocessable => Body::new(Kind::Plain, StatusCode::UNPROCESSABLE_ENTITY),
            };
            body.text("detail", &detail);
            body.violated([&**limit]);
            body.raw("never", "true");
            body.finish(request_id)
        }
        CheckError::MissingPart { .. }
        | CheckError::KeyParts { .. }
        | CheckError::TooManyPolicies { .. }
        | CheckError::DuplicatePolicy { .. } => problem(StatusCode::BAD_REQUEST, &detail, request_id),
        CheckError::UnknownPolicy { .. } => problem(StatusCode::NOT_FOUND, &detail, request_id),
        CheckError::Store(_) => {
            let mut body = Body::new(Kind::ReducedCapacity, StatusCode::SERVICE_UNAVAILABLE);
            body.text("detail", &detail);
            body.finish(request_id)
        }
    }
}

/// Any other answer that is an error, such as 404 where no route matches: its title is that of the status,
/// its `detail` says what is wrong with this request.
pub fn problem(status: StatusCode, detail: &str, request_id: Option<&str>) -> Response<String> {
    let mut body = Body::new(Kind::Plain, status);
    body.text("detail", detail);
    body.finish(request_id)
}

/// What kind of problem it is.
#[derive(Clone, Copy)]
enum Kind {
    QuotaExceeded,
    ReducedCapacity,
    AbnormalUsage,
    /// No more than its status says.
    Plain,
}

impl Kind {
    const fn uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::ReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsage => "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
            Self::Plain => "about:blank",
        }
    }

    fn title(self, status: StatusCode) -> &'static str {
        match self {
            Self::QuotaExceeded => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::ReducedCapacity => {
                "Request cannot be satisfied due to temporary server capacity constraints"
            }
            Self::AbnormalUsage => "Request not satisfied due to detection of abnormal request pattern",
            Self::Plain => status.canonical_reason().unwrap_or("Error"),
        }
    }
}

/// A problem that is being written: a JSON object without its closing brace.
struct Body {
    status: StatusCode,
    json: String,
}

/// Room for a problem with a few names, so that writing it allocates once.
const BODY_LEN: usize = 384;

impl Body {
    fn new(kind: Kind, status: StatusCode) -> Self {
        let mut body = Self { status, json: String::with_capacity(BODY_LEN) };
        body.text("type", kind.uri());
        body.text("title", kind.title(status));
        body.raw("status", status.as_str());
        body
    }

    /// Adds a member whose value is JSON already.
    fn raw(&mut self, name: &str, json: &str) {
        self.member(name);
        self.json.push_str(json);
    }

    /// Adds a member whose value is a text.
    fn text(&mut self, name: &str, text: &str) {
        self.member(name);
        push_string(&mut self.json, text);
    }

    fn violated<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.member("violated-policies");
        self.json.push('[');
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.json.push(',');
            }
            push_string(&mut self.json, name);
        }
        self.json.push(']');
    }

    fn member(&mut self, name: &str) {
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
        push_string(&mut self.json, name);
        self.json.push(':');
    }

    fn finish(mut self, request_id: Option<&str>) -> Response<String> {
        if let Some(id) = request_id {
            self.text("instance", id);
        }
        self.json.push('}');
        let mut response = Response::new(self.json);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Appends a JSON string (RFC 8259, section 7): quotes, backslashes and control characters are escaped.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str(r#"\""#),
            '\\' => json.push_str(r"\\"),
            '\n' => json.push_str(r"\n"),
            '\r' => json.push_str(r"\r"),
            '\t' => json.push_str(r"\t"),
            '\0'..='\x1f' => {
                json.push_str(r"\u00");
                let code = u32::from(character);
                json.extend([code >> 4, code & 15].map(|digit| char::from_digit(digit, 16).unwrap_or('0')));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests;
