//! Who may use a port: `Authorization: Bearer TOKEN` (RFC 6750), compared in constant time.
//!
//! What is compared are SHA-256 hashes, and every token of the port is compared with, so that the time of an
//! answer tells neither how long a token is, nor how much of it was right, nor which one it was.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::problem::Problem;
use crate::config::{Role, Tokens};

type Hash = [u8; 32];

/// What a part of a port demands of its callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Demand {
    /// `None`: whoever reaches the port may use it.
    tokens: Option<Arc<[(Hash, Role)]>>,
    role: Role,
}

impl Demand {
    /// Demands one of these tokens, if the port has any, with at least this role.
    pub(crate) fn new(tokens: &Tokens, role: Role) -> Self {
        let tokens = match tokens {
            Tokens::Anyone => None,
            Tokens::List(tokens) => {
                Some(tokens.iter().map(|token| (hash(token.secret.as_bytes()), token.role)).collect())
            }
        };
        Self { tokens, role }
    }

    /// Whether these headers prove what is demanded.
    fn met_by(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(tokens) = &self.tokens else {
            return Ok(());
        };
        let shown = bearer(headers).ok_or(Refusal::NoToken)?;
        match role_of(&hash(shown), tokens) {
            Some(role) if role == Role::Write || self.role == Role::Read => Ok(()),
            Some(_) => Err(Refusal::Role),
            None => Err(Refusal::WrongToken),
        }
    }
}

/// Lets requests through that meet the demand. A layer: `from_fn_with_state(demand, require)`.
pub(crate) async fn require(State(demand): State<Demand>, request: Request, next: Next) -> Response {
    match demand.met_by(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    WrongToken,
    Role,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, detail, challenge) = match self {
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "this port takes a token: send `Authorization: Bearer TOKEN`",
                r#"Bearer realm="slidegate""#,
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "this token is not among those of this port",
                r#"Bearer realm="slidegate", error="invalid_token""#,
            ),
            Self::Role => (
                StatusCode::FORBIDDEN,
                "this token may read and not write: use one whose role is `write`",
                r#"Bearer realm="slidegate", error="insufficient_scope""#,
            ),
        };
        let mut response = Problem::new(status, detail).into_response();
        let challenge = HeaderValue::from_static(challenge);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}

fn hash(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

/// The token of a request: of its only `Authorization` line, if that is a bearer's.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?.as_bytes(), lines.next()) else {
        return None;
    };
    let (scheme, rest) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// The role of the token with this hash. Looks at all of them, always.
fn role_of(shown: &Hash, tokens: &[(Hash, Role)]) -> Option<Role> {
    let mut found = Choice::from(0);
    let mut write = 0;
    for (token, role) in tokens {
        let same = token.ct_eq(shown);
        found |= same;
        write.conditional_assign(&u8::from(*role == Role::Write), same);
    }
    bool::from(found).then_some(if write == 1 { Role::Write } else { Role::Read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Token;

    fn tokens() -> Tokens {
        let token = |role, secret: &str| Token { role, secret: secret.into() };
        Tokens::List(vec![
            token(Role::Read, "reader-reader-reader"),
            token(Role::Write, "writer-writer-writer"),
        ])
    }

    fn ask(tokens: &Tokens, role: Role, lines: &[&str]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::AUTHORIZATION, line.parse().unwrap());
        }
        Demand::new(tokens, role).met_by(&headers)
    }

    #[test]
    fn a_port_without_tokens_is_for_whoever_reaches_it() {
        assert_eq!(ask(&Tokens::Anyone, Role::Write, &[]), Ok(()));
    }

    #[test]
    fn an_empty_list_of_tokens_lets_nobody_in() {
        let nobody = Tokens::List(Vec::new());
        assert_eq!(ask(&nobody, Role::Read, &["Bearer x"]), Err(Refusal::WrongToken));
        assert_eq!(ask(&nobody, Role::Read, &["Bearer "]), Err(Refusal::WrongToken));
    }

    #[test]
    fn a_token_is_good_for_its_role_and_those_below() {
        let cases = [
            ("Bearer reader-reader-reader", Role::Read, Ok(())),
            ("Bearer reader-reader-reader", Role::Write, Err(Refusal::Role)),
            ("Bearer writer-writer-writer", Role::Read, Ok(())),
            ("bearer   writer-writer-writer ", Role::Write, Ok(())),
        ];
        for (line, role, expected) in cases {
            assert_eq!(ask(&tokens(), role, &[line]), expected, "{line} {role:?}");
        }
    }

    #[test]
    fn what_is_not_exactly_a_token_is_none() {
        let wrong = [
            "Bearer reader-reader-reade",
            "Bearer reader-reader-readers",
            "Bearer READER-READER-READER",
            "Bearer reader-reader-reader, writer-writer-writer",
        ];
        for line in wrong {
            assert_eq!(ask(&tokens(), Role::Read, &[line]), Err(Refusal::WrongToken), "{line}");
        }
        let none = ["", "Bearer", "Basic cmVhZGVy", "reader-reader-reader", "Bearerreader-reader-reader"];
        for line in none {
            assert_eq!(ask(&tokens(), Role::Read, &[line]), Err(Refusal::NoToken), "{line}");
        }
    }

    #[test]
    fn two_authorization_lines_prove_nothing() {
        let lines = ["Bearer writer-writer-writer", "Bearer writer-writer-writer"];
        assert_eq!(ask(&tokens(), Role::Read, &lines), Err(Refusal::NoToken));
    }
}
