//! `cargo xtask test`: every test there is, after installing what they need.

use crate::step::{self, Done};
use crate::tools::{self, FAKETIME, GIT, REDIS};
use crate::{servers, usage};

pub(crate) fn run(args: &[String]) -> Done {
    usage::no_arguments(
        args,
        "test takes no arguments; for one test, run `cargo test --package CRATE NAME`",
    )?;
    // `tidy` asks git which files there are.
    tools::ensure(&[FAKETIME, GIT, REDIS])?;
    servers::ensure()?;
    // One run shows all there is to repair, not only the first crate's share of it.
    step::run("cargo test --workspace --all-features --no-fail-fast")
}
