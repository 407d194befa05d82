//! Skipping a test that this machine cannot run: [`skip`] is the only way, and [`Lack`] lists every reason for it.
//!
//! Outside CI a skipped test passes, and `cargo xtask test` lists it at the end. In CI (the variable `CI`) it fails,
//! unless [`Lack::excuse`] says why CI may lack the thing. A missing program is no reason: `cargo xtask test` installs
//! or names them, so a test that lacks one fails, and so does one whose strace may not trace.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The file that skipped tests are appended to, one line each. `cargo xtask test` sets it.
pub const LIST_VARIABLE: &str = "CALIBAN_SKIPPED_TESTS";

/// Something that some tests need and a machine may not have or allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Mounting a file system.
    Mounts,
    /// Acting as another user.
    OtherUsers,
    /// Making, limiting or freezing a control group.
    ControlGroups,
    /// Claude Code and Codex.
    RealAgents,
    /// npm and Go.
    LargeTools,
}

impl Lack {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::Mounts, Self::OtherUsers, Self::ControlGroups, Self::RealAgents, Self::LargeTools];

    /// What is missing.
    pub fn words(self) -> &'static str {
        match self {
            Self::Mounts => "no file system can be mounted here (that needs root)",
            Self::OtherUsers => "this user cannot act as another one (that needs root)",
            Self::ControlGroups => "this user cannot make, limit or freeze a control group here",
            Self::RealAgents => "claude or codex is not on PATH",
            Self::LargeTools => "npm or go is not on PATH",
        }
    }

    /// Why a machine that runs CI may lack it. Without an excuse a skipped test fails there.
    pub fn excuse(self) -> Option<&'static str> {
        match self {
            Self::ControlGroups => Some(
                "containers often keep control groups to themselves; ending an agent without one has tests of its own",
            ),
            Self::RealAgents => Some("programs of others; the panes have tests with a fake agent"),
            Self::LargeTools => {
                Some("hundreds of megabytes each; node, pytest, make and cargo are tested everywhere")
            }
            Self::Mounts | Self::OtherUsers => None,
        }
    }
}

/// Reports that the running test is skipped, and why; the caller returns. Panics in CI if there is no excuse.
#[track_caller]
pub fn skip(lack: Lack) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Set by cargo and nextest; two crates may have a test with the same name.
    let package = variable("CARGO_PKG_NAME").unwrap_or_default();
    let line = format!("{package} {test}: {}", lack.words());
    if let Some(list) = variable(LIST_VARIABLE) {
        let mut file = OpenOptions::new().create(true).append(true).open(&list).unwrap();
        file.write_all(format!("{}\n", line.trim_start()).as_bytes()).unwrap();
    }
    let in_ci = variable("CI").is_some_and(|value| !["", "0", "false"].contains(&value.as_str()));
    assert!(
        !in_ci || lack.excuse().is_some(),
        "{line}; in CI a skipped test has failed, unless crates/testkit/src/skip.rs has an excuse for it"
    );
    // Captured by the runner, and shown with --no-capture.
    let _closed = writeln!(std::io::stderr(), "skipped: {line}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "how the test runner was started decides what a skipped test is"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
