//! What is said about a configuration: errors, warnings and remarks, with the line they are about.
//!
//! Rendered here, in some sixty lines, rather than by a crate for diagnostics: a configuration needs one
//! file, one caret and one line of advice, values that are secret must be masked in the quoted line, and
//! the snapshots of the tests should not change with another crate's taste.

use std::fmt;

use super::source::{Source, Span};

/// The most findings that are printed: after fifty, nobody reads on.
const SHOWN_MAX: usize = 50;

/// The most characters of a line that are quoted, so that a file without line breaks stays readable.
const QUOTED_MAX: usize = 160;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// The configuration can't be used.
    Error,
    /// It can, and is probably not what its author wants.
    Warning,
    /// Worth knowing.
    Info,
}

/// One thing that is wrong, dangerous or worth knowing.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// `None`: the file as a whole.
    pub(super) at: Option<Span>,
    pub(super) message: String,
    /// What to write instead.
    pub(super) help: Option<String>,
}

/// Findings about one file, ready to be printed.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    source: Source,
    findings: Vec<Finding>,
    secrets: Vec<Span>,
}

/// A finding without its source line: for JSON.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Entry {
    pub(crate) severity: &'static str,
    pub(crate) file: String,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl Report {
    /// A report in the order of the file; what concerns the whole file comes first. `secrets` are masked
    /// wherever their line is quoted.
    pub(super) fn new(source: Source, mut findings: Vec<Finding>, secrets: Vec<Span>) -> Self {
        findings.sort_by_key(|finding| finding.at.map(|at| at.start));
        Self { source, findings, secrets }
    }

    /// A report that there is no text to point into: an unreadable file.
    pub(super) fn about_file(name: &str, message: String, help: Option<String>) -> Self {
        let source = Source { name: name.into(), text: String::new() };
        let finding = Finding { severity: Severity::Error, at: None, message, help };
        Self::new(source, vec![finding], Vec::new())
    }

    /// Whether there is nothing to say.
    pub(crate) const fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings, one by one.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.findings.iter().map(|finding| {
            let place = finding.at.map(|at| self.source.place(at.start));
            Entry {
                severity: finding.severity.name(),
                file: self.source.name.clone(),
                line: place.map(|place| place.line),
                column: place.map(|place| place.column),
                message: finding.message.clone(),
                help: finding.help.clone(),
            }
        })
    }

    /// The line around a span with its secrets masked, shortened, and how far into it the span begins.
    fn quote(&self, at: Span) -> (String, usize, usize) {
        let line = self.source.line_of(at.start);
        let mut quoted = String::new();
        let (mut before, mut marked) = (0, 0);
        for (offset, char) in self.source.slice(line).char_indices() {
            let byte = line.start + offset;
            let secret = self.secrets.iter().any(|span| (span.start..span.end).contains(&byte));
            quoted.push(match char {
                _ if secret => '*',
                char if char.is_control() => ' ',
                char => char,
            });
            before += usize::from(byte < at.start);
            marked += usize::from((at.start..at.end).contains(&byte));
        }
        let skipped = before.saturating_sub(QUOTED_MAX / 2);
        let kept: String = quoted.chars().skip(skipped).take(QUOTED_MAX).collect();
        let before = before - skipped;
        (kept, before, marked.clamp(1, (QUOTED_MAX - before).max(1)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.findings.iter().take(SHOWN_MAX) {
            writeln!(f, "{}: {}", finding.severity.name(), finding.message)?;
            let Some(at) = finding.at else {
                writeln!(f, "  --> {}", self.source.name)?;
                if let Some(help) = &finding.help {
                    writeln!(f, "   = {help}")?;
                }
                writeln!(f)?;
                continue;
            };
            let place = self.source.place(at.start);
            let (quoted, before, marked) = self.quote(at);
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            writeln!(f, "{margin}--> {}:{}:{}", self.source.name, place.line, place.column)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", quoted.trim_end())?;
            writeln!(f, "{margin} | {}{}", " ".repeat(before), "^".repeat(marked))?;
            if let Some(help) = &finding.help {
                writeln!(f, "{margin} = {help}")?;
            }
            writeln!(f)?;
        }
        match self.findings.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more"),
        }
    }
}
