//! One element of a `Forwarded` field: `for="[2001:db8::1]:4711";proto=https`.
//!
//! ```text
//! element = [ pair ] *( ";" [ pair ] )
//! pair    = token "=" ( token / quoted-string )
//! ```
//! Source: RFC 7239, section 4. Names are case-insensitive. `:` and `[` are not characters of a token, so
//! IPv6, and anything with a port, stands in quotes. Spaces around `;` are allowed beyond the grammar. An
//! element that is malformed anywhere names nobody, nor does one with two `for`, or none.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::parse_node;

/// A value without its escapes: longer than any address with a port.
type Value = SmallVec<[u8; 64]>;

/// The address of the one `for`; `None` when it is no address (`unknown`, `_hidden`) or can't be read.
pub(super) fn parse_element(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    let mut rest = element.trim_ascii();
    loop {
        if !rest.is_empty() && rest[0] != b';' {
            let (name, value, after) = parse_pair(rest)?;
            let is_for = name.eq_ignore_ascii_case(b"for");
            if is_for && node.replace(value).is_some() {
                return None;
            }
            rest = after.trim_ascii_start();
        }
        rest = match rest.split_first() {
            None => break,
            Some((b';', after)) => after.trim_ascii_start(),
            Some(_) => return None,
        };
    }
    parse_node(str::from_utf8(&node?).ok()?)
}

/// A name, its value, and what comes after.
fn parse_pair(text: &[u8]) -> Option<(&[u8], Value, &[u8])> {
    let (name, after) = split_token(text)?;
    let after = after.strip_prefix(b"=")?;
    if let Some(quoted) = after.strip_prefix(b"\"") {
        let (value, after) = split_quoted(quoted)?;
        return Some((name, value, after));
    }
    let (value, after) = split_token(after)?;
    Some((name, Value::from_slice(value), after))
}

fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = text.iter().take_while(|byte| is_token(**byte)).count();
    (length > 0).then(|| text.split_at(length))
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What is in the quotes, without its escapes, and what comes after them.
fn split_quoted(text: &[u8]) -> Option<(Value, &[u8])> {
    let mut value = Value::new();
    let mut rest = text;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((value, rest)),
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                value.push(*escaped);
                rest = after;
            }
            _ => value.push(*byte),
        }
    }
}
