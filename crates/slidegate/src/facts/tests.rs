use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// A request of these headers and this query, as the tests below ask about it.
struct Request {
    method: Method,
    headers: HeaderMap,
    query: Option<String>,
}

impl Request {
    fn new(headers: &[(&'static str, &[u8])], query: Option<&str>) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        Self { method: Method::GET, headers: map, query: query.map(str::to_owned) }
    }

    fn facts(&self) -> RequestFacts<'_> {
        RequestFacts {
            method: &self.method,
            headers: &self.headers,
            path: "/users/7",
            query: self.query.as_deref(),
            host: None,
            route: None,
            path_params: &[("id", "7"), ("empty", ""), ("id", "8")],
            client: None,
        }
    }
}

/// A value as text; `None` when the request lacks it.
fn text(value: Option<Cow<'_, [u8]>>) -> Option<String> {
    Some(String::from_utf8(value?.into_owned()).unwrap())
}

fn header(headers: &[(&'static str, &[u8])], name: &str) -> Option<String> {
    text(Request::new(headers, None).facts().header(name))
}

fn cookie(lines: &[&str], name: &str) -> Option<String> {
    let headers: Vec<_> = lines.iter().map(|line| ("cookie", line.as_bytes())).collect();
    text(Request::new(&headers, None).facts().cookie(name))
}

fn query(query: &str, name: &str) -> Option<String> {
    text(Request::new(&[], Some(query)).facts().query(name))
}

#[test]
fn the_lines_of_a_header_are_joined_in_order() {
    let headers: &[(_, &[u8])] = &[("x-user", b"a"), ("other", b"o"), ("x-user", b"b, c"), ("x-user", b"")];
    assert_eq!(header(headers, "x-user").unwrap(), "a, b, c, ");
    assert_eq!(header(headers, "X-User").unwrap(), "a, b, c, ");
    assert_eq!(header(headers, "other").unwrap(), "o");
}

#[test]
fn one_line_is_not_copied() {
    let request = Request::new(&[("x-user", b"a")], Some("a=b"));
    assert!(matches!(request.facts().header("x-user"), Some(Cow::Borrowed(b"a"))));
    assert!(matches!(request.facts().query("a"), Some(Cow::Borrowed(b"b"))));
}

#[test]
fn an_empty_header_is_there_and_a_missing_one_is_not() {
    assert_eq!(header(&[("x-user", b"")], "x-user").unwrap(), "");
    assert_eq!(header(&[("x-user", b"")], "x-other"), None);
    // Not a name at all.
    assert_eq!(header(&[("x-user", b"")], "x user"), None);
}

#[test]
fn a_header_may_hold_bytes_that_are_no_text() {
    let request = Request::new(&[("x-user", b"\xff\xfe")], None);
    assert_eq!(request.facts().header("x-user").unwrap(), &b"\xff\xfe"[..]);
}

// HTTP/2 may cut `Cookie` into a line for each pair. Joined by commas, the same cookies would be another key.
#[test]
fn cookies_are_the_same_header_however_they_are_cut() {
    let one: &[(_, &[u8])] = &[("cookie", b"a=1; b=2")];
    let cut: &[(_, &[u8])] = &[("cookie", b"a=1"), ("cookie", b"b=2")];
    assert_eq!(header(one, "cookie"), header(cut, "Cookie"));
}

#[test]
fn a_cookie_is_the_first_pair_of_its_name() {
    assert_eq!(cookie(&["a=1; sid=x; sid=y"], "sid").unwrap(), "x");
    assert_eq!(cookie(&["a=1", "sid=x", "sid=y"], "sid").unwrap(), "x");
    assert_eq!(cookie(&["a=1;sid=x;b"], "sid").unwrap(), "x");
    assert_eq!(cookie(&["sid=x=y=="], "sid").unwrap(), "x=y==");
}

#[test]
fn an_empty_cookie_is_there_and_a_missing_one_is_not() {
    assert_eq!(cookie(&["sid=; a=1"], "sid").unwrap(), "");
    for lines in [&["a=1"][..], &[], &[""], &["sid"], &["xsid=1; sidx=2"], &["SID=1"], &["a=sid=1"]] {
        assert_eq!(cookie(lines, "sid"), None, "{lines:?}");
    }
}

#[test]
fn a_query_parameter_is_decoded() {
    assert_eq!(query("q=a%20b+c%2Bd", "q").unwrap(), "a b c+d");
    assert_eq!(query("q=caf%C3%A9", "q").unwrap(), "café");
    // What can't be decoded stays as it is.
    assert_eq!(query("q=100%&r=%zz+%4", "q").unwrap(), "100%");
    assert_eq!(query("q=100%&r=%zz+%4", "r").unwrap(), "%zz %4");
    let request = Request::new(&[], Some("q=%ff"));
    assert_eq!(request.facts().query("q").unwrap(), &b"\xff"[..]);
}

// A name that is spelled another way is the same parameter, or a limit by it is dodged.
#[test]
fn the_name_of_a_query_parameter_is_decoded() {
    assert_eq!(query("%69d=1", "id").unwrap(), "1");
    assert_eq!(query("user+id=1", "user id").unwrap(), "1");
    assert_eq!(query("user%20id=1", "user id").unwrap(), "1");
}

#[test]
fn the_first_of_equal_query_parameters_counts() {
    assert_eq!(query("id=1&id=2", "id").unwrap(), "1");
    assert_eq!(query("a=0&%69d=1&id=2", "id").unwrap(), "1");
}

#[test]
fn an_empty_query_parameter_is_there_and_a_missing_one_is_not() {
    for empty in ["id=", "id", "a=1&id", "id&a=1", "id=&id=2"] {
        assert_eq!(query(empty, "id").unwrap(), "", "{empty}");
    }
    for missing in ["", "a=1", "ID=1", "idx=1", "xid=1", "a=id", "&&", "=", "a=1;id=2"] {
        assert_eq!(query(missing, "id"), None, "{missing}");
    }
    assert_eq!(text(Request::new(&[], None).facts().query("id")), None);
}

#[test]
fn a_path_parameter_is_found_by_its_name() {
    let request = Request::new(&[], None);
    assert_eq!(request.facts().path_param("id"), Some("7"));
    assert_eq!(request.facts().path_param("empty"), Some(""));
    assert_eq!(request.facts().path_param("ID"), None);
}

// R140: preflights, which browsers send of themselves, burned the quota of the request they prepare.
#[test]
fn a_preflight_is_options_with_an_origin_and_the_method_to_come() {
    let origin: (&str, &[u8]) = ("origin", b"https://example.com");
    let method: (&str, &[u8]) = ("access-control-request-method", b"POST");
    let is_preflight = |verb: Method, headers: &[(&'static str, &[u8])]| {
        let request = Request { method: verb, ..Request::new(headers, None) };
        request.facts().is_preflight()
    };
    assert!(is_preflight(Method::OPTIONS, &[origin, method]));
    assert!(!is_preflight(Method::OPTIONS, &[origin]));
    assert!(!is_preflight(Method::OPTIONS, &[method]));
    assert!(!is_preflight(Method::OPTIONS, &[]));
    assert!(!is_preflight(Method::GET, &[origin, method]));
}

#[test]
fn a_client_is_written_as_its_group() {
    let written = |address: &str, prefix| Client { address: address.parse().unwrap(), prefix }.to_string();
    assert_eq!(written("203.0.113.7", 32), "203.0.113.7");
    assert_eq!(written("203.0.113.7", 24), "203.0.113.0/24");
    assert_eq!(written("203.0.113.7", 0), "0.0.0.0/0");
    assert_eq!(written("2001:db8:1:2:3::4", 64), "2001:db8:1:2::/64");
    assert_eq!(written("2001:db8:1:2:3::4", 128), "2001:db8:1:2:3::4");
    // Longer than the address: the address.
    assert_eq!(written("203.0.113.7", 64), "203.0.113.7");
    assert_eq!(written("2001:db8::1", 255), "2001:db8::1");
}

proptest! {
    // Whatever the request holds, every question about it has an answer.
    #[test]
    fn any_bytes_have_an_answer(
        value in prop::collection::vec(0x20..=0xff_u8, 0..40),
        query in any::<String>(),
        name in any::<String>(),
    ) {
        let value: Vec<u8> = value.into_iter().filter(|byte| *byte != 0x7f).collect();
        let request = Request::new(&[("cookie", &value), ("x-user", &value)], Some(&query));
        let facts = request.facts();
        let _ = (facts.header(&name), facts.cookie(&name), facts.query(&name), facts.path_param(&name));
        prop_assert_eq!(facts.header("x-user").unwrap(), value);
    }

    // A parameter that is encoded as forms are is read back as itself.
    #[test]
    fn query_parameters_are_read_back(name in any::<String>(), value in any::<String>()) {
        let encode = |text: &str| {
            let encoded = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
            encoded.to_string().replace("%20", "+")
        };
        let query = format!("first=1&{}={}&last", encode(&name), encode(&value));
        prop_assume!(name != "first");
        prop_assert_eq!(self::query(&query, &name), Some(value));
    }
}
