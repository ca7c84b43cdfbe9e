//! `cargo xtask readme`: does what the README and the documents in `docs/` tell a stranger to do, and verifies
//! what they show.
//!
//! A fenced block marked `console` is run: its lines that begin with `$ ` are commands, and those below one
//! must come in its output ([`output`]). Commands of a document run one after another, in `sh`, at the root.
//! One that starts the server ends the one before; the last ends with its document, and so does a `redis-server`.
//! Blocks with any other mark are only read.

use std::fs;
use std::time::Duration;

use crate::step::{self, Done, Failure};
use crate::time;
use crate::tools::{self, CURL, REDIS, Tool, WRK};
use crate::usage;
use commands::Shown;
use server::Server;

mod answers;
mod commands;
mod output;
mod server;

/// Starts the server, of itself or with a configuration behind it. Run as it stands, so that its process is the
/// server's.
const SERVE: &str = "cargo run --release -- serve";
/// Starts a store for the servers that are shown, on a port that it names.
const STORE: &str = "redis-server --port ";
/// The quickstart: one more request than is let through, and another.
const QUICKSTART: &str = "for i in $(seq 7); do curl -si localhost:8080/; done";
/// Runs as a step of its own in CI, and would run this command's own tests again.
const TEST: &str = "cargo xtask test";

/// What a stranger needs in the first minute; a README without it is broken.
const REQUIRED: [&str; 3] = [SERVE, QUICKSTART, TEST];

/// Programs that commands of the documents may use.
const TOOLS: [Tool; 3] = [CURL, WRK, REDIS];

/// What is read first.
const README: &str = "README.md";

pub(crate) fn run(args: &[String]) -> Done {
    usage::no_arguments(args, "readme takes no arguments; it always runs README.md and docs/*.md")?;
    let documents = documents()?;
    for (name, commands) in &documents {
        if name == README {
            required(commands).map_err(Failure::Step)?;
        }
    }
    tools::ensure(&tools_of(documents.iter().flat_map(|(_, commands)| commands)))?;
    // Apart from starting it, so that a build that takes minutes can't be mistaken for a server that hangs.
    step::run("cargo build --release")?;
    for (name, commands) in documents.iter().filter(|(_, commands)| !commands.is_empty()) {
        step::announce(name);
        follow_all(commands).map_err(|failure| Failure::Step(format!("{name}: {failure}")))?;
    }
    Ok(())
}

/// Every document and its commands, the README first.
fn documents() -> Result<Vec<(String, Vec<Shown>)>, Failure> {
    let unreadable = |name: &str, error| Failure::Step(format!("{name} can't be read: {error}"));
    let mut names = Vec::new();
    for entry in fs::read_dir(step::root().join("docs")).map_err(|error| unreadable("docs", error))? {
        let name = entry.map_err(|error| unreadable("docs", error))?.file_name();
        names.extend(name.to_str().filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")));
    }
    names.sort();
    names.insert(0, README.into());
    let read = |name: String| {
        let text = fs::read_to_string(step::root().join(&name)).map_err(|error| unreadable(&name, error))?;
        let commands = commands::of(&text).map_err(|fault| Failure::Step(format!("{name}:{fault}")))?;
        Ok((name, commands))
    };
    names.into_iter().map(read).collect()
}

/// Whether the README has the commands that must be there.
fn required(commands: &[Shown]) -> Result<(), String> {
    for needed in REQUIRED {
        if !commands.iter().any(|shown| shown.command == needed) {
            return Err(format!(
                "README.md: the command `{needed}` is gone: write the line `$ {needed}` in a block marked \
                 `console`"
            ));
        }
    }
    Ok(())
}

fn tools_of<'a>(commands: impl Iterator<Item = &'a Shown> + Clone) -> Vec<Tool> {
    let uses = |tool: &Tool| {
        commands.clone().any(|shown| shown.command.split_whitespace().any(|word| word == tool.command))
    };
    TOOLS.into_iter().filter(uses).collect()
}

fn follow_all(commands: &[Shown]) -> Done {
    // Ended last: a server that lost its store before would say so.
    let mut stores = Vec::new();
    let mut server = None;
    for shown in commands {
        if let Some(port) = store_port(&shown.command) {
            stores.push(Server::start(&shown.command, &[server::loopback(port)])?);
        } else if is_serve(&shown.command) {
            server.take().map_or(Ok(()), Server::stop)?;
            server = Some(Server::start(&shown.command, &server::DEFAULT_ADDRESSES)?);
        } else {
            follow(shown)?;
        }
    }
    server.map_or(Ok(()), Server::stop)
}

fn is_serve(command: &str) -> bool {
    command.strip_prefix(SERVE).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Where a command that starts a store has it listen.
fn store_port(command: &str) -> Option<u16> {
    let port = command.strip_prefix(STORE)?.split(' ').next()?;
    port.parse().ok()
}

fn follow(shown: &Shown) -> Done {
    match shown.command.as_str() {
        QUICKSTART => quickstart(&shown.output),
        TEST => {
            step::announce(TEST);
            step::note("skipped: a step of its own in CI");
            Ok(())
        }
        command => verify(shown, &step::capture_in_shell(command)?),
    }
}

fn verify(shown: &Shown, printed: &str) -> Done {
    output::verify(&shown.output, printed)
        .map_err(|fault| Failure::Step(format!("`{}` {fault}", shown.command)))
}

/// Five pass, two are denied and told when to come back, and whoever then comes back passes.
fn quickstart(output: &[String]) -> Done {
    let printed = step::capture_in_shell(QUICKSTART)?;
    let seconds = answers::verify_quickstart(&printed).map_err(Failure::Step)?;
    output::verify(output, &printed).map_err(Failure::Step)?;
    step::note(&format!("five passed, two were denied; waiting the {seconds} s that they were told"));
    time::wait(Duration::from_secs(seconds));
    let printed = step::capture_in_shell("curl -si localhost:8080/")?;
    answers::verify_return(&printed).map_err(Failure::Step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme(commands: &[&str]) -> Vec<Shown> {
        let lines: String = commands.iter().map(|command| format!("$ {command}\n")).collect();
        commands::of(&format!("# slidegate\n\n```console\n{lines}```\n")).unwrap()
    }

    #[test]
    fn a_readme_that_lost_a_required_command_is_told_which() {
        assert_eq!(required(&readme(&REQUIRED)), Ok(()));
        for lost in REQUIRED {
            let rest: Vec<&str> = REQUIRED.into_iter().filter(|command| *command != lost).collect();
            let fault = required(&readme(&rest)).unwrap_err();
            assert!(fault.starts_with(&format!("README.md: the command `{lost}` is gone: write")), "{fault}");
        }
    }

    #[test]
    fn a_command_that_only_resembles_a_required_one_does_not_count() {
        let commands = readme(&["cargo run --release -- serve --config mine.yaml", QUICKSTART, TEST]);
        assert!(required(&commands).unwrap_err().contains(SERVE));
    }

    #[test]
    fn a_server_is_started_with_any_configuration() {
        assert!(is_serve(SERVE));
        assert!(is_serve("cargo run --release -- serve --config examples/gateway.yaml"));
        assert!(!is_serve("cargo run --release -- server"));
        assert!(!is_serve("cargo run --release -- validate examples/gateway.yaml"));
    }

    #[test]
    fn a_store_is_started_where_its_command_says() {
        assert_eq!(store_port("redis-server --port 6390 --save ''"), Some(6390));
        assert_eq!(store_port("redis-server --port 6390"), Some(6390));
        assert_eq!(store_port("redis-server --port none"), None);
        assert_eq!(store_port("redis-cli -p 6390 shutdown"), None);
    }

    #[test]
    fn only_tools_that_a_command_names_are_asked_for() {
        let tools = |command: &str| tools_of(readme(&[command]).iter());
        assert_eq!(tools(QUICKSTART), [CURL]);
        assert_eq!(tools("wrk -t2 -c64 http://localhost:8080/"), [WRK]);
        assert_eq!(tools("redis-server --port 6390"), [REDIS]);
        assert_eq!(tools("cargo build"), []);
    }

    /// The commands themselves run in `cargo xtask readme`.
    #[test]
    fn the_commands_of_the_documents_can_be_read() {
        let documents = documents().unwrap();
        assert_eq!(documents[0].0, README);
        assert_eq!(required(&documents[0].1), Ok(()));
    }
}
