//! What a message must be before anything is made of it: one host, one framing, no tunnel, a bounded head.
//!
//! hyper has parsed it by now and settled its framing: contradicting lengths are refused, and of a length
//! beside `Transfer-Encoding` only the latter is left, on a connection that will close. What is checked here
//! is what hyper leaves to its user. Wherever two readers of one message could disagree, it is refused:
//! that is how requests are smuggled past whoever guards.

use http::header::{HOST, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Version};

use super::refusal::Refusal;

/// What was found out about a request.
#[derive(Debug)]
pub(super) struct Intake {
    /// The host that was asked for, as the upstream gets it; `None` when the request names none.
    pub(super) host: Option<HeaderValue>,
    /// The same for matching: lower case, without port and without the dot of a fully qualified name.
    pub(super) name: Option<Box<str>>,
}

impl Intake {
    pub(super) fn read(parts: &Parts, head_bytes_max: usize) -> Result<Self, Refusal> {
        if head_bytes(parts) > head_bytes_max {
            return Err(Refusal::HeadTooLarge { most: head_bytes_max });
        }
        if parts.method == Method::CONNECT {
            return Err(Refusal::Unsupported("CONNECT is for proxies that open tunnels; this one does not"));
        }
        if asks_for_websocket(&parts.headers) {
            return Err(Refusal::Unsupported("WebSocket connections are not available yet"));
        }
        check_framing(&parts.headers)?;
        let host = host(parts)?;
        let name = host.as_ref().map(name).transpose()?.flatten();
        Ok(Self { host, name })
    }
}

/// As HTTP/1.1 would write it, so that the bound is the same for both versions.
fn head_bytes(parts: &Parts) -> usize {
    // Two spaces, `HTTP/1.1` and the end of the line; then `: ` and the end of each line, and an empty one.
    let target = parts.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let line = parts.method.as_str().len() + target + 12;
    let fields = parts.headers.iter();
    line + 2 + fields.map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>()
}

/// Other upgrades may be ignored, and are: curl offers `h2c` with ordinary requests.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// `chunked` is undone on the way through. Any other coding would go on undeclared, since the field itself
/// is for one hop only.
fn check_framing(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_plain && codings.next().is_none() {
        return Ok(());
    }
    Err(Refusal::Unsupported("the only transfer coding that is understood is chunked"))
}

/// RFC 9112 section 3.2 and RFC 9113 section 8.3.1. A target that names its authority is what counts.
fn host(parts: &Parts) -> Result<Option<HeaderValue>, Refusal> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return Err(Refusal::Malformed("the request has more than one Host"));
    }
    if line.is_none() && parts.version == Version::HTTP_11 {
        return Err(Refusal::Malformed("the request has no Host"));
    }
    let Some(authority) = parts.uri.authority() else {
        return Ok(line.cloned());
    };
    let differs =
        line.is_some_and(|line| !line.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()));
    if differs {
        return Err(Refusal::Malformed("the request names two hosts"));
    }
    HeaderValue::from_str(authority.as_str()).map(Some).map_err(|_| Refusal::Malformed(HOST_UNREADABLE))
}

const HOST_UNREADABLE: &str = "the Host is not a name or address with an optional port";

/// `None` for an empty host, which HTTP/1.1 allows.
fn name(host: &HeaderValue) -> Result<Option<Box<str>>, Refusal> {
    if host.is_empty() {
        return Ok(None);
    }
    let unreadable = || Refusal::Malformed(HOST_UNREADABLE);
    let authority = Authority::try_from(host.as_bytes()).map_err(|_| unreadable())?;
    let name = authority.host();
    if authority.as_str().contains('@') || !is_host(name) {
        return Err(unreadable());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    Ok(Some(name.to_ascii_lowercase().into()))
}

/// Stricter than a URI, which allows marks and encodings that no host has, and that readers take for
/// separators.
fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_ipv6 = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.bytes().all(is_ipv6),
        None => name.bytes().all(is_plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn read(request: http::request::Builder) -> Result<Intake, Refusal> {
        Intake::read(&request.body(()).unwrap().into_parts().0, 1000)
    }

    fn host_of(value: &str) -> Result<Option<String>, String> {
        match read(Request::get("/").header(HOST, value)) {
            Ok(intake) => Ok(intake.name.map(String::from)),
            Err(Refusal::Malformed(detail)) => Err(detail.into()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_is_matched_without_case_port_and_final_dot() {
        for same in ["example.com", "EXAMPLE.com", "example.com:8080", "example.com.", "Example.Com.:443"] {
            assert_eq!(host_of(same), Ok(Some("example.com".into())), "{same}");
        }
        assert_eq!(host_of("[2001:DB8::1]:80"), Ok(Some("[2001:db8::1]".into())));
        assert_eq!(host_of("127.0.0.1"), Ok(Some("127.0.0.1".into())));
        assert_eq!(host_of(""), Ok(None));
    }

    #[test]
    fn a_host_that_readers_could_disagree_about_is_refused() {
        for bad in
            ["a b", "a/b", "user@example.com", "a,b", "[::1", "a:b:c", "a?b", "a#b", "a%2fb", "(a)", "a;b"]
        {
            assert!(host_of(bad).is_err(), "{bad} gave {:?}", host_of(bad));
        }
        let two = Request::get("/").header(HOST, "a").header(HOST, "b");
        assert!(matches!(read(two), Err(Refusal::Malformed("the request has more than one Host"))));
        assert!(matches!(read(Request::get("/")), Err(Refusal::Malformed("the request has no Host"))));
        let contradicting = Request::get("http://a.example/").header(HOST, "b.example");
        assert!(matches!(read(contradicting), Err(Refusal::Malformed("the request names two hosts"))));
    }

    #[test]
    fn a_target_with_an_authority_names_the_host() {
        let h2 = read(Request::get("http://a.example:81/").version(Version::HTTP_2)).unwrap();
        assert_eq!(h2.host.unwrap(), "a.example:81");
        assert_eq!(h2.name.as_deref(), Some("a.example"));
        let old = read(Request::get("/").version(Version::HTTP_10)).unwrap();
        assert!(old.host.is_none());
    }

    #[test]
    fn transfer_codings_other_than_chunked_are_refused() {
        let with =
            |coding: &str| read(Request::post("/").header(HOST, "a").header(TRANSFER_ENCODING, coding));
        assert!(with("chunked").is_ok());
        assert!(with("Chunked").is_ok());
        for bad in ["gzip, chunked", "identity", "chunked, chunked", "", "xchunked", "chunked;q=1"] {
            assert!(matches!(with(bad), Err(Refusal::Unsupported(_))), "{bad}");
        }
    }

    #[test]
    fn tunnels_are_refused_and_other_upgrades_ignored() {
        let websocket = Request::get("/").header(HOST, "a").header(UPGRADE, "WebSocket");
        assert!(matches!(read(websocket), Err(Refusal::Unsupported(_))));
        let connect = Request::connect("a:443").header(HOST, "a:443");
        assert!(matches!(read(connect), Err(Refusal::Unsupported(_))));
        assert!(read(Request::get("/").header(HOST, "a").header(UPGRADE, "h2c")).is_ok());
    }

    #[test]
    fn the_head_is_measured_as_http_1_would_write_it() {
        let wire = "GET /path?q HTTP/1.1\r\nhost: a\r\nx-long: 12345\r\n\r\n";
        let request = Request::get("/path?q").header(HOST, "a").header("x-long", "12345");
        let parts = request.body(()).unwrap().into_parts().0;
        assert_eq!(head_bytes(&parts), wire.len());
        assert!(Intake::read(&parts, wire.len()).is_ok());
        let over = Intake::read(&parts, wire.len() - 1);
        assert!(matches!(over, Err(Refusal::HeadTooLarge { .. })));
    }
}
