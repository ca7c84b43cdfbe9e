//! `limits`: texts such as `"100/m"`, or mappings that say more.

use std::sync::Arc;

use slidegate::core::limit::{
    Algorithm, LIMITS_MAX, Limit, LimitError, PERMITS_MAX, ParseLimitFault, WINDOW_MAX, parse_limit,
    parse_limits,
};
use slidegate::core::time::Millis;

use super::policies;
use crate::config::fields::{Fields, Reader};
use crate::config::schema;
use crate::config::source::Span;
use crate::config::yaml::{Node, Value};

const HELP: &str = "write a list such as [\"100/m\"], or of mappings such as {permits: 100, window: 1m}";

const LIMIT_HELP: &str = "write permits / window, such as \"100/m\", \"5000/1s\" or \"10/15m\"";

/// A limit, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) name: Option<Arc<str>>,
    pub(super) limit: Limit,
    pub(super) at: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SlidingWindow,
    SlidingLog,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
}

/// Reads the limits of a policy or of an override.
pub(super) fn limits(node: &Node, reader: &mut Reader<'_>) -> Option<Vec<Placed>> {
    if let Value::Scalar(_) = &node.value {
        return several(node, reader);
    }
    let items = reader.list(node, "limits", LIMITS_MAX, HELP)?;
    let read: Vec<_> = items.iter().map(|item| one(item, reader)).collect();
    let limits: Vec<Placed> = read.into_iter().collect::<Option<_>>()?;
    for (index, limit) in limits.iter().enumerate() {
        let twice = limit
            .name
            .as_ref()
            .filter(|name| limits[..index].iter().any(|other| other.name.as_ref() == Some(name)));
        if let Some(name) = twice {
            reader.error(limit.at, format!("two limits are called `{name}`"), "give each its own name");
            return None;
        }
    }
    Some(limits)
}

/// One text that holds all limits: `limits: "10/s; 100/m"`.
fn several(node: &Node, reader: &mut Reader<'_>) -> Option<Vec<Placed>> {
    let scalar = reader.text(node, "limits", HELP)?;
    match parse_limits(&scalar.text) {
        Ok(limits) => {
            let place = |limit| Placed { name: None, limit, at: node.at };
            Some(limits.into_iter().map(place).collect())
        }
        Err(error) => {
            reader.unreadable(node, error.at, "limits", error.to_string(), LIMIT_HELP);
            None
        }
    }
}

fn one(node: &Node, reader: &mut Reader<'_>) -> Option<Placed> {
    if let Value::Map(_) = &node.value {
        return mapping(node, reader);
    }
    let scalar = reader.text(node, "limits", LIMIT_HELP)?;
    if let Some(at) = scalar.text.find(';') {
        let message = "an entry of the list is one limit".into();
        reader.unreadable(node, at, "limits", message, "write [\"10/s\", \"100/m\"]");
        return None;
    }
    match parse_limit(&scalar.text) {
        Ok(limit) => Some(Placed { name: None, limit, at: node.at }),
        Err(error) => {
            let help = match error.fault {
                ParseLimitFault::Limit(_) => "permits go from 0 to 4294967295, windows from 1ms to 366d",
                _ => LIMIT_HELP,
            };
            reader.unreadable(node, error.at, "limits", error.to_string(), help);
            None
        }
    }
}

fn mapping(node: &Node, reader: &mut Reader<'_>) -> Option<Placed> {
    let fields = Fields::of(node, "limit", &schema::LIMIT, reader)?;
    let name = fields.get("name").map_or(Some(None), |node| policies::name(node, reader).map(Some));
    let permits = fields.require("permits", "write permits: 100", reader);
    let permits = permits.and_then(|node| reader.int(node, "permits", 0..=PERMITS_MAX.into()));
    let window = fields.require("window", "write window: 1m", reader);
    let window = window.and_then(|node| reader.duration(node, "window", Millis(1)..=WINDOW_MAX));
    let algorithm = algorithm(&fields, permits, reader);
    let (name, algorithm) = (name?, algorithm?);
    let limit = Limit::new(permits?, window?).and_then(|limit| limit.with_algorithm(algorithm));
    match limit {
        Ok(limit) => Some(Placed { name, limit, at: node.at }),
        Err(error) => {
            let (field, help) = match error {
                LimitError::Resolution { .. } | LimitError::ResolutionTooFine { .. } => {
                    ("resolution", "write resolution: auto")
                }
                LimitError::Burst { .. } | LimitError::BurstRefill { .. } => {
                    ("burst", "write a smaller burst")
                }
                LimitError::MaxDelay { .. } => ("max_delay", "write a shorter max_delay"),
                LimitError::Window { .. } => ("window", "write a shorter window"),
                _ => ("permits", "write fewer permits, or algorithm: sliding_window"),
            };
            let at = fields.get(field).map_or(node.at, |node| node.at);
            reader.error(at, error.to_string(), help);
            None
        }
    }
}

/// The algorithm with its own settings; those of other algorithms are refused.
fn algorithm(fields: &Fields<'_>, permits: Option<u64>, reader: &mut Reader<'_>) -> Option<Algorithm> {
    let words = [
        ("sliding_window", Kind::SlidingWindow),
        ("sliding_log", Kind::SlidingLog),
        ("fixed_window", Kind::FixedWindow),
        ("token_bucket", Kind::TokenBucket),
        ("leaky_bucket", Kind::LeakyBucket),
    ];
    let kind = fields
        .get("algorithm")
        .map_or(Some(Kind::SlidingWindow), |node| reader.choice(node, "algorithm", &words, &[]));
    let resolution = fields.get("resolution").map_or(Some(None), |node| resolution(node, reader));
    let burst = fields
        .get("burst")
        .map_or(Some(permits), |node| reader.int(node, "burst", 1..=PERMITS_MAX.into()).map(Some));
    let max_delay = fields
        .get("max_delay")
        .map_or(Some(None), |node| reader.duration(node, "max_delay", Millis(0)..=WINDOW_MAX).map(Some));
    let kind = kind?;
    let mut fits = true;
    for (setting, owner, of) in [
        ("resolution", "sliding_window", Kind::SlidingWindow),
        ("burst", "token_bucket", Kind::TokenBucket),
        ("max_delay", "leaky_bucket", Kind::LeakyBucket),
    ] {
        if let Some((name, _)) = fields.entry(setting).filter(|_| kind != of) {
            let message = format!("`{setting}` is a setting of {owner} only");
            reader.error(name.at, message, format!("leave it out, or write algorithm: {owner}"));
            fits = false;
        }
    }
    let lacks_delay = kind == Kind::LeakyBucket && fields.get("max_delay").is_none();
    if lacks_delay {
        let help = "write max_delay: 1s, the longest that a request may be kept waiting";
        fields.require("max_delay", help, reader);
    }
    let (resolution, burst, max_delay) = (resolution?, burst?, max_delay?);
    if !fits || lacks_delay {
        return None;
    }
    Some(match kind {
        Kind::SlidingWindow => Algorithm::SlidingWindow { resolution },
        Kind::SlidingLog => Algorithm::SlidingLog,
        Kind::FixedWindow => Algorithm::FixedWindow,
        Kind::TokenBucket => Algorithm::TokenBucket { burst: u32::try_from(burst?).ok()? },
        Kind::LeakyBucket => Algorithm::LeakyBucket { max_delay: max_delay? },
    })
}

/// `auto`, or a length.
fn resolution(node: &Node, reader: &mut Reader<'_>) -> Option<Option<Millis>> {
    if let Value::Scalar(scalar) = &node.value
        && scalar.text == "auto"
    {
        return Some(None);
    }
    reader.duration(node, "resolution", Millis(1)..=WINDOW_MAX).map(Some)
}
