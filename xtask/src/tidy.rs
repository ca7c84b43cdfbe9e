//! What the repository promises about its own text, as an ordinary test over the files that git tracks.
//!
//! Rustfmt and clippy say what is true of code; this says what is true of files: how long they are, how they
//! begin, what they must not hold, and that links between documents lead somewhere. A finding is one line,
//! `file:line: reason`, and the test shows all of them at once.
//!
//! Untracked files are not looked at: `git add` what is new to have it checked.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

mod links;
mod tests;

/// Longer files are hard to hold in the head: past it, a second reason to exist is usually in there.
const LINES_MAX: usize = 600;
/// Cases in a row read faster than code.
const TEST_FILE_LINES_MAX: usize = 900;

/// Recordings of what programs wrote: their blanks are not ours to change.
const RECORDED: [&str; 2] = ["snap", "svg"];

/// Unfinished work: it belongs into an issue. (In two pieces, so that this file may be checked as well.)
const UNFINISHED_CALLS: [&str; 3] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
const UNFINISHED_WORDS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders of one person's machine, which nobody else has.
const MACHINE_PATHS: [&str; 3] = [concat!("/work", "/"), concat!("/tmp", "/wt"), concat!("/root", "/")];

/// A tracked file: its path from the root, with `/`, and what is in it.
struct File<'a> {
    path: &'a str,
    text: &'a str,
}

/// One thing to repair.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.reason)
    }
}

/// Everything to repair in `files`, in order of path and line.
fn findings(files: &[File<'_>]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path).collect();
    let mut findings: Vec<Finding> = files
        .iter()
        .flat_map(|file| file.faults(&paths).into_iter().map(|fault| (file.path, fault)))
        .map(|(path, (line, reason))| Finding { path: path.to_owned(), line, reason })
        .collect();
    findings.sort();
    findings
}

/// The number of a line, and what is wrong there.
type Fault = (usize, String);

impl File<'_> {
    fn faults(&self, paths: &BTreeSet<&str>) -> Vec<Fault> {
        let mut faults = self.line_endings();
        faults.extend(self.machine_paths());
        match self.extension() {
            "md" => faults.extend(links::broken(self, paths)),
            "rs" | "lua" => {
                faults.extend(self.too_long());
                faults.extend(self.unfinished());
            }
            "sh" | "toml" | "yaml" | "yml" => faults.extend(self.unfinished()),
            _ => {}
        }
        if self.extension() == "rs" {
            faults.extend(self.no_module_doc());
            faults.extend(self.sleeps_in_tests());
        }
        faults
    }

    fn line_endings(&self) -> Vec<Fault> {
        let recorded = RECORDED.contains(&self.extension());
        let fault = |line: &str| {
            if line.ends_with('\r') {
                Some("ends with CR LF: lines end with LF alone")
            } else if !recorded && line.ends_with([' ', '\t']) {
                Some("blanks at the end of the line")
            } else {
                None
            }
        };
        // Not `lines`, which would swallow the CR.
        self.each_line(self.text.split('\n'), |line| fault(line).map(String::from))
    }

    fn machine_paths(&self) -> Vec<Fault> {
        self.each_line(self.text.lines(), |line| {
            let path = MACHINE_PATHS.iter().find(|path| has_absolute(line, path))?;
            Some(format!("`{path}` is a path of one machine: make it relative"))
        })
    }

    fn too_long(&self) -> Option<Fault> {
        let max = if self.name() == "tests.rs" { TEST_FILE_LINES_MAX } else { LINES_MAX };
        let lines = self.text.lines().count();
        (lines > max).then(|| (max + 1, format!("{lines} lines where {max} are allowed: split the file")))
    }

    fn unfinished(&self) -> Vec<Fault> {
        self.each_line(self.text.lines(), |line| {
            let call = UNFINISHED_CALLS.iter().find(|call| line.contains(*call));
            let word = UNFINISHED_WORDS.iter().find(|word| has_word(line, word));
            let found = call.or(word)?;
            Some(format!("`{found}` is unfinished work: finish it, or file an issue"))
        })
    }

    fn no_module_doc(&self) -> Option<Fault> {
        let documented = self.name() == "tests.rs" || self.text.starts_with("//!");
        (!documented).then(|| {
            let reason = "does not begin with a `//!` doc that says what the file is";
            (1, reason.to_owned())
        })
    }

    fn sleeps_in_tests(&self) -> Vec<Fault> {
        let tests_from = self.tests_from();
        self.each_line(self.text.lines(), |line| {
            let code = line.trim_start();
            let sleeps = code.contains("thread::sleep")
                || code.contains("time::sleep")
                || (code.starts_with("use ") && has_word(code, "sleep"));
            (sleeps && !code.starts_with("//")).then_some(())
        })
        .into_iter()
        .filter(|(line, ())| *line >= tests_from)
        .map(|(line, ())| {
            let reason = "a test that sleeps: use virtual time, or wait for the condition itself";
            (line, reason.to_owned())
        })
        .collect()
    }

    /// The first line that is a test's: of a file of tests, the first; else that of the module of tests.
    fn tests_from(&self) -> usize {
        let folders = Path::new(self.path).parent();
        if self.name() == "tests.rs" || folders.is_some_and(|path| path.iter().any(|part| part == "tests")) {
            return 1;
        }
        let mut previous = "";
        for (index, line) in self.text.lines().enumerate() {
            if previous == "#[cfg(test)]" && line.contains("mod ") && line.ends_with('{') {
                return index + 1;
            }
            previous = line.trim();
        }
        usize::MAX
    }

    fn each_line<'t, T>(
        &self,
        lines: impl Iterator<Item = &'t str>,
        look: impl Fn(&'t str) -> Option<T>,
    ) -> Vec<(usize, T)> {
        lines.enumerate().filter_map(|(index, line)| Some((index + 1, look(line)?))).collect()
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// Whether `word` stands in `line` with nothing around it that would make it part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(in_word) && !line[at + word.len()..].starts_with(in_word))
}

/// Whether `path` begins a path in `line`, and is not the middle of a longer one or of an address.
fn has_absolute(line: &str, path: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || ".-_~}".contains(letter);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(goes_on))
}
