//! Questions about the repository that the user stands in, before anything is opened or made in it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::git::{Git, GitOptions, StoreFormat};
use crate::marker::Oid;
use crate::repo::{hidden_bare, is_git_dir};

/// The settings that name programs which files go through.
const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";

/// Asks about the repository around a directory of the user's.
#[derive(Debug)]
pub struct Lookup<'a> {
    git: Git,
    start: &'a Path,
    /// Where git finds the repository: `start`, or the bare repository that is hidden in it.
    place: PathBuf,
}

impl<'a> Lookup<'a> {
    /// About the repository that `start` is in.
    pub fn new(start: &'a Path, options: GitOptions) -> Self {
        let hidden = git_dir(start).is_none().then(|| hidden_bare(start)).flatten();
        let place = hidden.unwrap_or_else(|| start.to_owned());
        let (format, cancel) = (StoreFormat::default(), CancellationToken::new());
        Self { git: Git { options, no_attributes: "", format, cancel }, start, place }
    }

    /// The commit that a revision stands for now.
    pub async fn commit(&self, revision: &str, cancel: &CancellationToken) -> Result<Option<Oid>> {
        let git = self.git.until(cancel);
        let call = git.trusted(&self.place, "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        Ok(call.arg(format!("{revision}^{{commit}}")).run().await?.oid())
    }

    /// Whether a commit has this path.
    pub async fn has_path(&self, commit: &str, path: &str, cancel: &CancellationToken) -> Result<bool> {
        let git = self.git.until(cancel);
        let call = git.trusted(&self.place, "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        call.arg(format!("{commit}:{path}")).succeeds().await
    }

    /// The root of the working tree.
    pub async fn top(&self, cancel: &CancellationToken) -> Result<PathBuf> {
        let git = self.git.until(cancel);
        let answer = git.trusted(&self.place, "rev-parse").arg("--show-toplevel").ok().await?;
        let bytes = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
        Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }

    /// How many files of the working tree differ from the last commit. Runs no program that the repository's configuration
    /// names: an agent could have written that.
    pub async fn uncommitted(&self, cancel: &CancellationToken) -> Result<usize> {
        let git = self.git.until(cancel);
        let call = git.trusted(&self.place, "config").args(["-z", "--name-only", "--show-scope"]);
        // Exit code 1 is "none".
        let found = call.args(["--includes", "--get-regexp", FILTERS]).run().await?.fields();
        let is_repos = |pair: &&[OsString]| pair[0] == "local" || pair[0] == "worktree";
        let filters: Vec<OsString> =
            found.chunks_exact(2).filter(is_repos).map(|pair| pair[1].clone()).collect();
        let call = git.trusted(&self.place, "status").with_each(&filters, "");
        let call = call.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_LAZY_FETCH", "1");
        let answer = call.args(["--porcelain=v1", "-z", "--ignore-submodules=all"]).ok().await?;
        // The second name of a renamed file has no state in front of it.
        Ok(answer.stdout.split(|byte| *byte == 0).filter(|entry| entry.get(2) == Some(&b' ')).count())
    }

    /// Whether there is a commit to make a worktree from.
    pub fn has_commits(&self) -> bool {
        looks_committed(&self.place).unwrap_or_else(|| {
            let call = self.git.trusted(&self.place, "rev-parse");
            call.args(["--verify", "--quiet", "HEAD^{commit}"]).succeeds_blocking()
        })
    }

    /// Whether `start` is among git's own files, as in a bare repository.
    pub fn is_in_git_dir(&self) -> bool {
        git_dir(&self.place).is_some_and(|git| self.start.starts_with(git))
    }
}

/// Whether HEAD has a commit, from the files of the usual repository: starting git costs more than the whole command.
fn looks_committed(start: &Path) -> Option<bool> {
    let Some(git) = git_dir(start) else { return Some(false) };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let head = head.trim();
    let Some(name) = head.strip_prefix("ref: ") else {
        return (head.len() >= 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(true);
    };
    if !name.starts_with("refs/heads/") || name.contains("..") {
        return None;
    }
    if git.join(name).is_file() {
        return Some(true);
    }
    let packed = std::fs::read_to_string(git.join("packed-refs")).ok()?;
    packed.lines().any(|line| line.split_once(' ').is_some_and(|(_, packed)| packed == name)).then_some(true)
}

/// What git itself would find: a `.git`, or a directory that is a repository.
fn git_dir(start: &Path) -> Option<PathBuf> {
    start.ancestors().find_map(|dir| {
        let inside = Some(dir.join(".git")).filter(|git| git.symlink_metadata().is_ok());
        inside.or_else(|| is_git_dir(dir).then(|| dir.to_owned()))
    })
}
