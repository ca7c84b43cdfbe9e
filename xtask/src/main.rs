//! What a contributor types, as `cargo xtask VERB`. Each verb is a file of its own, and an entry in
//! [`verbs::VERBS`].
//!
//! Not a build system: a verb runs the commands that a contributor would type, and prints them, so that each
//! can be typed alone. Exit codes: 0 done, 1 a step failed, 2 the command line can't be understood.

mod bench;
mod check;
mod failure;
mod readme;
mod servers;
mod simulate;
mod step;
mod test;
#[cfg(test)]
mod tidy;
mod time;
mod tools;
mod usage;
mod verbs;

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match verbs::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
