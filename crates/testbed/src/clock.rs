//! A wall clock of a process' own, which a test sets: servers and instances whose clocks are wrong, and step.
//!
//! `libfaketime` stands before the C library and reads an offset from a file whenever the program asks what time it
//! is. So every process that [was given](Clock::new) the clock steps at the same moment. Only the wall clock is moved:
//! what measures durations (`CLOCK_MONOTONIC`) goes on as it does when an administrator sets the clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

/// Where Debian, Fedora and Homebrew put it.
const LIBRARIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
];

/// A clock, of as many processes as are started with it. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    folder: Arc<TempDir>,
    library: &'static Path,
}

impl Clock {
    /// A clock that is this many milliseconds ahead of the machine's, or behind.
    ///
    /// # Panics
    ///
    /// When `libfaketime` is not on this machine.
    #[must_use]
    pub fn new(offset_ms: i64) -> Self {
        let found = LIBRARIES.iter().map(Path::new).find(|path| path.is_file());
        let library = found.expect("libfaketime is not on this machine: `cargo xtask test` installs it");
        let folder = Arc::new(tempfile::tempdir().expect("a directory for the clock"));
        let clock = Self { folder, library };
        clock.set(offset_ms);
        clock
    }

    /// Sets it to this many milliseconds ahead of the machine's clock, or behind.
    ///
    /// # Panics
    ///
    /// When its file can't be written.
    pub fn set(&self, offset_ms: i64) {
        let sign = if offset_ms < 0 { '-' } else { '+' };
        let (seconds, millis) = (offset_ms.unsigned_abs() / 1000, offset_ms.unsigned_abs() % 1000);
        let next = self.folder.path().join("next");
        fs::write(&next, format!("{sign}{seconds}.{millis:03}\n")).expect("a file for the clock");
        // In one step: half a number would be another time.
        fs::rename(next, self.file()).expect("a file for the clock");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Gives the clock to a program that is about to be started.
    pub(crate) fn give(&self, command: &mut Command) {
        // The C library a second time, before the program's own libraries: Redis brings an allocator that asks for
        // the time while the preloaded library is still being set up, and hangs. This way it is not used.
        command.env("LD_PRELOAD", format!("{} libc.so.6", self.library.display()));
        command.env("FAKETIME_TIMESTAMP_FILE", self.file());
        for setting in ["FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC", "FAKETIME_DISABLE_SHM"] {
            command.env(setting, "1");
        }
    }
}
