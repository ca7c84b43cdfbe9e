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
