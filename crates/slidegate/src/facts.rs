//! What key templates, cost templates and exemptions may ask of a request.

use std::borrow::Cow;
use std::net::IpAddr;

use ::http::{HeaderMap, Method};

/// A request as the limiter sees it. The doors fill it in; nothing here is trusted or changed.
#[derive(Clone)]
pub struct RequestFacts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The headers as they came.
    pub headers: &'a HeaderMap,
    /// The path, decoded and normalized for matching.
    pub path: &'a str,
    /// The query without `?`, as it came.
    pub query: Option<&'a str>,
    /// The host that was asked for, without port, in lower case.
    pub host: Option<&'a str>,
    /// The route that matched, as it is written in the configuration.
    pub route: Option<&'a str>,
    /// The parameters of a pattern route.
    pub path_params: &'a [(&'a str, &'a str)],
    /// The client, by the configured rule; `None` where the peer has no address.
    pub client: Option<Client>,
}

/// A client address, and the group of addresses that shares its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The address itself, with IPv4-mapped IPv6 written as IPv4.
    pub address: IpAddr,
    /// The length of the prefix that is grouped: 32 for a single IPv4 address, usually 64 for IPv6.
    pub prefix: u8,
}

/// Without the values of headers and query, which may be secrets.
impl std::fmt::Debug for RequestFacts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestFacts")
            .field("method", &self.method)
            .field("host", &self.host)
            .field("route", &self.route)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl<'a> RequestFacts<'a> {
    /// A header's value: its lines joined by `, `, as RFC 9110 reads them, and those of `Cookie` by `; `,
    /// since HTTP/2 may send each pair on a line of its own. `None` when there is no line.
    pub fn header(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut lines = self.headers.get_all(name).iter();
        let first = lines.next()?.as_bytes();
        let Some(second) = lines.next() else {
            return Some(Cow::Borrowed(first));
        };
        let between = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
        let mut joined = first.to_vec();
        for line in std::iter::once(second).chain(lines) {
            joined.extend_from_slice(between);
            joined.extend_from_slice(line.as_bytes());
        }
        Some(Cow::Owned(joined))
    }

    /// A cookie's value, from the first pair of that name.
    pub fn cookie(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let lines = self.headers.get_all(::http::header::COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        pairs
            .map(|pair| pair.trim_ascii())
            .find_map(|pair| value_of(pair, name.as_bytes()))
            .map(Cow::Borrowed)
    }

    /// A query parameter's value, decoded, from the first pair of that name.
    pub fn query(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let pairs = self.query?.as_bytes().split(|byte| *byte == b'&');
        pairs
            .map(|pair| match pair.iter().position(|byte| *byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &pair[pair.len()..]),
            })
            .find(|(found, _)| decode(found) == name.as_bytes())
            .map(|(_, value)| decode(value))
    }

    /// A parameter of the matched pattern route.
    pub fn path_param(&self, name: &str) -> Option<&'a str> {
        self.path_params.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// Whether it is a CORS preflight, which browsers send of themselves and which is never charged.
    pub fn is_preflight(&self) -> bool {
        self.method == Method::OPTIONS
            && self.headers.contains_key(::http::header::ORIGIN)
            && self.headers.contains_key(::http::header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}

fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pair.strip_prefix(name)?.strip_prefix(b"=")
}

/// `application/x-www-form-urlencoded`: `+` is a space, then percent-decoding.
fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'+') {
        let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        return Cow::Owned(percent_encoding::percent_decode(&spaced).collect());
    }
    percent_encoding::percent_decode(text).into()
}

/// The group: `203.0.113.7`, `203.0.113.0/24`, `2001:db8:1:2::/64`.
impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        match ipnet::IpNet::new(self.address, self.prefix) {
            Ok(net) if self.prefix < whole => write!(f, "{}", net.trunc()),
            _ => write!(f, "{}", self.address),
        }
    }
}

#[cfg(test)]
mod tests;
