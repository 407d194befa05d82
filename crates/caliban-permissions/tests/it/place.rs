//! A project and a home in a temporary directory, and a policy over them.

use std::path::{Path, PathBuf};

use caliban_core::access::Access;
use caliban_permissions::{Effect, Mode, Policy, Rule, Verdict};
use tempfile::TempDir;

pub(crate) struct Place {
    _keep: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) home: PathBuf,
}

impl Place {
    /// `root` with `src/main.rs`, `src/lib.rs`, `notes.txt` and `out` (a link to what lies outside); `home` beside it.
    pub(crate) fn new() -> Self {
        let keep = TempDir::new().unwrap();
        let base = keep.path().canonicalize().unwrap();
        let (root, home) = (base.join("root"), base.join("home"));
        for directory in [root.join("src"), root.join(".git/hooks"), home.join("notes"), home.join(".ssh")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        for file in [
            "root/src/main.rs",
            "root/src/lib.rs",
            "root/notes.txt",
            "root/src/.env",
            "home/.ssh/id",
            "home/notes/a.md",
        ] {
            std::fs::write(base.join(file), "text\n").unwrap();
        }
        std::os::unix::fs::symlink(&home, root.join("out")).unwrap();
        std::os::unix::fs::symlink(home.join("made-later"), root.join("dangling")).unwrap();
        Self { _keep: keep, root, home }
    }

    pub(crate) fn policy(&self, mode: Mode, rules: &[&str]) -> Policy {
        let mut policy = Policy::new(&self.root, &self.home);
        policy.mode = mode;
        for rule in rules {
            add(&mut policy, rule);
        }
        policy
    }

    pub(crate) fn command(&self, line: &str) -> Access {
        Access::Command { line: line.to_owned(), cwd: self.root.clone(), outside: None }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { PathBuf::from(path) } else { self.root.join(path) }
    }
}

/// `deny Bash(rm *)`; without an effect it allows.
pub(crate) fn add(policy: &mut Policy, rule: &str) {
    let (effect, text) = match rule.split_once(' ') {
        Some(("deny", text)) => (Effect::Deny, text),
        Some(("ask", text)) => (Effect::Ask, text),
        _ => (Effect::Allow, rule),
    };
    policy.add(effect, text.parse::<Rule>().unwrap(), "test");
}

pub(crate) fn short(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow { .. } => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

pub(crate) fn read(path: impl AsRef<Path>) -> Access {
    Access::Read(path.as_ref().to_owned())
}

pub(crate) fn write(path: impl AsRef<Path>) -> Access {
    Access::Write(path.as_ref().to_owned())
}
