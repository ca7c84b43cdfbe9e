//! One server process on a port of its own.
//!
//! Tests' own commands ([`Server::command`]) don't take the way of the limiter's: they come over a Unix socket in
//! the server's directory, as a user that may do anything. So they work whatever password, TLS or proxy
//! stands before the port; and an answer there can only come from *this* process, not from another that took the
//! port.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{
    ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, Value,
};
use tempfile::TempDir;

use super::{Certificates, Options};
use crate::clock::Clock;
use crate::process::Process;
use crate::{port, wait};

/// What a server answered; its refusals (`NOPERM`, `OOM`, ...) are the error.
pub type Reply = ::redis::RedisResult<Value>;

/// The user of [`Server::command`].
const OPERATOR: &str = "testbed";

/// How long one command of a test may take: a server that is frozen must not hang the test.
const COMMAND_MAX: Duration = Duration::from_secs(10);

/// How many ports are tried. That one is taken in between happens once in a few thousand starts, so five times
/// in a row is another fault.
const PORTS_MAX: u32 = 5;

/// How much of its log a failed test shows.
const LOG_LINES_SHOWN: usize = 40;

/// A running server. Dropping kills it.
#[derive(Debug)]
pub struct Server {
    options: Options,
    program: PathBuf,
    folder: TempDir,
    port: u16,
    /// Where nodes of a Cluster talk among themselves.
    bus: u16,
    certificates: Option<Certificates>,
    process: Mutex<Process>,
}

/// A server that ended before it answered, and why.
struct Ended(String);

impl Server {
    /// Starts Debian's `redis-server` with nothing special.
    ///
    /// # Panics
    ///
    /// As [`Options::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// What to start it with.
    #[must_use]
    pub const fn options() -> Options {
        Options::new()
    }

    pub(super) fn start_with(options: Options) -> Self {
        let release = options.release;
        let program = release
            .program()
            .unwrap_or_else(|| panic!("{release:?} is not on this machine: `cargo xtask test` installs it"));
        let folder = tempfile::tempdir().expect("a directory for the server");
        let certificates = options.tls.then(|| Certificates::create(folder.path()));
        let mut last = String::new();
        for _ in 0..PORTS_MAX {
            let (port, bus) = (port::free(), port::free());
            let args = arguments(&options, folder.path(), port, bus, certificates.as_ref());
            match begin(&program, &args, folder.path(), options.clock.as_ref()) {
                Ok(process) => {
                    let process = Mutex::new(process);
                    return Self { options, program, folder, port, bus, certificates, process };
                }
                Err(Ended(log)) => last = log,
            }
            if !last.contains("Address already in use") {
                break;
            }
        }
        panic!("{} ended before it answered; it said:\n{last}", program.display());
    }

    /// Where it listens: 127.0.0.1 at this port, with TLS if that was asked for.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) const fn bus(&self) -> u16 {
        self.bus
    }

    /// The URL for clients of the default user: `redis://127.0.0.1:PORT`, with the password if there is one,
    /// `rediss://` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.tls { "rediss" } else { "redis" };
        let user =
            self.options.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        format!("{scheme}://{user}{}", self.address())
    }

    /// Its Unix socket, where it listens as well.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// The certificates that it and its clients show.
    ///
    /// # Panics
    ///
    /// When it was not started with [`Options::tls`].
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("started with TLS")
    }

    /// Its process id; another one after a [`restart`](Self::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Ends it at once (SIGKILL). Its data is gone: nothing here is saved to disk.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Freezes it (SIGSTOP): connections stay open, new ones are accepted by the kernel, nothing is answered.
    pub fn stop(&self) {
        self.process().stop();
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT). It first does what came in meanwhile.
    pub fn cont(&self) {
        self.process().cont();
    }

    /// Keeps from these replicas what is written from now on: they are frozen, and their links cut, so that nothing
    /// waits for them in a buffer. When the master is killed and they [go on](Self::cont), they never heard of it:
    /// writes that were acknowledged are lost. If it lives, they catch up.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub fn hold_back_replication(&self, replicas: &[&Self]) {
        for replica in replicas {
            replica.stop();
        }
        self.ask::<i64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Ends it if it runs, and starts it again, empty, on the same port with the same options.
    ///
    /// # Panics
    ///
    /// When it can't be started: also when another process took the port meanwhile.
    pub fn restart(&self) {
        let mut running = self.process();
        running.kill();
        let certificates = self.certificates.as_ref();
        let args = arguments(&self.options, self.folder.path(), self.port, self.bus, certificates);
        match begin(&self.program, &args, self.folder.path(), self.options.clock.as_ref()) {
            Ok(process) => *running = process,
            Err(Ended(log)) => panic!("no restart on port {}; it said:\n{log}", self.port),
        }
    }

    /// Whether it neither ended nor is frozen: whether there is a point in asking it something.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.process().runs()
    }

    /// What it printed until now, of all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(self.folder.path())
    }

    /// One command over a connection of its own: `server.command(&["GET", "key"])`.
    ///
    /// # Errors
    ///
    /// What the server refuses; and what keeps it from answering, within 10 s.
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        command(&self.socket(), words)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`command`](Self::command) whose answer is known to be of one kind:
    /// `let count: i64 = server.ask(&["DBSIZE"])`.
    ///
    /// # Panics
    ///
    /// When it is refused, not answered, or answered with something else.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let value = match self.command(words) {
            Ok(value) => value,
            Err(error) => panic!("{words:?} on {}: {error}", self.address()),
        };
        match T::from_redis_value(value) {
            Ok(answer) => answer,
            Err(error) => panic!("{words:?} on {}: {error}", self.address()),
        }
    }

    /// [`ask`](Self::ask) for those who know what to do without: nothing where it is refused or not answered.
    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        T::from_redis_value(self.command(words).ok()?).ok()
    }

    /// A field of `INFO`: `server.info("connected_clients")`.
    ///
    /// # Panics
    ///
    /// When there is none of this name.
    #[track_caller]
    #[must_use]
    pub fn info(&self, field: &str) -> String {
        let text: String = self.ask(&["INFO", "everything"]);
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no field {field} in INFO")).trim_end().to_owned()
    }
}

impl Drop for Server {
    /// A failed test shows what its servers said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
            eprintln!("{} said last:\n{}", self.address(), last.join("\n"));
        }
    }
}

/// Everything on the command line of the server.
fn arguments(
    options: &Options,
    folder: &Path,
    port: u16,
    bus: u16,
    tls: Option<&Certificates>,
) -> Vec<String> {
    let mut args = Vec::new();
    if let Some(configuration) = &options.sentinel {
        // A Sentinel keeps what it knows in its configuration: after a restart it goes on from there.
        let path = folder.join("sentinel.conf");
        if !path.exists() {
            std::fs::write(&path, configuration).expect("a configuration that can be written");
        }
        args.extend([path.display().to_string(), "--sentinel".to_owned()]);
    }
    let port = port.to_string();
    let folder_name = folder.display().to_string();
    let socket = socket(folder).display().to_string();
    let mut set = |name: &str, words: &[&str]| {
        args.push(format!("--{name}"));
        args.extend(words.iter().map(|word| (*word).to_owned()));
    };
    set("port", &[if tls.is_some() { "0" } else { &port }]);
    set("bind", &["127.0.0.1"]);
    set("dir", &[&folder_name]);
    set("unixsocket", &[&socket]);
    set("user", &[OPERATOR, "on", "nopass", "~*", "&*", "+@all"]);
    if options.sentinel.is_none() {
        set("loglevel", &["warning"]);
        set("save", &[""]);
        set("appendonly", &["no"]);
        // Replicas get their first copy at once, and not after the 5 s in which more of them might ask.
        set("repl-diskless-sync-delay", &["0"]);
        // `DEBUG SLEEP` makes a server slow.
        set("enable-debug-command", &["yes"]);
    }
    if options.cluster {
        set("cluster-enabled", &["yes"]);
        // By default it is 10,000 above the port, which there need not be.
        set("cluster-port", &[&bus.to_string()]);
    }
    if let Some(certificates) = tls {
        set("tls-port", &[&port]);
        let mut set_path = |name, path: PathBuf| set(name, &[&path.display().to_string()]);
        set_path("tls-ca-cert-file", certificates.authority());
        set_path("tls-cert-file", certificates.server_certificate());
        set_path("tls-key-file", certificates.server_key());
    }
    args.extend(options.args.iter().cloned());
    args
}

/// Starts the program, and waits until it answers on its socket: by then it listens on its port as well.
fn begin(program: &Path, args: &[String], folder: &Path, clock: Option<&Clock>) -> Result<Process, Ended> {
    let log = folder.join("log");
    let mut process = Process::start_at(program, args, &log, clock)
        .unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()));
    let socket = socket(folder);
    let answered = wait::try_for_some(wait::PATIENCE, || {
        if process.ended().is_some() {
            return Some(false);
        }
        command(&socket, &["PING"]).is_ok().then_some(true)
    });
    if answered == Some(true) { Ok(process) } else { Err(Ended(read_log(folder))) }
}

fn command<W: AsRef<[u8]>>(socket: &Path, words: &[W]) -> Reply {
    let operator =
        RedisConnectionInfo::default().set_username(OPERATOR).set_password("any").set_skip_set_lib_name();
    let target: ConnectionInfo =
        ConnectionAddr::Unix(socket.to_owned()).into_connection_info()?.set_redis_settings(operator);
    let mut connection = ::redis::Client::open(target)?.get_connection_with_timeout(COMMAND_MAX)?;
    connection.set_read_timeout(Some(COMMAND_MAX))?;
    let mut command = ::redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.query(&mut connection)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

fn read_log(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join("log")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
