//! The nearest right spelling of a wrong word: for messages about policies, keys and configuration fields.

/// The most similar candidate, if any is close enough to be what was meant: at most a third of the word may
/// differ, and always one letter.
pub fn nearest<'a, T: AsRef<str>>(word: &str, candidates: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let most = (word.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate.as_ref()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
