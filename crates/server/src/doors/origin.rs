//! Keeps web pages away from the API and admin ports.
//!
//! A browser on the same machine reaches loopback addresses, whatever page it shows. A page of another site
//! names itself in `Origin`; a page whose own name was made to point at this machine (DNS rebinding) names
//! that in `Host`. So: an `Origin` must be the very host that is asked, always; and on a port without tokens
//! the host must be an IP address or `localhost`, which no page of another site can have. A port with tokens
//! may go by any name, such as a service's in a cluster: a page that has been given a token is welcome.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{StatusCode, Version, header};
use std::net::IpAddr;

use super::problem::Problem;
use crate::config::Tokens;

/// Which names a port may be asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// IP addresses and `localhost`.
    Local,
    /// Any.
    Any,
}

impl Names {
    /// What the tokens of a port allow for.
    pub(crate) const fn under(tokens: &Tokens) -> Self {
        match tokens {
            Tokens::Anyone => Self::Local,
            Tokens::List(_) => Self::Any,
        }
    }
}

/// Lets requests through that no other site's page sent. A layer: `from_fn_with_state(names, refuse_pages)`.
pub(crate) async fn refuse_pages(State(names): State<Names>, request: Request, next: Next) -> Response {
    match check(names, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check<B>(names: Names, request: &http::Request<B>) -> Result<(), Problem> {
    let host = host(request)?;
    if let Some(host) = &host
        && names == Names::Local
        && !is_local(host.host())
    {
        let detail = format!(
            "this port has no tokens, so it is asked by IP address or as localhost, not as {}",
            host.host()
        );
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    let same = origins.next().is_none()
        && host.is_some_and(|host| origin.to_str().is_ok_and(|origin| is_origin_of(origin, host.as_str())));
    if same {
        Ok(())
    } else {
        let detail = "pages of other sites may not use this port: ask it from a program, without `Origin`";
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }
}

/// The host that was asked; `None` for HTTP/1.0 without one, which browsers do not send.
fn host<B>(request: &http::Request<B>) -> Result<Option<Authority>, Problem> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let mut lines = request.headers().get_all(header::HOST).iter();
    match (lines.next(), lines.next()) {
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(|host| host.parse().ok())
            .map(Some)
            .ok_or_else(|| Problem::bad_request("`Host` is not a host")),
        (None, _) if request.version() < Version::HTTP_11 => Ok(None),
        (None, _) => Err(Problem::bad_request("`Host` is missing")),
        (Some(_), Some(_)) => Err(Problem::bad_request("`Host` is there twice: send it once")),
    }
}

fn is_local(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
}

/// Whether an `Origin` is `http://HOST` or `https://HOST`: ports that are the scheme's own are left out of
/// both by browsers.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    bare.is_some_and(|bare| bare.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(names: Names, lines: &[(&str, &str)]) -> u16 {
        let mut request = http::Request::get("/metrics");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        match check(names, &request.body(()).unwrap()) {
            Ok(()) => 200,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[test]
    fn a_port_without_tokens_goes_by_address_or_localhost() {
        let cases = [
            ("127.0.0.1:8082", 200),
            ("[::1]:8082", 200),
            ("localhost", 200),
            ("LocalHost:8082", 200),
            ("10.0.0.3", 200),
            ("evil.example:8082", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("127.1", 403),
            ("a b", 400),
            ("", 400),
        ];
        for (host, expected) in cases {
            assert_eq!(status(Names::Local, &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn a_port_with_tokens_goes_by_any_name() {
        assert_eq!(status(Names::Any, &[("host", "slidegate.ns.svc:8082")]), 200);
    }

    #[test]
    fn an_origin_must_be_the_host_itself() {
        let host = ("host", "127.0.0.1:8090");
        let cases = [
            ("http://127.0.0.1:8090", 200),
            ("https://127.0.0.1:8090", 200),
            ("http://127.0.0.1:8091", 403),
            ("http://evil.example", 403),
            ("null", 403),
            ("", 403),
            ("127.0.0.1:8090", 403),
        ];
        for names in [Names::Local, Names::Any] {
            for (origin, expected) in cases {
                assert_eq!(status(names, &[host, ("origin", origin)]), expected, "{origin}");
            }
        }
    }

    #[test]
    fn two_hosts_or_origins_are_refused_and_none_is_for_old_protocols() {
        let local = ("host", "127.0.0.1");
        assert_eq!(status(Names::Local, &[local, ("host", "evil.example")]), 400);
        let mine = ("origin", "http://127.0.0.1");
        assert_eq!(status(Names::Local, &[local, mine, mine]), 403);
        assert_eq!(status(Names::Local, &[]), 400);
        let old = http::Request::get("/healthz").version(Version::HTTP_10);
        assert!(check(Names::Local, &old.body(()).unwrap()).is_ok());
    }

    #[test]
    fn the_target_of_a_request_counts_more_than_its_host_line() {
        let request = http::Request::get("http://evil.example/metrics").header("host", "127.0.0.1");
        assert!(check(Names::Local, &request.body(()).unwrap()).is_err());
    }
}
