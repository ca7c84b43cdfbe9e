//! Key templates: which part of a request a key value comes from.
//!
//! ```text
//! template    = literal [ "{" placeholder "}" literal ]
//! placeholder = [ "secret:" ] source
//! source      = "client_ip" | "path" | "method" | "host" | "route"
//!             | ("header" | "cookie" | "query" | "path") ":" name
//! ```
//! At most one placeholder: two in one template could meet (`a-b` + `c` and `a` + `b-c`), two templates
//! never do.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use slidegate_core::decision::Cost;

use crate::facts::RequestFacts;
use crate::spelling::nearest;

/// The longest template, in bytes.
pub const TEMPLATE_LEN_MAX: usize = 256;

/// A parsed key template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    name: Arc<str>,
    before: Box<str>,
    after: Box<str>,
    placeholder: Option<Placeholder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placeholder {
    secret: bool,
    source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    ClientIp,
    Path,
    Method,
    Host,
    Route,
    Header(http::HeaderName),
    Cookie(Box<str>),
    Query(Box<str>),
    PathParam(Box<str>),
}

/// Sources without a name, and those that take one after a colon: what messages suggest.
const SOURCES: &str =
    "client_ip, header:NAME, cookie:NAME, query:NAME, path:PARAM, path, method, host or route";

/// A text that is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Byte offset of the fault in the template.
    pub at: usize,
    /// What is wrong there, and what to write instead.
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TemplateError {}

fn fail<T>(at: usize, message: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError { at, message: message.into() })
}

impl std::str::FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() {
            return fail(0, format!("a key template is empty: write {SOURCES} in braces, or a text"));
        }
        if text.len() > TEMPLATE_LEN_MAX {
            let at = text.floor_char_boundary(TEMPLATE_LEN_MAX);
            return fail(at, format!("a key template has at most {TEMPLATE_LEN_MAX} bytes"));
        }
        let Some((before, rest)) = text.split_once('{') else {
            return parse_literal(text);
        };
        if let Some(at) = before.find('}') {
            return fail(at, "a `}` without its `{`");
        }
        let start = before.len() + 1;
        let Some((inner, after)) = rest.split_once('}') else {
            return fail(before.len(), "a `{` without its `}`");
        };
        if let Some(at) = after.find(['{', '}']) {
            let message = "one placeholder in a template is the most: give the key a second template instead";
            return fail(start + inner.len() + 1 + at, message);
        }
        let placeholder = parse_placeholder(inner, start)?;
        let bare = before.is_empty() && after.is_empty();
        let name = if bare { inner.into() } else { text.into() };
        Ok(Self { name, before: before.into(), after: after.into(), placeholder: Some(placeholder) })
    }
}

/// Text that is the same for every request.
fn parse_literal(text: &str) -> Result<Template, TemplateError> {
    if let Some(at) = text.find('}') {
        return fail(at, "a `}` without its `{`");
    }
    // Hardly meant, and dangerous: all clients would share one counter.
    if parse_placeholder(text, 0).is_ok() {
        let message = format!("`{text}` without braces is the same for every request: write {{{text}}}");
        return fail(0, message);
    }
    Ok(Template { name: text.into(), before: text.into(), after: "".into(), placeholder: None })
}

fn parse_placeholder(inner: &str, start: usize) -> Result<Placeholder, TemplateError> {
    let (secret, source, at) = match inner.strip_prefix("secret:") {
        Some(source) => (true, source, start + "secret:".len()),
        None => (false, inner, start),
    };
    Ok(Placeholder { secret, source: parse_source(source, at)? })
}

fn parse_source(source: &str, at: usize) -> Result<Source, TemplateError> {
    let (kind, name) = source.split_once(':').map_or((source, None), |(kind, name)| (kind, Some(name)));
    let at_name = at + kind.len() + 1;
    if name == Some("") {
        return fail(at_name, format!("a name is missing after `{kind}:`"));
    }
    Ok(match (kind, name) {
        ("client_ip", None) => Source::ClientIp,
        ("path", None) => Source::Path,
        ("method", None) => Source::Method,
        ("host", None) => Source::Host,
        ("route", None) => Source::Route,
        ("header", Some(name)) => match name.parse() {
            Ok(name) => Source::Header(name),
            Err(_) => return fail(at_name, format!("`{name}` is not a header name")),
        },
        ("cookie", Some(name)) => Source::Cookie(name.into()),
        ("query", Some(name)) => Source::Query(name.into()),
        ("path", Some(name)) => Source::PathParam(name.into()),
        ("header" | "cookie" | "query", None) => {
            return fail(at + kind.len(), format!("`{kind}` needs a name, as in {{{kind}:NAME}}"));
        }
        _ => {
            return fail(
                at,
                format!("`{source}` is not a part of a request{}: write {SOURCES}", did_you_mean(kind)),
            );
        }
    })
}

/// The source that a misspelled word may have meant.
fn did_you_mean(kind: &str) -> String {
    let known = ["client_ip", "header", "cookie", "query", "path", "method", "host", "route"];
    nearest(kind, known.iter()).map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

impl Template {
    /// The name under which a value for this template is given: `header:x-user` for `{header:x-user}`, and
    /// the whole text where there are literals around.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the value is hashed before it goes anywhere.
    pub fn is_secret(&self) -> bool {
        self.placeholder.as_ref().is_some_and(|placeholder| placeholder.secret)
    }

    /// Whether the value is the client's address.
    pub fn is_client_ip(&self) -> bool {
        self.placeholder.as_ref().is_some_and(|placeholder| placeholder.source == Source::ClientIp)
    }

    /// Whether the value is whatever a client cares to write, or leave out: a header, a cookie or a parameter
    /// of the query, hashed or not. Path, method and host are not: a route can pin them down.
    pub fn is_client_chosen(&self) -> bool {
        self.placeholder.as_ref().is_some_and(|placeholder| match placeholder.source {
            Source::Header(_) | Source::Cookie(_) | Source::Query(_) => true,
            Source::ClientIp
            | Source::Path
            | Source::Method
            | Source::Host
            | Source::Route
            | Source::PathParam(_) => false,
        })
    }

    /// Whether the value is the host that was asked for: chosen by the client too, where a route takes any.
    pub fn is_host(&self) -> bool {
        self.placeholder.as_ref().is_some_and(|placeholder| placeholder.source == Source::Host)
    }

    /// The parameter of a pattern route that it asks for, if it does.
    pub fn path_param(&self) -> Option<&str> {
        match self.placeholder.as_ref()?.source {
            Source::PathParam(ref name) => Some(name),
            _ => None,
        }
    }

    /// The value that a request has for it; `None` when the request lacks the part. The empty value is not
    /// an absent one.
    pub fn resolve<'a>(&'a self, facts: &RequestFacts<'a>) -> Option<Cow<'a, [u8]>> {
        let Some(placeholder) = &self.placeholder else {
            return Some(Cow::Borrowed(self.before.as_bytes()));
        };
        let value: Cow<'a, [u8]> = match &placeholder.source {
            Source::ClientIp => Cow::Owned(facts.client?.to_string().into_bytes()),
            Source::Path => Cow::Borrowed(facts.path.as_bytes()),
            Source::Method => Cow::Borrowed(facts.method.as_str().as_bytes()),
            Source::Host => Cow::Borrowed(facts.host?.as_bytes()),
            Source::Route => Cow::Borrowed(facts.route?.as_bytes()),
            Source::Header(name) => facts.header(name.as_str())?,
            Source::Cookie(name) => facts.cookie(name)?,
            Source::Query(name) => facts.query(name)?,
            Source::PathParam(name) => Cow::Borrowed(facts.path_param(name)?.as_bytes()),
        };
        if self.before.is_empty() && self.after.is_empty() {
            return Some(value);
        }
        Some(Cow::Owned([self.before.as_bytes(), &value, self.after.as_bytes()].concat()))
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = self.placeholder.is_some() && self.before.is_empty() && self.after.is_empty();
        if bare { write!(f, "{{{}}}", self.name) } else { f.write_str(&self.name) }
    }
}

/// What a check costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// The same for every request.
    Fixed(Cost),
    /// Taken from the request, clamped.
    From {
        /// Where the number is.
        template: Template,
        /// The least that a request costs; at least 1 unless the owner says otherwise, so that a client
        /// can't peek its way through.
        min: Cost,
        /// The most that a request costs.
        max: Cost,
        /// What a request costs whose number is missing or malformed.
        default: Cost,
    },
}

impl CostSource {
    /// What this request costs.
    pub fn resolve(&self, facts: &RequestFacts<'_>) -> Cost {
        match self {
            Self::Fixed(cost) => *cost,
            Self::From { template, min, max, default } => {
                let value = template.resolve(facts);
                value.and_then(|text| parse_cost(&text)).map_or(*default, |cost| cost.clamp(*min, *max))
            }
        }
    }
}

/// Digits only; what does not fit is as large as can be.
fn parse_cost(text: &[u8]) -> Option<Cost> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(Cost::MAX))
}

#[cfg(test)]
mod tests;
