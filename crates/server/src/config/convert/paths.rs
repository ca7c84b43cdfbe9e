//! `match`: paths, and whether one route takes everything that another would.

use slidegate::http::path::{PathRules, TrailingSlash};

use crate::config::fields::Reader;
use crate::config::model::{PathMatch, Route};
use crate::config::yaml::Node;

/// The longest path of a route, in bytes.
const PATH_LEN_MAX: usize = 1024;

/// The most segments of a pattern.
const SEGMENTS_MAX: usize = 64;

/// Which field a path was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact,
    Prefix,
    Pattern,
}

/// A path as requests have it after normalization.
pub(super) fn path(node: &Node, kind: Kind, rules: &PathRules, reader: &mut Reader<'_>) -> Option<PathMatch> {
    let (field, help) = match kind {
        Kind::Exact => ("path", "write a path such as /login"),
        Kind::Prefix => ("prefix", "write the start of a path, such as /api/"),
        Kind::Pattern => ("pattern", "write a path with parameters for whole segments, such as /users/{id}"),
    };
    let text = reader.text(node, field, help)?.text.clone();
    let fault = letter_fault(&text).or_else(|| match kind {
        Kind::Pattern => pattern_fault(&text),
        Kind::Exact | Kind::Prefix => {
            let at = text.find(['{', '}', '*'])?;
            Some((at, format!("`{field}` is taken letter for letter; parameters belong into `pattern`")))
        }
    });
    let fault = fault.or_else(|| spelling_fault(&text, kind, rules));
    if let Some((at, message)) = fault {
        reader.unreadable(node, at, field, message, help);
        return None;
    }
    let text = text.into();
    Some(match kind {
        Kind::Exact => PathMatch::Exact(text),
        Kind::Prefix => PathMatch::Prefix(text),
        Kind::Pattern => PathMatch::Pattern(text),
    })
}

/// What no path is made of.
fn letter_fault(text: &str) -> Option<(usize, String)> {
    if !text.starts_with('/') {
        return Some((0, "a path starts with /".into()));
    }
    if text.len() > PATH_LEN_MAX {
        return Some((0, format!("a path has at most {PATH_LEN_MAX} bytes")));
    }
    if let Some(at) = text.find(['?', '#']) {
        return Some((at, "routes see the path only, neither query nor fragment".into()));
    }
    let at = text.find(|char: char| char.is_whitespace() || char.is_control())?;
    Some((at, "a path has no spaces or control characters".into()))
}

/// A spelling that no normalized path has: the route would never match.
fn spelling_fault(text: &str, kind: Kind, rules: &PathRules) -> Option<(usize, String)> {
    if rules.merge_slashes
        && let Some(at) = text.find("//")
    {
        return Some((at, "`//` is merged into `/`, so this never matches".into()));
    }
    if let Some(at) = text.find("/./").or_else(|| text.find("/../")) {
        return Some((at, "`.` and `..` are resolved, so this never matches".into()));
    }
    let slash = rules.trailing_slash == TrailingSlash::Ignore && kind != Kind::Prefix && text.len() > 1;
    if slash && text.ends_with('/') {
        let message = "a slash at the end is ignored: write the path without it, or trailing_slash: strict";
        return Some((text.len() - 1, message.into()));
    }
    None
}

fn pattern_fault(text: &str) -> Option<(usize, String)> {
    let mut names: Vec<&str> = Vec::new();
    let mut at = 0;
    for segment in text.split('/') {
        if let Some(name) = parameter(segment) {
            let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
            let valid = name.bytes().next().is_some_and(is_start)
                && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit());
            if !valid {
                return Some((
                    at,
                    format!("`{segment}` is not a parameter: a name has letters, digits and _"),
                ));
            }
            if names.contains(&name) {
                return Some((at, format!("the parameter `{name}` stands there twice")));
            }
            names.push(name);
        } else if let Some(within) = segment.find(['{', '}', '*']) {
            return Some((at + within, "a parameter is a whole segment, as in /users/{id}".into()));
        }
        at += segment.len() + 1;
    }
    if text.split('/').count() > SEGMENTS_MAX {
        return Some((0, format!("a pattern has at most {SEGMENTS_MAX} segments")));
    }
    names.is_empty().then(|| (0, "a pattern has a parameter such as {id}; without one write `path`".into()))
}

fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// Whether a pattern has a parameter of this name.
pub(super) fn has_parameter(path: &PathMatch, name: &str) -> bool {
    match path {
        PathMatch::Pattern(text) => text.split('/').any(|segment| parameter(segment) == Some(name)),
        PathMatch::Exact(_) | PathMatch::Prefix(_) => false,
    }
}

/// Whether every request that the later route would take is taken by the earlier one. Errs towards no.
pub(super) fn takes_all_of(earlier: &Route, later: &Route) -> bool {
    let methods = earlier.methods.is_empty()
        || (!later.methods.is_empty() && later.methods.iter().all(|method| earlier.methods.contains(method)));
    methods
        && host_covers(earlier.host.as_deref(), later.host.as_deref())
        && path_covers(&earlier.path, &later.path)
}

fn host_covers(earlier: Option<&str>, later: Option<&str>) -> bool {
    match (earlier, later) {
        (None, _) => true,
        (Some(_), None) => false,
        // `*.example.com` takes `a.example.com` and `*.a.example.com`, and not `example.com`.
        (Some(earlier), Some(later)) => match earlier.strip_prefix('*') {
            Some(suffix) => later.trim_start_matches('*').ends_with(suffix),
            None => earlier == later,
        },
    }
}

fn path_covers(earlier: &PathMatch, later: &PathMatch) -> bool {
    match (earlier, later) {
        (PathMatch::Prefix(start), PathMatch::Exact(text) | PathMatch::Prefix(text)) => {
            prefix_covers(start, text)
        }
        (PathMatch::Prefix(start), PathMatch::Pattern(text)) => {
            // What stands before the first parameter is in every path that the pattern takes.
            let fixed = text.split_once('{').map_or(&**text, |(fixed, _)| fixed);
            prefix_covers(start, fixed)
        }
        (PathMatch::Exact(one), PathMatch::Exact(other)) => one == other,
        (PathMatch::Pattern(one), PathMatch::Exact(other) | PathMatch::Pattern(other)) => {
            segments_cover(one, other)
        }
        (PathMatch::Exact(_) | PathMatch::Pattern(_), _) => false,
    }
}

/// By whole segments: whether `/api` takes `/apis` is the router's business, and either way nothing is
/// refused here that it would reach.
fn prefix_covers(start: &str, text: &str) -> bool {
    text.strip_prefix(start)
        .is_some_and(|rest| rest.is_empty() || start.ends_with('/') || rest.starts_with('/'))
}

fn segments_cover(one: &str, other: &str) -> bool {
    let covers = |(one, other): (&str, &str)| {
        one == other || (parameter(one).is_some() && (parameter(other).is_some() || !other.is_empty()))
    };
    one.split('/').count() == other.split('/').count() && one.split('/').zip(other.split('/')).all(covers)
}
