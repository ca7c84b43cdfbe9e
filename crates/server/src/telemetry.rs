//! Log lines, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, TelemetryConfig};

/// Starts logging. `RUST_LOG` chooses what is logged (default: `info`), `NO_COLOR` turns colours off.
pub(crate) fn init(config: TelemetryConfig) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(coloured);
    // Fails only where logging was started before: in tests, where it does not matter.
    let _ = match config.log {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}
