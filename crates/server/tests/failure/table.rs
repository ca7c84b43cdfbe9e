//! Rows of measured figures: printed as they come, and what is not as it should be fails the test at the end.

use std::fmt::Display;

/// How much of a bar is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Some seconds among all other tests, on a machine that does other things: figures of time are told, and prove
    /// nothing.
    Slice,
    /// All of it, alone: they have to hold.
    Whole,
}

/// The rows of one run.
#[derive(Debug)]
pub(crate) struct Table {
    bar: &'static str,
    case: String,
    length: Length,
    broken: Vec<String>,
}

impl Table {
    /// `bar` is the name of what is to be reached, `case` what was done.
    pub(crate) fn new(bar: &'static str, case: &str, length: Length) -> Self {
        Self { bar, case: case.to_owned(), length, broken: Vec::new() }
    }

    /// A figure of time that has to be so in a whole run.
    pub(crate) fn timed(&mut self, what: &str, measured: impl Display, wanted: &str, holds: bool) {
        match self.length {
            Length::Whole => self.row(what, measured, wanted, holds),
            Length::Slice => self.told(what, measured),
        }
    }

    /// A figure that has to be so.
    pub(crate) fn row(&mut self, what: &str, measured: impl Display, wanted: &str, holds: bool) {
        let verdict = if holds { "" } else { " **missed**" };
        let row = format!("| {} | {} | {what} | {measured} | {wanted}{verdict} |", self.bar, self.case);
        println!("{row}");
        if !holds {
            self.broken.push(row);
        }
    }

    /// A figure that is only told.
    pub(crate) fn told(&self, what: &str, measured: impl Display) {
        println!("| {} | {} | {what} | {measured} | |", self.bar, self.case);
    }

    /// What has to be so was so.
    ///
    /// # Panics
    ///
    /// When it was not.
    #[track_caller]
    pub(crate) fn end(self) {
        assert!(self.broken.is_empty(), "missed:\n{}", self.broken.join("\n"));
    }
}

/// A time in milliseconds, for a row.
pub(crate) fn ms(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}
