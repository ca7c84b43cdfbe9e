use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rule(trust: Trust, header: &'static str) -> ClientIpRule {
    ClientIpRule { trust, header: HeaderName::from_static(header), ..ClientIpRule::default() }
}

fn trusting(networks: &[&str]) -> Trust {
    Trust::Proxies(networks.iter().map(|network| network.parse().unwrap()).collect())
}

fn lines(name: &'static str, lines: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line).unwrap());
    }
    headers
}

/// The group that the client falls into, as a key would name it.
fn group(rule: &ClientIpRule, peer: &str, header_lines: &[&str]) -> String {
    let header_lines: Vec<&[u8]> = header_lines.iter().map(|line| line.as_bytes()).collect();
    let mut headers = HeaderMap::new();
    for line in header_lines {
        headers.append(&rule.header, HeaderValue::from_bytes(line).unwrap());
    }
    rule.find(Some(ip(peer)), &headers).client.unwrap().to_string()
}

/// By `X-Forwarded-For` behind 10.0.0.0/8.
fn listed(header_lines: &[&str]) -> String {
    group(&rule(trusting(&["10.0.0.0/8"]), "x-forwarded-for"), "10.0.0.5", header_lines)
}

/// By `Forwarded` behind 10.0.0.0/8.
fn forwarded(header_lines: &[&str]) -> String {
    group(&rule(trusting(&["10.0.0.0/8"]), "forwarded"), "10.0.0.5", header_lines)
}

// --- the table ------------------------------------------------------------------------------------------

#[test]
fn without_trusted_proxies_the_peer_is_the_client() {
    let rule = ClientIpRule::default();
    assert_eq!(group(&rule, "203.0.113.9", &["1.1.1.1"]), "203.0.113.9");
}

#[test]
fn the_first_untrusted_address_from_the_right_is_the_client() {
    assert_eq!(listed(&["9.9.9.9, 203.0.113.7, 10.0.0.9"]), "203.0.113.7");
}

#[test]
fn an_unreadable_address_ends_the_walk_at_the_last_good_one() {
    assert_eq!(listed(&["9.9.9.9, junk, 10.0.0.9"]), "10.0.0.9");
    assert_eq!(listed(&["9.9.9.9, junk"]), "10.0.0.5");
}

#[test]
fn a_port_is_no_part_of_the_client() {
    assert_eq!(listed(&["203.0.113.7:51234"]), "203.0.113.7");
}

#[test]
fn an_ipv6_client_is_its_64_bits_and_a_mapped_peer_is_trusted_as_ipv4() {
    let rule = rule(trusting(&["10.0.0.0/8"]), "x-forwarded-for");
    assert_eq!(group(&rule, "::ffff:10.0.0.5", &["2001:db8:1:2:3::4"]), "2001:db8:1:2::/64");
}

#[test]
fn the_lines_of_a_header_are_one_list() {
    assert_eq!(listed(&["9.9.9.9", "203.0.113.7"]), "203.0.113.7");
    assert_eq!(listed(&["9.9.9.9, 203.0.113.7", "10.0.0.9, 10.0.0.8"]), "203.0.113.7");
}

// --- the rules beside the table -------------------------------------------------------------------------

// R071: a random X-Forwarded-For on each request was a fresh quota each time.
#[test]
fn a_stranger_cannot_name_itself() {
    let rule = rule(trusting(&["10.0.0.0/8"]), "x-forwarded-for");
    for made_up in ["1.2.3.4", "10.0.0.1", "::1", "203.0.113.7, 10.0.0.5"] {
        assert_eq!(group(&rule, "203.0.113.9", &[made_up]), "203.0.113.9");
    }
}

// R072: the leftmost address was taken, which is what the client itself wrote; proxies append.
#[test]
fn what_a_client_writes_left_of_itself_is_not_read() {
    let rule = rule(Trust::Hops(1), "x-forwarded-for");
    assert_eq!(group(&rule, "10.0.0.5", &["1.2.3.4, 203.0.113.9"]), "203.0.113.9");
}

#[test]
fn only_the_configured_header_is_read() {
    let rule = rule(trusting(&["10.0.0.0/8"]), "x-real-ip");
    let mut headers = lines("x-forwarded-for", &[b"9.9.9.9"]);
    headers.insert("forwarded", HeaderValue::from_static("for=8.8.8.8"));
    let found = |headers: &HeaderMap| rule.find(Some(ip("10.0.0.5")), headers).client.unwrap();
    assert_eq!(found(&headers).address, ip("10.0.0.5"));
    headers.insert("x-real-ip", HeaderValue::from_static("203.0.113.7"));
    assert_eq!(found(&headers).address, ip("203.0.113.7"));
}

#[test]
fn when_all_are_trusted_the_leftmost_is_the_client() {
    assert_eq!(listed(&["10.0.0.7, 10.0.0.8, 10.0.0.9"]), "10.0.0.7");
}

#[test]
fn without_an_address_in_the_header_a_trusted_peer_is_the_client() {
    for header_lines in [&[][..], &[""], &["  "], &[",", ""]] {
        assert_eq!(listed(header_lines), "10.0.0.5", "{header_lines:?}");
    }
}

// An empty element comes from a proxy that did not know its peer, such as one on a Unix socket: what is
// left of it is the word of that unknown peer.
#[test]
fn an_empty_element_ends_the_walk() {
    assert_eq!(listed(&["203.0.113.7, , 10.0.0.9"]), "10.0.0.9");
    assert_eq!(listed(&["203.0.113.7", ""]), "10.0.0.5");
}

#[test]
fn hidden_and_unknown_hops_end_the_walk() {
    for hidden in ["unknown", "_gazonk", "_hidden, 10.0.0.9, unknown", "localhost"] {
        assert_eq!(listed(&[&format!("203.0.113.7, {hidden}")]), "10.0.0.5", "{hidden}");
    }
}

// F25, R077: `::ffff:a.b.c.d` masked to /64 put every IPv4 client of a dual-stack socket into one group.
#[test]
fn ipv4_mapped_addresses_are_ipv4_before_they_are_grouped() {
    let rule = ClientIpRule::default();
    let found = |peer| rule.find(Some(ip(peer)), &HeaderMap::new()).client.unwrap();
    assert_eq!(found("::ffff:192.0.2.1"), found("192.0.2.1"));
    assert_ne!(found("::ffff:192.0.2.1"), found("::ffff:192.0.2.2"));
    assert_eq!(found("::ffff:192.0.2.1").prefix, 32);
    assert_eq!(listed(&["::ffff:203.0.113.7"]), "203.0.113.7");
    assert_eq!(listed(&["[::ffff:203.0.113.7]:80"]), "203.0.113.7");
    assert_eq!(listed(&["203.0.113.7, ::ffff:10.0.0.9"]), "203.0.113.7");
}

#[test]
fn only_the_mapped_range_is_ipv4() {
    // NAT64 and the deprecated compatible form are IPv6 addresses of their own.
    assert_eq!(listed(&["64:ff9b::203.0.113.7"]), "64:ff9b::/64");
    assert_eq!(listed(&["::203.0.113.7"]), "::/64");
}

// R068: a host has 2^64 addresses of its own; each was a key.
#[test]
fn the_addresses_of_one_ipv6_network_share_a_group() {
    assert_eq!(listed(&["2001:db8:1:2::1"]), listed(&["2001:db8:1:2:ffff:ffff:ffff:ffff"]));
    assert_ne!(listed(&["2001:db8:1:2::1"]), listed(&["2001:db8:1:3::1"]));
}

#[test]
fn groups_are_as_wide_as_configured() {
    let rule = ClientIpRule { ipv4_prefix: 24, ipv6_prefix: 48, ..ClientIpRule::default() };
    assert_eq!(group(&rule, "203.0.113.9", &[]), "203.0.113.0/24");
    assert_eq!(group(&rule, "2001:db8:1:2::3", &[]), "2001:db8:1::/48");
    let whole = ClientIpRule { ipv4_prefix: 200, ipv6_prefix: 200, ..rule };
    assert_eq!(group(&whole, "203.0.113.9", &[]), "203.0.113.9");
    assert_eq!(group(&whole, "2001:db8:1:2::3", &[]), "2001:db8:1:2::3");
}

// R080, R081: without an address (a Unix socket, a probe without headers) others panicked or answered 500.
#[test]
fn a_peer_without_an_address_is_no_client_and_no_panic() {
    let headers = lines("x-forwarded-for", &[b"9.9.9.9"]);
    for trust in [Trust::Nobody, trusting(&["0.0.0.0/0"])] {
        let found = rule(trust, "x-forwarded-for").find(None, &headers);
        assert_eq!(found, Found::default());
    }
    let counted = rule(Trust::Hops(1), "x-forwarded-for");
    assert_eq!(counted.find(None, &headers).client.unwrap().address, ip("9.9.9.9"));
    assert_eq!(counted.find(None, &HeaderMap::new()), Found { client: None, too_few_hops: true });
}

#[test]
fn hops_are_counted_from_the_right_whoever_the_peer_is() {
    let found = |hops| {
        let headers = lines("x-forwarded-for", &[b"1.1.1.1, 2.2.2.2", b"3.3.3.3"]);
        let found = rule(Trust::Hops(hops), "x-forwarded-for").find(Some(ip("203.0.113.9")), &headers);
        (found.client.unwrap().to_string(), found.too_few_hops)
    };
    assert_eq!(found(1), ("3.3.3.3".into(), false));
    assert_eq!(found(2), ("2.2.2.2".into(), false));
    assert_eq!(found(3), ("1.1.1.1".into(), false));
    assert_eq!(found(4), ("203.0.113.9".into(), true));
    assert_eq!(found(255), ("203.0.113.9".into(), true));
    // Refused in configurations; here it is nobody's word.
    assert_eq!(found(0), ("203.0.113.9".into(), false));
}

#[test]
fn an_unreadable_hop_ends_the_count_at_the_last_good_one() {
    let rule = rule(Trust::Hops(3), "x-forwarded-for");
    assert_eq!(group(&rule, "203.0.113.9", &["1.1.1.1, unknown, 3.3.3.3"]), "3.3.3.3");
    assert_eq!(group(&rule, "203.0.113.9", &["junk, 2.2.2.2, 3.3.3.3"]), "2.2.2.2");
}

#[test]
fn the_spellings_of_an_address_in_a_list() {
    for (text, client) in [
        ("203.0.113.7", Some("203.0.113.7")),
        ("\t203.0.113.7 ", Some("203.0.113.7")),
        ("203.0.113.7:_http", Some("203.0.113.7")),
        ("2001:db8::1", Some("2001:db8::/64")),
        ("2001:DB8::1", Some("2001:db8::/64")),
        ("2001:db8::1%eth0", Some("2001:db8::/64")),
        ("[2001:db8::1]", Some("2001:db8::/64")),
        ("[2001:db8::1]:443", Some("2001:db8::/64")),
        ("[2001:db8::1%25en0]:443", Some("2001:db8::/64")),
        ("203.0.113.7:", None),
        ("203.0.113.7:123456", None),
        ("203.0.113.7:http", None),
        ("203.0.113.7:80:80", None),
        ("203.0.113.7%eth0", None),
        ("203.0.113.007", None),
        ("203.0.113", None),
        ("203.0.113.7 10.0.0.1", None),
        ("3405803783", None),
        ("0xcb007107", None),
        ("[203.0.113.7]", None),
        ("[2001:db8::1", None),
        ("[2001:db8::1]443", None),
        ("[2001:db8::1]:", None),
        ("2001:db8::1]", None),
        ("\"203.0.113.7\"", None),
        ("[]", None),
        ("", None),
    ] {
        assert_eq!(listed(&[text]), client.unwrap_or("10.0.0.5"), "{text:?}");
    }
}

#[test]
fn bytes_that_are_no_text_end_the_walk() {
    let headers = lines("x-forwarded-for", &[b"9.9.9.9, \xff\xfe, 10.0.0.9"]);
    let found = rule(trusting(&["10.0.0.0/8"]), "x-forwarded-for").find(Some(ip("10.0.0.5")), &headers);
    assert_eq!(found.client.unwrap().address, ip("10.0.0.9"));
}

// --- Forwarded, RFC 7239 --------------------------------------------------------------------------------

#[test]
fn the_examples_of_the_rfc() {
    for (line, client) in [
        (r#"for="_gazonk""#, "10.0.0.5"),
        (r#"For="[2001:db8:cafe::17]:4711""#, "2001:db8:cafe::/64"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        (r#"for=192.0.2.43, for="[2001:db8:cafe::17]""#, "2001:db8:cafe::/64"),
        (r#"for=192.0.2.43,for="[2001:db8:cafe::17]",for=unknown"#, "10.0.0.5"),
        (r#"for=_hidden, for=_SEVKISEK"#, "10.0.0.5"),
        (r#"for="192.0.2.43:47011""#, "192.0.2.43"),
    ] {
        assert_eq!(forwarded(&[line]), client, "{line}");
    }
}

#[test]
fn the_grammar_of_forwarded() {
    for (line, client) in [
        // Names are case-insensitive, wherever `for` stands.
        ("proto=https;FOR=203.0.113.7;host=a", Some("203.0.113.7")),
        // Empty pairs are allowed, and spaces around semicolons are forgiven.
        (";;for=203.0.113.7;", Some("203.0.113.7")),
        ("proto=https ; for=203.0.113.7", Some("203.0.113.7")),
        // Commas and semicolons in quotes do not split.
        (r#"for=203.0.113.7;ext="a, b; for=9.9.9.9""#, Some("203.0.113.7")),
        (r#"ext="\"", for=203.0.113.7;ext="\",\\""#, Some("203.0.113.7")),
        // Escapes are undone.
        (r#"for="\2\0\3.0.113.7""#, Some("203.0.113.7")),
        (r#"for="203.0.113.7:_port-1.a""#, Some("203.0.113.7")),
        // IPv6 has brackets, and quotes around them; what has a port has quotes.
        (r#"for="2001:db8::1""#, None),
        ("for=[2001:db8::1]", None),
        ("for=203.0.113.7:80", None),
        // A hop that does not say where it got the request from.
        ("by=203.0.113.7", None),
        ("proto=https", None),
        ("", None),
        (";", None),
        // Malformed, before or after a good `for`.
        ("for=203.0.113.7;proto", None),
        ("for=203.0.113.7;=https", None),
        ("for=203.0.113.7;proto=", None),
        ("for=203.0.113.7 proto=https", None),
        ("for =203.0.113.7", None),
        ("for= 203.0.113.7", None),
        (r#"for="203.0.113.7"#, None),
        (r#"for="203.0.113.7\"#, None),
        (r#"for="203.0.113.7"x"#, None),
        (r#"for=203.0.113.7;ext=a"b""#, None),
        // Which of the two?
        ("for=203.0.113.7;for=203.0.113.8", None),
        ("203.0.113.7", None),
    ] {
        assert_eq!(forwarded(&[line]), client.unwrap_or("10.0.0.5"), "{line}");
    }
}

// The client opens a quote that would, read from the left, swallow the element that the proxy appends: all
// who do it would be counted as the proxy.
#[test]
fn an_open_quote_of_the_client_swallows_nothing() {
    for opened in [r#"for=""#, r#"for="\"#, r#""#, r#"for="9.9.9.9\""#, r#"ext=","#] {
        let line = format!(r#"{opened}, for=203.0.113.7"#);
        assert_eq!(forwarded(&[&line]), "203.0.113.7", "{line}");
        assert_eq!(forwarded(&[opened, "for=203.0.113.7"]), "203.0.113.7", "{opened}");
        let line = format!(r#"{opened}, for="[2001:db8::1]:80", for=10.0.0.9"#);
        assert_eq!(forwarded(&[&line]), "2001:db8::/64", "{line}");
    }
}

// --- caps -----------------------------------------------------------------------------------------------

#[test]
fn a_header_is_read_only_so_far() {
    let far = format!("203.0.113.7{}", ", 10.0.0.1".repeat(hops::READ_MAX / 10 - 1));
    assert_eq!(listed(&[&far]), "203.0.113.7");
    let too_far = format!("203.0.113.7{}", ", 10.0.0.1".repeat(hops::READ_MAX / 10));
    assert_eq!(listed(&[&too_far]), "10.0.0.1");
    let over_lines: Vec<&str> =
        std::iter::once("203.0.113.7").chain(std::iter::repeat_n("10.0.0.1", 1000)).collect();
    assert_eq!(listed(&over_lines), "10.0.0.1");
}

#[test]
fn one_huge_element_is_unreadable_and_hides_nothing_right_of_it() {
    let huge = "x".repeat(1 << 20);
    assert_eq!(listed(&[&huge]), "10.0.0.5");
    assert_eq!(listed(&[&format!("{huge}, 203.0.113.7")]), "203.0.113.7");
    assert_eq!(listed(&["203.0.113.7", &huge]), "10.0.0.5");
    let quoted = format!(r#"for="{}", for=203.0.113.7"#, r#"\""#.repeat(1 << 19));
    assert_eq!(forwarded(&[&quoted]), "203.0.113.7");
}

// --- properties -----------------------------------------------------------------------------------------

/// Lines that a header may hold: any bytes but control characters, biased towards meaningful ones.
fn header_lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let meaningful = prop::sample::select(b"0123456789abcdef.:,;=\"\\[]%_ for".to_vec());
    let any = prop_oneof![4 => meaningful, 1 => 0x20..0x7f_u8, 1 => 0x80..=0xff_u8];
    prop::collection::vec(prop::collection::vec(any, 0..60), 0..4)
}

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![
        Just(Trust::Nobody),
        any::<u8>().prop_map(Trust::Hops),
        Just(trusting(&["0.0.0.0/0", "::/0"])),
        Just(trusting(&["10.0.0.0/8"])),
    ]
}

fn with_lines(name: &'static str, text: &[Vec<u8>]) -> HeaderMap {
    let text: Vec<&[u8]> = text.iter().map(Vec::as_slice).collect();
    lines(name, &text)
}

proptest! {
    // Whatever a header holds, there is an answer, and it is a client whenever the peer has an address.
    #[test]
    fn any_bytes_have_an_answer(
        text in header_lines(),
        trust in trust(),
        header in prop::sample::select(vec!["forwarded", "x-forwarded-for"]),
        peer in any::<IpAddr>(),
    ) {
        let found = rule(trust, header).find(Some(peer), &with_lines(header, &text));
        let client = found.client.unwrap();
        prop_assert_eq!(client.address.to_canonical(), client.address);
    }

    // Who believes nobody finds the peer, whatever the headers say.
    #[test]
    fn nobody_is_nobody(text in header_lines(), peer in any::<IpAddr>()) {
        let headers = with_lines("x-forwarded-for", &text);
        let found = rule(Trust::Nobody, "x-forwarded-for").find(Some(peer), &headers);
        prop_assert_eq!(found.client.unwrap().address, peer.to_canonical());
    }

    // Text left of an untrusted address, on its line or on lines before, never changes who the client is.
    #[test]
    fn what_stands_left_of_the_client_changes_nothing(
        text in header_lines(),
        forwarded in any::<bool>(),
        own_line in any::<bool>(),
        ipv6 in any::<bool>(),
        proxies in 0..3_usize,
    ) {
        let (name, client, proxy) = match (forwarded, ipv6) {
            (true, false) => ("forwarded", r#"for="203.0.113.7:1""#, "for=10.1.2.3"),
            (true, true) => ("forwarded", r#"proto=http;for="[2001:db8::7]""#, "for=10.1.2.3;by=_a"),
            (false, false) => ("x-forwarded-for", "203.0.113.7", "10.1.2.3"),
            (false, true) => ("x-forwarded-for", "[2001:db8::7]:99", "10.1.2.3"),
        };
        let known: Vec<u8> = [client].into_iter().chain(std::iter::repeat_n(proxy, proxies))
            .collect::<Vec<_>>().join(", ").into();
        let mut text = text;
        match text.last_mut() {
            Some(last) if !own_line => {
                last.push(b',');
                last.extend(&known);
            }
            _ => text.push(known),
        }
        let headers = with_lines(name, &text);
        let expected = if ipv6 { ip("2001:db8::7") } else { ip("203.0.113.7") };
        for trust in [trusting(&["10.0.0.0/8"]), Trust::Hops(u8::try_from(proxies).unwrap() + 1)] {
            let found = rule(trust, name).find(Some(ip("10.0.0.5")), &headers);
            prop_assert_eq!(found.client.unwrap().address, expected);
            prop_assert!(!found.too_few_hops);
        }
    }

    // Every address that is written by a proxy is read back as itself, bare, in brackets and in quotes.
    #[test]
    fn every_address_is_read_back(address in any::<IpAddr>(), port in any::<u16>()) {
        let node = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        for (name, text) in [
            ("x-forwarded-for", address.to_string()),
            ("x-forwarded-for", format!("{node}:{port}")),
            ("forwarded", format!("for=\"{node}\"")),
            ("forwarded", format!("for=\"{node}:{port}\"")),
        ] {
            let headers = lines(name, &[text.as_bytes()]);
            let found = rule(Trust::Hops(1), name).find(None, &headers);
            prop_assert_eq!(found.client.unwrap().address, address.to_canonical(), "{}", text);
        }
    }
}
