//! `cargo xtask failure [BAR...]` and `cargo xtask soak --minutes N`: what real failures do to eight real processes,
//! at full length, as the table in docs/failure.md. Slices of it are among the tests.

use crate::step::{self, Done, Failure};
use crate::tools::{self, FAKETIME, REDIS};
use crate::usage;

/// Its tests are run one after another, alone on the machine, optimised: they measure.
const TESTS: &str = "cargo test --release --package slidegate-server --test failure --";
const ALONE: &str = "--ignored --nocapture --test-threads=1";

/// What each bar's tests are.
const BARS: [(&str, &str); 6] = [
    ("r1", "kill::r1"),
    ("r2", "planned::r2"),
    ("r3", "silence::r3"),
    ("r6", "clocks::r6"),
    ("r10", "rolling::r10"),
    ("r12", ""),
];

/// Runs the bars that are named, or all of them, and prints their rows once more at the end.
pub(crate) fn run(args: &[String]) -> Done {
    let names = || BARS.iter().map(|(name, _)| *name).chain(["all"]);
    if let Some(unknown) = args.iter().find(|arg| names().all(|name| name != **arg)) {
        return Err(Failure::Usage(usage::unknown("bar", unknown, names())));
    }
    let all = args.is_empty() || args.iter().any(|arg| arg == "all");
    tools::ensure(&[REDIS, FAKETIME])?;
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for (name, tests) in BARS.iter().filter(|(name, _)| all || args.iter().any(|arg| arg == name)) {
        if *name == "r12" {
            // The next format is an option of the library's tests, and of no binary.
            step::run("cargo test --release --package slidegate --test redis_exact upgrades")?;
            continue;
        }
        let outcome = step::rows_of(&format!("{TESTS} {tests} {ALONE}"))?;
        rows.extend(outcome.rows);
        if !outcome.is_success {
            missed.push(*name);
        }
    }
    print(&rows);
    if missed.is_empty() { Ok(()) } else { Err(Failure::Step(format!("missed: {}", missed.join(", ")))) }
}

/// Runs the soak for so many minutes, 30 without `--minutes`.
pub(crate) fn soak(args: &[String]) -> Done {
    let minutes = match args {
        [] => "30",
        [flag, minutes] if flag == "--minutes" && minutes.parse::<u64>().is_ok_and(|count| count > 0) => {
            minutes
        }
        _ => return Err(Failure::Usage("write `cargo xtask soak --minutes 30`".to_owned())),
    };
    tools::ensure(&[REDIS])?;
    step::run_with(&format!("{TESTS} soak::r11 {ALONE}"), &[("SOAK_MINUTES", minutes)])
}

fn print(rows: &[String]) {
    println!("\n| bar | what was done | figure | measured | wanted |\n|---|---|---|---|---|");
    for row in rows {
        println!("{row}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn a_bar_that_is_none_is_told_before_anything_runs() {
        let failure = run(&words("r1 r4x")).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().starts_with("no bar `r4x`"), "{failure}");
    }

    #[test]
    fn a_soak_of_no_length_is_refused() {
        for line in ["--minutes", "--minutes 0", "30"] {
            assert_eq!(soak(&words(line)).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
