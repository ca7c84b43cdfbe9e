//! YAML as a tree that knows where everything stands.
//!
//! Not a schema: the sections under `convert` read the tree field by field, so that one run reports every
//! fault instead of the first, each with its own words. Plain scalars are kept as the file spells them, not
//! as YAML types, so that `010`, `1e3`, `off` and `10` mean what the field that holds them says.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::env::{self, Lookup};
use super::report::{Finding, Severity};
use super::source::{Source, Span};

/// The deepest nesting: the schema needs 8.
const DEPTH_MAX: usize = 24;

/// The most nodes, aliases expanded: a file of the greatest size has fewer, unless aliases blow it up.
const NODES_MAX: usize = 600_000;

/// The most events that aliases may repeat: a hundred times what a file with shared parts needs.
const ALIAS_EVENTS_MAX: usize = 100_000;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Where it is defined; for what a YAML alias repeats, the original.
    pub(super) at: Span,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    /// In file order, duplicates included.
    Map(Vec<(Name, Node)>),
}

/// The name of a field.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) at: Span,
    pub(super) text: String,
}

/// A single value.
#[derive(Clone)]
pub(super) struct Scalar {
    /// What it comes to, with variables replaced. Never shown: see [`shown`](Self::shown).
    pub(super) text: String,
    /// As in the file: what messages may repeat.
    pub(super) shown: String,
    /// In quotes or as a block: a text for certain.
    pub(super) quoted: bool,
    /// Whether part of it came from the environment.
    pub(super) from_env: bool,
    verbatim_at: Option<usize>,
}

/// Without the content, which may come from a variable.
impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scalar").field(&self.shown).finish()
    }
}

impl Scalar {
    /// The byte at which the text stands letter for letter in the file, if it does.
    pub(super) const fn verbatim_at(&self) -> Option<usize> {
        self.verbatim_at
    }
}

impl Node {
    /// The place of a byte of a scalar's text: the whole scalar where the two don't correspond.
    pub(super) fn inside(&self, offset: usize) -> Span {
        match &self.value {
            Value::Scalar(Scalar { verbatim_at: Some(start), text, .. }) => {
                let start = start + offset.min(text.len());
                let end = self.at.end.max(start);
                let end = end
                    - usize::from(
                        end > start && matches!(&self.value, Value::Scalar(scalar) if scalar.quoted),
                    );
                Span { start, end }
            }
            _ => self.at,
        }
    }
}

/// Reads a text into a tree.
///
/// # Errors
/// One finding, for text that isn't YAML or breaks a budget. Faults in variables are added to `findings`
/// instead, and the tree comes back.
pub(super) fn parse(
    source: &Source,
    lookup: Lookup<'_>,
    findings: &mut Vec<Finding>,
) -> Result<Node, Finding> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_documents: 1,
            // A shared part used by each of a hundred policies is no bomb; repeated events are counted.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIAS_EVENTS_MAX,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        emit_comments: false,
        with_snippet: false,
    };
    let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(&source.text, options)
        .map_err(|error| fault_of(source, &error))?;
    let mut composer = Composer { source, lookup, findings };
    Ok(composer.node(raw))
}

/// What files of another kind are told, wherever they are recognized.
pub(super) const ENVOY_FILES: &str = "reading Envoy ratelimit files (`domain` and `descriptors`)";
pub(super) const ENVOY_HELP: &str = "write the limits as policies of a slidegate configuration";

/// What the parser says in words of its own, or of Rust: a part of it, and what to say instead.
const PARSER_WORDS: [(&str, &str, &str); 6] = [
    ("tabs disallowed", "tabs can't indent", "indent with spaces"),
    (
        "alias",
        "its aliases repeat too much, or name nothing",
        "write shared parts once, and name them with *NAME",
    ),
    ("recursive references", "a part contains itself", "an alias can't stand inside what it names"),
    ("recursion limit", "it is nested too deeply", "a configuration has at most eight levels"),
    ("Documents", "there is more than one document in the file", "remove what follows `---`"),
    ("budget breached", "it goes beyond what any configuration needs", "shorten it"),
];

/// Several documents in one file are how Envoy's limits of several domains are written.
fn is_envoy_text(text: &str) -> bool {
    let has = |name| text.lines().any(|line| line.starts_with(name));
    has("descriptors:") && !has("policies:")
}

fn fault_of(source: &Source, error: &serde_saphyr::Error) -> Finding {
    let at = error.location().map(|location| span_of(source, location));
    let line = at.map_or("", |at| source.slice(source.line_of(at.start)));
    let text = error.without_snippet().to_string();
    // The place is said by the report.
    let text = text.split(" at line ").next().unwrap_or(&text);
    if text.contains("Documents") && is_envoy_text(&source.text) {
        return Finding {
            severity: Severity::Error,
            at: None,
            message: format!("{ENVOY_FILES} is not available yet"),
            help: Some(ENVOY_HELP.into()),
        };
    }
    let known = PARSER_WORDS.iter().find(|(part, ..)| text.contains(part));
    let (text, help) = known.map_or((text, None), |(_, text, help)| (*text, Some((*help).to_owned())));
    let guess = if line.contains("${") {
        "a text with ${NAME} inside [ ] or { } needs quotes: \"${NAME}\""
    } else {
        "check the indentation, quotes and brackets of this line and the one before"
    };
    Finding {
        severity: Severity::Error,
        at,
        message: format!("not readable as YAML: {text}"),
        help: Some(help.unwrap_or_else(|| guess.into())),
    }
}

fn span_of(source: &Source, location: serde_saphyr::Location) -> Span {
    let span = location.span();
    let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    match (span.byte_offset(), span.byte_len()) {
        (Some(start), Some(len)) => {
            Span { start: to_usize(start), end: to_usize(start).saturating_add(to_usize(len)) }
        }
        _ => Span {
            start: source.byte_of_char(to_usize(span.offset())),
            end: source.byte_of_char(to_usize(span.offset()).saturating_add(to_usize(span.len()))),
        },
    }
}

/// What serde hands over.
enum Raw {
    Null,
    /// A boolean or a number: read from the source instead.
    Typed,
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

/// From serde's view to the tree: spelling from the source, variables from the environment.
struct Composer<'a> {
    source: &'a Source,
    lookup: Lookup<'a>,
    findings: &'a mut Vec<Finding>,
}

impl Composer<'_> {
    fn node(&mut self, raw: Spanned<Raw>) -> Node {
        let at = span_of(self.source, raw.defined);
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Typed => self.scalar(at, self.source.slice(at).trim().to_owned(), false),
            Raw::Text(text) => {
                let quoted = self.source.slice(at).starts_with(['"', '\'', '|', '>']);
                self.scalar(at, text, quoted)
            }
            Raw::List(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            Raw::Map(entries) => Value::Map(entries.into_iter().map(|entry| self.entry(entry)).collect()),
        };
        Node { at, value }
    }

    fn entry(&mut self, (name, raw): (Spanned<String>, Spanned<Raw>)) -> (Name, Node) {
        let name = Name { at: span_of(self.source, name.defined), text: name.value };
        let mut node = self.node(raw);
        if matches!(node.value, Value::Null) && self.source.slice(node.at).trim().is_empty() {
            // There is nothing to point at but the field itself.
            node.at = name.at;
        }
        (name, node)
    }

    fn scalar(&mut self, at: Span, written: String, quoted: bool) -> Value {
        let (text, from_env) = match env::substitute(&written, self.lookup) {
            Ok(None) => (written.clone(), false),
            Ok(Some(text)) => (text, true),
            Err(fault) => {
                self.findings.push(Finding {
                    severity: Severity::Error,
                    at: Some(at),
                    message: fault.message,
                    help: Some(fault.help),
                });
                (written.clone(), true)
            }
        };
        let start = at.start + usize::from(self.source.slice(at).starts_with(['"', '\'']));
        let verbatim = !from_env && self.source.text.get(start..).is_some_and(|rest| rest.starts_with(&text));
        Value::Scalar(Scalar {
            text,
            shown: written,
            quoted,
            from_env,
            verbatim_at: verbatim.then_some(start),
        })
    }
}
