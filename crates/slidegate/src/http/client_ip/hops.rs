//! Takes a forwarding header apart, from the right.
//!
//! From the right, since only the right is the word of one's own proxies. A scan from the left would let a
//! client open a quote (`for="`) that swallows what the proxies append; from the right their elements are
//! complete before anything of the client's is looked at.

use http::HeaderValue;
use http::header::{GetAll, ValueIter};

/// How far from the right a header is read, in bytes over all its lines. No real chain of proxies is as
/// long: 8 KiB hold 180 hops with the longest IPv6 addresses. Bounds the work that one request can cause.
pub(super) const READ_MAX: usize = 8 * 1024;

/// The elements of a header that is a list, last first, over all its lines.
///
/// `Some(None)` stands for an element that was cut off at [`READ_MAX`]; nothing comes after it.
pub(super) struct Hops<'a> {
    lines: ValueIter<'a, HeaderValue>,
    /// What is left of the line that is being read.
    line: Option<&'a [u8]>,
    /// Whether commas in quotes are part of an element.
    quotes: bool,
    budget: usize,
}

impl<'a> Hops<'a> {
    pub(super) fn new(lines: GetAll<'a, HeaderValue>, quotes: bool) -> Self {
        Self { lines: lines.iter(), line: None, quotes, budget: READ_MAX }
    }
}

impl<'a> Iterator for Hops<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next_back()?.as_bytes(),
        };
        let start = line.len().saturating_sub(self.budget);
        let comma = last_comma(&line[start..], self.quotes).map(|at| start + at);
        if comma.is_none() && start > 0 {
            self.budget = 0;
            return Some(None);
        }
        self.line = comma.map(|at| &line[..at]);
        let element = &line[comma.map_or(0, |at| at + 1)..];
        self.budget = self.budget.saturating_sub(element.len() + 1);
        Some(Some(element))
    }
}

/// The last comma that is not in a quoted string, which a scan from the right enters by its closing quote.
fn last_comma(text: &[u8], quotes: bool) -> Option<usize> {
    if !quotes {
        return text.iter().rposition(|byte| *byte == b',');
    }
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            b'"' if !is_escaped(&text[..at]) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether what follows is escaped: an odd number of backslashes stands before it.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    !backslashes.is_multiple_of(2)
}
