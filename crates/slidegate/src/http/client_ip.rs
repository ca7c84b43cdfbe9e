//! Who the client is: the one rule for every door.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::facts::Client;

/// How the client's address is found, and how addresses are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIpRule {
    /// Whom to believe.
    pub trust: Trust,
    /// The one header that is read, when the peer is believed.
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
    /// Those of peers in these networks.
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
    pub fn find(&self, peer: Option<IpAddr>, _headers: &HeaderMap) -> Found {
        let client = peer.map(|address| Client { address, prefix: 32 });
        Found { client, too_few_hops: false }
    }
}
