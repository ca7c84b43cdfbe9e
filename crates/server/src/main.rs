//! bin
#![allow(dead_code, unused_imports)]
mod cli;
mod config;
mod context;
mod metrics;
mod policy_json;
fn main() -> std::process::ExitCode {
    use clap::Parser;
    cli::Cli::parse().run()
}
