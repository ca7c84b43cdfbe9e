//! Environment variables in values: `${NAME}`.
//!
//! What a variable holds is put in as it is and not looked at again. It never shows in a message: messages
//! repeat the value as it stands in the file. There is no escape: a text that has to hold `${` comes from a
//! variable itself.

/// Where variables come from: the process, or a test.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The longest content of a variable in bytes: far above any token, far below what hurts.
const CONTENT_MAX: usize = 64 * 1024;

/// Why a value could not be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EnvFault {
    pub(super) message: String,
    pub(super) help: String,
}

fn fail<T>(message: String, help: impl Into<String>) -> Result<T, EnvFault> {
    Err(EnvFault { message, help: help.into() })
}

/// The text with every `${NAME}` replaced; `None` when there is none.
///
/// # Errors
/// [`EnvFault`] for a variable that is missing, empty or too long, and for a `${` that isn't one.
pub(super) fn substitute(text: &str, lookup: Lookup<'_>) -> Result<Option<String>, EnvFault> {
    let Some((before, mut rest)) = text.split_once("${") else {
        return Ok(None);
    };
    let mut whole = before.to_owned();
    loop {
        let Some((name, after)) = rest.split_once('}') else {
            return fail("a `${` without its `}`".into(), "write ${NAME}");
        };
        whole.push_str(&content(name, lookup)?);
        let Some((between, next)) = after.split_once("${") else {
            whole.push_str(after);
            return Ok(Some(whole));
        };
        whole.push_str(between);
        rest = next;
    }
}

fn content(name: &str, lookup: Lookup<'_>) -> Result<String, EnvFault> {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let valid = name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit());
    if !valid {
        return fail(
            format!("`${{{name}}}` is not the name of an environment variable"),
            "a name has letters, digits and _ only; there are no defaults such as ${NAME:-x}",
        );
    }
    match lookup(name) {
        None => fail(
            format!("the environment variable {name} is not set, or not readable as UTF-8"),
            format!("set {name} for the process that reads this file"),
        ),
        Some(content) if content.is_empty() => fail(
            format!("the environment variable {name} is empty"),
            format!("set {name} to the value that belongs here"),
        ),
        Some(content) if content.len() > CONTENT_MAX => fail(
            format!("the environment variable {name} holds more than {CONTENT_MAX} bytes"),
            "set it to the value alone",
        ),
        Some(content) => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "NESTED" => Some("${A}".into()),
            "EMPTY" => Some(String::new()),
            "LONG" => Some("x".repeat(CONTENT_MAX + 1)),
            _ => None,
        }
    }

    #[test]
    fn variables_are_put_in_once() {
        assert_eq!(substitute("plain $A {A}", &lookup), Ok(None));
        assert_eq!(substitute("${A}", &lookup), Ok(Some("1".into())));
        assert_eq!(substitute("x${A}y${A}z", &lookup), Ok(Some("x1y1z".into())));
        assert_eq!(substitute("${NESTED}", &lookup), Ok(Some("${A}".into())));
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for text in ["${", "${A", "${}", "${1A}", "${A:-x}", "${A B}", "${MISSING}", "${EMPTY}", "${LONG}"] {
            assert!(substitute(text, &lookup).is_err(), "{text}");
        }
    }
}
