//! `gateway`: where it listens, and which requests go where.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use slidegate::core::limit::Algorithm;
use slidegate::core::time::Millis;
use slidegate::http::path::{PathRules, TrailingSlash};
use slidegate::limiter::POLICIES_PER_CHECK_MAX;
use slidegate::policy::NamedLimit;

use super::doors::Listen;
use super::paths::{self, Kind};
use super::{Draft, Places, net, upstream};
use crate::config::fields::{Fields, Reader, did_you_mean};
use crate::config::model::{GatewayConfig, PathMatch, Route};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

/// The most routes: they are tried in order.
const ROUTES_MAX: usize = 1000;

/// The least room for request line and headers: what HTTP libraries start with.
const HEADER_BYTES_MIN: u64 = 8 * 1024;

/// The most room for request line and headers: each connection may need that much.
const HEADER_BYTES_MAX: u64 = 1024 * 1024;

const HEADER_BYTES_DEFAULT: u64 = 32 * 1024;

/// The largest cap on bodies: bodies are streamed, so this is a bound against typing errors only. 1 TiB.
const BODY_BYTES_MAX: u64 = 1 << 40;

const BODY_BYTES_DEFAULT: u64 = 10 * 1024 * 1024;

const TIMEOUT_MAX: Millis = Millis(3_600_000);

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

const LISTEN_EXAMPLE: &str = "127.0.0.1:8080";

/// The gateway as far as it could be read.
pub(super) struct ReadGateway {
    pub(super) listen: Option<Listen>,
    pub(super) config: Option<GatewayConfig>,
}

/// Reads the section. `drafts` are the policies that routes may name; without them names aren't judged.
pub(super) fn gateway(
    node: &Node,
    drafts: Option<&[Draft]>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> ReadGateway {
    let Some(fields) = Fields::of(node, "gateway", &schema::GATEWAY, reader) else {
        return ReadGateway { listen: None, config: None };
    };
    fields.later("tls", None, reader);
    let listen_node = fields.require("listen", "write listen: 127.0.0.1:8080", reader);
    let address = listen_node.and_then(|node| net::listen(node, LISTEN_EXAMPLE, reader));
    places.gateway_listen = listen_node.map(|node| node.at);
    let listen =
        address.zip(places.gateway_listen).map(|(address, at)| Listen { door: "gateway", address, at });
    ReadGateway { listen, config: config(&fields, address, drafts, places, reader) }
}

fn config(
    fields: &Fields<'_>,
    listen: Option<SocketAddr>,
    drafts: Option<&[Draft]>,
    places: &mut Places,
    reader: &mut Reader<'_>,
) -> Option<GatewayConfig> {
    let max_header_bytes = fields.get("max_header_bytes").map_or(Some(HEADER_BYTES_DEFAULT), |node| {
        reader.int(node, "max_header_bytes", HEADER_BYTES_MIN..=HEADER_BYTES_MAX)
    });
    let max_body_bytes = fields
        .get("max_body_bytes")
        .map_or(Some(BODY_BYTES_DEFAULT), |node| reader.int(node, "max_body_bytes", 0..=BODY_BYTES_MAX));
    let path_rules =
        fields.get("paths").map_or_else(|| Some(PathRules::default()), |node| path_rules(node, reader));
    let help = "write a list such as - {match: {prefix: /}, policies: [per-client], upstream: echo}";
    let routes_node = fields.require("routes", help, reader)?;
    let items = reader.list(routes_node, "routes", ROUTES_MAX, help)?;
    let rules = path_rules.unwrap_or_default();
    let read: Vec<_> = items.iter().map(|item| route(item, listen, &rules, drafts, reader)).collect();
    refuse_unreachable(items, &read, &rules, reader);
    places.routes = items.iter().map(|item| item.at).collect();
    Some(GatewayConfig {
        listen: listen?,
        max_header_bytes: usize::try_from(max_header_bytes?).ok()?,
        max_body_bytes: max_body_bytes?,
        paths: path_rules?,
        routes: read.into_iter().collect::<Option<_>>()?,
    })
}

fn path_rules(node: &Node, reader: &mut Reader<'_>) -> Option<PathRules> {
    let fields = Fields::of(node, "paths", &schema::PATHS, reader)?;
    let words = [("ignore", TrailingSlash::Ignore), ("strict", TrailingSlash::Strict)];
    let merge_slashes =
        fields.get("merge_slashes").map_or(Some(true), |node| reader.bool(node, "merge_slashes"));
    let trailing_slash = fields
        .get("trailing_slash")
        .map_or(Some(TrailingSlash::Ignore), |node| reader.choice(node, "trailing_slash", &words, &[]));
    Some(PathRules { merge_slashes: merge_slashes?, trailing_slash: trailing_slash? })
}

fn route(
    node: &Node,
    listen: Option<SocketAddr>,
    rules: &PathRules,
    drafts: Option<&[Draft]>,
    reader: &mut Reader<'_>,
) -> Option<Route> {
    let fields = Fields::of(node, "route", &schema::ROUTE, reader)?;
    let matched = fields.require("match", "write match: {prefix: /}", reader);
    let matched = matched.and_then(|node| matches(node, rules, reader));
    let path = matched.as_ref().map(|matched| &matched.path);
    let policies =
        fields.get("policies").map_or_else(|| Some(Vec::new()), |node| policies(node, path, drafts, reader));
    let upstream = fields.require("upstream", "write upstream: http://127.0.0.1:9000, or echo", reader);
    let upstream = upstream.and_then(|node| upstream::upstream(node, listen, reader));
    let timeout = fields.get("timeout").map_or(Some(TIMEOUT_DEFAULT), |node| {
        reader.duration(node, "timeout", Millis(1)..=TIMEOUT_MAX).map(Into::into)
    });
    let matched = matched?;
    Some(Route {
        path: matched.path,
        methods: matched.methods,
        host: matched.host,
        policies: policies?,
        upstream: upstream?,
        timeout: timeout?,
    })
}

/// The `match` of a route.
struct Matched {
    path: PathMatch,
    methods: Vec<http::Method>,
    host: Option<Box<str>>,
}

fn matches(node: &Node, rules: &PathRules, reader: &mut Reader<'_>) -> Option<Matched> {
    let fields = Fields::of(node, "match", &schema::MATCH, reader)?;
    let methods = fields.get("methods").map_or_else(|| Some(Vec::new()), |node| net::methods(node, reader));
    let host = fields.get("host").map_or(Some(None), |node| host(node, reader).map(Some));
    let kinds = [("path", Kind::Exact), ("prefix", Kind::Prefix), ("pattern", Kind::Pattern)];
    let written: Vec<_> = kinds
        .iter()
        .filter_map(|(name, kind)| fields.entry(name).map(|(name, node)| (name, node, *kind)))
        .collect();
    let path = match written.as_slice() {
        [(_, node, kind)] => paths::path(node, *kind, rules, reader),
        [] => {
            let message = "`match` lacks one of path, prefix and pattern";
            reader.error(fields.head(reader.source), message, "write prefix: / for any path");
            None
        }
        [.., (name, ..)] => {
            reader.error(name.at, "`match` takes one of path, prefix and pattern", "keep one of them");
            None
        }
    };
    Some(Matched { path: path?, methods: methods?, host: host? })
}

fn host(node: &Node, reader: &mut Reader<'_>) -> Option<Box<str>> {
    let help = "write a name such as example.com, or *.example.com for every name below";
    let scalar = reader.text(node, "host", help)?;
    let text = scalar.text.to_ascii_lowercase();
    let name = text.strip_prefix("*.").unwrap_or(&text);
    let is_v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if is_v6 || (name.len() <= 253 && name.split('.').all(label)) {
        return Some(text.into());
    }
    let message = if name.contains(':') && !name.contains("//") {
        format!("`{}` has a port, and hosts are compared without", scalar.shown)
    } else {
        format!("`{}` is not the name of a host", scalar.shown)
    };
    reader.unreadable(node, 0, "host", message, help);
    None
}

fn policies(
    node: &Node,
    path: Option<&PathMatch>,
    drafts: Option<&[Draft]>,
    reader: &mut Reader<'_>,
) -> Option<Vec<Arc<str>>> {
    let help = "write a list of names of policies, such as [per-client]";
    let items = match &node.value {
        Value::List(items) if items.is_empty() => return Some(Vec::new()),
        _ => reader.list(node, "policies", POLICIES_PER_CHECK_MAX, help)?,
    };
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut good = true;
    for item in items {
        let Some(name) = reader.public_text(item, "policies", help) else {
            good = false;
            continue;
        };
        if names.iter().any(|earlier| &**earlier == name) {
            reader.error(item.at, format!("`{name}` stands there twice"), "name it once");
            good = false;
        }
        let draft = drafts.and_then(|drafts| drafts.iter().find(|draft| &*draft.name == name));
        match (draft, drafts) {
            (Some(draft), _) => {
                good &= refuse_foreign_parameters(draft, path, item.at, reader)
                    & refuse_waiting(draft, item.at, reader);
            }
            (None, Some(drafts)) => {
                let near = did_you_mean(name, drafts.iter().map(|draft| &draft.name));
                let known: Vec<&str> = drafts.iter().take(10).map(|draft| &*draft.name).collect();
                let more = if drafts.len() > 10 { ", ..." } else { "" };
                reader.error(
                    item.at,
                    format!("there is no policy `{name}`{near}"),
                    format!("the policies are {}{more}", known.join(", ")),
                );
                good = false;
            }
            (None, None) => {}
        }
        names.push(draft.map_or_else(|| name.into(), |draft| draft.name.clone()));
    }
    good.then_some(names)
}

/// A key that asks for `{path:id}` needs a pattern with `{id}`: else every request would lack the part.
fn refuse_foreign_parameters(
    draft: &Draft,
    path: Option<&PathMatch>,
    at: Span,
    reader: &mut Reader<'_>,
) -> bool {
    let (Some(policy), Some(path)) = (&draft.policy, path) else {
        return true;
    };
    let mut parameters = policy.key().iter().filter_map(|template| template.path_param());
    let Some(foreign) = parameters.find(|name| !paths::has_parameter(path, name)) else {
        return true;
    };
    reader.error(
        at,
        format!(
            "the key of policy `{}` has {{path:{foreign}}}, and this route has no such parameter",
            draft.name
        ),
        format!("write the route as pattern: with {{{foreign}}} as a segment, such as /users/{{{foreign}}}"),
    );
    false
}

/// The gateway doesn't make requests wait yet: letting them through at once would not be a leaky bucket.
fn refuse_waiting(draft: &Draft, at: Span, reader: &mut Reader<'_>) -> bool {
    let waits = |limit: &NamedLimit| matches!(limit.limit().algorithm(), Algorithm::LeakyBucket { max_delay } if max_delay > Millis::ZERO);
    let waiting = draft.policy.as_ref().is_some_and(|policy| policy.all_limits().any(waits));
    if waiting {
        reader.error(
            at,
            format!("policy `{}` makes requests wait (leaky_bucket), which the gateway can't do yet", draft.name),
            "not available yet: write max_delay: 0s, or use token_bucket; callers of the API are told delay_ms",
        );
    }
    !waiting
}

/// The first route that matches is taken, so one that an earlier route covers would never be.
fn refuse_unreachable(items: &[Node], routes: &[Option<Route>], rules: &PathRules, reader: &mut Reader<'_>) {
    for (index, later) in routes.iter().enumerate() {
        let Some(later) = later else { continue };
        let covering = routes[..index].iter().position(|earlier| {
            earlier.as_ref().is_some_and(|earlier| paths::takes_all_of(earlier, later, rules))
        });
        if let Some(earlier) = covering {
            let line = reader.source.place(items[earlier].at.start).line;
            reader.error(
                items[index].at,
                format!("this route is never reached: the one in line {line} takes all its requests"),
                "put the more particular route first, or remove one",
            );
        }
    }
}
