//! `client_ip`: whose forwarding headers are believed, and how addresses are grouped.

use http::header::FORWARDED;
use slidegate::http::client_ip::{ClientIpRule, Trust};

use super::{Places, net};
use crate::config::fields::{Fields, Reader};
use crate::config::schema;
use crate::config::yaml::{Node, Value};

/// The most trusted networks: they are tried one after another for each request.
const PROXIES_MAX: usize = 1000;

/// The most hops: no chain of proxies is longer, and a header is read from its right end only so far.
const HOPS_MAX: u64 = 32;

/// Reads the section; without it, the client is the peer.
pub(super) fn rule(
    node: Option<&Node>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<ClientIpRule> {
    let Some(node) = node else {
        return Some(ClientIpRule::default());
    };
    let fields = Fields::of(node, "client_ip", &schema::CLIENT_IP, reader)?;
    let defaults = ClientIpRule::default();
    let header = fields.get("header").map_or(Some(defaults.header), |node| header(node, reader));
    let trust = trust(&fields, header.as_ref(), places, reader);
    let mut prefix = |name, max, default| {
        fields.get(name).map_or(Some(default), |node| {
            let bits = reader.int(node, name, 0..=max)?;
            u8::try_from(bits).ok()
        })
    };
    let ipv4_prefix = prefix("ipv4_prefix", 32, defaults.ipv4_prefix);
    let ipv6_prefix = prefix("ipv6_prefix", 128, defaults.ipv6_prefix);
    places.ipv4_prefix = fields.get("ipv4_prefix").map(|node| node.at);
    places.ipv6_prefix = fields.get("ipv6_prefix").map(|node| node.at);
    Some(ClientIpRule {
        trust: trust?,
        header: header?,
        ipv4_prefix: ipv4_prefix?,
        ipv6_prefix: ipv6_prefix?,
    })
}

fn header(node: &Node, reader: &mut Reader<'_>) -> Option<http::HeaderName> {
    let help = "write one header: x-forwarded-for, forwarded, or one that holds a single address";
    if matches!(node.value, Value::List(_)) {
        let message = "`header` takes exactly one header: a second one would let clients choose";
        reader.error(node.at, message, help);
        return None;
    }
    let scalar = reader.text(node, "header", help)?;
    let name = net::header_name(&scalar.text);
    if name.is_none() {
        let message = format!("`{}` is not the name of a header", scalar.shown);
        reader.unreadable(node, 0, "header", message, help);
    }
    name
}

fn trust(
    fields: &Fields<'_>,
    header: Option<&http::HeaderName>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<Trust> {
    let hops_node = fields.get("hops");
    let hops = hops_node.map_or(Some(0), |node| reader.int(node, "hops", 0..=HOPS_MAX));
    let proxies = fields.get("trusted_proxies").map_or(Some(Vec::new()), |node| match &node.value {
        Value::List(items) if items.is_empty() => Some(Vec::new()),
        Value::List(items) => {
            places.trusted_proxies = items.iter().map(|item| item.at).collect();
            net::networks(node, "trusted_proxies", PROXIES_MAX, reader)
        }
        _ => net::networks(node, "trusted_proxies", PROXIES_MAX, reader),
    });
    let (hops, proxies) = (u8::try_from(hops?).ok()?, proxies?);
    let Some(node) = hops_node.filter(|_| hops > 0) else {
        return Some(if proxies.is_empty() { Trust::Nobody } else { Trust::Proxies(proxies) });
    };
    places.hops = Some(node.at);
    if !proxies.is_empty() {
        reader.error(
            node.at,
            "`hops` and `trusted_proxies` are two answers to one question",
            "keep trusted_proxies where you know their addresses, else hops",
        );
        return None;
    }
    let is_list = header.is_none_or(|name| *name == FORWARDED || name == "x-forwarded-for");
    if hops > 1 && !is_list {
        reader.error(
            node.at,
            "a header with a single address has no second hop",
            "write hops: 1, or header: x-forwarded-for",
        );
        return None;
    }
    Some(Trust::Hops(hops))
}
