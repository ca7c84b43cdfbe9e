//! The scripts: Lua twins of the algorithms in [`slidegate_core::algorithm`], put together from the parts that
//! they share, and known to servers by their SHA-1.
//!
//! Parts are joined as text because a script can't load another. Comments and indentation are left out of
//! what is sent: a server that lost its scripts is sent the text once more, by every instance.

use std::sync::LazyLock;

use super::link::Script;

/// The format of counters that this release introduced, the first byte of each value; the scripts name it too.
pub(super) const FORMAT: u8 = 1;

macro_rules! script {
    ($($part:literal)+) => {
        LazyLock::new(|| assemble(&[$(include_str!(concat!("scripts/", $part, ".lua"))),+]))
    };
}

/// Decides checks.
pub(super) static CHECK: LazyLock<Script> = script!(
    "call" "plain/each" "plain/tick_log" "plain/sorted_log" "plain/values" "plain/done"
    "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "check"
);

/// Gives back, or charges more.
pub(super) static SETTLE: LazyLock<Script> = script!(
    "call" "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "settle"
);

/// Empties counters.
pub(super) static RESET: LazyLock<Script> = script!(
    "call" "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "reset"
);

/// `CHECK`, `SETTLE` and `RESET` of a release to come, whose only difference is that it has introduced the next
/// format: for tests of upgrades.
static NEXT: LazyLock<[Script; 3]> = LazyLock::new(|| [&CHECK, &SETTLE, &RESET].map(next));

/// Says that an instance is there.
pub(super) static BEAT: LazyLock<Script> = script!("beat");

/// `CHECK`, `SETTLE` and `RESET` of the release that introduced a format: this one, but in tests of upgrades.
pub(super) fn of(newest: u8) -> [&'static Script; 3] {
    if newest > FORMAT { NEXT.each_ref() } else { [&CHECK, &SETTLE, &RESET] }
}

fn assemble(parts: &[&str]) -> Script {
    let mut text = String::new();
    for line in parts.iter().flat_map(|part| part.lines()).map(str::trim) {
        if !line.is_empty() && !line.starts_with("--") {
            text.push_str(line);
            text.push('\n');
        }
    }
    named(text)
}

fn named(text: String) -> Script {
    let sha = sha1_smol::Sha1::from(&text).digest().to_string();
    Script { sha, text }
}

fn next(script: &LazyLock<Script>) -> Script {
    let line = |format: u8| format!("local NEWEST = {format} ");
    let text = script.text.replace(&line(FORMAT), &line(FORMAT + 1));
    assert_ne!(text, script.text, "a script that names its format");
    named(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed script is a changed promise to the other instances of a rolling upgrade: CHANGELOG.md says
    /// what changed, and this test what it is now.
    #[test]
    fn digests_are_pinned() {
        let digests = [&CHECK, &SETTLE, &RESET].map(|script| script.sha.as_str());
        assert_eq!(
            digests,
            [
                "e2de2e76a5ac02e2f5903754fbcc331a22499690",
                "b93e17b7addb6b0213b63a21154801e16df571df",
                "d0e80c8392bd0c00b4b62bac01c55b75b210cd4c",
            ]
        );
    }

    #[test]
    fn the_scripts_read_the_format_of_this_release() {
        for script in [&CHECK, &SETTLE, &RESET] {
            assert!(script.text.contains(&format!("local NEWEST = {FORMAT} ")));
        }
    }

    /// Whatever Lua writes for a large number must never reach a key or a command: only `%.0f` does.
    #[test]
    fn comments_are_not_sent() {
        assert!(!CHECK.text.contains("\n--") && CHECK.text.contains("redis.call"));
    }
}
