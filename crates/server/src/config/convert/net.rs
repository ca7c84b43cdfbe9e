//! Words of the network: addresses, networks, methods, header names.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, Method};
use ipnet::IpNet;

use crate::config::fields::{Reader, did_you_mean};
use crate::config::yaml::Node;

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];

/// The most methods in a list.
const METHODS_MAX: usize = 32;

/// An address and a port to listen at.
pub(super) fn listen(node: &Node, example: &str, reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let help = format!("write an address and a port, such as {example}");
    let scalar = reader.text(node, "listen", &help)?;
    if let Ok(address) = scalar.text.parse() {
        return Some(address);
    }
    let better = match scalar.text.rsplit_once(':') {
        Some(("", port)) => format!(": for every address write 0.0.0.0:{port}"),
        Some(("localhost", port)) => format!(": names are not looked up, write 127.0.0.1:{port}"),
        _ => String::new(),
    };
    let message = format!("`{}` is not an address to listen at{better}", scalar.shown);
    reader.unreadable(node, 0, "listen", message, &help);
    None
}

/// A network such as `10.0.0.0/8`; an address alone is a network of one.
pub(super) fn network(node: &Node, field: &str, reader: &mut Reader<'_>) -> Option<IpNet> {
    let help = "write a network such as 10.0.0.0/8 or 2001:db8::/32, or one address";
    let scalar = reader.text(node, field, help)?;
    let text = scalar.text.as_str();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(IpNet::from(address.to_canonical()));
    }
    let message = match text.parse::<IpNet>() {
        Ok(IpNet::V6(net)) if net.addr().to_ipv4_mapped().is_some() => {
            format!("`{}` never matches: write IPv4 networks as IPv4, such as 10.0.0.0/8", scalar.shown)
        }
        Ok(net) if net.addr() != net.network() => {
            let whole = IpNet::from(net.addr());
            format!("`{}` has bits behind its prefix: write {} or {whole}", scalar.shown, net.trunc())
        }
        Ok(net) => return Some(net),
        Err(_) => format!("`{}` is not a network", scalar.shown),
    };
    reader.unreadable(node, 0, field, message, help);
    None
}

/// A list of networks.
pub(super) fn networks(node: &Node, field: &str, max: usize, reader: &mut Reader<'_>) -> Option<Vec<IpNet>> {
    let items = reader.list(node, field, max, "write a list such as [\"10.0.0.0/8\"]")?;
    let nets: Vec<_> = items.iter().map(|item| network(item, field, reader)).collect();
    nets.into_iter().collect()
}

/// A list of methods in upper case.
pub(super) fn methods(node: &Node, reader: &mut Reader<'_>) -> Option<Vec<Method>> {
    let items = reader.list(node, "methods", METHODS_MAX, "write a list such as [GET, POST]")?;
    let methods: Vec<_> = items.iter().map(|item| method(item, reader)).collect();
    methods.into_iter().collect()
}

/// Methods of extensions are fine; what looks like a misspelled common one is not.
fn method(node: &Node, reader: &mut Reader<'_>) -> Option<Method> {
    let help = "write a method in upper case, such as GET";
    let scalar = reader.text(node, "methods", help)?;
    let text = scalar.text.as_str();
    let upper = text.to_ascii_uppercase();
    let near = did_you_mean(&upper, METHODS.iter());
    let parsed = Method::from_bytes(text.as_bytes()).ok();
    let misspelled = upper != text || (!METHODS.contains(&text) && !near.is_empty());
    match parsed {
        Some(method) if !misspelled && text.len() <= 32 => Some(method),
        _ => {
            let message = format!("`{}` is not a method{near}", scalar.shown);
            reader.unreadable(node, 0, "methods", message, help);
            None
        }
    }
}

/// The name of a header.
pub(super) fn header_name(text: &str) -> Option<HeaderName> {
    // Names that a client can send in lower or upper case are one.
    text.to_ascii_lowercase().parse().ok()
}
