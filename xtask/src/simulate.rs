//! `cargo xtask simulate`: worlds on virtual time, each from a seed; `docs/simulation.md` says what is in them.

use crate::step::{self, Done, Failure};

/// What may be asked for, with a value each; and what stands alone.
const WITH_VALUE: [&str; 4] = ["--seeds", "--from", "--seed", "--broken"];
const ALONE: &str = "--scale";

pub(crate) fn run(args: &[String]) -> Done {
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let known = WITH_VALUE.contains(&word.as_str());
        if word != ALONE && (!known || words.next().is_none()) {
            return Err(Failure::Usage(format!(
                "`{word}` is not understood here: simulate [--seeds N] [--from S] [--seed X] [--broken NAME] [--scale]"
            )));
        }
    }
    let args: String = args.iter().map(|arg| format!(" {arg}")).collect();
    step::run(&format!("cargo run --quiet --release --package slidegate-sim --{args}"))
}
