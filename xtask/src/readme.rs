//! `cargo xtask readme`: does what the README tells a stranger to do, and verifies what it shows them.
//!
//! A fenced block marked `console` is run: its lines that begin with `$ ` are commands, the rest is what a
//! person may expect to see and is not compared. Commands run one after another, in `sh`, at the root; the
//! server started by one of them stays up for those after it. Blocks with any other mark are only read.

use std::fs;
use std::time::Duration;

use crate::step::{self, Done, Failure};
use crate::time;
use crate::tools::{self, CURL, Tool, WRK};
use crate::usage;
use server::Server;

mod answers;
mod commands;
mod server;

/// Starts the server. Run as it stands, so that its process is the server's.
const SERVE: &str = "cargo run --release -- serve";
/// The quickstart: one more request than is let through, and another.
const QUICKSTART: &str = "for i in $(seq 7); do curl -si localhost:8080/; done";
/// Runs as a step of its own in CI, and would run this command's own tests again.
const TEST: &str = "cargo xtask test";

/// What a stranger needs in the first minute; a README without it is broken.
const REQUIRED: [&str; 3] = [SERVE, QUICKSTART, TEST];

/// Programs that commands of the README may use.
const TOOLS: [Tool; 2] = [CURL, WRK];

pub(crate) fn run(args: &[String]) -> Done {
    usage::no_arguments(args, "readme takes no arguments; it always runs README.md")?;
    let text = fs::read_to_string(step::root().join("README.md"))
        .map_err(|error| Failure::Step(format!("README.md can't be read: {error}")))?;
    let commands = required(&text).map_err(Failure::Step)?;
    tools::ensure(&tools_of(&commands))?;
    // Apart from starting it, so that a build that takes minutes can't be mistaken for a server that hangs.
    step::run("cargo build --release")?;
    let mut server = None;
    for command in &commands {
        follow(command, &mut server)?;
    }
    server.map_or(Ok(()), Server::stop)
}

/// The README's commands, if none is missing that must be there.
fn required(text: &str) -> Result<Vec<String>, String> {
    let commands = commands::of(text).map_err(|fault| format!("README.md:{fault}"))?;
    for needed in REQUIRED {
        if !commands.iter().any(|command| command == needed) {
            return Err(format!(
                "README.md: the command `{needed}` is gone: write the line `$ {needed}` in a block marked \
                 `console`"
            ));
        }
    }
    Ok(commands)
}

fn tools_of(commands: &[String]) -> Vec<Tool> {
    let uses = |tool: &Tool| {
        commands.iter().any(|command| command.split_whitespace().any(|word| word == tool.command))
    };
    TOOLS.into_iter().filter(uses).collect()
}

fn follow(command: &str, server: &mut Option<Server>) -> Done {
    match command {
        SERVE => {
            *server = Some(Server::start(SERVE, &server::DEFAULT_ADDRESSES)?);
            Ok(())
        }
        QUICKSTART => quickstart(),
        TEST => {
            step::announce(TEST);
            step::note("skipped: a step of its own in CI");
            Ok(())
        }
        other => step::run_in_shell(other),
    }
}

/// Five pass, two are denied and told when to come back, and whoever then comes back passes.
fn quickstart() -> Done {
    let shown = step::capture_in_shell(QUICKSTART)?;
    let seconds = answers::verify_quickstart(&shown).map_err(Failure::Step)?;
    step::note(&format!("five passed, two were denied; waiting the {seconds} s that they were told"));
    time::wait(Duration::from_secs(seconds));
    let shown = step::capture_in_shell("curl -si localhost:8080/")?;
    answers::verify_return(&shown).map_err(Failure::Step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme(commands: &[&str]) -> String {
        let lines: String = commands.iter().map(|command| format!("$ {command}\n")).collect();
        format!("# slidegate\n\n```console\n{lines}```\n")
    }

    #[test]
    fn a_readme_that_lost_a_required_command_is_told_which() {
        assert_eq!(required(&readme(&REQUIRED)).unwrap(), REQUIRED);
        for lost in REQUIRED {
            let rest: Vec<&str> = REQUIRED.into_iter().filter(|command| *command != lost).collect();
            let fault = required(&readme(&rest)).unwrap_err();
            assert!(fault.starts_with(&format!("README.md: the command `{lost}` is gone: write")), "{fault}");
        }
    }

    #[test]
    fn a_command_that_only_resembles_a_required_one_does_not_count() {
        let text = readme(&["cargo run --release -- serve --config mine.yaml", QUICKSTART, TEST]);
        assert!(required(&text).unwrap_err().contains(SERVE));
    }

    #[test]
    fn only_tools_that_a_command_names_are_asked_for() {
        let tools = |command: &str| tools_of(&[command.to_owned()]);
        assert_eq!(tools(QUICKSTART), [CURL]);
        assert_eq!(tools("wrk -t2 -c64 http://localhost:8080/"), [WRK]);
        assert_eq!(tools("cargo build"), []);
    }
}
