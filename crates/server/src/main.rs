//! bin
#![allow(dead_code, unused_imports)]
mod admin;
mod api;
mod cli;
mod config;
mod context;
mod decision_json;
mod doors;
mod metrics;
mod policy_json;
#[tokio::main]
async fn main() -> std::process::ExitCode {
    use clap::Parser;
    cli::Cli::parse().run().await
}
