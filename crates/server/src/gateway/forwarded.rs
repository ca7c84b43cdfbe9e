//! What an upstream is told about the way of a request: who asked, for which host, over what.
//!
//! | field | from a trusted peer | from anybody else |
//! |---|---|---|
//! | `X-Forwarded-For` | kept, and the peer appended | the peer |
//! | `X-Forwarded-Proto`, `-Host` | kept, else set | set |
//! | `Forwarded` | kept, and the peer appended | removed |
//! | other claims ([`CLAIMS`]) and the header of `client_ip` | kept | removed |
//! | `Host` | what the client asked for | the same |
//! | `Via` | `slidegate` appended, as RFC 9110 section 7.6.3 asks of gateways | the same |
//!
//! Trusted is whom `client_ip` trusts: what the limiter does not believe, an upstream must not be told as if
//! it came from here. Answers get no `Via`: it is optional there, and would only tell what stands in front.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST, VIA};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use slidegate::http::client_ip::{ClientIpRule, Trust};

use super::intake::Intake;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields that upstreams take for the word of a proxy.
const CLAIMS: [HeaderName; 9] = [
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-real-ip"),
    FORWARDED,
];

/// The name in `Via`. Not a host name: that would tell where the gateway runs.
const PSEUDONYM: &str = "slidegate";

/// Whether a peer's word about others is passed on.
pub(super) fn trusts(rule: &ClientIpRule, peer: Option<IpAddr>) -> bool {
    match &rule.trust {
        Trust::Nobody => false,
        Trust::Proxies(nets) => {
            peer.is_some_and(|peer| nets.iter().any(|net| net.contains(&peer.to_canonical())))
        }
        Trust::Hops(_) => true,
    }
}

/// Writes the fields, for a request whose hop-by-hop fields are gone.
pub(super) fn announce(parts: &mut Parts, intake: &Intake, peer: Option<IpAddr>, rule: &ClientIpRule) {
    let headers = &mut parts.headers;
    if !trusts(rule, peer) {
        for name in CLAIMS.iter().chain([&rule.header]) {
            headers.remove(name);
        }
    }
    if let Some(peer) = peer {
        append(headers, X_FORWARDED_FOR, &peer.to_string());
        if headers.contains_key(FORWARDED) {
            append(headers, FORWARDED, &node(peer));
        }
    }
    // TLS ends in front of the gateway, or not at all.
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    if let Some(host) = &intake.host {
        headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
        headers.insert(HOST, host.clone());
    }
    let version = match parts.version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    append(headers, VIA, &format!("{version} {PSEUDONYM}"));
}

/// RFC 7239 section 6: IPv6 addresses in brackets, and quoted for the colons.
fn node(peer: IpAddr) -> String {
    match peer {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    }
}

/// Appends an element to a list, written as one line: some readers look at the first line only, others at
/// the last.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut list = Vec::new();
    for line in headers.get_all(&name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const PEER: &str = "10.0.0.5";

    fn announced(trust: Trust, peer: &str, fields: &[(&str, &str)]) -> HeaderMap {
        let mut request = Request::get("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        let intake = Intake {
            host: Some(HeaderValue::from_static("shop.example")),
            name: Some("shop.example".into()),
        };
        let rule = ClientIpRule {
            trust,
            header: HeaderName::from_static("cf-connecting-ip"),
            ..ClientIpRule::default()
        };
        announce(&mut parts, &intake, Some(peer.parse().unwrap()), &rule);
        parts.headers
    }

    fn proxies() -> Trust {
        Trust::Proxies(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
    }

    #[test]
    fn an_untrusted_peers_claims_are_dropped() {
        let claims = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "bank.example"),
            ("x-real-ip", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
            ("cf-connecting-ip", "1.1.1.1"),
        ];
        for (trust, peer) in [(Trust::Nobody, PEER), (proxies(), "203.0.113.9")] {
            let headers = announced(trust, peer, &claims);
            assert_eq!(headers["x-forwarded-for"], peer);
            assert_eq!(headers["x-forwarded-proto"], "http");
            assert_eq!(headers["x-forwarded-host"], "shop.example");
            for gone in ["x-real-ip", "forwarded", "cf-connecting-ip"] {
                assert!(!headers.contains_key(gone), "{gone}");
            }
        }
    }

    #[test]
    fn a_trusted_peer_is_appended_to_its_own_account() {
        let claims = [
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=203.0.113.7;proto=https"),
            ("cf-connecting-ip", "203.0.113.7"),
        ];
        for (trust, peer) in [(proxies(), PEER), (Trust::Hops(1), PEER), (proxies(), "::ffff:10.0.0.5")] {
            let headers = announced(trust, peer, &claims);
            let lists: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
            assert_eq!(lists, [&format!("203.0.113.7, 10.0.0.9, {peer}")]);
            assert_eq!(headers["x-forwarded-proto"], "https");
            assert_eq!(headers["cf-connecting-ip"], "203.0.113.7");
            let forwarded = headers["forwarded"].to_str().unwrap();
            assert!(forwarded.starts_with("for=203.0.113.7;proto=https, for="), "{forwarded}");
        }
    }

    #[test]
    fn an_ipv6_peer_is_written_as_each_field_wants_it() {
        let headers = announced(proxies(), "fd00::1", &[("forwarded", "for=_hidden")]);
        assert_eq!(headers["x-forwarded-for"], "fd00::1");
        assert_eq!(headers["forwarded"], "for=_hidden, for=\"[fd00::1]\"");
    }

    #[test]
    fn via_lists_every_hop() {
        let headers = announced(Trust::Nobody, PEER, &[("via", "1.0 fred"), ("via", "2 p.example")]);
        assert_eq!(headers["via"], "1.0 fred, 2 p.example, 1.1 slidegate");
        assert_eq!(headers.get_all("via").iter().count(), 1);
        assert_eq!(headers["host"], "shop.example");
    }
}
