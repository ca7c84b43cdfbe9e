use http::{HeaderMap, HeaderValue};

use super::*;
use crate::facts::Client;

/// Whether a request of this method, client and `x-internal` lines is exempt.
fn matches(exempt: &Exempt, method: Method, client: Option<&str>, lines: &[&str]) -> bool {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append("x-internal", HeaderValue::from_str(line).unwrap());
    }
    let client = client.map(|address| Client { address: address.parse().unwrap(), prefix: 0 });
    exempt.matches(&RequestFacts {
        method: &method,
        headers: &headers,
        path: "/",
        query: None,
        host: None,
        route: None,
        path_params: &[],
        client,
    })
}

fn by_header(value: &str) -> Exempt {
    let header = (HeaderName::from_static("x-internal"), value.as_bytes().into());
    Exempt { headers: vec![header], ..Exempt::default() }
}

#[test]
fn nobody_is_exempt_by_default() {
    assert!(!matches(&Exempt::default(), Method::OPTIONS, Some("127.0.0.1"), &[""]));
}

#[test]
fn methods_are_exempt_by_name() {
    let exempt = Exempt { methods: vec![Method::OPTIONS, Method::HEAD], ..Exempt::default() };
    assert!(matches(&exempt, Method::OPTIONS, None, &[]));
    assert!(matches(&exempt, Method::HEAD, None, &[]));
    assert!(!matches(&exempt, Method::GET, None, &[]));
    // Methods are case-sensitive: this is one of its own.
    assert!(!matches(&exempt, Method::from_bytes(b"options").unwrap(), None, &[]));
}

// The client's group is wider than its address: by the group a neighbour would be exempt too.
#[test]
fn clients_are_exempt_by_their_own_address() {
    let networks = ["10.0.0.0/8", "2001:db8:1::/48"];
    let client_ip = networks.iter().map(|network| network.parse().unwrap()).collect();
    let exempt = Exempt { client_ip, ..Exempt::default() };
    assert!(matches(&exempt, Method::GET, Some("10.1.2.3"), &[]));
    assert!(matches(&exempt, Method::GET, Some("2001:db8:1:ffff::1"), &[]));
    assert!(!matches(&exempt, Method::GET, Some("11.0.0.1"), &[]));
    assert!(!matches(&exempt, Method::GET, Some("2001:db8:2::1"), &[]));
    assert!(!matches(&exempt, Method::GET, None, &[]));
}

#[test]
fn a_header_exempts_by_its_whole_value() {
    let exempt = by_header("s3cret");
    assert!(matches(&exempt, Method::GET, None, &["s3cret"]));
    assert!(matches(&exempt, Method::GET, None, &["wrong", "s3cret"]));
    for wrong in [&[][..], &[""], &["s3cre"], &["s3crets"], &["S3CRET"], &["wrong, s3cret"]] {
        assert!(!matches(&exempt, Method::GET, None, wrong), "{wrong:?}");
    }
}

#[test]
fn one_match_is_enough() {
    let exempt = Exempt { methods: vec![Method::HEAD], ..by_header("s3cret") };
    assert!(matches(&exempt, Method::HEAD, None, &[]));
    assert!(matches(&exempt, Method::GET, None, &["s3cret"]));
    assert!(!matches(&exempt, Method::GET, None, &["wrong"]));
}

#[test]
fn values_of_headers_are_not_printed() {
    let printed = format!("{:?}", by_header("s3cret"));
    assert!(printed.contains("x-internal") && !printed.contains("s3cret"), "{printed}");
    assert!(!printed.contains(&format!("{:?}", "s3cret".as_bytes())), "{printed}");
}
