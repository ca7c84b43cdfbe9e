//! The gateway's own errors, as values and as answers: problems (RFC 9457), like those of the limiter.
//!
//! What hyper refuses by itself (a request line, header or framing that can't be parsed) never gets here: it
//! is answered with a bare status, and the connection is closed.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Method, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use slidegate::http::answer;
use slidegate::http::path::PathError;

use super::Answer;

/// Why a request does not go on, or came to nothing.
#[derive(Debug)]
pub(super) enum Refusal {
    /// 400: the message contradicts HTTP, or itself.
    Malformed(&'static str),
    /// 400: the path can't be read, so that no route can be said to match it.
    Path(PathError),
    /// 431.
    HeadTooLarge { most: usize },
    /// 501.
    Unsupported(&'static str),
    /// 404.
    NoRoute,
    /// 405: routes take the path, with other methods.
    Method { allowed: Vec<Method> },
    /// 413: said so by its length, or seen while it streamed.
    BodyTooLarge { most: u64 },
    /// 400: the body broke off, or is framed wrongly.
    BodyBroken,
    /// 408: the route's time was up while the client was still sending.
    BodyLate,
    /// The limiter's own answer.
    Limited(Box<Response<String>>),
    /// 502: no connection.
    Unreachable,
    /// 502: what came back is not an answer.
    UpstreamBroken,
    /// 504: no answer in time, or not even a connection.
    UpstreamLate,
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

impl Refusal {
    pub(super) fn into_answer(self, version: Version, is_head: bool) -> Answer {
        // An HTTP/1 connection can't carry another request behind one that was not read to its end.
        let closes = version < Version::HTTP_2
            && matches!(self, Self::BodyTooLarge { .. } | Self::BodyBroken | Self::BodyLate);
        let mut response = self.into_problem();
        let headers = response.headers_mut();
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_head {
            let length = response.body().len();
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            *response.body_mut() = String::new();
        }
        response.map(|body| Either::Left(Full::new(Bytes::from(body))))
    }

    fn into_problem(self) -> Response<String> {
        use StatusCode as Is;
        let problem = |status, detail: &str| answer::problem(status, detail, None);
        match self {
            Self::Malformed(detail) => problem(Is::BAD_REQUEST, detail),
            Self::Path(error) => problem(Is::BAD_REQUEST, &error.to_string()),
            Self::HeadTooLarge { most } => problem(
                Is::REQUEST_HEADER_FIELDS_TOO_LARGE,
                &format!("the request line and headers take more than {most} bytes"),
            ),
            Self::Unsupported(detail) => problem(Is::NOT_IMPLEMENTED, detail),
            Self::NoRoute => problem(Is::NOT_FOUND, "no route takes this request"),
            Self::Method { allowed } => {
                let mut response =
                    problem(Is::METHOD_NOT_ALLOWED, "no route takes this path with this method");
                response.headers_mut().insert(ALLOW, list(&allowed));
                response
            }
            Self::BodyTooLarge { most } => {
                problem(Is::PAYLOAD_TOO_LARGE, &format!("the body takes more than {most} bytes"))
            }
            Self::BodyBroken => problem(Is::BAD_REQUEST, "the body broke off, or is framed wrongly"),
            Self::BodyLate => problem(Is::REQUEST_TIMEOUT, "the body did not come in time"),
            Self::Limited(response) => *response,
            Self::Unreachable => problem(Is::BAD_GATEWAY, "the upstream does not accept connections"),
            Self::UpstreamBroken => problem(Is::BAD_GATEWAY, "the upstream did not answer as HTTP asks for"),
            Self::UpstreamLate => problem(Is::GATEWAY_TIMEOUT, "the upstream did not answer in time"),
        }
    }
}

fn list(methods: &[Method]) -> HeaderValue {
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    // Methods are tokens, which are always good header values.
    HeaderValue::try_from(names.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
}
