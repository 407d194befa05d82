//! Which programs a repository makes git run, by its own configuration and hooks: what came with it, in a tarball or a copy.
//! The user's own configuration and the machine's are not its business.
//!
//! It only tells; whether that may be is for others to ask.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use caliban_core::hex;
use caliban_rooted::tree;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::repo::{Repo, split_nul};

/// The largest configuration or hook that is read.
const CAP: u64 = 1 << 20;
/// The hooks that landing work can run.
const HOOKS: [&str; 11] = [
    "pre-auto-gc",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "commit-msg",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "reference-transaction",
];
/// A configuration without any of these words names no program.
const WORDS: [&str; 19] = [
    "filter",
    "include",
    "driver",
    "fsmonitor",
    "hook",
    "sshcommand",
    "gitproxy",
    "askpass",
    "alternaterefs",
    "textconv",
    "external",
    "command",
    "program",
    "editor",
    "helper",
    "pack",
    "protocol",
    "vcs",
    "submodule",
];
/// What `git lfs install --local` writes.
const LFS: [&str; 5] = [
    "git-lfs clean -- %f",
    "git-lfs smudge -- %f",
    "git-lfs smudge --skip -- %f",
    "git-lfs filter-process",
    "git-lfs filter-process --skip",
];

/// What git does when the programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitOccasion {
    /// It makes a worktree: no hook and no monitor runs.
    Checkout,
    /// It lands work in the user's tree, as the user would.
    Landing,
}

/// Programs, each with the setting or hook that names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPrograms {
    lines: Vec<String>,
    /// Hashes of the hooks, so that another hook of the same name is another program.
    contents: Vec<String>,
}

impl FoundPrograms {
    /// One for each: `filter.x.smudge = …`, `hook post-merge`.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Names exactly these programs.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for part in self.lines.iter().chain(&self.contents) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex::encode(&hash.finalize())
    }
}

/// Whether a repository with its store in this directory may make git run a program. Cheap, and may be wrong about a yes.
pub fn may_run_programs(common: &Path, when: GitOccasion) -> bool {
    let may = |name: &str| match tree::read_small(&common.join(name), CAP) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            WORDS.iter().any(|word| text.contains(word))
        }
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    may("config")
        || may("config.worktree")
        || (when == GitOccasion::Landing
            && HOOKS.iter().any(|name| is_hook(&common.join("hooks").join(name))))
}

fn is_hook(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

impl Repo {
    /// The programs that this repository makes git run then.
    pub async fn programs(&self, when: GitOccasion, cancel: &CancellationToken) -> Result<FoundPrograms> {
        let repo = &self.until(cancel);
        let mut programs = FoundPrograms::default();
        if !may_run_programs(repo.common_dir(), when) {
            return Ok(programs);
        }
        let files = [repo.common_dir().join("config"), repo.opened_git_dir().join("config.worktree")];
        for file in files.iter().filter(|file| file.symlink_metadata().is_ok()) {
            let call = repo.git.hardened(repo.store(), "config").arg("--file").arg(file);
            let listed = call.args(["--no-includes", "-z", "--list"]).ok().await?;
            for entry in split_nul(&listed.stdout) {
                let entry = String::from_utf8_lossy(entry);
                let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
                let lower = key.to_ascii_lowercase();
                if runs(&lower, value, when) {
                    programs.lines.push(format!("{key} = {value}"));
                    programs.contents.extend(repo.named_by(&lower, value, file));
                }
            }
        }
        if when == GitOccasion::Landing {
            for name in HOOKS {
                let path = repo.common_dir().join("hooks").join(name);
                if is_hook(&path) {
                    programs.lines.push(format!("hook {name}"));
                    let content = std::fs::read(&path).unwrap_or_default();
                    programs.contents.push(hex::encode(&Sha256::digest(content)));
                }
            }
        }
        Ok(programs)
    }
}

impl Repo {
    /// Hashes of what a setting leads to and the working tree can change: an included file, the hooks of a directory.
    fn named_by(&self, key: &str, value: &str, file: &Path) -> Vec<String> {
        let hash = |path: &Path| hex::encode(&Sha256::digest(std::fs::read(path).unwrap_or_default()));
        if key.starts_with("include") && key.ends_with(".path") {
            return vec![hash(&file.parent().unwrap_or(file).join(value))];
        }
        if key != "core.hookspath" {
            return Vec::new();
        }
        let directory = self.source().unwrap_or(self.common_dir()).join(value);
        HOOKS.iter().map(|name| hash(&directory.join(name))).collect()
    }
}

/// Whether a setting names a program that git runs then, or a file that can.
fn runs(key: &str, value: &str, when: GitOccasion) -> bool {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let name = rest.rsplit('.').next().unwrap_or_default();
    let is_switch = || matches!(value, "true" | "false" | "yes" | "no" | "on" | "off" | "1" | "0" | "");
    let always = match (section, name) {
        ("filter", "clean" | "smudge" | "process") => !LFS.contains(&value),
        ("include" | "includeif", "path") => true,
        ("core", "sshcommand" | "gitproxy" | "askpass" | "alternaterefscommand") => true,
        ("remote", "uploadpack" | "receivepack" | "vcs") => true,
        // git runs `git credential-VALUE` in a shell.
        ("credential", "helper") => !value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        // A remote `ext::sh -c …` runs what its address says.
        ("protocol", "allow") => matches!(value, "always" | "user"),
        ("submodule", "update") => value.starts_with('!'),
        _ => false,
    };
    let landing = match (section, name) {
        ("core", "fsmonitor") => !is_switch(),
        ("core", "hookspath" | "editor") | ("sequence", "editor") | ("merge", "driver") => true,
        ("diff", "external" | "command" | "textconv") | ("gpg", "program" | "defaultkeycommand") => true,
        ("gc", "recentobjectshook") => true,
        ("trailer", "cmd" | "command") => true,
        _ => false,
    };
    always || (when == GitOccasion::Landing && landing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `git init` and `git clone` write: nearly every repository, so it must need no process of git.
    #[test]
    fn the_configuration_of_a_new_clone_names_no_program() {
        let dir = tempfile::tempdir().expect("temp dir");
        let config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                      [remote \"origin\"]\n\turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                      [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        std::fs::write(dir.path().join("config"), config).expect("write");
        assert!(!may_run_programs(dir.path(), GitOccasion::Landing));
        let armed = format!("{config}[submodule \"a\"]\n\tupdate = !x\n");
        std::fs::write(dir.path().join("config"), armed).expect("write");
        assert!(may_run_programs(dir.path(), GitOccasion::Checkout));
    }

    #[test]
    fn a06_settings_that_name_programs_are_known() {
        let both = [
            ("filter.x.smudge", "evil"),
            ("filter.lfs.process", "git-lfs filter-process; evil"),
            ("include.path", "../x"),
            ("includeif.gitdir:/.path", "x"),
            ("core.sshcommand", "x"),
            ("credential.helper", "!x"),
            ("credential.helper", "cache; x"),
            ("protocol.ext.allow", "always"),
            ("submodule.a.b.update", "!x"),
        ];
        let landing = [
            ("core.fsmonitor", "evil"),
            ("core.hookspath", "x"),
            ("merge.x.driver", "evil %A"),
            ("diff.x.textconv", "evil"),
            ("gpg.program", "evil"),
            ("gpg.ssh.program", "evil"),
        ];
        let neither = [
            ("core.fsmonitor", "true"),
            ("filter.lfs.smudge", "git-lfs smudge -- %f"),
            ("filter.x.required", "true"),
            ("remote.origin.url", "https://x"),
            ("credential.helper", "store"),
            ("submodule.a.update", "rebase"),
            ("user.name", "filter"),
            ("alias.st", "!evil"),
        ];
        for (key, value) in both {
            assert!(
                runs(key, value, GitOccasion::Checkout) && runs(key, value, GitOccasion::Landing),
                "{key}"
            );
        }
        for (key, value) in landing {
            assert!(
                !runs(key, value, GitOccasion::Checkout) && runs(key, value, GitOccasion::Landing),
                "{key}"
            );
        }
        for (key, value) in neither {
            assert!(!runs(key, value, GitOccasion::Landing), "{key}");
        }
    }
}
