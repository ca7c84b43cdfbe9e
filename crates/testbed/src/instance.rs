//! `slidegate serve` as a process: with a configuration of the test's own, in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::Clock;
use crate::process::Process;
use crate::wait;

/// How long an address may take to be printed once the first one was: they come together.
const PRINTED_MAX: Duration = Duration::from_secs(5);

/// A running server. Dropping kills it; [`terminate`](Self::terminate) ends it in order.
#[derive(Debug)]
pub struct Instance {
    program: PathBuf,
    folder: TempDir,
    process: Process,
    /// How much of the log is of earlier runs.
    log_before: usize,
    clock: Option<Clock>,
}

impl Instance {
    /// Runs `program serve` with this configuration (YAML), and returns when its ports are open. Ports may be 0
    /// there: [`address`](Self::address) says which they became.
    ///
    /// A test finds `program` with `assert_cmd::cargo::cargo_bin("slidegate")`, or, in the crate of that binary,
    /// `env!("CARGO_BIN_EXE_slidegate")`.
    ///
    /// # Panics
    ///
    /// When it ends, or opens no port; the message holds what it printed.
    #[must_use]
    pub fn start(program: &Path, configuration: &str) -> Self {
        Self::start_at(program, configuration, None)
    }

    /// [`start`](Self::start) with a clock of its own.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_at(program: &Path, configuration: &str, clock: Option<&Clock>) -> Self {
        let folder = tempfile::tempdir().expect("a directory for the instance");
        std::fs::write(folder.path().join("slidegate.yaml"), configuration).expect("a file in it");
        let process = begin(program, folder.path(), 0, clock);
        Self { program: program.to_owned(), folder, process, log_before: 0, clock: clock.cloned() }
    }

    /// Kills it if it runs, and starts it again with the same configuration.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self) {
        self.process.kill();
        self.log_before = self.log().len();
        self.process = begin(&self.program, self.folder.path(), self.log_before, self.clock.as_ref());
    }

    /// Where it listens as `what`: `gateway`, `api` or `admin`. `127.0.0.1:PORT`.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[must_use]
    pub fn address(&self, what: &str) -> String {
        wait::for_some(&format!("the address of its {what}"), PRINTED_MAX, || {
            address_in(self.log().get(self.log_before..)?, what)
        })
    }

    /// The process id; another one after a [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// All that it printed and logged, of all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(self.folder.path())
    }

    /// Freezes it (SIGSTOP).
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Lets it go on (SIGCONT).
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end (SIGTERM); [`wait`](Self::wait) waits until it has.
    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits for its own end.
    ///
    /// # Panics
    ///
    /// As [`Process::wait`].
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

impl Drop for Instance {
    /// A failed test shows what its instances said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("instance {} said:\n{}", self.pid(), self.log());
        }
    }
}

/// Starts it, and waits until it says where it listens: all ports are open before the first is printed.
fn begin(program: &Path, folder: &Path, log_before: usize, clock: Option<&Clock>) -> Process {
    let configuration = folder.join("slidegate.yaml").display().to_string();
    let args = ["serve".to_owned(), "--config".to_owned(), configuration];
    let mut process = Process::start_at(program, &args, &folder.join("log"), clock)
        .unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()));
    let listens = wait::try_for_some(wait::PATIENCE, || {
        let log = read_log(folder);
        let is_open =
            log.get(log_before..).is_some_and(|log| log.lines().any(|line| address_of(line).is_some()));
        (is_open || process.ended().is_some()).then_some(is_open)
    });
    assert_eq!(listens, Some(true), "{} opened no port; it said:\n{}", program.display(), read_log(folder));
    process
}

fn address_in(log: &str, what: &str) -> Option<String> {
    log.lines().filter_map(address_of).find(|(name, _)| *name == what).map(|(_, address)| address.to_owned())
}

/// `gateway  http://127.0.0.1:8080`, once it is there to its end.
fn address_of(line: &str) -> Option<(&str, &str)> {
    let (name, address) = line.split_once(" http://")?;
    let name = name.trim_end();
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_whole = address.parse::<std::net::SocketAddr>().is_ok();
    (is_word && is_whole).then_some((name, address))
}

fn read_log(folder: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(folder.join("log")).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_among_other_lines() {
        let log = "POLICY  LIMIT\nall     see http://127.0.0.1:1\ngateway  http://127.0.0.1:80\napi      http://[::1]:81\n";
        assert_eq!(address_in(log, "gateway").unwrap(), "127.0.0.1:80");
        assert_eq!(address_in(log, "api").unwrap(), "[::1]:81");
        assert_eq!(address_in(log, "admin"), None);
        assert_eq!(address_of("gateway  http://127.0.0.1:"), None, "half a line");
    }
}
