//! Reading configurations: from a YAML file to a [`Config`] in which nothing can be wrong, or to a report
//! of all that is.
//!
//! ```text
//! file -> yaml (tree with places) -> env (${NAME}) -> convert (one file for each section) -> Config
//!                                                          |-> report (errors)
//!                                         Config + places -> warnings -> report
//! ```
//! `examples/full.yaml` is the contract: an option that isn't in it doesn't exist.
//!
//! # Caps
//! A file has at most 1 MiB, 24 levels and 600,000 values with aliases expanded. Lists have caps of their
//! own, each named where the list is read: 10,000 policies, 16 limits each, 1000 routes, 1000 networks.
//! Token files have at most 64 KiB and 100 tokens, other files that it names at most 64 KiB.
//!
//! # Secrets
//! What environment variables and the files that it names hold never shows in a message, nor in `Debug`. Values that
//! are secret by their field (exempting headers, passwords in URLs) are masked in quoted lines, and in a line
//! that isn't YAML every word that might be one.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

mod convert;
mod env;
mod fields;
mod files;
mod model;
mod report;
mod schema;
mod secrets;
mod source;
mod table;
mod tokens;
mod warnings;
mod yaml;

pub(crate) use model::*;
pub(crate) use report::{Entry, Report};
pub(crate) use table::Table;
pub(crate) use tokens::Role;
#[cfg(test)]
pub(crate) use tokens::Token;

use fields::Reader;
use files::Files;
use source::Source;

/// The largest file, in bytes: as much as a Kubernetes ConfigMap can hold.
const FILE_MAX: u64 = 1024 * 1024;

/// What `serve` uses when no file is named.
const QUICKSTART: &str = include_str!("../../../../examples/quickstart.yaml");

/// A configuration, and what should be said about it.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// Warnings and remarks.
    pub(crate) warnings: Report,
}

/// Reads a file.
///
/// # Errors
/// A report of everything that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Loaded, Report> {
    let name = path.display().to_string();
    let text = read_file(path).map_err(|message| {
        let help = "name a readable YAML file of at most 1 MiB, such as examples/gateway.yaml";
        Report::about_file(&name, message, Some(help.into()))
    })?;
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    parse(Source { name, text }, &folder, &|name| std::env::var(name).ok())
}

/// The configuration for trying things out.
///
/// # Errors
/// None while the tests pass: the file is part of the program.
pub(crate) fn quickstart() -> Result<Loaded, Report> {
    let source = Source { name: "quickstart.yaml".into(), text: QUICKSTART.into() };
    parse(source, Path::new(""), &|_| None)
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("the file can't be opened: {error}"))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the file can't be read: {error}"))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err("the file is larger than 1 MiB".into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("the file is not UTF-8: the first byte that isn't is in line {line}")
    })
}

/// Reads a text. Pure but for the files that it names.
fn parse(source: Source, folder: &Path, lookup: env::Lookup<'_>) -> Result<Loaded, Report> {
    let mut reader = Reader { source: &source, findings: Vec::new(), secrets: Vec::new() };
    let mut findings = Vec::new();
    let root = match yaml::parse(&source, lookup, &mut findings) {
        Ok(root) => root,
        Err(finding) => {
            let secrets = finding.at.map_or_else(Vec::new, |at| secrets::of_broken_line(&source, at));
            return Err(Report::new(source, vec![finding], secrets));
        }
    };
    reader.findings = findings;
    reader.secrets = secrets::of(&root);
    let read = convert::config(&root, &Files::of(folder), &mut reader);
    let (mut findings, secrets) = (reader.findings, reader.secrets);
    match read {
        Some(read) if findings.is_empty() => {
            warnings::add(&read, &mut findings);
            Ok(Loaded { config: read.config, warnings: Report::new(source, findings, secrets) })
        }
        _ => Err(Report::new(source, findings, secrets)),
    }
}

#[cfg(test)]
mod tests;
