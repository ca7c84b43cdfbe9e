//! slidegate as one program: see `slidegate --help`.

mod admin;
mod api;
mod app;
mod bench;
mod cli;
mod config;
mod context;
mod decision_json;
mod doors;
mod gateway;
mod metrics;
mod policy_json;
mod serving;
mod signals;
mod store;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
