//! `policies`: names, keys, costs and exemptions; their limits and overrides have files of their own.

use std::sync::Arc;

use slidegate::Policy;
use slidegate::core::decision::Cost;
use slidegate::http::client_ip::ClientIpRule;
use slidegate::limiter::POLICIES_MAX;
use slidegate::policy::{
    CostSource, Exempt, Failover, KEY_PARTS_MAX, Missing, NAME_LEN_MAX, OnStoreFailure, PolicyBuilder,
    Template,
};

use super::limits::{self, Placed};
use super::{Draft, PolicyPlaces, leases, net, overrides};
use crate::config::fields::{Fields, Reader};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// The most networks, and the most headers, in an `exempt`: they are tried one after another.
const EXEMPT_MAX: usize = 256;

const KEY_HELP: &str = "write a list such as [\"{client_ip}\"], or [] for one counter";

/// Reads the section. A policy that is broken keeps its name, so that routes may refer to it.
pub(super) fn policies(
    fields: &Fields<'_>,
    client_ip: Option<&ClientIpRule>,
    reader: &mut Reader<'_>,
) -> Option<Vec<Draft>> {
    let help = "write a list such as - {name: per-client, limits: [\"100/m\"], key: [\"{client_ip}\"]}";
    let node = fields.require("policies", help, reader)?;
    let items = reader.list(node, "policies", POLICIES_MAX, help)?;
    let drafts: Vec<Draft> = items.iter().filter_map(|item| policy(item, client_ip, reader)).collect();
    refuse_shared_names(&drafts, reader);
    // Where a name is missing, nobody knows which policies routes can name.
    (drafts.len() == items.len()).then_some(drafts)
}

fn policy(node: &Node, client_ip: Option<&ClientIpRule>, reader: &mut Reader<'_>) -> Option<Draft> {
    let fields = Fields::of(node, "policy", &schema::POLICY, reader)?;
    let name_node = fields.require("name", "write name: per-client", reader);
    let policy_name = name_node.and_then(|node| name(node, reader));
    let limits = fields.require("limits", "write limits: [\"100/m\"]", reader);
    let limits = limits.and_then(|node| limits::limits(node, reader));
    let key = fields.get("key").map_or_else(|| Some(Vec::new()), |node| key(node, reader));
    let cost = fields.get("cost").map_or(Some(CostSource::Fixed(1)), |node| cost(node, reader));
    let overrides = match (fields.get("overrides"), &key) {
        (None, _) => Some(Vec::new()),
        (Some(node), Some(key)) => overrides::overrides(node, key, client_ip, reader),
        (Some(_), None) => None,
    };
    let settings = settings(&fields, reader);
    let at = |name: &str| fields.get(name).map(|node| node.at);
    let places = PolicyPlaces {
        name: name_node.map_or(node.at, |node| node.at),
        limits: limits.iter().flatten().map(|limit| limit.at).collect(),
        missing: at("missing"),
        cost: at("cost"),
        shadow: at("shadow"),
        count_denied: at("count_denied"),
        exempt: at("exempt"),
        secret: key.iter().flatten().find(|(template, _)| template.is_secret()).map(|(_, at)| *at),
    };
    let name = policy_name?;
    let mut draft = Draft { name: name.clone(), places, policy: None };
    if let (Some(limits), Some(key), Some(cost), Some(overrides), Some(settings)) =
        (limits, key, cost, overrides, settings)
    {
        let all = overrides.iter().flat_map(|read| &read.limits).chain(&limits);
        refuse_cost_that_never_fits(&cost, all, draft.places.cost, reader);
        let mut builder = settings(Policy::builder(name)).cost(cost);
        for limit in limits {
            builder = builder.limit(limit.name.as_deref(), limit.limit);
        }
        for (template, _) in key {
            builder = builder.key_template(template);
        }
        for read in overrides {
            let limits = read.limits.into_iter().map(|limit| (limit.name, limit.limit)).collect();
            builder = builder.override_limits(read.patterns, limits);
        }
        match builder.build() {
            Ok(policy) => draft.policy = Some(policy),
            Err(error) => {
                let place = leases::place_of(&error, &fields);
                let (at, help) = place.unwrap_or_else(|| (fields.head(reader.source), "change this policy"));
                reader.error(at, error.to_string(), help);
            }
        }
    }
    Some(draft)
}

/// The simple settings, as a step of the builder.
fn settings(
    fields: &Fields<'_>,
    reader: &mut Reader<'_>,
) -> Option<impl FnOnce(PolicyBuilder) -> PolicyBuilder + use<>> {
    fields.later("charge_if", None, reader);
    let leases = leases::settings(fields, reader);
    let words = [
        ("count", Missing::Count),
        ("skip", Missing::Skip),
        ("deny", Missing::Deny),
        ("client_ip", Missing::ClientIp),
    ];
    let missing = fields
        .get("missing")
        .map_or(Some(Missing::Count), |node| reader.choice(node, "missing", &words, &[]));
    let count_denied =
        fields.get("count_denied").map_or(Some(false), |node| reader.bool(node, "count_denied"));
    let shadow = fields.get("shadow").map_or(Some(false), |node| reader.bool(node, "shadow"));
    let exempt = fields.get("exempt").map_or_else(|| Some(Exempt::default()), |node| exempt(node, reader));
    let words =
        [("local", OnStoreFailure::Local), ("allow", OnStoreFailure::Allow), ("deny", OnStoreFailure::Deny)];
    let failure = fields
        .get("on_store_failure")
        .map_or(Some(OnStoreFailure::default()), |node| reader.choice(node, "on_store_failure", &words, &[]));
    let words = [("exact", Failover::Exact), ("fast", Failover::Fast)];
    let failover = fields
        .get("failover")
        .map_or(Some(Failover::default()), |node| reader.choice(node, "failover", &words, &[]));
    let (missing, count_denied, shadow, exempt) = (missing?, count_denied?, shadow?, exempt?);
    let (failure, failover, leases) = (failure?, failover?, leases?);
    Some(move |builder: PolicyBuilder| {
        leases(builder)
            .missing(missing)
            .count_denied(count_denied)
            .shadow(shadow)
            .exempt(exempt)
            .on_store_failure(failure)
            .failover(failover)
    })
}

/// The name of a policy or limit: it stands in RateLimit fields, which hold printable ASCII only.
pub(super) fn name(node: &Node, reader: &mut Reader<'_>) -> Option<Arc<str>> {
    let help = format!("write 1 to {NAME_LEN_MAX} printable ASCII characters, such as per-client");
    let text = reader.public_text(node, "name", &help)?;
    let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !printable || text.len() > NAME_LEN_MAX {
        reader.error(node.at, "this can't be a name in a RateLimit header field", help);
        return None;
    }
    Some(text.into())
}

fn key(node: &Node, reader: &mut Reader<'_>) -> Option<Vec<(Template, Span)>> {
    let items = match &node.value {
        Value::List(items) if items.is_empty() => return Some(Vec::new()),
        _ => reader.list(node, "key", KEY_PARTS_MAX, KEY_HELP)?,
    };
    let read: Vec<_> = items.iter().map(|item| template(item, "key", reader)).collect();
    let mut parts: Vec<(Template, Span)> = Vec::new();
    for (template, item) in read.into_iter().collect::<Option<Vec<_>>>()?.into_iter().zip(items) {
        if parts.iter().any(|(earlier, _)| earlier.name() == template.name()) {
            let message = format!("the key has `{template}` twice");
            reader.error(item.at, message, "leave one of them out");
            return None;
        }
        parts.push((template, item.at));
    }
    Some(parts)
}

fn template(node: &Node, field: &str, reader: &mut Reader<'_>) -> Option<Template> {
    let help = "write a part of the request in quotes, such as \"{client_ip}\" or \"{header:x-user-id}\"";
    if let Value::Map(entries) = &node.value
        && let [(name, inner)] = entries.as_slice()
        && matches!(inner.value, Value::Null)
    {
        let message = format!("without quotes, YAML takes `{{{}}}` for a mapping", name.text);
        reader.error(node.at, message, format!("write \"{{{}}}\"", name.text));
        return None;
    }
    let text = reader.public_text(node, field, help)?;
    match text.parse() {
        Ok(template) => Some(template),
        Err(error) => {
            reader.error(node.inside(error.at), error.message, help);
            None
        }
    }
}

/// A number, or where the number is in the request.
fn cost(node: &Node, reader: &mut Reader<'_>) -> Option<CostSource> {
    const MAX: u64 = Cost::MAX as u64;
    if !matches!(node.value, Value::Map(_)) {
        // A policy whose checks cost nothing would limit nobody.
        let cost = reader.int(node, "cost", 1..=MAX)?;
        return Cost::try_from(cost).ok().map(CostSource::Fixed);
    }
    let fields = Fields::of(node, "cost", &schema::COST, reader)?;
    let from = fields.require("from", "write from: \"{header:x-cost}\"", reader);
    let from = from.and_then(|node| template(node, "from", reader));
    let max = fields.require("max", "write max: 50, the most that a request may be charged", reader);
    let max = max.and_then(|node| reader.int(node, "max", 1..=MAX));
    let min = fields.get("min").map_or(Some(1), |node| reader.int(node, "min", 0..=MAX));
    let default = fields.get("default").map(|node| reader.int(node, "default", 0..=MAX));
    let (template, min, max) = (from?, min?, max?);
    // Without a number of its own, a request costs 1, as far as the bounds allow.
    let default = default.unwrap_or_else(|| Some(1.min(max).max(min)))?;
    if min > max {
        let message = format!("a cost of at least {min} and at most {max} is none");
        reader.error(fields.head(reader.source), message, "write a min below the max");
        return None;
    }
    if min > default || default > max {
        reader.error(
            fields.head(reader.source),
            format!("a cost needs min <= default <= max, and here are {min}, {default} and {max}"),
            "change one of them",
        );
        return None;
    }
    let cost = |number| Cost::try_from(number).ok();
    Some(CostSource::From { template, min: cost(min)?, max: cost(max)?, default: cost(default)? })
}

/// A cost above what a limit can ever give is a mistake: every request would be refused for good. Limits of
/// no permits deny everything on purpose.
fn refuse_cost_that_never_fits<'l>(
    cost: &CostSource,
    limits: impl Iterator<Item = &'l Placed>,
    at: Option<Span>,
    reader: &mut Reader<'_>,
) {
    let least = match cost {
        CostSource::Fixed(cost) => *cost,
        CostSource::From { min, .. } => *min,
    };
    let mut limits = limits.filter(|limit| limit.limit.capacity() != 0);
    if let (Some(at), Some(small)) = (at, limits.find(|limit| limit.limit.capacity() < least)) {
        let line = reader.source.place(small.at.start).line;
        let message = format!(
            "a cost of {least} never fits into {} permits, the limit in line {line}",
            small.limit.capacity()
        );
        reader.error(at, message, "write a lower cost, or a higher limit");
    }
}

fn exempt(node: &Node, reader: &mut Reader<'_>) -> Option<Exempt> {
    let fields = Fields::of(node, "exempt", &schema::EXEMPT, reader)?;
    let methods = fields.get("methods").map_or_else(|| Some(Vec::new()), |node| net::methods(node, reader));
    let client_ip = fields
        .get("client_ip")
        .map_or_else(|| Some(Vec::new()), |node| net::networks(node, "client_ip", EXEMPT_MAX, reader));
    let headers = fields.get("header").map_or_else(|| Some(Vec::new()), |node| exempt_headers(node, reader));
    Some(Exempt { methods: methods?, client_ip: client_ip?, headers: headers? })
}

fn exempt_headers(node: &Node, reader: &mut Reader<'_>) -> Option<Vec<(http::HeaderName, Box<[u8]>)>> {
    let help = "write a mapping such as {x-internal: \"${SECRET}\"}";
    let entries = match &node.value {
        Value::Map(entries) if !entries.is_empty() && entries.len() <= EXEMPT_MAX => entries,
        _ => {
            reader.error(node.at, "`header` maps names of headers to values", help);
            return None;
        }
    };
    let mut headers = Vec::new();
    for (name, value) in entries {
        let header = net::header_name(&name.text);
        if header.is_none() {
            reader.error(name.at, format!("`{}` is not the name of a header", name.text), help);
        }
        let value_node = value;
        let value = reader.text(value, "header", help).map(|scalar| scalar.text.as_bytes());
        let valid = value
            .filter(|value| http::HeaderValue::from_bytes(value).is_ok() && value.trim_ascii() == *value);
        if value.is_some() && valid.is_none() {
            let message = "this can't be the value of a header".into();
            reader.unreadable(
                value_node,
                0,
                "header",
                message,
                "write printable characters without spaces around",
            );
        }
        headers.push(header.zip(valid).map(|(name, value)| (name, value.into())));
    }
    headers.into_iter().collect()
}

/// Policies share one space of names, and so do their limits: RateLimit fields name limits only. Limits of
/// an override stand in for those of their own policy and may share their names.
fn refuse_shared_names(drafts: &[Draft], reader: &mut Reader<'_>) {
    let mut policies: std::collections::HashMap<&str, &Draft> = std::collections::HashMap::new();
    let mut limits: std::collections::HashMap<&str, &Draft> = std::collections::HashMap::new();
    for draft in drafts {
        if let Some(first) = policies.get(&*draft.name) {
            let line = reader.source.place(first.places.name.start).line;
            let message = format!("the policy in line {line} is called `{}` already", draft.name);
            reader.error(draft.places.name, message, "give each its own name");
            continue;
        }
        policies.insert(&draft.name, draft);
        for (index, limit) in draft.policy.iter().flat_map(Policy::all_limits).enumerate() {
            let name = limit.public_name();
            let owner = *limits.entry(name).or_insert(draft);
            if !Arc::ptr_eq(&owner.name, &draft.name) {
                let line = reader.source.place(owner.places.name.start).line;
                let at = draft.places.limits.get(index).unwrap_or(&draft.places.name);
                reader.error(
                    *at,
                    format!(
                        "answers name this limit `{name}`, and so they do one of policy {} in line {line}",
                        owner.name
                    ),
                    "give it a `name` of its own",
                );
            }
        }
    }
}
