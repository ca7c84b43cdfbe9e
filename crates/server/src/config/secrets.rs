//! Which values of a file must not be quoted, found before anything is read: a line is quoted because it is
//! broken, and then nobody knows what its fields are.

use super::source::Span;
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
