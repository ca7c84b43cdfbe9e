//! `overrides`: other limits for some keys.

use std::collections::HashSet;
use std::net::IpAddr;

use slidegate::Client;
use slidegate::http::client_ip::ClientIpRule;
use slidegate::policy::{OVERRIDES_MAX, Pattern, Template};

use super::limits::{self, Placed};
use crate::config::fields::{Fields, Reader};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// One override.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) patterns: Vec<Pattern>,
    pub(super) limits: Vec<Placed>,
}

const HELP: &str = "write a list such as - {key: [\"10.0.0.1\"], limits: [\"1000/m\"]}";

/// Reads the overrides of a policy with this key.
pub(super) fn overrides(
    node: &Node,
    key: &[(Template, Span)],
    client_ip: Option<&ClientIpRule>,
    reader: &mut Reader<'_>,
) -> Option<Vec<Override>> {
    let items = reader.list(node, "overrides", OVERRIDES_MAX, HELP)?;
    if key.is_empty() {
        let message = "a policy without key has one counter, and nothing to override";
        reader.error(node.at, message, "give the policy a key, or change its limits");
        return None;
    }
    let mut seen = HashSet::new();
    let mut read = Vec::new();
    for item in items {
        read.push(one(item, key, client_ip, &mut seen, reader));
    }
    read.into_iter().collect()
}

fn one(
    node: &Node,
    key: &[(Template, Span)],
    client_ip: Option<&ClientIpRule>,
    seen: &mut HashSet<Vec<String>>,
    reader: &mut Reader<'_>,
) -> Option<Override> {
    let fields = Fields::of(node, "override", &schema::OVERRIDE, reader)?;
    let key_help = "write one value for each part of the key, * for any";
    let key_node = fields.require("key", key_help, reader);
    let limits = fields.require("limits", "write limits: [\"1000/m\"]", reader);
    let limits = limits.and_then(|node| limits::limits(node, reader));
    let key_node = key_node?;
    let values = reader.list(key_node, "key", usize::MAX, key_help)?;
    if values.len() != key.len() {
        let names: Vec<String> = key.iter().map(|(template, _)| template.to_string()).collect();
        let message =
            format!("the key is {}, and this names {} of {}", names.join(", "), values.len(), key.len());
        reader.error(key_node.at, message, key_help);
        return None;
    }
    let texts: Vec<_> = values
        .iter()
        .zip(key)
        .map(|(value, (template, _))| value_of(value, template, client_ip, reader))
        .collect();
    let texts: Vec<String> = texts.into_iter().collect::<Option<_>>()?;
    let patterns = texts.iter().map(|text| Pattern::parse(text)).collect();
    if !seen.insert(texts) {
        reader.error(key_node.at, "an earlier override has the same key and wins", "keep one of the two");
        return None;
    }
    Some(Override { patterns, limits: limits? })
}

fn value_of(
    node: &Node,
    template: &Template,
    client_ip: Option<&ClientIpRule>,
    reader: &mut Reader<'_>,
) -> Option<String> {
    let help = "write the value as requests have it, or \"*\" for any";
    // The empty value is one like any other, and not the absent part.
    if matches!(&node.value, Value::Scalar(scalar) if scalar.quoted && scalar.text.is_empty()) {
        return Some(String::new());
    }
    let text = &reader.text(node, "key", help)?.text;
    if text == "*" {
        return Some(text.clone());
    }
    if template.is_secret() {
        reader.secrets.push(node.at);
        let message = format!("values of `{template}` are kept as hashes only, so none can be named");
        reader.error(node.at, message, "write \"*\"");
        return None;
    }
    if let (true, Some(rule)) = (&**template.name() == "client_ip", client_ip) {
        return address(node, text, rule, reader);
    }
    Some(text.clone())
}

/// Addresses are compared as they are grouped: another spelling would never match.
fn address(node: &Node, text: &str, rule: &ClientIpRule, reader: &mut Reader<'_>) -> Option<String> {
    let (host, prefix) = text.split_once('/').map_or((text, None), |(host, prefix)| (host, Some(prefix)));
    let Ok(address) = host.parse::<IpAddr>().map(|address| address.to_canonical()) else {
        reader.unreadable(
            node,
            0,
            "key",
            format!("`{text}` is not a client address"),
            "write an address such as 10.0.0.1, or \"*\" for any",
        );
        return None;
    };
    let group = match address {
        IpAddr::V4(_) => rule.ipv4_prefix,
        IpAddr::V6(_) => rule.ipv6_prefix,
    };
    let canonical = Client { address, prefix: group }.to_string();
    if prefix.is_none() && canonical == text {
        return Some(canonical);
    }
    if canonical != text {
        reader.unreadable(
            node,
            0,
            "key",
            format!("`{text}` never matches: client addresses are grouped by /{group} here"),
            &format!("write {canonical}"),
        );
        return None;
    }
    Some(canonical)
}
