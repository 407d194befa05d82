//! The programs that the tests run besides ours: checks which are missing, and installs them on Debian.

use std::io::{BufRead as _, IsTerminal as _};

use anyhow::{Result, bail};

use crate::run;

/// A program that tests need.
struct Need {
    /// A command that shows that it is installed.
    probe: (&'static str, &'static str),
    /// Its Debian package.
    package: &'static str,
    /// What needs it.
    why: &'static str,
}

const NEEDS: [Need; 16] = [
    Need {
        probe: ("cc", "--version"),
        package: "gcc libc6-dev",
        why: "SQLite and the TLS library have C in them",
    },
    Need { probe: ("git", "--version"), package: "git", why: "worktrees" },
    Need { probe: ("tmux", "-V"), package: "tmux", why: "terminals and panes in tests" },
    Need { probe: ("strace", "-V"), package: "strace", why: "faults injected at system calls" },
    Need { probe: ("faketime", "--version"), package: "faketime", why: "clocks that jump" },
    Need { probe: ("python3", "--version"), package: "python3", why: "attempts to get out of the fence" },
    Need { probe: ("pytest-3", "--version"), package: "python3-pytest", why: "tests that run in the fence" },
    Need { probe: ("make", "--version"), package: "make", why: "commands of the guides" },
    Need { probe: ("jq", "--version"), package: "jq", why: "commands of the guides" },
    Need { probe: ("zsh", "--version"), package: "zsh", why: "its completions" },
    Need { probe: ("fish", "--version"), package: "fish", why: "its completions" },
    Need { probe: ("curl", "--version"), package: "curl", why: "requests to the daemon's socket" },
    Need { probe: ("sqlite3", "--version"), package: "sqlite3", why: "databases that somebody else holds" },
    Need { probe: ("chromium", "--version"), package: "chromium", why: "the dashboard in a browser" },
    Need { probe: ("node", "--version"), package: "nodejs", why: "tests of the dashboard's view models" },
    Need { probe: ("setpriv", "--version"), package: "util-linux", why: "other users and fewer rights" },
];

/// Whether packages may be installed without asking.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// `--yes`.
    Given,
    /// A person at a terminal is asked; a script is not.
    Ask,
}

/// Ensures that all programs are there: installs missing ones if possible and permitted, else names them.
pub(crate) fn provide(consent: Consent) -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|need| need.probe.0).collect();
    if !can_install() {
        bail!("{}", in_words(&missing));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.package.split(' ')).collect();
    if consent == Consent::Ask && std::io::stdin().is_terminal() && !is_agreed(&packages)? {
        bail!("{}", in_words(&missing));
    }
    run::say(&format!("installing what the tests need: {}", names.join(", ")));
    let apt = |args: &[&str]| {
        let mut command = run::command("apt-get");
        // apt's progress goes to stderr.
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
        run::must(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages.as_slice()].concat())?;
    match self::missing().as_slice() {
        [] => Ok(()),
        still => bail!("apt-get succeeded, but {}", in_words(still)),
    }
}

/// Asks the person at the terminal.
fn is_agreed(packages: &[&str]) -> Result<bool> {
    run::say(&format!(
        "the tests need packages that are not here. Run as root: apt-get install {}? [y/N] (--yes does not ask)",
        packages.join(" ")
    ));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !run::works(need.probe.0, &[need.probe.1])).collect()
}

/// Whether we are root on a system with apt-get. A test run never asks for a password.
fn can_install() -> bool {
    let is_root = run::output(run::command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    is_root && run::works("apt-get", &["--version"])
}

fn in_words(missing: &[&Need]) -> String {
    let mut text = "the tests need programs that are not here:\n".to_owned();
    for need in missing {
        text += &format!("  {:8} {} (Debian: apt-get install {})\n", need.probe.0, need.why, need.package);
    }
    text + "install them and run this again"
}
