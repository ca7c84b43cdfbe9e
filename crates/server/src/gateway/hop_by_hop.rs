//! Header fields that are about one connection, and end there (RFC 9110 section 7.6.1).
//!
//! A message may name more of them in `Connection`. Those that would change what the message says to the
//! next hop are kept all the same: naming them there is a known way to hide an address from an upstream, or
//! to make two readers disagree about where a body ends.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Not `Trailer`: it announces fields at the end of the body, which go through.
const ALWAYS: [HeaderName; 8] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
];

/// No such field exists; CGI programs would take it for the variable `HTTP_PROXY`, and send their own
/// requests there ("httpoxy").
const PROXY: HeaderName = HeaderName::from_static("proxy");

/// Leaves what is meant for the upstream, as HTTP/1.1 writes it.
pub(super) fn strip_request(headers: &mut HeaderMap, version: Version) {
    let takes_trailers = takes_trailers(headers);
    strip(headers);
    headers.remove(PROXY);
    // Met already: the client is told to go on when its body is first asked for.
    headers.remove(EXPECT);
    headers.remove(TE);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
}

/// Leaves what is meant for the client.
pub(super) fn strip_response(headers: &mut HeaderMap) {
    strip(headers);
}

fn strip(headers: &mut HeaderMap) {
    let named: SmallVec<[HeaderName; 4]> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !speaks_to_next_hop(name))
        .collect();
    for name in ALWAYS.iter().chain(&named) {
        headers.remove(name);
    }
}

fn speaks_to_next_hop(name: &HeaderName) -> bool {
    *name == HOST
        || *name == CONTENT_LENGTH
        || *name == FORWARDED
        || name.as_str().starts_with("x-forwarded-")
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// HTTP/2 may spread cookies over several lines, HTTP/1.1 may not (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else {
        return;
    };
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        fields.iter().map(field).collect()
    }

    fn left(fields: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = headers(fields);
        strip_request(&mut headers, Version::HTTP_11);
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn fields_of_the_connection_end_here() {
        let fields = [
            ("connection", "keep-alive, X-Private"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic c2VjcmV0"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("expect", "100-continue"),
            ("proxy", "http://evil.example/"),
            ("x-private", "1"),
            ("trailer", "x-checksum"),
            ("x-kept", "1"),
        ];
        assert_eq!(left(&fields), ["trailer: x-checksum", "x-kept: 1"]);
    }

    #[test]
    fn connection_can_not_name_away_who_asked_or_how_long_the_body_is() {
        let fields = [
            ("connection", "close, content-length, host, x-forwarded-for, forwarded, , \u{a0}bad name"),
            ("content-length", "5"),
            ("host", "a"),
            ("x-forwarded-for", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
        ];
        assert_eq!(
            left(&fields),
            ["content-length: 5", "forwarded: for=203.0.113.7", "host: a", "x-forwarded-for: 203.0.113.7"]
        );
    }

    #[test]
    fn te_goes_on_when_it_asks_for_trailers_and_only_for_those() {
        assert_eq!(left(&[("te", "gzip;q=0.5, Trailers")]), ["connection: te", "te: trailers"]);
        assert_eq!(left(&[("te", "gzip")]), [""; 0]);
    }

    #[test]
    fn cookies_of_http_2_become_one_line() {
        let mut several = headers(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")]);
        strip_request(&mut several, Version::HTTP_2);
        let lines: Vec<_> = several.get_all(COOKIE).iter().collect();
        assert_eq!(lines, ["a=1; b=2; c=3"]);
    }
}
