//! How far the run is, for people who wait: on standard error, so that tables can be redirected. On a terminal one line
//! that changes; elsewhere a line for each step.

use std::io::{IsTerminal, Write};

use tokio::time::Instant;

/// The steps of a run, and the one that it is in.
pub(crate) struct Progress {
    started: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    /// A step begins.
    pub(crate) fn step(&self, name: &str) {
        let seconds = self.started.elapsed().as_secs();
        if self.is_terminal {
            // Erased to the end of the line: what stood there may have been longer.
            eprint!("\r{seconds:>4} s  {name}\x1b[K\r");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{seconds:>4} s  {name}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            eprint!("\x1b[K");
        }
    }
}
