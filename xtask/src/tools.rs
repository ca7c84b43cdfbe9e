//! Programs from outside cargo that a verb needs: installed when missing, by the system's own package
//! manager, or asked for in words where there is none that we know.

use std::env;

use crate::step::{self, Done, Failure};

/// A program, and the package that brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) command: &'static str,
    debian: &'static str,
    homebrew: &'static str,
}

pub(crate) const GIT: Tool = Tool { command: "git", debian: "git", homebrew: "git" };

pub(crate) const CURL: Tool = Tool { command: "curl", debian: "curl", homebrew: "curl" };

pub(crate) const WRK: Tool = Tool { command: "wrk", debian: "wrk", homebrew: "wrk" };

/// The store's tests run it; it is its own Sentinel too. (Debian's package brings `redis-cli` along.)
pub(crate) const REDIS: Tool = Tool { command: "redis-server", debian: "redis-server", homebrew: "redis" };

/// Wall clocks that are wrong, for the tests of failures.
pub(crate) const FAKETIME: Tool = Tool { command: "faketime", debian: "faketime", homebrew: "libfaketime" };

/// How packages come onto this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packages {
    AptAsRoot,
    AptWithSudo,
    Homebrew,
    Unknown,
}

/// Installs those of `tools` that are not on the PATH.
pub(crate) fn ensure(tools: &[Tool]) -> Done {
    let missing: Vec<Tool> = tools.iter().copied().filter(|tool| !is_on_path(tool.command)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for line in install_lines(Packages::of_this_machine(), &missing)? {
        step::run(&line)?;
    }
    Ok(())
}

/// The commands that install `missing`.
fn install_lines(packages: Packages, missing: &[Tool]) -> Result<Vec<String>, Failure> {
    let names = |name: fn(&Tool) -> &'static str| missing.iter().map(name).collect::<Vec<_>>().join(" ");
    let apt = |prefix: &str| {
        // An old list names versions that the mirror has dropped.
        let update = format!("{prefix}apt-get update");
        let install = format!(
            "{prefix}env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends {}",
            names(|tool| tool.debian)
        );
        vec![update, install]
    };
    match packages {
        Packages::AptAsRoot => Ok(apt("")),
        Packages::AptWithSudo => Ok(apt("sudo ")),
        Packages::Homebrew => Ok(vec![format!("brew install {}", names(|tool| tool.homebrew))]),
        Packages::Unknown => Err(Failure::Step(format!(
            "{} not found, and neither is apt-get (as root or with sudo) or Homebrew: install by hand, then \
             run this again",
            names(|tool| tool.command)
        ))),
    }
}

impl Packages {
    fn of_this_machine() -> Self {
        if cfg!(target_os = "macos") && is_on_path("brew") {
            Self::Homebrew
        } else if !is_on_path("apt-get") {
            Self::Unknown
        } else if step::answers("test -w /var/lib/dpkg") {
            Self::AptAsRoot
        } else if is_on_path("sudo") {
            Self::AptWithSudo
        } else {
            Self::Unknown
        }
    }
}

fn is_on_path(command: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(command).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-such-program"));
        let shell = Tool { command: "sh", debian: "no-such-package", homebrew: "no-such-package" };
        assert_eq!(ensure(&[shell]), Ok(()));
    }

    #[test]
    fn each_package_manager_gets_its_own_commands() {
        let lines = |packages| install_lines(packages, &[CURL, WRK]).unwrap();
        let install =
            "env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends curl wrk";
        assert_eq!(lines(Packages::AptAsRoot), ["apt-get update", install]);
        assert_eq!(
            lines(Packages::AptWithSudo),
            ["sudo apt-get update".to_owned(), format!("sudo {install}")]
        );
        assert_eq!(lines(Packages::Homebrew), ["brew install curl wrk"]);
    }

    #[test]
    fn without_a_package_manager_the_message_says_what_to_do() {
        let failure = install_lines(Packages::Unknown, &[WRK]).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "wrk not found, and neither is apt-get (as root or with sudo) or Homebrew: install by hand, then \
             run this again"
        );
    }
}
