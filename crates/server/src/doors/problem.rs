//! Refusals: every answer that is not a decision is a problem of RFC 9457, with a status that no caller takes
//! for "allowed". They are written by `slidegate::http::answer`, for this server as for any other.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Serialize, Serializer};
use serde_json::Value;
use slidegate::http::answer::{self, NeverIs};
use slidegate::{CheckError, StoreError};

/// The longest `detail`, in bytes: what a caller sent is quoted in it, and need not come back whole.
const DETAIL_LEN_MAX: usize = 512;

/// Why a request was not decided. Serialized, it is the body of its answer.
#[derive(Debug)]
pub(crate) struct Problem(Box<http::Response<String>>);

impl Problem {
    /// A problem of this status; `detail` says what is wrong, and what to do instead.
    pub(crate) fn new(status: StatusCode, detail: impl AsRef<str>) -> Self {
        Self(Box::new(answer::problem(status, &shortened(detail.as_ref()), None)))
    }

    /// The caller sent what can't be used.
    pub(crate) fn bad_request(detail: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        match error {
            // The name is the caller's, and as long as a body may be.
            CheckError::UnknownPolicy { .. } => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            _ => Self(Box::new(answer::refused(&error, NeverIs::Unprocessable, None))),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        CheckError::Store(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.0.map(Body::from)
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let body: Value = serde_json::from_str(self.0.body()).map_err(serde::ser::Error::custom)?;
        body.serialize(serializer)
    }
}

fn shortened(detail: &str) -> String {
    if detail.len() <= DETAIL_LEN_MAX {
        return detail.to_owned();
    }
    format!("{}…", &detail[..detail.floor_char_boundary(DETAIL_LEN_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_sent_is_quoted_in_part() {
        let problem = serde_json::to_value(Problem::bad_request("é".repeat(100_000))).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.len() < 2 * DETAIL_LEN_MAX);
        assert!(detail.ends_with("é…"));
    }
}
