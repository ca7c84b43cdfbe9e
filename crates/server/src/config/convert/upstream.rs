//! `upstream` of a route: where its requests go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::uri::{Authority, Uri};

use crate::config::fields::{Reader, did_you_mean};
use crate::config::model::Upstream;
use crate::config::yaml::Node;

/// Reads it. `listen` is where the gateway itself is found, if that could be read.
pub(super) fn upstream(node: &Node, listen: Option<SocketAddr>, reader: &mut Reader<'_>) -> Option<Upstream> {
    let help = "write upstream: http://127.0.0.1:9000, or echo";
    let scalar = reader.text(node, "upstream", help)?;
    let text = scalar.text.as_str();
    if text == "echo" {
        return Some(Upstream::Echo);
    }
    if text.starts_with("https://") {
        reader.not_yet(node.at, "an upstream with https", help);
        return None;
    }
    let authority = text.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("http"));
    let path = authority.as_ref().map_or("", |uri| uri.path_and_query().map_or("", |path| path.as_str()));
    let message = match authority.as_ref().and_then(Uri::authority) {
        Some(_) if path != "/" || text.ends_with('/') => {
            "an upstream has no path: requests are forwarded with their own".to_owned()
        }
        Some(authority) if authority.as_str().contains('@') => {
            "an upstream has no user and password: they would not be sent".into()
        }
        Some(authority) if !is_address(authority) => "an upstream needs its port".into(),
        Some(authority) if listen.is_some_and(|listen| leads_to(authority, listen)) => {
            "this is where the gateway itself listens: requests would go round in a circle".into()
        }
        Some(authority) => return Some(Upstream::Http(authority.clone())),
        None => format!("`{}` is not an upstream{}", scalar.shown, did_you_mean(text, ["echo"].iter())),
    };
    reader.unreadable(node, 0, "upstream", message, help);
    None
}

fn is_address(authority: &Authority) -> bool {
    !authority.host().is_empty() && authority.port_u16().is_some_and(|port| port != 0)
}

/// Whether a connection to the upstream arrives at the gateway, as far as that can be told without asking
/// the network: other names, and other addresses of this machine, are not looked up.
fn leads_to(upstream: &Authority, listen: SocketAddr) -> bool {
    let host = upstream.host().trim_start_matches('[').trim_end_matches(']');
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let destinations = match host.parse::<IpAddr>() {
        // To nowhere in particular is to this machine.
        Ok(ip) if ip.is_unspecified() => {
            loopback.into_iter().filter(|own| own.is_ipv4() == ip.is_ipv4()).collect()
        }
        Ok(ip) => vec![ip.to_canonical()],
        Err(_) if host.eq_ignore_ascii_case("localhost") => loopback.to_vec(),
        Err(_) => Vec::new(),
    };
    let own = listen.ip().to_canonical();
    upstream.port_u16() == Some(listen.port())
        && destinations.iter().any(|ip| {
            // `::` takes the IPv4 addresses as well.
            own == *ip || (own.is_unspecified() && ip.is_loopback() && (own.is_ipv6() || ip.is_ipv4()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_that_is_the_gateway_is_told_from_one_beside_it() {
        for (listen, upstream, leads) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "127.0.0.1:8081", false),
            ("127.0.0.1:8080", "127.0.0.2:8080", false),
            ("127.0.0.1:8080", "LocalHost:8080", true),
            ("127.0.0.1:8080", "0.0.0.0:8080", true),
            ("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", true),
            ("127.0.0.1:8080", "[::1]:8080", false),
            ("127.0.0.1:8080", "localhost.example:8080", false),
            ("10.0.0.1:8080", "10.0.0.1:8080", true),
            ("10.0.0.1:8080", "127.0.0.1:8080", false),
            ("10.0.0.1:8080", "0.0.0.0:8080", false),
            ("0.0.0.0:8080", "127.0.0.9:8080", true),
            ("0.0.0.0:8080", "localhost:8080", true),
            ("0.0.0.0:8080", "[::1]:8080", false),
            ("0.0.0.0:8080", "10.0.0.1:8080", false),
            ("[::]:8080", "[::1]:8080", true),
            ("[::]:8080", "[::]:8080", true),
            ("[::]:8080", "127.0.0.1:8080", true),
        ] {
            let authority = upstream.parse().unwrap();
            assert_eq!(leads_to(&authority, listen.parse().unwrap()), leads, "{listen} {upstream}");
        }
    }
}
