//! `cargo xtask test`: every test there is, after installing what they need.

use crate::step::{self, Done};
use crate::tools::{self, GIT};
use crate::usage;

pub(crate) fn run(args: &[String]) -> Done {
    usage::no_arguments(
        args,
        "test takes no arguments; for one test, run `cargo test --package CRATE NAME`",
    )?;
    // `tidy` asks git which files there are.
    tools::ensure(&[GIT])?;
    step::run("cargo test --workspace --all-features")
}
