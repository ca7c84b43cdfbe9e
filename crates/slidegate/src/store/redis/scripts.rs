//! The scripts: Lua twins of the algorithms in [`slidegate_core::algorithm`], put together from the parts that
//! they share, and known to servers by their SHA-1.
//!
//! Parts are joined as text because a script can't load another. Comments and indentation are left out of
//! what is sent: a server that lost its scripts is sent the text once more, by every instance.

use std::sync::LazyLock;

use super::link::Script;

macro_rules! script {
    ($($part:literal)+) => {
        LazyLock::new(|| assemble(&[$(include_str!(concat!("scripts/", $part, ".lua"))),+]))
    };
}

/// Decides checks.
pub(super) static CHECK: LazyLock<Script> = script!(
    "call" "plain" "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "check"
);

/// Gives back, or charges more.
pub(super) static SETTLE: LazyLock<Script> = script!(
    "call" "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "settle"
);

/// Empties counters.
pub(super) static RESET: LazyLock<Script> = script!(
    "call" "prelude" "tick_log" "sorted_log" "fixed_window" "bucket" "states" "reset"
);

/// Says that an instance is there.
pub(super) static BEAT: LazyLock<Script> = script!("beat");

fn assemble(parts: &[&str]) -> Script {
    let mut text = String::new();
    for line in parts.iter().flat_map(|part| part.lines()).map(str::trim) {
        if !line.is_empty() && !line.starts_with("--") {
            text.push_str(line);
            text.push('\n');
        }
    }
    let sha = sha1_smol::Sha1::from(&text).digest().to_string();
    Script { sha, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed script is a changed promise to the other instances of a rolling upgrade: CHANGELOG.md says
    /// what changed, and this test what it is now.
    #[test]
    fn digests_are_pinned() {
        let digests = [&CHECK, &SETTLE, &RESET].map(|script| script.sha.as_str());
        assert_eq!(digests, ["", "", ""]);
    }

    /// Whatever Lua writes for a large number must never reach a key or a command: only `%.0f` does.
    #[test]
    fn comments_are_not_sent() {
        assert!(!CHECK.text.contains("\n--") && CHECK.text.contains("redis.call"));
    }
}
