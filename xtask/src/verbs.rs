//! The verbs, what each is for, and how one is chosen.

use std::fmt::Write as _;

use crate::step::{Done, Failure};
use crate::{bench, check, failure, readme, simulate, test, usage};

/// Something that `cargo xtask` can be told to do.
pub(crate) struct Verb {
    name: &'static str,
    summary: &'static str,
    /// Is given the arguments after the verb.
    run: fn(&[String]) -> Done,
}

/// In the order in which a change meets them.
pub(crate) const VERBS: [Verb; 7] = [
    Verb {
        name: "check",
        summary: "formatting, clippy, docs, licences: all that needs no run",
        run: check::run,
    },
    Verb { name: "test", summary: "all tests of the workspace, doc examples included", run: test::run },
    Verb {
        name: "readme",
        summary: "runs the commands of README.md and docs/, and verifies what they show",
        run: readme::run,
    },
    Verb {
        name: "simulate",
        summary: "[--seeds N] [--seed X] [--scale]: worlds on virtual time, each from a seed, held to every promise",
        run: simulate::run,
    },
    Verb {
        name: "failure",
        summary: "[r1|r2|r3|r6|r10|r12|all]: real failures at full length, and the table of what they did",
        run: failure::run,
    },
    Verb {
        name: "soak",
        summary: "[--minutes 30]: mixed failures, and what grew meanwhile",
        run: failure::soak,
    },
    Verb { name: "bench", summary: "NAME...: runs benchmarks; without a name, lists them", run: bench::run },
];

/// Runs the verb that `args` begin with; without one, says which there are.
pub(crate) fn run(args: &[String]) -> Done {
    let Some((name, rest)) = args.split_first() else {
        println!("{}", help());
        return Ok(());
    };
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{}", help());
        return Ok(());
    }
    match VERBS.iter().find(|verb| verb.name == name) {
        Some(verb) => (verb.run)(rest),
        None => Err(Failure::Usage(usage::unknown("verb", name, VERBS.iter().map(|verb| verb.name)))),
    }
}

fn help() -> String {
    let mut text = String::from("Usage: cargo xtask VERB\n\nVerbs:\n");
    for verb in &VERBS {
        let _ = writeln!(text, "  {:<8} {}", verb.name, verb.summary);
    }
    text.push_str("\nOne test alone: cargo test --package CRATE NAME");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    fn refusal(line: &str) -> (u8, String) {
        let failure = run(&words(line)).unwrap_err();
        (failure.exit_code(), failure.to_string())
    }

    #[test]
    fn a_mistyped_verb_is_told_the_nearest_and_exits_with_2() {
        assert_eq!(refusal("tset"), (2, "no verb `tset`: did you mean `test`?".into()));
        assert_eq!(refusal("bnch memory"), (2, "no verb `bnch`: did you mean `bench`?".into()));
    }

    #[test]
    fn a_word_like_no_verb_is_told_them_all() {
        let expected = "no verb `deploy`: there are check, test, readme, simulate, failure, soak, bench";
        assert_eq!(refusal("deploy"), (2, expected.into()));
    }

    #[test]
    fn arguments_that_a_verb_would_ignore_are_refused() {
        for line in ["check --fix", "test my_test", "readme other.md"] {
            let (code, message) = refusal(line);
            assert_eq!(code, 2, "{line}");
            assert!(message.contains("is not understood here"), "{line}: {message}");
        }
    }

    #[test]
    fn help_has_one_line_for_each_verb() {
        let help = help();
        for verb in &VERBS {
            let own = help.lines().filter(|line| line.trim_start().starts_with(verb.name));
            assert_eq!(own.count(), 1, "{}", verb.name);
        }
        assert_eq!(run(&words("test --help")), Ok(()));
        assert_eq!(run(&[]), Ok(()));
    }
}
