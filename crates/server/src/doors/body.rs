//! Reading JSON bodies: never more than a stated size, never for longer than a stated time, never more of them
//! at once than memory was set aside for. What can't be read is refused with the line and column of the fault.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use slidegate::spelling::nearest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// The longest body of one question. Keys come from request headers, which are no longer themselves.
pub(crate) const QUESTION_LEN_MAX: u32 = 64 * 1024;

/// The longest body of a batch: a thousand questions of 1 KiB.
pub(crate) const BATCH_LEN_MAX: u32 = 1024 * 1024;

/// What the bodies of one port may take at once, each counted at its endpoint's maximum: 1024 questions, or 64
/// batches. A body is here for microseconds, unless its sender is slow.
const HELD_LEN_MAX: u32 = 64 * 1024 * 1024;

/// How long a request waits for its turn and for the whole of its body. Slow senders must not hold what fast
/// ones wait for.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The memory that a port sets aside for bodies. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(HELD_LEN_MAX as usize)))
    }
}

/// A body that was read, and its share of the port's memory.
pub(crate) struct Held {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl Bodies {
    /// Reads a body of at most `len_max` bytes.
    ///
    /// # Errors
    /// 415 for what doesn't say that it is JSON, 413 for what is too long (at once, when its length is
    /// announced), 408 for what is too slow, 503 when too much is being read already, 400 for a body that
    /// breaks off.
    pub(crate) async fn read(&self, request: Request, len_max: u32) -> Result<Held, Problem> {
        require_json(request.headers())?;
        if request.body().size_hint().lower() > u64::from(len_max) {
            return Err(too_long(len_max));
        }
        let deadline = tokio::time::Instant::now() + READ_TIME_MAX;
        let turn = tokio::time::timeout_at(deadline, self.0.clone().acquire_many_owned(len_max)).await;
        let Ok(Ok(share)) = turn else {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests are being read: try again later",
            ));
        };
        let whole = Limited::new(request.into_body(), len_max as usize).collect();
        match tokio::time::timeout_at(deadline, whole).await {
            Ok(Ok(body)) => Ok(Held { bytes: body.to_bytes(), _share: share }),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long(len_max)),
            Ok(Err(_)) => Err(Problem::bad_request("the body breaks off")),
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {} s", READ_TIME_MAX.as_secs()),
            )),
        }
    }
}

impl Held {
    /// The body as JSON of a type, which borrows from it.
    ///
    /// # Errors
    /// 400 with the line and column of the fault.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        parse(&self.bytes)
    }
}

/// A JSON object of a type: derived types would take a list of their fields' values as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    let parsed: Result<Object<T>, _> = serde_json::from_slice(bytes);
    parsed.map(|object| object.0).map_err(|error| {
        let message = error.to_string();
        Problem::bad_request(match right_spelling(&message) {
            Some(field) => format!("{message}: did you mean `{field}`?"),
            None => message,
        })
    })
}

/// The field that was meant, out of serde's "unknown field `polcy`, expected one of `policy`, `key`".
fn right_spelling(message: &str) -> Option<&str> {
    let (given, expected) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    nearest(given, known.iter()).copied()
}

/// JSON must call itself JSON. Not for the parser's sake: a page of another site can make a browser send forms
/// and plain text anywhere without asking first, and `application/json` it can't.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE);
    let essence =
        given.and_then(|value| value.to_str().ok()).and_then(|value| value.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "bodies are JSON: send `Content-Type: application/json` (curl does with --json)",
    ))
}

fn too_long(len_max: u32) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {} KiB", len_max / 1024))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body whose length nobody announced: so many KiB, then the end, or silence.
    struct Pieces {
        left: usize,
        then_silence: bool,
    }

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return if self.then_silence { Poll::Pending } else { Poll::Ready(None) };
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 1024])))))
        }
    }

    fn post(content_type: &str, body: axum::body::Body) -> Request {
        let builder = http::Request::post("/").header(header::CONTENT_TYPE, content_type);
        builder.body(body).unwrap()
    }

    fn pieces(left: usize, then_silence: bool) -> Request {
        post("application/json", axum::body::Body::new(Pieces { left, then_silence }))
    }

    async fn status(bodies: &Bodies, request: Request) -> u16 {
        match bodies.read(request, QUESTION_LEN_MAX).await {
            Ok(_) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_however_it_comes() {
        let bodies = Bodies::default();
        let announced = |len| post("application/json", vec![b' '; len].into());
        assert_eq!(status(&bodies, announced(65_536)).await, 200);
        assert_eq!(status(&bodies, announced(65_537)).await, 413);
        assert_eq!(status(&bodies, pieces(64, false)).await, 200);
        assert_eq!(status(&bodies, pieces(65, false)).await, 413);
    }

    #[tokio::test]
    async fn only_what_calls_itself_json_is_read() {
        let bodies = Bodies::default();
        for (content_type, expected) in [
            ("application/json", 200),
            ("Application/JSON; charset=utf-8", 200),
            ("application/x-www-form-urlencoded", 415),
            ("text/plain", 415),
            ("text/plain; application/json", 415),
            ("", 415),
        ] {
            assert_eq!(status(&bodies, post(content_type, "{}".into())).await, expected, "{content_type}");
        }
        assert_eq!(status(&bodies, Request::new("{}".into())).await, 415);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up_and_its_share_freed() {
        let bodies = Bodies::default();
        assert_eq!(status(&bodies, pieces(1, true)).await, 408);
        assert_eq!(bodies.0.available_permits(), HELD_LEN_MAX as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_in_plenty_are_answered_503_and_do_not_fill_the_memory() {
        let bodies = Bodies::default();
        let count = HELD_LEN_MAX / QUESTION_LEN_MAX;
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(bodies.read(pieces(0, false), QUESTION_LEN_MAX).await.ok().unwrap());
        }
        assert_eq!(status(&bodies, pieces(0, false)).await, 503);
        held.pop();
        assert_eq!(status(&bodies, pieces(0, false)).await, 200);
    }

    #[test]
    fn a_fault_is_shown_with_its_position_and_the_right_spelling() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            #[serde(rename = "policy")]
            _policy: String,
            #[serde(rename = "cost")]
            _cost: u32,
        }
        let detail = |text: &str| {
            let problem = serde_json::to_value(parse::<Body>(text.as_bytes()).unwrap_err()).unwrap();
            problem["detail"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            detail(r#"{"polcy":"p"}"#),
            "unknown field `polcy`, expected `policy` or `cost` at line 1 column 8: did you mean `policy`?"
        );
        assert_eq!(detail("{\"policy\":\n}"), "expected value at line 2 column 1");
    }
}
