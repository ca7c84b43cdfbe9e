//! Which route takes a request: the first in the order of the file whose path, host and method match.
//!
//! Pure. Paths are compared as [`path::normalize`] writes them, the configured ones as well as those of
//! requests, so that no spelling dodges a limit. Routes are looked at one after the other: their order is
//! what they mean, and comparing a few hundred short texts costs less than the check that follows.
//!
//! # Matching
//! * `path` takes exactly this path.
//! * `prefix` takes every path that begins with this text: `/api/` what is below it, `/v` also `/version`.
//!   Where a trailing slash means nothing, `/api/` takes `/api` too: it is the same path there.
//! * `pattern` takes a path of as many segments: literal ones, and `{name}` for any segment that is not
//!   empty. `%2F` is no boundary.
//! * `GET` takes `HEAD` as well, since upstreams do the same work for it: a limit on reading must not be
//!   dodged by asking for the head only.
//! * A CORS preflight is taken by routes for `OPTIONS`, and by those for the method that it announces: it asks
//!   on behalf of that request, and goes where that will.
//! * `*.example.com` takes every name below, not `example.com` itself.
//! * A path and host that only other methods take: 405, with all of them. None at all: 404.

use std::borrow::Cow;

use http::Method;
use slidegate::http::path::{self, PathError, PathRules, TrailingSlash};
use smallvec::SmallVec;

use super::refusal::Refusal;
use crate::config::{PathMatch, Route};

/// The routes, ready to match.
#[derive(Debug)]
pub(crate) struct Router {
    routes: Vec<Compiled>,
    paths: PathRules,
}

#[derive(Debug)]
struct Compiled {
    route: Route,
    matcher: Matcher,
}

/// A route's path, read.
#[derive(Debug)]
enum Matcher {
    Exact(Box<str>),
    Prefix(Box<str>),
    /// What lies below a path, and the path itself: kept without the slash.
    Below(Box<str>),
    Pattern(Vec<Segment>),
}

#[derive(Debug)]
enum Segment {
    Literal(Box<str>),
    Parameter(Box<str>),
}

/// The route of a request, with the parameters of its path.
#[derive(Debug)]
pub(super) struct Matched<'r, 'p> {
    pub(super) route: &'r Route,
    /// The route's path as it is written in the configuration.
    pub(super) text: &'r str,
    pub(super) params: Params<'r, 'p>,
}

type Params<'r, 'p> = SmallVec<[(&'r str, &'p str); 4]>;

/// A route whose path can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    /// The path itself.
    #[error("route {route:?}: {error}")]
    Path { route: Box<str>, error: PathError },
    /// It has a query or fragment, which routes don't look at.
    #[error("route {route:?} must end before the {}", if .route.contains('?') { '?' } else { '#' })]
    Query { route: Box<str> },
    /// A brace that is not around a whole segment, or around nothing that could be a name.
    #[error(
        "route {route:?}: {segment:?} must be either text without braces or one {{name}} of letters, digits and _"
    )]
    Segment { route: Box<str>, segment: Box<str> },
    /// Two parameters of one name.
    #[error("route {route:?} has two parameters called {name:?}")]
    DuplicateParameter { route: Box<str>, name: Box<str> },
}

impl Router {
    pub(crate) fn new(routes: &[Route], paths: PathRules) -> Result<Self, RouteError> {
        let compile = |route: &Route| {
            Ok(Compiled { matcher: Matcher::new(&route.path, &paths)?, route: route.clone() })
        };
        Ok(Self { routes: routes.iter().map(compile).collect::<Result<_, _>>()?, paths })
    }

    /// A request's path as [`find`](Self::find) compares it.
    pub(super) fn normalize<'p>(&self, raw: &'p str) -> Result<Cow<'p, str>, PathError> {
        path::normalize(raw, &self.paths)
    }

    /// The route for this method, host (lower case, no port) and normalized path. `announced` is the method
    /// that a CORS preflight asks about.
    pub(super) fn find<'p>(
        &self,
        method: &Method,
        announced: Option<&Method>,
        host: Option<&str>,
        path: &'p str,
    ) -> Result<Matched<'_, 'p>, Refusal> {
        let mut others = Vec::new();
        for Compiled { route, matcher } in &self.routes {
            if !route.host.as_deref().is_none_or(|wanted| takes_host(wanted, host)) {
                continue;
            }
            let Some(params) = matcher.params(path) else {
                continue;
            };
            if takes_method(&route.methods, method)
                || announced.is_some_and(|method| takes_method(&route.methods, method))
            {
                return Ok(Matched { route, text: text(&route.path), params });
            }
            others.extend(&route.methods);
        }
        if others.is_empty() {
            return Err(Refusal::NoRoute);
        }
        Err(Refusal::Method { allowed: allowed(&others) })
    }
}

fn takes_method(methods: &[Method], method: &Method) -> bool {
    methods.is_empty()
        || methods.contains(method)
        || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// For `Allow`: each once, `HEAD` behind the `GET` that brings it.
fn allowed(methods: &[&Method]) -> Vec<Method> {
    let mut allowed: Vec<Method> = Vec::new();
    for method in methods {
        let with_head = (**method == Method::GET).then_some(Method::HEAD);
        for method in std::iter::once((*method).clone()).chain(with_head) {
            if !allowed.contains(&method) {
                allowed.push(method);
            }
        }
    }
    allowed
}

fn takes_host(wanted: &str, host: Option<&str>) -> bool {
    let Some(host) = host else {
        return false;
    };
    match wanted.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => host == wanted,
    }
}

fn text(path: &PathMatch) -> &str {
    match path {
        PathMatch::Exact(text) | PathMatch::Prefix(text) | PathMatch::Pattern(text) => text,
    }
}

impl Matcher {
    fn new(path: &PathMatch, rules: &PathRules) -> Result<Self, RouteError> {
        Ok(match path {
            PathMatch::Exact(path) => Self::Exact(normalize(path, rules)?.into()),
            PathMatch::Prefix(prefix) => {
                let normal = normalize(prefix, rules)?;
                let is_ignored = rules.trailing_slash == TrailingSlash::Ignore;
                if is_ignored && prefix.ends_with('/') && normal != "/" {
                    Self::Below(normal.into())
                } else {
                    Self::Prefix(normal.into())
                }
            }
            PathMatch::Pattern(pattern) => Self::Pattern(segments(pattern, rules)?),
        })
    }

    /// The parameters of a path that matches.
    fn params<'p>(&self, path: &'p str) -> Option<Params<'_, 'p>> {
        let matches = match self {
            Self::Exact(exact) => path == &**exact,
            Self::Prefix(prefix) => path.starts_with(&**prefix),
            Self::Below(parent) => {
                path.strip_prefix(&**parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Pattern(segments) => return pattern_params(segments, path),
        };
        matches.then(Params::new)
    }
}

fn pattern_params<'r, 'p>(segments: &'r [Segment], path: &'p str) -> Option<Params<'r, 'p>> {
    let mut params = Params::new();
    let mut rest = path.strip_prefix('/')?.split('/');
    for segment in segments {
        let part = rest.next()?;
        match segment {
            Segment::Literal(text) if part == &**text => {}
            Segment::Parameter(name) if !part.is_empty() => params.push((name, part)),
            Segment::Literal(_) | Segment::Parameter(_) => return None,
        }
    }
    rest.next().is_none().then_some(params)
}

/// Braces are ordinary text to [`path::normalize`], so a pattern is a path like any other; one that needs
/// braces as text can't be written.
fn segments(pattern: &str, rules: &PathRules) -> Result<Vec<Segment>, RouteError> {
    let normal = normalize(pattern, rules)?;
    let mut segments: Vec<Segment> = Vec::new();
    for part in normal.split('/').skip(1) {
        let Some(name) = parameter(part) else {
            if part.contains(['{', '}']) {
                return Err(RouteError::Segment { route: pattern.into(), segment: part.into() });
            }
            segments.push(Segment::Literal(part.into()));
            continue;
        };
        let is_taken = |segment: &Segment| matches!(segment, Segment::Parameter(taken) if **taken == *name);
        if segments.iter().any(is_taken) {
            return Err(RouteError::DuplicateParameter { route: pattern.into(), name: name.into() });
        }
        segments.push(Segment::Parameter(name.into()));
    }
    Ok(segments)
}

/// The name in `{name}`.
fn parameter(part: &str) -> Option<&str> {
    let name = part.strip_prefix('{')?.strip_suffix('}')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// A route's path as those of requests are compared.
fn normalize<'p>(text: &'p str, rules: &PathRules) -> Result<Cow<'p, str>, RouteError> {
    if text.contains(['?', '#']) {
        return Err(RouteError::Query { route: text.into() });
    }
    path::normalize(text, rules).map_err(|error| RouteError::Path { route: text.into(), error })
}

#[cfg(test)]
mod tests;
