//! Who the client is: the one rule for every door.
//!
//! A forwarding header says what its sender wrote. Only what a proxy of one's own added can be believed,
//! and proxies add at the right, so the addresses are walked from the right to the left, past trusted
//! proxies, up to the first that is not one:
//!
//! ```text
//! peer 10.0.0.5    X-Forwarded-For: 9.9.9.9, 203.0.113.7, 10.0.0.9      trusted 10.0.0.0/8
//! ^ trusted                         ^ made up ^ the client  ^ trusted
//! ```
//!
//! # Invariants
//! * Nobody is believed unless that is configured, and of all headers only the configured one is read.
//! * What stands left of the client changes nothing, whatever it holds.
//! * An address that can't be read ends the walk at the last good one. It is never skipped: what is left
//!   of it is the word of a hop that nobody knows.
//! * IPv4-mapped IPv6 (`::ffff:a.b.c.d`) is IPv4 before it is compared or grouped. Otherwise a dual-stack
//!   socket would put all IPv4 clients into one /64.
//!
//! Source: RFC 7239 for `Forwarded`. `X-Forwarded-For` has no standard; the grammar here takes what proxies
//! are known to write.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

use crate::facts::Client;

mod forwarded;
mod hops;

use hops::Hops;

/// How the client's address is found, and how addresses are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIpRule {
    /// Whom to believe.
    pub trust: Trust,
    /// The one header that is read, when the peer is believed: `forwarded` is read as RFC 7239 says, any
    /// other as addresses with commas between, or a single one.
    pub header: HeaderName,
    /// Leading bits of an IPv4 address that form a group; 0 to 32.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that form a group; 0 to 128.
    pub ipv6_prefix: u8,
}

/// Whose forwarding headers are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Nobody's: the socket peer is the client.
    Nobody,
    /// Those of peers in these networks. IPv4 networks are written as IPv4: mapped ones never match.
    Proxies(Vec<IpNet>),
    /// The n-th address from the right, whoever the peer is; at least 1.
    Hops(u8),
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The client; `None` where the peer has no address.
    pub client: Option<Client>,
    /// The header had fewer addresses than the configured hops, so the peer was taken: worth a metric.
    pub too_few_hops: bool,
}

impl Default for ClientIpRule {
    fn default() -> Self {
        Self {
            trust: Trust::Nobody,
            header: HeaderName::from_static("x-forwarded-for"),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }
    }
}

impl ClientIpRule {
    /// The client of a request from this peer with these headers.
    ///
    /// `peer` is the address of the socket, and `None` where it has none, such as a Unix socket's. That is
    /// no error: the policy's `missing` says what becomes of a request without a client.
    ///
    /// ```
    /// use slidegate::http::client_ip::{ClientIpRule, Trust};
    ///
    /// let rule = ClientIpRule {
    ///     trust: Trust::Proxies(vec!["10.0.0.0/8".parse()?]),
    ///     ..ClientIpRule::default()
    /// };
    /// let mut headers = http::HeaderMap::new();
    /// headers.insert("x-forwarded-for", "9.9.9.9, 203.0.113.7, 10.0.0.9".parse()?);
    ///
    /// let found = rule.find(Some([10, 0, 0, 5].into()), &headers);
    /// assert_eq!(found.client.unwrap().to_string(), "203.0.113.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Found {
        let peer = peer.map(|address| address.to_canonical());
        let (address, too_few_hops) = match &self.trust {
            Trust::Nobody => (peer, false),
            Trust::Proxies(networks) => {
                (peer.map(|peer| first_untrusted(peer, networks, self.hops(headers))), false)
            }
            Trust::Hops(count) => nth_hop(peer, *count, self.hops(headers)),
        };
        Found { client: address.map(|address| self.group(address)), too_few_hops }
    }

    /// The addresses of the header, from the right; `None` for what can't be read.
    fn hops<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + 'a {
        let forwarded = self.header == header::FORWARDED;
        let parse = if forwarded { forwarded::parse_element } else { parse_listed };
        Hops::new(headers.get_all(&self.header), forwarded).map(move |element| parse(element?))
    }

    fn group(&self, address: IpAddr) -> Client {
        let prefix = match address {
            IpAddr::V4(_) => self.ipv4_prefix.min(32),
            IpAddr::V6(_) => self.ipv6_prefix.min(128),
        };
        Client { address, prefix }
    }
}

/// Walks past trusted proxies. Where all are trusted, it ends at the leftmost.
fn first_untrusted(
    peer: IpAddr,
    networks: &[IpNet],
    mut hops: impl Iterator<Item = Option<IpAddr>>,
) -> IpAddr {
    let is_trusted = |address| networks.iter().any(|network| network.contains(&address));
    let mut client = peer;
    while is_trusted(client)
        && let Some(Some(next)) = hops.next()
    {
        client = next;
    }
    client
}

/// The n-th address, and whether there were fewer.
fn nth_hop(
    peer: Option<IpAddr>,
    count: u8,
    mut hops: impl Iterator<Item = Option<IpAddr>>,
) -> (Option<IpAddr>, bool) {
    let mut client = peer;
    for _ in 0..count {
        match hops.next() {
            Some(Some(next)) => client = Some(next),
            Some(None) => return (client, false),
            None => return (peer, true),
        }
    }
    (client, false)
}

/// An address of a plain list: as in `Forwarded`, or IPv6 without brackets and so without a port.
fn parse_listed(element: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(element.trim_ascii()).ok()?;
    parse_node(text).or_else(|| parse_ipv6(text))
}

/// `192.0.2.1`, `192.0.2.1:4711`, `[2001:db8::1]` or `[2001:db8::1]:4711`; in brackets a zone may follow.
fn parse_node(text: &str) -> Option<IpAddr> {
    if let Some(text) = text.strip_prefix('[') {
        let (address, port) = text.split_once(']')?;
        let readable = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return parse_ipv6(address).filter(|_| readable);
    }
    let address = match text.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        Some(_) => return None,
        None => text,
    };
    address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// An IPv6 address, unmapped. The zone, as in `fe80::1%eth0`, means something to its own host only.
fn parse_ipv6(text: &str) -> Option<IpAddr> {
    let (address, _zone) = text.split_once('%').unwrap_or((text, ""));
    let address = address.parse::<Ipv6Addr>().ok()?;
    Some(IpAddr::V6(address).to_canonical())
}

/// RFC 7239, section 6: up to five digits, or an obfuscated port such as `_http`.
fn is_port(text: &str) -> bool {
    let (digits, obfuscated) = (text, text.strip_prefix('_'));
    let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number || obfuscated.is_some_and(is_obfuscated)
}

fn is_obfuscated(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests;
