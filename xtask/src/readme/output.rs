//! Compares what a document shows below a command with what the command prints.
//!
//! Every line that is shown must be printed, in the same order; lines between may be left out, with or without
//! a line `...`. Numbers may differ, since many depend on the clock: what must be a certain number is told by
//! words beside it (`200 OK`), or verified by name ([`super::answers`]).

/// Stands for lines that are left out.
const LEFT_OUT: &str = "...";

/// Says which line is not printed where it is shown.
pub(super) fn verify(shown: &[String], printed: &str) -> Result<(), String> {
    let mut printed = printed.lines().map(numberless);
    for line in shown.iter().filter(|line| !line.is_empty() && *line != LEFT_OUT) {
        let wanted = numberless(line);
        if !printed.any(|line| line == wanted) {
            return Err(format!("does not print this line, or not in this place: {line}"));
        }
    }
    Ok(())
}

/// The line with each number as `0`, and no blanks at its ends.
fn numberless(line: &str) -> String {
    let mut text = String::new();
    for letter in line.trim().chars() {
        match letter {
            '0'..='9' if text.ends_with('0') => {}
            '0'..='9' => text.push('0'),
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "HTTP/1.1 200 OK\r\nratelimit: \"a\";r=4;t=10\r\n\r\n{\n  \"ok\": 1\n}";

    fn told(shown: &[&str]) -> Result<(), String> {
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        verify(&shown, PRINTED)
    }

    #[test]
    fn lines_may_be_left_out_and_numbers_may_differ() {
        assert_eq!(told(&[]), Ok(()));
        assert_eq!(told(&["HTTP/1.1 200 OK", "...", "", "\"ok\": 1"]), Ok(()));
        assert_eq!(told(&["ratelimit: \"a\";r=14;t=9"]), Ok(()));
    }

    #[test]
    fn a_line_that_is_not_printed_or_in_another_place_is_told() {
        let fault = "does not print this line, or not in this place: ";
        assert_eq!(
            told(&["HTTP/1.1 429 Too Many Requests"]),
            Err(format!("{fault}HTTP/1.1 429 Too Many Requests"))
        );
        assert_eq!(told(&["}", "HTTP/1.1 200 OK"]), Err(format!("{fault}HTTP/1.1 200 OK")));
        assert_eq!(told(&["{", "{"]), Err(format!("{fault}{{")));
    }
}
