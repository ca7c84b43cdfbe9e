//! Files of tokens: who may use a port.
//!
//! One token in a line; empty lines and lines that start with `#` are skipped. On the API port a line is
//! the token, on the admin port its role stands before it: `read TOKEN` or `write TOKEN`. Tokens are
//! compared whole and show nowhere: not in `Debug`, not in messages.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The shortest token: 16 characters, which is 64 bits if they are hexadecimal.
pub(crate) const TOKEN_LEN_MIN: usize = 16;

/// The longest token, far above what anything generates.
pub(crate) const TOKEN_LEN_MAX: usize = 512;

/// The most tokens in a file: each is compared with what a request brings.
const TOKENS_MAX: usize = 100;

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// A token and what it is good for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) role: Role,
    pub(crate) secret: Box<str>,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Looking.
    Read,
    /// Looking and changing. Tokens of the API port have it: every check charges.
    Write,
}

/// How the lines of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The token alone.
    Bare,
    /// `read TOKEN` or `write TOKEN`.
    WithRole,
}

/// Without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Reads a file of tokens.
///
/// # Errors
/// What is wrong with it and in which line, without the line.
pub(super) fn read(path: &Path, style: Style) -> Result<Vec<Token>, String> {
    let shown = path.display();
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("{shown} can't be opened: {error}"))?;
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| format!("{shown} can't be read: {error}"))?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("{shown} is larger than {FILE_MAX} bytes: is it a file of tokens?"));
    }
    parse(&text, style).map_err(|error| format!("{shown}, {error}"))
}

fn parse(text: &str, style: Style) -> Result<Vec<Token>, String> {
    let mut tokens: Vec<Token> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = parse_line(line, style).map_err(|error| format!("line {}: {error}", index + 1))?;
        if tokens.iter().any(|earlier| earlier.secret == token.secret) {
            return Err(format!("line {}: the token stands there twice", index + 1));
        }
        tokens.push(token);
    }
    match tokens.len() {
        0 => Err("no token in it: write one in a line".into()),
        count if count > TOKENS_MAX => Err(format!("{count} tokens in it: write at most {TOKENS_MAX}")),
        _ => Ok(tokens),
    }
}

fn parse_line(line: &str, style: Style) -> Result<Token, String> {
    let (role, secret) = match (style, line.split_once(char::is_whitespace)) {
        (Style::Bare, None) => (Role::Write, line),
        (Style::Bare, Some(_)) => return Err("a token has no spaces: write the token alone".into()),
        (Style::WithRole, Some(("read", secret))) => (Role::Read, secret.trim_start()),
        (Style::WithRole, Some(("write", secret))) => (Role::Write, secret.trim_start()),
        (Style::WithRole, _) => return Err("write the role first: `read TOKEN` or `write TOKEN`".into()),
    };
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token has printable ASCII characters only, and no spaces".into());
    }
    match secret.len() {
        len if len < TOKEN_LEN_MIN => Err(format!(
            "the token has {len} characters: write at least {TOKEN_LEN_MIN}, such as from `openssl rand -hex 16`"
        )),
        len if len > TOKEN_LEN_MAX => {
            Err(format!("the token has {len} characters: write at most {TOKEN_LEN_MAX}"))
        }
        _ => Ok(Token { role, secret: secret.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_and_comments_are_skipped() {
        let tokens = parse("# ops\n\n 0123456789abcdef \r\nfedcba9876543210\n", Style::Bare).unwrap();
        assert_eq!(
            tokens.iter().map(|token| &*token.secret).collect::<Vec<_>>(),
            ["0123456789abcdef", "fedcba9876543210"]
        );
        assert!(tokens.iter().all(|token| token.role == Role::Write));
    }

    #[test]
    fn roles_stand_before_the_token() {
        let tokens = parse("read 0123456789abcdef\nwrite\tfedcba9876543210", Style::WithRole).unwrap();
        assert_eq!(
            tokens.iter().map(|token| (token.role, &*token.secret)).collect::<Vec<_>>(),
            [(Role::Read, "0123456789abcdef"), (Role::Write, "fedcba9876543210")]
        );
    }

    #[test]
    fn faults_name_the_line_and_never_the_token() {
        let cases = [
            ("", Style::Bare, "no token"),
            ("# only this", Style::Bare, "no token"),
            ("\nsecret", Style::Bare, "line 2: the token has 6 characters"),
            ("secret secret secret", Style::Bare, "line 1: a token has no spaces"),
            ("secretsecretsecret", Style::WithRole, "line 1: write the role first"),
            ("admin secretsecretsecret", Style::WithRole, "line 1: write the role first"),
            ("read secretsecret\u{e9}secret", Style::WithRole, "printable ASCII"),
            ("secretsecretsecret\nsecretsecretsecret", Style::Bare, "line 2: the token stands there twice"),
        ];
        for (text, style, expected) in cases {
            let error = parse(text, style).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(parse(&"x".repeat(TOKEN_LEN_MAX + 1), Style::Bare).unwrap_err().contains("at most"));
        let many: String = (0..=TOKENS_MAX).map(|n| format!("0123456789abcdef{n}\n")).collect();
        assert!(parse(&many, Style::Bare).unwrap_err().contains("at most"));
    }

    #[test]
    fn debug_shows_the_role_only() {
        let token = &parse("read 0123456789abcdef", Style::WithRole).unwrap()[0];
        assert_eq!(format!("{token:?}"), "Token { role: Read, .. }");
    }
}
