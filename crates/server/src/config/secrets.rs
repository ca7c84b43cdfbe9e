//! Which values of a file must not be quoted, found before anything is read: a line is quoted because it is
//! broken, and then nobody knows what its fields are.

use super::schema;
use super::source::{Source, Span};
use super::yaml::{Node, Scalar, Value};

/// The places of secrets: values that exempt by header, and what stands before the `@` of a URL.
pub(super) fn of(root: &Node) -> Vec<Span> {
    let mut secrets = Vec::new();
    find(root, false, 0, &mut secrets);
    secrets
}

fn find(node: &Node, is_secret: bool, depth: usize, secrets: &mut Vec<Span>) {
    match &node.value {
        Value::Null => {}
        Value::Scalar(_) if is_secret => secrets.push(node.at),
        Value::Scalar(scalar) => secrets.extend(user_info(node, scalar)),
        Value::List(items) => {
            for item in items {
                find(item, is_secret, depth + 1, secrets);
            }
        }
        Value::Map(entries) => {
            for (name, value) in entries {
                // `header:` of an `exempt`, in the plural as well, but not the section `headers`.
                let named = depth > 0 && name.text.to_ascii_lowercase().starts_with("header");
                let maps = matches!(value.value, Value::Map(_));
                find(value, is_secret || (named && maps), depth + 1, secrets);
            }
        }
    }
}

fn user_info(node: &Node, scalar: &Scalar) -> Option<Span> {
    let (scheme, rest) = scalar.shown.split_once("://")?;
    let (user_info, _) = rest.rsplit_once('@')?;
    let Some(text_at) = scalar.verbatim_at() else {
        return Some(node.at);
    };
    let start = text_at + scheme.len() + "://".len();
    Some(Span { start, end: start + user_info.len() })
}

/// The places of what may be a secret in a line that isn't YAML: all words behind a colon that are no names
/// of fields. What such a fault is about are indentation, quotes and brackets, and they stay.
pub(super) fn of_broken_line(source: &Source, at: Span) -> Vec<Span> {
    let line = source.line_of(at.start);
    let text = source.slice(line);
    let Some(colon) = text.find(':') else {
        return Vec::new();
    };
    let is_word = |char: char| !(char.is_whitespace() || "{}[]\"':,#&*".contains(char));
    let mut words = Vec::new();
    let mut start = None;
    for (offset, char) in
        text.char_indices().skip_while(|(offset, _)| *offset < colon).chain([(text.len(), ' ')])
    {
        match (is_word(char), start) {
            (true, None) => start = Some(offset),
            (false, Some(from)) => {
                words.push(from..offset);
                start = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
    let is_field = |word: &str| schema::ALL.iter().any(|(_, fields)| fields.contains(&word));
    words
        .into_iter()
        .filter(|word| !is_field(&text[word.clone()]))
        .map(|word| Span { start: line.start + word.start, end: line.start + word.end })
        .collect()
}
