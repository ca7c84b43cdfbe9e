//! What those who mistyped are told.

use crate::step::{Done, Failure};

/// The most slips of the fingers (a letter wrong, missing, added, or two swapped) that still count as the
/// same word. Three would make `bench` a spelling of `check`.
const SLIPS_MAX: usize = 2;

/// The message for a word that is none of `known`, with the one that was probably meant.
pub(crate) fn unknown<'a>(kind: &str, word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let nearest = known
        .clone()
        .map(|name| (strsim::damerau_levenshtein(name, word), name))
        .filter(|(slips, _)| *slips <= SLIPS_MAX)
        .min();
    match nearest {
        Some((_, name)) => format!("no {kind} `{word}`: did you mean `{name}`?"),
        None => format!("no {kind} `{word}`: there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Refuses arguments where a verb takes none; `instead` says what to write.
pub(crate) fn no_arguments(args: &[String], instead: &str) -> Done {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(Failure::Usage(format!("`{arg}` is not understood here: {instead}"))),
    }
}
