use std::fs;
use std::process::Command;

use super::*;
use crate::step;

#[test]
fn the_repository_is_tidy() {
    let tracked = tracked();
    assert!(tracked.len() > 20, "git knows only {} files", tracked.len());
    let files: Vec<File<'_>> = tracked.iter().map(|(path, text)| File { path, text }).collect();
    let findings = findings(&files);
    let list: String = findings.iter().map(|finding| format!("\n{finding}")).collect();
    assert!(findings.is_empty(), "{} to repair:{list}\n", findings.len());
}

/// The text files that git tracks. Those just deleted are on their way out, and bytes are nobody's prose.
fn tracked() -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(step::root())
        .output()
        .expect("git is needed: `cargo xtask test` installs it");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git ls-files: {complaint}");
    String::from_utf8(output.stdout)
        .unwrap()
        .split_terminator('\0')
        .filter_map(|path| {
            let bytes = fs::read(step::root().join(path)).ok()?;
            let text =
                if bytes.contains(&0) { String::new() } else { String::from_utf8_lossy(&bytes).into_owned() };
            Some((path.to_owned(), text))
        })
        .collect()
}

/// What is found in one file, among others that it may link to.
fn found(path: &str, text: &str) -> Vec<String> {
    let other = |path| File { path, text: "" };
    let files = [File { path, text }, other("LICENSE"), other("docs/redis.md"), other("docs/img/p9.svg")];
    findings(&files).iter().map(ToString::to_string).filter(|finding| finding.starts_with(path)).collect()
}

fn lines(first: &str, count: usize) -> String {
    format!("{first}\n{}", "\n".repeat(count - 1))
}

#[test]
fn a_file_may_be_as_long_as_its_kind_allows_and_no_longer() {
    for (path, max) in [("src/a.rs", 600), ("src/a.lua", 600), ("src/a/tests.rs", 900)] {
        assert_eq!(found(path, &lines("//! A doc.", max)), [""; 0]);
        assert_eq!(
            found(path, &lines("//! A doc.", max + 1)),
            [format!("{path}:{}: {} lines where {max} are allowed: split the file", max + 1, max + 1)]
        );
    }
    assert_eq!(found("docs/long.md", &lines("Prose.", 2000)), [""; 0]);
}

#[test]
fn unfinished_work_is_found_in_sources_and_whole_words_only() {
    for call in UNFINISHED_CALLS.iter().chain(&UNFINISHED_WORDS) {
        for path in ["src/a.rs", "src/a.lua", "examples/a.yaml"] {
            let text = format!("//! A doc.\n\nlet a = {call} 1);\n");
            let expected = format!("{path}:3: `{call}` is unfinished work: finish it, or file an issue");
            assert_eq!(found(path, &text), [expected]);
        }
    }
    let longer = UNFINISHED_WORDS.map(|word| format!("// A{word} {word}_S")).join("\n");
    assert_eq!(found("src/a.rs", &format!("//! A doc.\n{longer}\n")), [""; 0]);
}

#[test]
fn sleeping_is_found_where_tests_are() {
    let reason = "a test that sleeps: use virtual time, or wait for the condition itself";
    let ways = [
        concat!("std::thread::", "sleep(second);"),
        concat!("tokio::time::", "sleep(second).await;"),
        concat!("use tokio::", "time::{Duration, sleep};"),
    ];
    for way in ways {
        let inline = format!("//! A doc.\n{way}\n\n#[cfg(test)]\nmod tests {{\n    {way}\n}}\n");
        assert_eq!(found("src/a.rs", &inline), [format!("src/a.rs:6: {reason}")]);
        let whole = format!("//! A doc.\n// {way}\n{way}\n");
        for path in ["src/a/tests.rs", "tests/gateway.rs", "crates/a/tests/common/mod.rs"] {
            assert_eq!(found(path, &whole), [format!("{path}:3: {reason}")]);
        }
        let child = format!("//! A doc.\n#[cfg(test)]\nmod tests;\n{way}\n");
        assert_eq!(found("src/a.rs", &child), [""; 0]);
    }
}

#[test]
fn a_rust_file_begins_by_saying_what_it_is() {
    let expected = "src/a.rs:1: does not begin with a `//!` doc that says what the file is";
    for text in ["", "use std::fmt;\n", "// A comment.\n", "\n//! Too late.\n"] {
        assert_eq!(found("src/a.rs", text), [expected], "{text:?}");
    }
    assert_eq!(found("src/a.rs", "//! A doc.\n"), [""; 0]);
    assert_eq!(found("src/a/tests.rs", "use super::*;\n"), [""; 0]);
}

#[test]
fn links_lead_to_tracked_files() {
    let good = "[a](redis.md), [b](redis.md#scripts), [c](../LICENSE \"title\"), [d](../docs/), [e](/LICENSE)\n\
                [f](#here) [g](https://example.com/x) ![h](img/p9.svg) <img src=\"img/p9.svg\"> [i](../)\n\
                `[j](gone.md)` and ``[k](gone.md) ` ``\n\
                [l]: redis.md\n[^m]: a footnote [n]: gone\n\
                ```md\n[o](gone.md)\n```\n\
                [`p`](redis.md)\n";
    assert_eq!(found("docs/a.md", good), [""; 0]);
    for (link, target) in [
        ("[a](gone.md)", "gone.md"),
        ("[a](redis.md) and [b](gone.md#part)", "gone.md#part"),
        ("[`a`](gone.md)", "gone.md"),
        ("![a](img/gone.svg)", "img/gone.svg"),
        ("<a href=\"gone/\">a</a>", "gone/"),
        ("[a]: gone.md", "gone.md"),
        ("[a](../../LICENSE)", "../../LICENSE"),
        ("[a](LICENSE)", "LICENSE"),
    ] {
        assert_eq!(
            found("docs/a.md", &format!("Text.\n\n```text\n```\n{link}\n")),
            [format!("docs/a.md:5: the link `{target}` leads to no tracked file")]
        );
    }
}

#[test]
fn lines_end_with_lf_and_nothing_before_it() {
    assert_eq!(found("a.txt", "one\n\ntwo\n"), [""; 0]);
    assert_eq!(
        found("a.txt", "one \ntwo\t\nthree\r\n"),
        [
            "a.txt:1: blanks at the end of the line",
            "a.txt:2: blanks at the end of the line",
            "a.txt:3: ends with CR LF: lines end with LF alone",
        ]
    );
    assert_eq!(found("a.snap", "  | \n"), [""; 0]);
}

#[test]
fn paths_of_one_machine_are_found_and_longer_paths_are_not() {
    for path in MACHINE_PATHS {
        let expected = format!("docs/a.md:1: `{path}` is a path of one machine: make it relative");
        for text in [format!("see {path}a"), format!("`{path}a`"), format!("file://{path}a")] {
            assert_eq!(found("docs/a.md", &text), [expected.as_str()], "{text}");
        }
        for text in [format!("https://example.com{path}a"), format!(".{path}a"), format!("a{path}a")] {
            assert_eq!(found("docs/a.md", &text), [""; 0], "{text}");
        }
    }
}

#[test]
fn findings_are_told_in_the_order_of_their_places() {
    let files = [File { path: "b.rs", text: "x \n" }, File { path: "a.txt", text: "x\nx \n" }];
    let places: Vec<_> = findings(&files).into_iter().map(|finding| (finding.path, finding.line)).collect();
    assert_eq!(places, [("a.txt".into(), 2), ("b.rs".into(), 1), ("b.rs".into(), 1)]);
}
