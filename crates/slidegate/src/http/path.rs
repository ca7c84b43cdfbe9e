//! The path that a request means, however it is spelled.
//!
//! `/login`, `/%6Cogin`, `//login`, `/./login`, `/x/../login` and `/login/` reach the same handler behind
//! most servers. A limit that told them apart would be dodged by spelling, so routes match, and keys are
//! made of, the one spelling that [`normalize`] gives. What is forwarded is the original, untouched.
//!
//! # What becomes of a path
//! 1. A query or fragment is left out: `/login?x=1` is `/login`.
//! 2. Percent-encoded bytes are decoded where they are UTF-8 text. Four characters stay encoded, since
//!    decoding would turn data into structure: `/` (`%2F` separates nothing), `?`, `#` and `%` itself, so
//!    that nothing is decoded twice. Bytes that are not UTF-8 stay encoded as well. What stays has its hex
//!    digits in upper case.
//! 3. `//` becomes `/`, unless the rules say otherwise.
//! 4. `.` and `..` segments are resolved, never above the root. Encoded ones (`%2e`) count.
//! 5. Slashes at the end go, unless the rules say otherwise; `/` itself stays.
//!
//! # What does not
//! * Case: `/Login` is another path.
//! * Parameters: `/login;v=1` is another path than `/login`. Behind a server that ignores what follows a
//!   `;` (Java servlets do), match such routes by prefix or pattern.
//! * Backslashes: they are no slashes.
//!
//! The function is idempotent, and total: it takes any text, and gives a path or a [`PathError`].
//!
//! Source: RFC 3986, sections 5.2.4 and 6.2.2, but for the decoding of reserved characters, which goes
//! further: servers that decode them take `/a%40b` for `/a@b`.

use std::borrow::Cow;

use smallvec::SmallVec;

/// How paths are read for matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// `//` is `/`.
    pub merge_slashes: bool,
    /// Whether `/r/` is `/r`.
    pub trailing_slash: TrailingSlash,
}

/// What a slash at the end of a path means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// Nothing: `/r` and `/r/` are the same, and no limit is dodged by adding one.
    #[default]
    Ignore,
    /// `/r` and `/r/` are two paths.
    Strict,
}

impl Default for PathRules {
    fn default() -> Self {
        Self { merge_slashes: true, trailing_slash: TrailingSlash::Ignore }
    }
}

/// A path that no request should have: answer 400. Byte offsets count from the start of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`, as those of requests do; `*` of `OPTIONS *` does not need to.
    #[error("a path starts with /")]
    Relative,
    /// A `%` without two hexadecimal digits after it.
    #[error("the % at byte {at} of the path is not followed by two hexadecimal digits: write % as %25")]
    Percent {
        /// Byte offset of the `%`.
        at: usize,
    },
    /// A control character, NUL among them, plain or encoded.
    #[error("the path has a control character")]
    Control,
}

/// The spelling of a path by which routes match it. Allocates only where that differs from the original.
///
/// An empty path is `/`, and `*` stays. Paths of the configuration go through it too, so that
/// `/caf%C3%A9/` there and `/café` in a request meet.
///
/// # Errors
/// [`PathError`] for a path that can't be read in one way only, or at all.
///
/// ```
/// use slidegate::http::path::{PathError, PathRules, normalize};
///
/// let rules = PathRules::default();
/// assert_eq!(normalize("/./%6Cogin/", &rules)?, "/login");
/// assert_eq!(normalize("/a%2fb", &rules)?, "/a%2Fb");
/// assert_eq!(normalize("/%zz", &rules), Err(PathError::Percent { at: 1 }));
/// # Ok::<(), PathError>(())
/// ```
pub fn normalize<'a>(raw_path: &'a str, rules: &PathRules) -> Result<Cow<'a, str>, PathError> {
    let end = raw_path.find(['?', '#']).unwrap_or(raw_path.len());
    let path = &raw_path[..end];
    if path.is_empty() {
        return Ok(Cow::Borrowed("/"));
    }
    if path == "*" {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    let trimmed = without_trailing_slash(path, rules);
    if is_plain(trimmed, rules) {
        return Ok(Cow::Borrowed(trimmed));
    }
    let decoded = decode(path)?;
    Ok(Cow::Owned(resolve(&decoded, rules)))
}

/// Whether the path is its own normal form: so are nearly all, and they are told without a copy.
fn is_plain(path: &str, rules: &PathRules) -> bool {
    let visible = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    let inner = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
    let plain = |segment| keeps(segment, rules) && !matches!(segment, "." | "..");
    visible && (path == "/" || inner.split('/').all(plain))
}

fn keeps(segment: &str, rules: &PathRules) -> bool {
    !(segment.is_empty() && rules.merge_slashes)
}

fn without_trailing_slash<'a>(path: &'a str, rules: &PathRules) -> &'a str {
    match rules.trailing_slash {
        TrailingSlash::Strict => path,
        TrailingSlash::Ignore => match path.trim_end_matches('/') {
            "" => "/",
            trimmed => trimmed,
        },
    }
}

/// Decodes what is text, and writes the rest of the encoded bytes in one way.
fn decode(path: &str) -> Result<String, PathError> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let at = path.len() - after.len() - 1;
        let (digits, after) = after.split_first_chunk().ok_or(PathError::Percent { at })?;
        let decoded = from_hex(*digits).ok_or(PathError::Percent { at })?;
        rest = after;
        match decoded {
            b'/' | b'?' | b'#' | b'%' => bytes.extend(encoded(decoded)),
            _ => bytes.push(decoded),
        }
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().flat_map(|byte| encoded(*byte)).map(char::from));
    }
    if text.contains(char::is_control) {
        return Err(PathError::Control);
    }
    Ok(text)
}

fn from_hex(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

fn encoded(byte: u8) -> [u8; 3] {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// Resolves dots and joins what is left. The path starts with `/`.
fn resolve(path: &str, rules: &PathRules) -> String {
    let mut kept: SmallVec<[&str; 16]> = SmallVec::new();
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // `/a/.` is `/a/`: what a dot stood in is a directory.
                if last {
                    kept.push("");
                }
            }
            // The slash at the end is the trailing one, not one to be merged.
            _ if last || keeps(segment, rules) => kept.push(segment),
            _ => {}
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in kept {
        normal.push('/');
        normal.push_str(segment);
    }
    normal.truncate(without_trailing_slash(&normal, rules).len());
    normal
}

#[cfg(test)]
mod tests;
