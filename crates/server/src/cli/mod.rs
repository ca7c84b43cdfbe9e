//! The command line: one file for each verb.
//!
//! Exit codes are part of the contract: 0 done (for `check`: allowed), 1 failed, 2 wrong usage, 10 denied,
//! 3 (`bench`) over the limit.
//! What was asked for goes to standard output, everything else to standard error.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod check;
mod serve;
mod validate;

/// Something went wrong; standard error says what.
pub(crate) const FAILED: u8 = 1;

/// Exact rate limiting: gateway, HTTP API and command line.
#[derive(Debug, Parser)]
#[command(name = "slidegate", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  slidegate serve                                   try it: a gateway on 127.0.0.1:8080
  slidegate serve --config slidegate.yaml           run a configuration
  slidegate validate slidegate.yaml                 say what is wrong with it
  slidegate check --policy per-user --key client_ip=203.0.113.7
  slidegate bench --hot                             what a limit costs, and what it admits";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gateway, the API and the admin port
    Serve(serve::Args),
    /// Check a configuration file and show what it comes to
    Validate(validate::Args),
    /// Ask a running server, or a Redis store, for one decision
    Check(check::Args),
    /// Measure a store or a server under load
    Bench(bench::Args),
}

/// Does what the command line says.
pub(crate) fn run() -> ExitCode {
    match Cli::parse().verb {
        Verb::Serve(args) => serve::run(&args),
        Verb::Validate(args) => validate::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Check(args) => match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(check::run(args)),
            Err(error) => {
                eprintln!("error: can't start: {error}");
                ExitCode::from(FAILED)
            }
        },
    }
}
