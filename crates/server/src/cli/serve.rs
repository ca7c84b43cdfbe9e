//! `slidegate serve`: everything in one process.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::FAILED;
use crate::app::{App, StartError};
use crate::config::{self, Loaded, Report, Table};
use crate::{signals, telemetry};

/// Run the gateway, the API and the admin port.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration file; without it a quickstart configuration: a gateway on 127.0.0.1:8080 that
    /// answers by itself and lets each client address through 5 times in 10 seconds
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  slidegate serve
  slidegate serve --config examples/gateway.yaml

SIGTERM or Ctrl-C stops accepting and lets running requests finish; a second one ends at once.
Exit codes: 0 stopped as told, 1 could not start or ended at once, 2 wrong usage.";

/// Serves until it is told to stop.
pub(crate) fn run(args: &Args) -> ExitCode {
    let loaded = match &args.config {
        Some(path) => config::load(path),
        None => config::quickstart(),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(report) => return fail_with(&report),
    };
    telemetry::init(loaded.config.telemetry);
    match serve(loaded) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show(io::stderr(), format_args!("error: {error}\n"));
            ExitCode::from(FAILED)
        }
    }
}

fn fail_with(report: &Report) -> ExitCode {
    show(io::stderr(), report);
    ExitCode::from(FAILED)
}

fn serve(loaded: Loaded) -> Result<(), StartError> {
    if !loaded.warnings.is_empty() {
        show(io::stderr(), &loaded.warnings);
    }
    show(io::stdout(), format_args!("{}\n", Table::of(&loaded.config.policies)));
    let runtime = tokio::runtime::Runtime::new().map_err(StartError::Runtime)?;
    runtime.block_on(async {
        let told_to_stop = signals::shutdown();
        let app = App::bind(loaded.config).await?;
        for (what, address) in app.addresses() {
            show(io::stdout(), format_args!("{what:<8} http://{address}\n"));
        }
        app.run(told_to_stop).await;
        Ok(())
    })
}

/// What is said at the start is for people: a full disk or a closed pipe must not keep limits from being in
/// force.
fn show(mut to: impl Write, text: impl Display) {
    let _ = write!(to, "{text}");
}
