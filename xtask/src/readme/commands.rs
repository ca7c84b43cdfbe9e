//! Finds the commands of a Markdown text: the `$ ` lines of its fenced blocks marked `console`.
//!
//! ````text
//! ```console
//! $ a command that goes on \
//!     in the next line
//! what it prints
//! ```
//! ````
//!
//! A shell command in a block of another kind would look as if it had been tried: such blocks are refused.

use std::iter::{Enumerate, Peekable};
use std::str::Lines;

const MARK: &str = "console";
const PROMPT: &str = "$ ";

/// Marks that people use for commands.
const NOT_RUN: [&str; 5] = ["sh", "bash", "shell", "zsh", "shell-session"];

type Numbered<'a> = Peekable<Enumerate<Lines<'a>>>;

/// A command, and the lines that are shown below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// All commands in order. A fault begins with the number of its line.
pub(super) fn of(markdown: &str) -> Result<Vec<Shown>, String> {
    let mut lines = markdown.lines().enumerate().peekable();
    let mut commands = Vec::new();
    while let Some((index, line)) = lines.next() {
        let Some((fence, mark)) = opening(line) else {
            continue;
        };
        let found = block(&mut lines, fence)
            .ok_or_else(|| format!("{}: the block that begins here has no end", index + 1))?;
        if NOT_RUN.contains(&mark) {
            return Err(format!(
                "{}: a block marked `{mark}` is not run: mark it `{MARK}` and begin its commands with `{PROMPT}`, \
                 or mark it `text` if they must not run",
                index + 1
            ));
        }
        if mark != MARK {
            continue;
        }
        if found.is_empty() {
            return Err(format!(
                "{}: a block marked `{MARK}` is run, and this one has no command: begin it with `{PROMPT}`, or \
                 mark the block `text`",
                index + 1
            ));
        }
        commands.extend(found);
    }
    Ok(commands)
}

/// The fence and the mark of a line that opens a block.
fn opening(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let mark = line.trim_start_matches('`');
    let fence = &line[..line.len() - mark.len()];
    // Three backquotes or more in front of text that holds some are code within a line.
    (fence.len() >= 3 && !mark.contains('`')).then_some((fence, mark.trim()))
}

/// Reads on to the end of a block and returns its commands; `None` if it doesn't end.
fn block(lines: &mut Numbered<'_>, fence: &str) -> Option<Vec<Shown>> {
    let mut commands: Vec<Shown> = Vec::new();
    loop {
        let (_, line) = lines.next()?;
        let line = line.trim();
        if line.starts_with(fence) && line.trim_start_matches('`').is_empty() {
            return Some(commands);
        }
        let Some(command) = line.strip_prefix(PROMPT) else {
            commands.last_mut().into_iter().for_each(|shown| shown.output.push(line.to_owned()));
            continue;
        };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            command.pop();
            let (_, more) = lines.next()?;
            command.push_str(more.trim_start());
        }
        commands.push(Shown { command, output: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_prompted_lines_of_console_blocks_in_order() {
        let text = "Say:\n```console\n$ one\nits output\n$ two \\\n    and more\n```\n\
                    ```text\n$ not this\n```\nand `$ nor that`\n\n   ```console\n   $ three\n   ```\n";
        let shown = |command: &str, output: &[&str]| Shown {
            command: command.into(),
            output: output.iter().map(ToString::to_string).collect(),
        };
        let expected = [shown("one", &["its output"]), shown("two and more", &[]), shown("three", &[])];
        assert_eq!(of(text).unwrap(), expected);
    }

    #[test]
    fn commands_that_only_look_as_if_they_were_run_are_refused_with_their_line() {
        let fault = of("text\n\n```sh\ncargo build\n```\n").unwrap_err();
        assert!(fault.starts_with("3: a block marked `sh` is not run: mark it `console`"), "{fault}");
    }

    #[test]
    fn a_block_inside_a_longer_fence_is_only_shown() {
        assert_eq!(of("````text\n```console\n$ shown\n```\n````\n"), Ok(Vec::new()));
    }

    #[test]
    fn a_console_block_without_a_command_is_refused_with_its_line() {
        let fault = of("text\n\n```console\ncargo xtask test\n```\n").unwrap_err();
        assert_eq!(
            fault,
            "3: a block marked `console` is run, and this one has no command: begin it with `$ `, or mark the \
             block `text`"
        );
    }

    #[test]
    fn a_block_without_end_is_refused_with_its_line() {
        for text in ["\n```console\n$ one\n", "\n```console\n$ one \\\n", "\n```\n"] {
            assert_eq!(of(text).unwrap_err(), "2: the block that begins here has no end", "{text:?}");
        }
    }
}
