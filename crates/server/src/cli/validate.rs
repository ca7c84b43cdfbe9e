//! `slidegate validate`: whether a configuration is good, and what it comes to.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::config::{self, Entry, Loaded, Report, Table};
use crate::policy_json::PolicyJson;

/// Check a configuration file, and show the policies it comes to
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Check a configuration file, and show the policies it comes to.\n\n\
        Errors and warnings go to standard error with line and column; the table of policies goes to \
        standard output. Nothing is started, and nothing is changed.",
    after_help = "Exit codes: 0 good (perhaps with warnings), 1 errors, 2 wrong usage.\n\n\
        Example:\n  \
        $ slidegate validate examples/gateway.yaml\n  \
        $ slidegate validate --json slidegate.yaml | jq '.errors[] | \"\\(.line): \\(.message)\"'"
)]
pub(crate) struct Args {
    /// The configuration
    file: PathBuf,
    /// Print everything as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    valid: bool,
    /// Empty when the configuration is good.
    errors: Vec<Entry>,
    warnings: Vec<Entry>,
    /// Empty when it isn't.
    policies: Vec<PolicyJson<'a>>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> ExitCode {
    let result = config::load(&args.file);
    let good = result.is_ok();
    let printed = if args.json { print_json(&result) } else { print_text(args, &result) };
    // A reader that went away (`| head`) changes nothing about the file.
    let _ = printed;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_json(result: &Result<Loaded, Report>) -> io::Result<()> {
    let answer = match result {
        Ok(loaded) => Answer {
            valid: true,
            errors: Vec::new(),
            warnings: loaded.warnings.entries().collect(),
            policies: loaded.config.policies.iter().map(Into::into).collect(),
        },
        Err(report) => Answer {
            valid: false,
            errors: report.entries().collect(),
            warnings: Vec::new(),
            policies: Vec::new(),
        },
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &answer)?;
    writeln!(out)
}

fn print_text(args: &Args, result: &Result<Loaded, Report>) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let file = args.file.display();
    match result {
        Ok(loaded) => {
            write!(err, "{}", loaded.warnings)?;
            write!(io::stdout().lock(), "{}", Table::of(&loaded.config.policies))?;
            writeln!(err, "{file} is good")
        }
        Err(report) => {
            write!(err, "{report}")?;
            writeln!(err, "{file} can't be used: {}", counted(report.entries().count(), "error"))
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
