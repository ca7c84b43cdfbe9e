//! `match`: paths, and whether one route takes everything that another would.
//!
//! Routes match the one spelling that [`normalize`] gives, of the paths written here as well as of those of
//! requests. So `/login/` and `/%6Cogin` are fine here and mean `/login`.

use std::borrow::Cow;

use http::Method;
use slidegate::http::path::{PathError, PathRules, TrailingSlash, normalize};

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

/// A path as it is written, once it is one.
pub(super) fn path(node: &Node, kind: Kind, rules: &PathRules, reader: &mut Reader<'_>) -> Option<PathMatch> {
    let (field, help) = match kind {
        Kind::Exact => ("path", "write a path such as /login"),
        Kind::Prefix => ("prefix", "write the start of a path, such as /api/"),
        Kind::Pattern => ("pattern", "write a path with parameters for whole segments, such as /users/{id}"),
    };
    let text = reader.text(node, field, help)?.text.as_str();
    let fault = path_fault(text, rules).or_else(|| match kind {
        Kind::Pattern => pattern_fault(text, rules),
        Kind::Exact | Kind::Prefix => {
            let at = text.find(['{', '}', '*'])?;
            Some((at, format!("`{field}` is taken letter for letter; parameters belong into `pattern`")))
        }
    });
    if let Some((at, message)) = fault {
        reader.unreadable(node, at, field, message, help);
        return None;
    }
    Some(match kind {
        Kind::Exact => PathMatch::Exact(text.into()),
        Kind::Prefix => PathMatch::Prefix(text.into()),
        Kind::Pattern => PathMatch::Pattern(text.into()),
    })
}

fn path_fault(text: &str, rules: &PathRules) -> Option<(usize, String)> {
    if text.len() > PATH_LEN_MAX {
        return Some((0, format!("a path has at most {PATH_LEN_MAX} bytes")));
    }
    if let Some(at) = text.find(['?', '#']) {
        return Some((at, "routes see the path only, neither query nor fragment".into()));
    }
    match normalize(text, rules) {
        Ok(_) if !text.starts_with('/') => Some((0, PathError::Relative.to_string())),
        Ok(_) => None,
        Err(error @ PathError::Percent { at }) => Some((at, error.to_string())),
        Err(error) => Some((0, error.to_string())),
    }
}

fn pattern_fault(text: &str, rules: &PathRules) -> Option<(usize, String)> {
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
    let normal = normal(text, rules);
    let lost =
        names.iter().find(|name| !segments_of(&normal).any(|segment| parameter(segment) == Some(name)));
    match lost {
        Some(name) => Some((0, format!("`..` takes the parameter `{name}` away"))),
        None if names.is_empty() => {
            Some((0, "a pattern has a parameter such as {id}; without one write `path`".into()))
        }
        None => None,
    }
}

fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn segments_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
}

/// What a path of the configuration is compared as. It was found good before.
fn normal<'p>(text: &'p str, rules: &PathRules) -> Cow<'p, str> {
    normalize(text, rules).unwrap_or(Cow::Borrowed(text))
}

/// Whether a pattern has a parameter of this name.
pub(super) fn has_parameter(path: &PathMatch, name: &str) -> bool {
    match path {
        PathMatch::Pattern(text) => segments_of(text).any(|segment| parameter(segment) == Some(name)),
        PathMatch::Exact(_) | PathMatch::Prefix(_) => false,
    }
}

/// Whether every request that the later route would take is taken by the earlier one. Errs towards no.
pub(super) fn takes_all_of(earlier: &Route, later: &Route, rules: &PathRules) -> bool {
    methods_cover(&earlier.methods, &later.methods)
        && host_covers(earlier.host.as_deref(), later.host.as_deref())
        && Reach::of(&earlier.path, rules).covers(&Reach::of(&later.path, rules))
}

/// Routes for `GET` take `HEAD` as well.
fn methods_cover(earlier: &[Method], later: &[Method]) -> bool {
    let covers = |method: &Method| {
        earlier.contains(method) || (*method == Method::HEAD && earlier.contains(&Method::GET))
    };
    earlier.is_empty() || (!later.is_empty() && later.iter().all(covers))
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

/// The paths that a route takes.
enum Reach<'p> {
    /// This one.
    One(Cow<'p, str>),
    /// All that begin with this text.
    From(Cow<'p, str>),
    /// This one and all below it: what `/api/` means where a slash at the end means nothing.
    Below(Cow<'p, str>),
    /// All that have these segments.
    Like(Cow<'p, str>),
}

impl<'p> Reach<'p> {
    fn of(path: &'p PathMatch, rules: &PathRules) -> Self {
        match path {
            PathMatch::Exact(text) => Self::One(normal(text, rules)),
            PathMatch::Pattern(text) => Self::Like(normal(text, rules)),
            PathMatch::Prefix(text) => {
                let normal = normal(text, rules);
                let ignored = rules.trailing_slash == TrailingSlash::Ignore;
                if ignored && text.ends_with('/') && normal != "/" {
                    Self::Below(normal)
                } else {
                    Self::From(normal)
                }
            }
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(other)) => one == other,
            (Self::From(start), Self::One(text) | Self::From(text) | Self::Below(text)) => {
                text.starts_with(&**start)
            }
            (Self::From(start), Self::Like(text)) => fixed_start(text).starts_with(&**start),
            (Self::Below(top), Self::One(text) | Self::Below(text)) => text == top || is_below(text, top),
            (Self::Below(top), Self::From(text)) => is_below(text, top),
            (Self::Below(top), Self::Like(text)) => is_below(fixed_start(text), top),
            (Self::Like(one), Self::One(other) | Self::Like(other)) => segments_cover(one, other),
            (Self::One(_) | Self::Like(_), _) => false,
        }
    }
}

fn is_below(text: &str, top: &str) -> bool {
    text.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

/// What stands before the first parameter of a pattern is in every path that it takes.
fn fixed_start(pattern: &str) -> &str {
    pattern.split_once('{').map_or(pattern, |(fixed, _)| fixed)
}

/// A parameter takes any segment that isn't empty.
fn segments_cover(one: &str, other: &str) -> bool {
    let covers = |(one, other): (&str, &str)| one == other || (parameter(one).is_some() && !other.is_empty());
    segments_of(one).count() == segments_of(other).count()
        && segments_of(one).zip(segments_of(other)).all(covers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(earlier: PathMatch, later: PathMatch) -> bool {
        let rules = PathRules::default();
        Reach::of(&earlier, &rules).covers(&Reach::of(&later, &rules))
    }

    fn exact(text: &str) -> PathMatch {
        PathMatch::Exact(text.into())
    }

    fn prefix(text: &str) -> PathMatch {
        PathMatch::Prefix(text.into())
    }

    fn pattern(text: &str) -> PathMatch {
        PathMatch::Pattern(text.into())
    }

    #[test]
    fn a_route_covers_what_it_would_take() {
        for (earlier, later) in [
            (prefix("/"), prefix("/")),
            (prefix("/"), pattern("/{id}")),
            (prefix("/v"), exact("/version")),
            (prefix("/api/"), exact("/api")),
            (prefix("/api/"), prefix("/api/users")),
            (prefix("/api/"), pattern("/api/{id}")),
            (exact("/login"), exact("//login/")),
            (pattern("/users/{id}"), exact("/users/me")),
            (pattern("/users/{id}"), pattern("/users/{name}")),
            (pattern("/{a}/{b}"), pattern("/users/{id}")),
        ] {
            assert!(covers(earlier.clone(), later.clone()), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn a_route_leaves_what_it_would_not_take() {
        for (earlier, later) in [
            (prefix("/api/"), prefix("/api")),
            (prefix("/api/"), exact("/apis")),
            (prefix("/api/v"), pattern("/api/{version}")),
            (exact("/login"), prefix("/login")),
            (pattern("/users/{id}"), prefix("/users/")),
            (pattern("/users/{id}"), exact("/users")),
            (pattern("/users/{id}"), pattern("/{kind}/{id}")),
            (pattern("/users/{id}"), pattern("/users/{id}/files")),
        ] {
            assert!(!covers(earlier.clone(), later.clone()), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn hosts_and_methods_narrow_a_route() {
        assert!(host_covers(Some("*.example.com"), Some("a.example.com")));
        assert!(host_covers(Some("*.example.com"), Some("*.a.example.com")));
        assert!(!host_covers(Some("*.example.com"), Some("example.com")));
        assert!(!host_covers(Some("a.example.com"), None));
        assert!(methods_cover(&[Method::GET], &[Method::HEAD]));
        assert!(!methods_cover(&[Method::GET], &[]));
        assert!(!methods_cover(&[Method::GET], &[Method::GET, Method::POST]));
    }
}
