//! The files that a configuration names. Paths are relative to its own folder, so that a configuration means the
//! same wherever it is read from.
//!
//! Messages name the file and never what it holds.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::tokens::{self, Style, Token};

/// The largest file, in bytes: far above any chain of certificates, far below what hurts.
const FILE_MAX: u64 = 64 * 1024;

/// The shortest key of a hash, in bytes: 16 random ones are enough, and fewer can be guessed.
const KEY_LEN_MIN: usize = 16;

/// Reads files of one folder.
pub(super) struct Files<'a> {
    folder: &'a Path,
}

impl<'a> Files<'a> {
    /// Reads files of this folder, unless their path is absolute.
    pub(super) const fn of(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// Tokens, one in a line.
    pub(super) fn tokens(&self, path: &str, style: Style) -> Result<Vec<Token>, String> {
        tokens::read(&self.folder.join(path), style)
    }

    /// The whole file.
    pub(super) fn bytes(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.folder.join(path);
        let shown = path.display();
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(|error| format!("{shown} can't be opened: {error}"))?;
        let read = file.take(FILE_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("{shown} can't be read: {error}"))?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(format!("{shown} is larger than {FILE_MAX} bytes: is it the right one?"));
        }
        Ok(bytes)
    }

    /// A password: the text of the file, without the end of its line.
    pub(super) fn password(&self, path: &str) -> Result<String, String> {
        let shown = self.folder.join(path);
        let text = String::from_utf8(self.bytes(path)?)
            .map_err(|_| format!("{} is not UTF-8: is it the right one?", shown.display()))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("{} is empty", shown.display())),
            password if password.contains(['\r', '\n']) => {
                Err(format!("{} has several lines: write the password alone", shown.display()))
            }
            password => Ok(password.to_owned()),
        }
    }

    /// The key of a hash: the bytes of the file without white space around them, which editors add.
    pub(super) fn key(&self, path: &str) -> Result<Vec<u8>, String> {
        let bytes = self.bytes(path)?;
        let key = bytes.trim_ascii();
        if key.len() < KEY_LEN_MIN {
            return Err(format!(
                "{} has {} bytes: write at least {KEY_LEN_MIN}, such as from `openssl rand -hex 32`",
                self.folder.join(path).display(),
                key.len()
            ));
        }
        Ok(key.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    #[test]
    fn a_password_is_the_text_without_the_end_of_its_line() {
        let folder = folder(&[("unix", b"pass word \n"), ("windows", b"secret\r\n"), ("bare", b"secret")]);
        let files = Files::of(folder.path());
        let all = ["unix", "windows", "bare"].map(|name| files.password(name).unwrap());
        assert_eq!(all, ["pass word ", "secret", "secret"]);
    }

    #[test]
    fn what_is_no_password_is_named_by_its_file_and_not_shown() {
        let large = vec![b'x'; 64 * 1024 + 1];
        let folder = folder(&[
            ("empty", b"\n"),
            ("lines", b"secret\nsecret"),
            ("binary", b"secret\xff"),
            ("large", &large),
        ]);
        for (name, said) in [
            ("empty", "is empty"),
            ("lines", "has several lines"),
            ("binary", "is not UTF-8"),
            ("large", "is larger than 65536 bytes"),
            ("missing", "can't be opened"),
        ] {
            let fault = Files::of(folder.path()).password(name).unwrap_err();
            assert!(fault.contains(&format!("{name} {said}")) && !fault.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn a_key_is_the_same_whatever_an_editor_adds_to_its_file() {
        let folder = folder(&[
            ("bare", b"0123456789abcdef"),
            ("edited", b"0123456789abcdef\r\n"),
            ("short", b"0123456789abcde\n"),
        ]);
        let files = Files::of(folder.path());
        assert_eq!(files.key("bare"), files.key("edited"));
        let fault = files.key("short").unwrap_err();
        assert!(fault.contains("has 15 bytes: write at least 16") && !fault.contains("0123"), "{fault}");
    }
}
