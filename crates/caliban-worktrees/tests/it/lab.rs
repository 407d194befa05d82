//! A temporary home with a repository in it, and what the tests do to it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use caliban_core::names::Slug;
use caliban_worktrees::{
    CreateRequest, Error, GitEnvironment, GitOptions, Progress, RemoveOptions, RemoveReport, Repo, Worktree,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
}

/// What a directory holds: contents with the executable bit, or a link's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Vec<u8>, bool),
    Link(PathBuf),
}

pub(crate) fn slug(name: &str) -> Slug {
    Slug::parse(name).unwrap()
}

pub(crate) fn token() -> CancellationToken {
    CancellationToken::new()
}

pub(crate) fn quiet(_: Progress) {}

impl Lab {
    /// A home without a repository.
    pub(crate) fn empty() -> Self {
        let lab = Self { dir: TempDir::new().unwrap() };
        std::fs::create_dir(lab.home()).unwrap();
        lab
    }

    /// A repository with a commit: `README.md`, `src/lib.rs`, `src/deep/a.rs`, `docs/guide.md`, `run.sh`, `.gitignore`.
    pub(crate) fn new() -> Self {
        let lab = Self::empty();
        lab.git_at(lab.top(), &["init", "-q", "-b", "main", "repo"]);
        lab.fill();
        lab
    }

    pub(crate) fn fill(&self) {
        for (path, text) in [
            ("README.md", "read me\n"),
            ("src/lib.rs", "pub fn lib() {}\n"),
            ("src/deep/a.rs", "fn a() {}\n"),
            ("docs/guide.md", "# guide\n"),
            ("run.sh", "#!/bin/sh\n"),
            (".gitignore", "target/\n*.log\n.env\n"),
        ] {
            self.write(path, text);
        }
        make_executable(&self.repo().join("run.sh"));
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", "base"]);
    }

    pub(crate) fn top(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.top().join("home")
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.top().join("repo")
    }

    pub(crate) fn wt(&self, name: &str) -> PathBuf {
        self.repo().join(".caliban/worktrees").join(name)
    }

    pub(crate) fn environment(&self) -> BTreeMap<OsString, OsString> {
        #[expect(clippy::disallowed_methods, reason = "the tests need the real PATH to find git")]
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = self.home().into_os_string();
        [
            ("PATH", path),
            ("HOME", home.clone()),
            ("XDG_CONFIG_HOME", home),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_AUTHOR_NAME", "Agent".into()),
            ("GIT_AUTHOR_EMAIL", "agent@example.com".into()),
            ("GIT_COMMITTER_NAME", "Agent".into()),
            ("GIT_COMMITTER_EMAIL", "agent@example.com".into()),
        ]
        .into_iter()
        .map(|(k, v)| (k.into(), v))
        .collect()
    }

    pub(crate) fn options(&self) -> GitOptions {
        let environment = GitEnvironment::Exactly(self.environment());
        GitOptions { environment, ..GitOptions::default() }
    }

    pub(crate) async fn open(&self) -> Repo {
        self.open_at(&self.repo()).await
    }

    pub(crate) async fn open_at(&self, path: &Path) -> Repo {
        Repo::open(path, self.options(), &token()).await.unwrap()
    }

    /// Runs git as the user would, and gives its stdout.
    pub(crate) fn git_at(&self, directory: impl AsRef<Path>, args: &[&str]) -> String {
        let output = self.try_git(directory, args);
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn try_git(&self, directory: impl AsRef<Path>, args: &[&str]) -> std::process::Output {
        let mut command = Command::new("git");
        command.current_dir(directory).env_clear().envs(self.environment());
        command.args(["-c", "protocol.file.allow=always"]).args(args).output().unwrap()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_at(self.repo(), args)
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        write(&self.repo().join(path), text);
    }

    /// Refs and records that a failed creation must not leave.
    pub(crate) fn traces(&self) -> (String, Vec<String>, Vec<String>) {
        let refs = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        (refs, names(&self.repo().join(".git/worktrees")), names(&self.repo().join(".caliban/worktrees")))
    }
}

pub(crate) async fn create(repo: &Repo, name: &str) -> Worktree {
    repo.create(CreateRequest::new(slug(name)), &quiet, &token()).await.unwrap()
}

pub(crate) async fn try_create(repo: &Repo, request: CreateRequest) -> Result<Worktree, Error> {
    repo.create(request, &quiet, &token()).await
}

/// Makes a worktree and lets go of it.
pub(crate) async fn make(repo: &Repo, name: &str) -> PathBuf {
    create(repo, name).await.created.path
}

pub(crate) async fn remove(repo: &Repo, name: &str) -> RemoveReport {
    repo.remove(&slug(name), None, &RemoveOptions::default(), &token()).await.unwrap()
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub(crate) fn make_executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let Ok(listing) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> = listing.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Everything beneath `dir` but its own `.git`.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(dir).unwrap().to_path_buf();
            let meta = path.symlink_metadata().unwrap();
            if relative == Path::new(".git") {
            } else if meta.is_dir() {
                open.push(path);
            } else if meta.is_symlink() {
                found.insert(relative, Node::Link(std::fs::read_link(&path).unwrap()));
            } else if meta.is_file() {
                let executable = meta.permissions().mode() & 0o100 != 0;
                found.insert(relative, Node::File(std::fs::read(&path).unwrap(), executable));
            }
        }
    }
    found
}

pub(crate) fn paths(dir: &Path) -> Vec<String> {
    tree(dir).into_keys().map(|p| p.to_string_lossy().into_owned()).collect()
}
