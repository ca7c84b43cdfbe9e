//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) mod check;
pub(crate) mod validate;

/// A rate limiter with exact sliding windows.
#[derive(Debug, Parser)]
#[command(name = "slidegate", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Validate(validate::Args),
}

impl Cli {
    /// Runs the command that was given.
    pub(crate) async fn run(self) -> ExitCode {
        match self.command {
            Command::Check(args) => check::run(args).await,
            Command::Validate(args) => validate::run(&args),
        }
    }
}
