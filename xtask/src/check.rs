//! `cargo xtask check`: everything that can be said without running the product.
//!
//! All of it runs even when a part fails: one call shows all there is to repair.

use crate::step::{self, Done, Failure};
use crate::usage;

/// A part of the check: its command, and what it needs in the environment.
struct Part {
    line: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

const STRICT_DOCS: &[(&str, &str)] = &[("RUSTDOCFLAGS", "-D warnings")];

/// The library twice, as its developers see it and as its users do: only the second finds public pages that
/// link to private items. The server apart, as it is out of `cargo doc`: a binary named as the library is
/// would be written over the library's pages. Of a binary, private items are always documented.
const PARTS: [Part; 5] = [
    Part { line: "cargo fmt --all -- --check", variables: &[] },
    Part { line: "cargo clippy --workspace --all-targets --all-features -- -D warnings", variables: &[] },
    Part { line: "cargo doc --package slidegate-server --bin slidegate --no-deps", variables: STRICT_DOCS },
    Part {
        line: "cargo doc --workspace --no-deps --all-features --document-private-items",
        variables: STRICT_DOCS,
    },
    Part { line: "cargo doc --workspace --no-deps --all-features", variables: STRICT_DOCS },
];

/// Without `advisories`: those need a database from the network, and news there is no fault of a change.
const DENY: &str = "cargo deny check bans licenses sources";

pub(crate) fn run(args: &[String]) -> Done {
    usage::no_arguments(args, "check takes no arguments; to format, run `cargo fmt --all`")?;
    let mut failures: Vec<String> = PARTS
        .iter()
        .filter_map(|part| step::run_with(part.line, part.variables).err())
        .map(|failure| failure.to_string())
        .collect();
    if step::answers("cargo deny --version") {
        failures.extend(step::run(DENY).err().map(|failure| failure.to_string()));
    } else {
        step::announce(DENY);
        step::note("skipped: cargo-deny is not installed (`cargo install cargo-deny --locked`)");
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Step(failures.join("\n       "))) }
}
