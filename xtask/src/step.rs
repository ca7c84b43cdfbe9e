//! One command of a verb: announced as one could type it, run with its output passed through, timed.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::time::Stopwatch;

/// What a verb comes to.
pub(crate) type Done = Result<(), Failure>;

/// Why a verb ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line can't be understood: nothing was run.
    Usage(String),
    /// Something that was run, or what it showed, is not as it should be.
    Step(String),
}

impl Failure {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Step(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(message) | Self::Step(message)) = self;
        f.write_str(message)
    }
}

/// Runs a command line of plain words, without a shell, at the root of the repository.
pub(crate) fn run(line: &str) -> Done {
    run_with(line, &[])
}

/// [`run`] with environment variables.
pub(crate) fn run_with(line: &str, variables: &[(&str, &str)]) -> Done {
    let settings: String = variables.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    announce(&format!("{settings}{line}"));
    let mut command = words(line);
    command.envs(variables.iter().copied());
    timed(&mut command, line)
}

/// Runs a command line in `sh`, at the root of the repository.
pub(crate) fn run_in_shell(line: &str) -> Done {
    announce(line);
    timed(&mut shell(line), line)
}

/// Runs a command line in `sh`, shows what it printed, and returns that.
pub(crate) fn capture_in_shell(line: &str) -> Result<String, Failure> {
    announce(line);
    let output = shell(line)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::Step(format!("`{line}` can't be run: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    if output.status.success() {
        Ok(text)
    } else {
        Err(Failure::Step(format!("`{line}` failed: {}", output.status)))
    }
}

/// What a command that prints rows of a table came to.
pub(crate) struct Rows {
    pub(crate) rows: Vec<String>,
    pub(crate) is_success: bool,
}

/// Runs a command line of plain words, passes its output through as it comes, and keeps the lines that are rows of a
/// table.
pub(crate) fn rows_of(line: &str) -> Result<Rows, Failure> {
    announce(line);
    let failed = |error: std::io::Error| Failure::Step(format!("`{line}` can't be run: {error}"));
    let mut child = words(line).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut rows = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            println!("{line}");
            if line.starts_with("| ") {
                rows.push(line);
            }
        }
    }
    Ok(Rows { rows, is_success: child.wait().map_err(failed)?.success() })
}

/// Whether a command exists and answers, with nothing shown.
pub(crate) fn answers(line: &str) -> bool {
    words(line).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A line that tells the contributor where the verb is.
pub(crate) fn announce(what: &str) {
    eprintln!("==> {what}");
}

/// A line below the last announcement.
pub(crate) fn note(what: &str) {
    eprintln!("    {what}");
}

/// The folder that holds the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// `sh -c LINE` at the root of the repository.
pub(crate) fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).current_dir(root());
    command
}

fn timed(command: &mut Command, line: &str) -> Done {
    let stopwatch = Stopwatch::start();
    let status =
        command.status().map_err(|error| Failure::Step(format!("`{line}` can't be run: {error}")))?;
    note(&format!("{} s", stopwatch.seconds()));
    if status.success() { Ok(()) } else { Err(Failure::Step(format!("`{line}` failed: {status}"))) }
}

fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = match words.next().unwrap_or_default() {
        // The very cargo that runs this, whatever comes first on the PATH.
        "cargo" => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        program => Command::new(program),
    };
    command.args(words).current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_names_its_command_and_exits_with_1() {
        assert_eq!(run_in_shell("exit 0"), Ok(()));
        let failure = run_in_shell("exit 3").unwrap_err();
        assert_eq!(failure.to_string(), "`exit 3` failed: exit status: 3");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn a_command_that_does_not_exist_is_an_error_and_not_a_panic() {
        let failure = run("no-such-program --at-all").unwrap_err();
        assert!(failure.to_string().starts_with("`no-such-program --at-all` can't be run: "), "{failure}");
        assert!(!answers("no-such-program --version"));
    }

    #[test]
    fn steps_run_at_the_root_with_their_variables() {
        assert!(root().join("Cargo.lock").is_file());
        assert_eq!(run_with("test -f Cargo.lock", &[]), Ok(()));
        assert_eq!(run_with("printenv GIVEN", &[("GIVEN", "1")]), Ok(()));
        assert!(run_with("printenv GIVEN", &[]).is_err());
        assert_eq!(capture_in_shell("printf a; printf b"), Ok("ab".into()));
        let told = rows_of("cat Cargo.lock xtask/Cargo.toml").unwrap();
        assert!(told.is_success && told.rows.is_empty());
    }
}
