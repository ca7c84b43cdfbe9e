//! A child process that ends: when it is dropped, when its test panics, and when the test process is killed.
//!
//! The last needs the kernel. A process can ask for a signal when its parent dies (`PR_SET_PDEATHSIG`), which
//! takes `unsafe` here, so `setpriv --pdeathsig KILL` of util-linux asks in our place and then *becomes* the
//! program: the process id stays the one we know. Where there is no `setpriv` (macOS), only a killed test
//! process leaves servers behind.
//!
//! That "parent" is the *thread* that started the child, and each test has a thread of its own. A server that
//! outlives its test, since several share it, would be killed with the first. So one thread, which never ends,
//! starts every child. One in a `static`, which is never dropped, ends with the process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;
use crate::wait;

/// A running program, its own and nobody else's. Dropping kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Whether its end was waited for: then its number may be another's.
    reaped: bool,
    /// Whether it was [stopped](Self::stop) and not told to go on.
    frozen: bool,
}

impl Process {
    /// Starts `program`; whatever it prints goes to the file `log`, after what is there.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`]. A program that isn't there is found out at once only without `setpriv`; with it,
    /// the process ends at once and the log says so.
    pub fn start(program: &Path, args: &[String], log: &Path) -> io::Result<Self> {
        Self::start_at(program, args, log, None)
    }

    /// [`start`](Self::start) with a clock of its own.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_at(program: &Path, args: &[String], log: &Path, clock: Option<&Clock>) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = guarded(program);
        if let Some(clock) = clock {
            clock.give(&mut command);
        }
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Self::spawn(command)
    }

    /// Starts what [`guarded`] made.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    ///
    /// # Panics
    ///
    /// Never: the thread that starts children does not end before the process does.
    pub fn spawn(command: Command) -> io::Result<Self> {
        let (reply, started) = mpsc::channel();
        let starter = starter().lock().unwrap_or_else(PoisonError::into_inner).clone();
        starter.send((command, reply)).expect("the starter runs");
        let child = started.recv().expect("the starter answers")?;
        Ok(Self { child, reaped: false, frozen: false })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it prints, for the one who reads it, if it was spawned with a pipe.
    pub const fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// What it logs, as [`stdout`](Self::stdout).
    pub const fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten();
        self.reaped |= status.is_some();
        status
    }

    /// Whether it neither ended nor was frozen.
    pub fn runs(&mut self) -> bool {
        !self.frozen && self.ended().is_none()
    }

    /// Freezes it (SIGSTOP): its sockets stay open, and answer nothing.
    pub fn stop(&mut self) {
        self.frozen = true;
        self.signal(Signal::STOP);
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    pub fn cont(&mut self) {
        self.frozen = false;
        self.signal(Signal::CONT);
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it at once (SIGKILL), frozen or not, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.reaped |= self.child.wait().is_ok();
    }

    /// Waits for its own end.
    ///
    /// # Panics
    ///
    /// When it still runs after [`wait::PATIENCE`].
    pub fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of process {}", self.pid());
        wait::for_some(&what, wait::PATIENCE, || self.ended())
    }

    fn signal(&self, signal: Signal) {
        // The kernel gives the number of a child that was waited for to others: `reaped` says so.
        if !self.reaped {
            // The only failure left is that it has just ended by itself.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command that runs `program`, and is killed with this process where that can be had.
#[must_use]
pub fn guarded(program: &Path) -> Command {
    match setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// The program `name`, if it is on the PATH.
#[must_use]
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn setpriv() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| on_path("setpriv")).as_deref()
}

/// A command to start, and where its starter is waited for.
type Order = (Command, Sender<io::Result<Child>>);

/// The thread that starts every child.
fn starter() -> &'static Mutex<Sender<Order>> {
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (orders, received) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in received {
                // The one who gave the order waits for it in `spawn`, and nowhere else.
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(orders)
    })
}
