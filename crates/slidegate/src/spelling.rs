//! The nearest right spelling of a wrong word: for messages about policies, keys and configuration fields.

/// The most similar candidate, if any is close enough to be what was meant: at most a third of the word may
/// differ, and always one letter.
pub fn nearest<'a, T: AsRef<str>>(word: &str, candidates: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let len = word.chars().count();
    let most = (len / 3).max(1);
    // Comparing takes time with the product of both lengths, and the word may be a caller's, of any length.
    // Words whose lengths differ by more than `most` differ by more than `most`.
    let close = |candidate: &&T| candidate.as_ref().chars().count().abs_diff(len) <= most;
    candidates
        .filter(close)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate.as_ref()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_word_is_taken_for_a_similar_one_only() {
        let known = ["client_ip", "header:x-user"];
        assert_eq!(nearest("clientip", known.iter()), Some(&"client_ip"));
        assert_eq!(nearest("header:x-usr", known.iter()), Some(&"header:x-user"));
        assert_eq!(nearest("colour", known.iter()), None);
        assert_eq!(nearest("", known.iter()), None);
        assert_eq!(nearest("client_ip", [""; 0].iter()), None);
    }

    #[test]
    fn a_long_word_costs_no_more_than_its_length() {
        // Comparing each of these with 64 KiB would take minutes, and one request might ask for it.
        let known: Vec<String> = (0..10_000).map(|number| format!("{number:064}")).collect();
        assert_eq!(nearest(&"x".repeat(65_536), known.iter()), None);
    }
}
