//! From nodes to checked values: mappings with known fields, numbers, booleans, words, lists.
//!
//! Every reader returns `None` after it has reported what is wrong, so that callers go on with the next
//! field and one run finds all faults. Messages never repeat what came from a variable.

use slidegate::core::time::Millis;
use slidegate::spelling::nearest;

use super::report::{Finding, Severity};
use super::source::{Source, Span};
use super::yaml::{Name, Node, Scalar, Value};

/// What YAML 1.1 readers take for a boolean although this one does not.
const BOOLEANS_OF_YAML_1_1: [&str; 6] = ["yes", "no", "on", "off", "y", "n"];

/// What reading gathers: findings, and the places of secrets that must not be quoted.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) findings: Vec<Finding>,
    pub(super) secrets: Vec<Span>,
}

impl Reader<'_> {
    /// Reports an error.
    pub(super) fn error(&mut self, at: Span, message: impl Into<String>, help: impl Into<String>) {
        self.say(Severity::Error, at, message, help);
    }

    /// Reports anything.
    pub(super) fn say(
        &mut self,
        severity: Severity,
        at: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.findings.push(Finding {
            severity,
            at: Some(at),
            message: message.into(),
            help: Some(help.into()),
        });
    }

    /// Reports an option that a later version will have.
    pub(super) fn not_yet(&mut self, at: Span, what: &str, help: impl Into<String>) {
        self.error(at, format!("{what} is not available yet"), help);
    }

    /// Reports a value that can't be read, at a byte of its text. `message` may repeat the text, so for
    /// what came from a variable only `help` is said.
    pub(super) fn unreadable(
        &mut self,
        node: &Node,
        offset: usize,
        field: &str,
        message: String,
        help: &str,
    ) {
        match &node.value {
            // Its variable was reported already.
            Value::Scalar(scalar)
                if scalar.from_env && self.findings.iter().any(|finding| finding.at == Some(node.at)) => {}
            Value::Scalar(scalar) if scalar.from_env => self.error(
                node.at,
                format!("`{}` does not come to a value that `{field}` can have", scalar.shown),
                help,
            ),
            _ => self.error(node.inside(offset), message, help),
        }
    }

    fn empty(&mut self, at: Span, field: &str, help: &str) {
        self.error(at, format!("`{field}` is empty"), help);
    }

    /// A scalar of any kind.
    fn scalar<'n>(&mut self, node: &'n Node, field: &str, help: &str) -> Option<&'n Scalar> {
        match &node.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::Null => {
                self.empty(node.at, field, help);
                None
            }
            Value::List(_) => {
                self.error(node.at, format!("`{field}` takes one value, and here is a list"), help);
                None
            }
            Value::Map(_) => {
                self.error(node.at, format!("`{field}` takes one value, and here is a mapping"), help);
                None
            }
        }
    }

    /// A text. Numbers are taken as they are spelled; what some YAML readers see a boolean in needs quotes.
    pub(super) fn text<'n>(&mut self, node: &'n Node, field: &str, help: &str) -> Option<&'n Scalar> {
        let scalar = self.scalar(node, field, help)?;
        if !scalar.quoted && !scalar.from_env && is_boolean(&scalar.text) {
            self.error(
                node.at,
                format!("`{}` is a boolean, and `{field}` takes a text", scalar.shown),
                format!("{help}; a text that looks like this needs quotes: \"{}\"", scalar.shown),
            );
            return None;
        }
        if scalar.text.is_empty() {
            self.empty(node.at, field, help);
            return None;
        }
        Some(scalar)
    }

    /// A text that is shown in answers, logs and tables, so it must not come from a variable.
    pub(super) fn public_text<'n>(&mut self, node: &'n Node, field: &str, help: &str) -> Option<&'n str> {
        let scalar = self.text(node, field, help)?;
        if scalar.from_env {
            self.error(
                node.at,
                format!("`{field}` is shown in answers and logs, so it can't come from a variable"),
                help,
            );
            return None;
        }
        Some(&scalar.text)
    }

    /// A whole number in a range.
    pub(super) fn int(
        &mut self,
        node: &Node,
        field: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let (min, max) = (*range.start(), *range.end());
        let help = format!("write a whole number from {min} to {max}");
        let scalar = self.scalar(node, field, &help)?;
        let text = scalar.text.as_str();
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let fault = if scalar.quoted && !scalar.from_env {
            format!("`{field}` is a number, and here is a text")
        } else if !digits {
            format!("`{field}` is a whole number, and `{}` is none", scalar.shown)
        } else if text.len() > 1 && text.starts_with('0') {
            format!("`{}` is octal to some YAML readers and decimal to others", scalar.shown)
        } else {
            match text.parse() {
                Ok(number) if range.contains(&number) => return Some(number),
                _ => format!("`{field}` is out of range: {}", scalar.shown),
            }
        };
        self.unreadable(node, 0, field, fault, &help);
        None
    }

    /// `true` or `false`.
    pub(super) fn bool(&mut self, node: &Node, field: &str) -> Option<bool> {
        let help = "write true or false, without quotes";
        let scalar = self.scalar(node, field, help)?;
        match scalar.text.as_str() {
            "true" if !scalar.quoted => return Some(true),
            "false" if !scalar.quoted => return Some(false),
            _ => {}
        }
        let message = if scalar.quoted && ["true", "false"].contains(&scalar.text.as_str()) {
            format!("`{field}` is true or false, and in quotes that is a text")
        } else {
            format!("`{field}` is true or false, and not `{}`", scalar.shown)
        };
        self.unreadable(node, 0, field, message, help);
        None
    }

    /// A duration in a range.
    pub(super) fn duration(
        &mut self,
        node: &Node,
        field: &str,
        range: std::ops::RangeInclusive<Millis>,
    ) -> Option<Millis> {
        let (min, max) = (*range.start(), *range.end());
        let help = format!("write a duration from {min} to {max}, such as 200ms, 1s, 5m, 1h or 1d");
        let scalar = self.scalar(node, field, &help)?;
        match scalar.text.parse::<Millis>() {
            Ok(duration) if range.contains(&duration) => return Some(duration),
            Ok(_) => {
                let message = format!("`{field}` is out of range: {}", scalar.shown);
                self.unreadable(node, 0, field, message, &help);
            }
            Err(error) => self.unreadable(node, error.at(), field, error.to_string(), &help),
        }
        None
    }

    /// One of some words; `later` are those that a later version will know.
    pub(super) fn choice<T: Copy>(
        &mut self,
        node: &Node,
        field: &str,
        words: &[(&str, T)],
        later: &[&str],
    ) -> Option<T> {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let help = format!("write {}", one_of(&all));
        let scalar = self.scalar(node, field, &help)?;
        let text = scalar.text.as_str();
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        if later.contains(&text) {
            self.not_yet(node.at, &format!("`{field}: {text}`"), help);
            return None;
        }
        let known: Vec<&str> = all.iter().chain(later).copied().collect();
        let message = if !scalar.quoted && is_boolean(text) {
            format!("`{}` is a boolean to YAML 1.1 readers, and not a value of `{field}`", scalar.shown)
        } else {
            format!("`{field}` can't be `{}`{}", scalar.shown, did_you_mean(text, known.iter()))
        };
        self.unreadable(node, 0, field, message, &help);
        None
    }

    /// A list that isn't empty and not too long.
    pub(super) fn list<'n>(
        &mut self,
        node: &'n Node,
        field: &str,
        max: usize,
        help: &str,
    ) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(items) if items.is_empty() => {
                self.error(node.at, format!("`{field}` is an empty list"), help);
            }
            Value::List(items) if items.len() > max => {
                self.error(
                    node.at,
                    format!("`{field}` has {} entries", items.len()),
                    format!("write at most {max}"),
                );
            }
            Value::List(items) => return Some(items),
            Value::Null => self.empty(node.at, field, help),
            Value::Scalar(_) | Value::Map(_) => {
                self.error(node.at, format!("`{field}` is a list, and here is none"), help);
            }
        }
        None
    }
}

/// A mapping whose fields are known.
pub(super) struct Fields<'n> {
    pub(super) at: Span,
    what: &'n str,
    entries: &'n [(Name, Node)],
}

impl<'n> Fields<'n> {
    /// The mapping, after unknown and repeated fields were reported.
    pub(super) fn of(node: &'n Node, what: &'n str, known: &[&str], reader: &mut Reader<'_>) -> Option<Self> {
        let help = format!("write a mapping with some of {}", one_of(known));
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => {
                reader.empty(node.at, what, &help);
                return None;
            }
            Value::List(_) | Value::Scalar(_) => {
                reader.error(node.at, format!("`{what}` is a mapping, and here is none"), help);
                return None;
            }
        };
        let mut seen: Vec<&Name> = Vec::new();
        for (name, _) in entries {
            if !known.contains(&name.text.as_str()) {
                reader.error(
                    name.at,
                    format!(
                        "`{what}` has no field `{}`{}",
                        name.text,
                        did_you_mean(&name.text, known.iter())
                    ),
                    format!("the fields are {}", known.join(", ")),
                );
            } else if let Some(first) = seen.iter().find(|first| first.text == name.text) {
                let line = reader.source.place(first.at.start).line;
                reader.error(
                    name.at,
                    format!("`{}` was already written in line {line}", name.text),
                    "keep one of the two",
                );
            } else {
                seen.push(name);
            }
        }
        Some(Self { at: node.at, what, entries })
    }

    /// A field's value; the first, where it was written twice.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.entry(name).map(|(_, node)| node)
    }

    /// The field's name and its value.
    pub(super) fn entry(&self, name: &str) -> Option<(&'n Name, &'n Node)> {
        let (name, node) = self.entries.iter().find(|(found, _)| found.text == name)?;
        Some((name, node))
    }

    /// A field that must be there.
    pub(super) fn require(&self, name: &str, help: &str, reader: &mut Reader<'_>) -> Option<&'n Node> {
        let found = self.get(name);
        if found.is_none() {
            let at = self.head(reader.source);
            reader.error(at, format!("`{}` lacks `{name}`", self.what), help);
        }
        found
    }

    /// Refuses a field of a later version, unless it has the value that it would have anyway.
    pub(super) fn later(&self, name: &str, default: Option<&str>, reader: &mut Reader<'_>) {
        let Some((found, node)) = self.entry(name) else {
            return;
        };
        match (&node.value, default) {
            (Value::Scalar(scalar), Some(default)) if scalar.text == default => {}
            (_, Some(default)) => {
                let what = format!("another `{name}` than `{default}`");
                reader.not_yet(node.at, &what, format!("leave it out, or write {name}: {default}"));
            }
            (_, None) => reader.not_yet(found.at, &format!("`{name}`"), "leave it out"),
        }
    }

    /// Where to point when something is missing: the first line of the mapping.
    pub(super) fn head(&self, source: &Source) -> Span {
        let line = source.line_of(self.at.start);
        Span { start: self.at.start, end: line.end.max(self.at.start).min(self.at.end.max(self.at.start)) }
    }
}

fn is_boolean(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower == "true" || lower == "false" || BOOLEANS_OF_YAML_1_1.contains(&lower.as_str())
}

/// `: did you mean ...?`, where something is near enough.
pub(super) fn did_you_mean<'a, T: AsRef<str> + 'a>(word: &str, known: impl Iterator<Item = &'a T>) -> String {
    // Longer words are no spelling mistakes, and comparing them is expensive.
    if word.len() > 64 {
        return String::new();
    }
    nearest(word, known).map_or_else(String::new, |near| format!(": did you mean `{}`?", near.as_ref()))
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).into(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
