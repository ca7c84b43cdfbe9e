//! The text of a file, and places in it.

use std::fmt;

/// A file that was read: what it is called in messages, and its text.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

/// Bytes `start..end` of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where a byte is: both numbers count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Without the text, which may hold secrets.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    /// The place of a byte; the end of the text for offsets behind it.
    pub(super) fn place(&self, at: usize) -> Place {
        let at = self.floor(at);
        let line_start = self.line_start(at);
        Place {
            line: self.text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: self.text[line_start..at].chars().count() + 1,
        }
    }

    /// The bytes of the line that a byte is in, without its end.
    pub(super) fn line_of(&self, at: usize) -> Span {
        let at = self.floor(at);
        let start = self.line_start(at);
        let line = self.text[start..].lines().next().unwrap_or_default();
        Span { start, end: start + line.len() }
    }

    /// The text of a span, or nothing where it isn't one of this text.
    pub(super) fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The byte at which the n-th character begins.
    pub(super) fn byte_of_char(&self, n: usize) -> usize {
        self.text.char_indices().nth(n).map_or(self.text.len(), |(at, _)| at)
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The start of the character that the byte belongs to.
    fn floor(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        (0..=at).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}
