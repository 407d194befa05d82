//! A repository as its worktrees see it: where its store is, where worktrees are put, how git is run in it.
//!
//! Opened once, from the user's own directory, and kept: an agent's directory is never asked which
//! repository it belongs to, because an agent can write the answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use caliban_core::names::Slug;
use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};
use rustix::fs::FlockOperation;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::found_git::repository_around;
use crate::git::{Git, GitOptions, GitPlace, StoreFormat};
use crate::marker::{Marker, Oid};

/// Where worktrees are put, relative to the repository's root.
pub const PLACE: &str = ".caliban/worktrees";
/// What a worktree's branch begins with.
pub const BRANCH_PREFIX: &str = "caliban/";

/// The largest configuration that is looked at.
const CONFIG_CAP: u64 = 1 << 20;
const EMPTY_TREE_SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_TREE_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
/// What stands in the place of HEAD in a repository that keeps its refs in tables.
const REFTABLE_HEAD: &[u8] = b"ref: refs/heads/.invalid";
/// Settings that describe the repository and its file system.
const DESCRIBING: &str =
    r"^core\.(bare|worktree|sharedrepository|filemode|symlinks|ignorecase|precomposeunicode)$";
/// The largest `gitdir` file that is read: one path.
const GITDIR_CAP: u64 = 16 * 1024;
/// How long one waits for a lock between two looks.
const LOCK_LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// How long one waits for a landing that holds a worktree. Its hooks may be waiting for us.
const LANDING_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
/// How often a lease is asked for again before somebody is taken to work there.
const LEASE_TRIES: usize = 40;

/// An open repository. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    pub(crate) git: Git,
    root: PathBuf,
    source: Option<PathBuf>,
    git_dir: PathBuf,
    common: PathBuf,
}

/// A worktree of ours, found through the repository's own records.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) name: Slug,
    pub(crate) path: PathBuf,
    pub(crate) admin: PathBuf,
    pub(crate) marker: Marker,
    /// Where git says it is, when that is not where we put it.
    pub(crate) moved: Option<PathBuf>,
}

impl Located {
    pub(crate) fn branch(&self) -> String {
        branch_of(&self.name)
    }
}

/// The branch of the worktree `name`.
pub fn branch_of(name: &Slug) -> String {
    format!("{BRANCH_PREFIX}{}", name.as_str())
}

/// Holds a worktree: while it lives, no other process removes or sweeps it. Released by drop, and by the
/// kernel when the process dies.
#[derive(Debug)]
pub struct Lease {
    pub(crate) fd: OwnedFd,
}

/// How git is kept from running anything of a repository's configuration where commands of an agent only read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingGit {
    /// Settings, over those of the repository.
    pub settings: Vec<(&'static str, &'static str)>,
    /// The variable that names an attribute source without attributes.
    pub attributes: (&'static str, &'static str),
}

/// For the repository whose store is this directory.
pub fn git_that_reads(common: &Path) -> ReadingGit {
    // git itself writes it so; another spelling makes git refuse to work, in words.
    let config = tree::read_small(&common.join("config"), CONFIG_CAP).unwrap_or_default();
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    let is_sha256 = config.lines().any(|line| line.trim().replace(' ', "") == "objectformat=sha256");
    let tree = if is_sha256 { EMPTY_TREE_SHA256 } else { EMPTY_TREE_SHA1 };
    let mut settings = crate::git::READING_CONFIG.to_vec();
    // One of the user's own stays.
    if ["external", "include"].iter().any(|word| config.contains(word)) {
        settings.push(crate::git::PLAIN_DIFF);
    }
    ReadingGit { settings, attributes: ("GIT_ATTR_SOURCE", tree) }
}

impl Repo {
    /// Finds the repository that `start` is in: its root, a subdirectory, a linked worktree, a bare
    /// repository, or the directory around a hidden bare one (`project/.bare`).
    pub async fn open(start: &Path, options: GitOptions, cancel: &CancellationToken) -> Result<Self> {
        let not_here = |detail: String| Error::NotARepository { path: start.to_path_buf(), detail };
        if !start.is_dir() {
            return Err(not_here("no such directory".into()));
        }
        let (format, cancel) = (StoreFormat::default(), cancel.clone());
        let mut git = Git { options, no_attributes: EMPTY_TREE_SHA1, format, cancel };
        let ask = async |place: &Path| {
            let call = git.trusted(place, "rev-parse").with_patience(git.options.patience);
            let call = call.args(["--path-format=absolute", "--show-object-format"]);
            // The last question fails where there is no working tree, after the others were answered.
            let call =
                call.args(["--is-inside-work-tree", "--git-dir", "--git-common-dir", "--show-toplevel"]);
            call.run().await
        };
        let judge = |place: &Path| {
            let elsewhere = |leads_to| Error::OtherRepository { path: place.to_path_buf(), leads_to };
            repository_around(place, &|path, identity| git.options.accepted.has(path, identity))
                .map_err(elsewhere)
        };
        // Before git reads anything there.
        let mut judged = judge(start)?;
        let mut found = ask(start).await?;
        if let (false, Some(hidden)) = (found.status.success(), hidden_bare(start)) {
            judged = judge(&hidden)?;
            found = ask(&hidden).await?;
        }
        let lines: Vec<&[u8]> = found.stdout.split(|b| *b == b'\n').collect();
        let [format, inside, git_dir, common, top, ..] = lines.as_slice() else {
            return Err(not_here(found.stderr.trim().to_owned()));
        };
        #[expect(clippy::disallowed_methods, reason = "git has said where it is")]
        let path = |bytes: &[u8]| {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            path.canonicalize().map_err(|e| Error::at("resolving", &path, e))
        };
        let (git_dir, common) = (path(git_dir)?, path(common)?);
        // Whatever makes git find another one: it was not judged.
        if !judged.is_some_and(|judged| judged.own.path() == git_dir && judged.store().path() == common) {
            return Err(Error::OtherRepository { path: start.to_path_buf(), leads_to: git_dir });
        }
        let source = if *inside == b"true" { Some(path(top)?) } else { None };
        git.format.is_sha256 = *format == b"sha256";
        if git.format.is_sha256 {
            git.no_attributes = EMPTY_TREE_SHA256;
        }
        let root = find_root(&mut git, &common).await?;
        Ok(Self { git, root, source, git_dir, common })
    }

    /// The same for a caller that may give up. Each public method begins with it, and what it calls knows the token.
    pub(crate) fn until(&self, cancel: &CancellationToken) -> Self {
        Self { git: self.git.until(cancel), ..self.clone() }
    }

    /// The same for what must come to its end, whoever gives up.
    pub(crate) fn uncancelled(&self) -> Self {
        self.until(&CancellationToken::new())
    }

    /// The root that worktrees are put beneath: the main working tree; for a bare repository the directory
    /// that holds it when it is hidden there (`.bare`), else the repository itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The working tree that this was opened in, if any: links and included files come from it.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// The repository's shared store (`.git`).
    pub fn common_dir(&self) -> &Path {
        &self.common
    }

    /// Where the worktree `name` is, or would be.
    pub fn path_of(&self, name: &Slug) -> PathBuf {
        self.root.join(PLACE).join(name.as_str())
    }

    pub(crate) fn store(&self) -> GitPlace<'_> {
        GitPlace::Store { common: &self.common }
    }

    pub(crate) fn tree<'a>(&'a self, at: &'a Located) -> GitPlace<'a> {
        GitPlace::Tree { common: &self.common, git_dir: &at.admin, files: &at.path }
    }

    /// The place that this was opened in.
    pub(crate) fn opened(&self) -> GitPlace<'_> {
        match &self.source {
            Some(files) => GitPlace::Tree { common: &self.common, git_dir: &self.git_dir, files },
            None => self.store(),
        }
    }

    /// Where the user's own git finds this repository: the working tree that this was opened in, else the store.
    pub(crate) fn users_directory(&self) -> &Path {
        self.source.as_deref().unwrap_or(&self.common)
    }

    /// The administrative directory of the place that this was opened in.
    pub(crate) fn opened_git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Opens `.caliban/worktrees`, each step a real directory; makes it when `make`.
    pub(crate) fn open_place(&self, missing: Missing) -> Result<OwnedFd> {
        let root = rustix::fs::open(
            &self.root,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(|e| Error::at("opening", &self.root, e))?;
        let place = Below::fixed(PLACE);
        let opened = match missing {
            Missing::Make => tree::make_to(&root, &place),
            Missing::Fail => tree::walk_to(&root, &place),
        };
        opened.map_err(|e| {
            let path = place.under(&self.root);
            match rustix::io::Errno::from_io_error(&e) {
                Some(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    Error::Place { path, why: "a part of it is a link or a file, not a directory" }
                }
                _ => Error::at("opening", &path, e),
            }
        })
    }

    /// Every worktree of ours in the repository's records, by name.
    pub(crate) fn located(&self) -> Result<Vec<Located>> {
        let records = self.common.join("worktrees");
        let mut found = Vec::new();
        for admin in admin_dirs(&records)? {
            found.extend(self.located_at(admin));
        }
        // A forged second record of a name never hides the one that is really there.
        found.sort_by(|a, b| (&a.name, a.moved.is_some()).cmp(&(&b.name, b.moved.is_some())));
        found.dedup_by(|later, first| later.name == first.name);
        Ok(found)
    }

    /// The worktree of ours that a record is about.
    fn located_at(&self, admin: PathBuf) -> Option<Located> {
        let marker = Marker::read(&admin)?;
        let path = self.path_of(&marker.name);
        let moved = read_gitdir(&admin).filter(|recorded| *recorded != path);
        Some(Located { name: marker.name.clone(), path, admin, marker, moved })
    }

    pub(crate) fn locate(&self, name: &Slug) -> Result<Located> {
        // git names the record after the worktree, unless that name was taken.
        let admin = self.common.join("worktrees").join(name.as_str());
        let is_real = admin.symlink_metadata().is_ok_and(|found| found.is_dir());
        if let Some(at) = is_real.then(|| self.located_at(admin)).flatten()
            && at.name == *name
            && at.moved.is_none()
        {
            return Ok(at);
        }
        self.located()?
            .into_iter()
            .find(|at| at.name == *name)
            .ok_or_else(|| Error::NotFound(name.as_str().to_owned()))
    }

    /// The record whose worktree is at `path`, whoever made it.
    pub(crate) fn admin_of(&self, path: &Path) -> Result<Option<PathBuf>> {
        let dirs = admin_dirs(&self.common.join("worktrees"))?;
        Ok(dirs.into_iter().find(|admin| read_gitdir(admin).as_deref() == Some(path)))
    }

    /// Whether a tree other than the one at `but` has the branch checked out; `None` where the files do not say that.
    pub(crate) fn checked_out_by_files(&self, branch: &str, but: Option<&Path>) -> Option<bool> {
        let wanted = format!("ref: refs/heads/{branch}");
        let mut dirs = admin_dirs(&self.common.join("worktrees")).ok()?;
        dirs.push(self.common.clone());
        for dir in dirs {
            let head = match tree::read_small(&dir.join("HEAD"), GITDIR_CAP) {
                // A removal has begun to delete it.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                head => head.ok()?,
            };
            let head = head.trim_ascii_end();
            if head == REFTABLE_HEAD {
                return None;
            }
            if head == wanted.as_bytes() && (but.is_none() || read_gitdir(&dir).as_deref() != but) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Where a ref is checked out, by git's own list of worktrees.
    pub(crate) async fn checkouts_of(&self, name: &str) -> Result<Vec<PathBuf>> {
        let call = self.git.hardened(self.store(), "worktree").args(["list", "--porcelain", "-z"]);
        let (mut place, mut found, mut is_main) = (PathBuf::new(), Vec::new(), true);
        for field in call.ok().await?.fields() {
            let field = field.as_encoded_bytes();
            if let Some(path) = field.strip_prefix(b"worktree ") {
                // The first is the main tree, which git takes to be where it was told that the store is.
                let path = PathBuf::from(OsString::from_vec(path.to_vec()));
                place = if std::mem::take(&mut is_main) { self.root.clone() } else { path };
            } else if field.strip_prefix(b"branch ") == Some(name.as_bytes()) {
                found.push(place.clone());
            }
        }
        Ok(found)
    }

    /// What a ref points at, if it exists.
    pub(crate) async fn resolve_ref(&self, name: &str) -> Result<Option<Oid>> {
        let call =
            self.git.hardened(self.store(), "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        let answer = call.arg(format!("{name}^{{commit}}")).run().await?;
        Ok(if answer.status.success() { Oid::parse(&answer.line()) } else { None })
    }

    /// Holds a worktree, when no work is being landed from it any more.
    pub(crate) async fn hold(&self, at: &Located) -> Result<Lease> {
        let until = Instant::now() + LANDING_LIMIT;
        loop {
            if let Some(lease) = self.try_hold(at).await? {
                return Ok(lease);
            }
            if !self.is_landing() || Instant::now() > until {
                return Err(Error::Busy { name: at.name.as_str().to_owned(), path: at.path.clone() });
            }
        }
    }

    /// Holds a worktree if nobody else does. Others look at leases by taking them for a moment, so a held one is asked again
    /// for a while.
    pub(crate) async fn try_hold(&self, at: &Located) -> Result<Option<Lease>> {
        let failed = |e: std::io::Error| Error::at("locking", &at.path, e);
        for tried in 0.. {
            let dir = tree::open_dir(&at.path).map_err(failed)?;
            if let Some(lease) = Lease::take(dir).map_err(failed)? {
                return Ok(Some(lease));
            }
            if tried == LEASE_TRIES {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(LOCK_LOOK) => {}
                () = self.git.cancel.cancelled() => return Err(Error::Cancelled),
            }
        }
        Ok(None)
    }

    /// Takes the lock for removals: two of them must not each count on the other's branch. `records` is the
    /// open `.git/worktrees`.
    pub(crate) async fn lock_removals(&self, records: &OwnedFd) -> Result<(Locked, Waited)> {
        let own = tree::walk_to(records, &Below::here())
            .map_err(|e| Error::io("opening the records of worktrees", e))?;
        let mut waited = Waited::No;
        let locked = Locked::take(own, || waited = Waited::Yes, &self.git.cancel).await?;
        Ok((locked, waited))
    }

    /// Takes the lock for git's records: a `git worktree add` fails when it meets one that is half written or
    /// half deleted. Held for milliseconds.
    pub(crate) async fn lock_records(&self) -> Result<Locked> {
        let own = tree::open_dir(&self.common).map_err(|e| Error::at("opening", &self.common, e))?;
        Locked::take(own, || {}, &self.git.cancel).await
    }
}

/// Whether somebody else had a lock first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

impl Locked {
    /// Locks an open directory. Calls `on_wait` once when somebody else has it.
    pub(crate) async fn take(
        own: OwnedFd,
        on_wait: impl FnOnce(),
        cancel: &CancellationToken,
    ) -> Result<Self> {
        let mut on_wait = Some(on_wait);
        loop {
            match rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _held: own }),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if let Some(on_wait) = on_wait.take() {
                        on_wait();
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("locking the repository's worktrees", e)),
            }
            tokio::select! {
                () = tokio::time::sleep(LOCK_LOOK) => {}
                () = cancel.cancelled() => return Err(Error::Cancelled),
            }
        }
    }
}

/// The bare repository that is hidden in `dir`, if it is the only one: git itself does not find it from there.
pub(crate) fn hidden_bare(dir: &Path) -> Option<PathBuf> {
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let mut found = entries.filter(|path| is_hidden(path) && is_git_dir(path));
    found.next().filter(|_| found.next().is_none())
}

/// Whether a directory looks like a git directory, by what git itself looks at.
pub(crate) fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// What [`Repo::open_place`] does when there is no such directory yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    Fail,
}

/// A lock, given back by drop.
#[derive(Debug)]
pub(crate) struct Locked {
    _held: OwnedFd,
}

impl Lease {
    /// Takes the lease of an open worktree directory, if nobody has it.
    pub(crate) fn take(fd: OwnedFd) -> std::io::Result<Option<Self>> {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { fd })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// Paths as `check-ignore` reads them. It takes them for patterns of its own where they begin with `:`.
pub(crate) fn asked_to_ignore<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    paths.flat_map(|path| [HERE, path, b"\0"].concat()).collect()
}

/// A path of its answer, as it was asked for.
pub(crate) fn told_ignored(path: &[u8]) -> &[u8] {
    path.strip_prefix(HERE).unwrap_or(path)
}

/// What makes of any name a path and nothing else.
const HERE: &[u8] = b"./";

pub(crate) fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0).filter(|part| !part.is_empty())
}

fn admin_dirs(records: &Path) -> Result<Vec<PathBuf>> {
    let listing = match std::fs::read_dir(records) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::at("reading", records, e)),
    };
    let mut dirs = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|e| Error::at("reading", records, e))?;
        // A link in there is nobody's worktree.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    Ok(dirs)
}

/// The worktree that an administrative directory names.
fn read_gitdir(admin: &Path) -> Option<PathBuf> {
    let bytes = tree::read_small(&admin.join("gitdir"), GITDIR_CAP).ok()?;
    let text = PathBuf::from(OsString::from_vec(bytes.trim_ascii_end().to_vec()));
    // Newer gits may write it relative to the administrative directory.
    let path = if text.is_absolute() { text } else { normal(&admin.join(text)) };
    Some(path.parent()?.to_path_buf())
}

/// `a/b/../c` as `a/c`, by text alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Finds the root, which follows from the store alone, so that every way into a repository finds the same worktrees. Writes
/// down what hardened calls must know of the configuration.
async fn find_root(git: &mut Git, common: &Path) -> Result<PathBuf> {
    let call = git.trusted(common, "config").env("GIT_DIR", common).with_patience(git.options.patience);
    // Exit code 1 is "none of them".
    let found = call.args(["-z", "--get-regexp", DESCRIBING]).run().await?;
    let (mut bare, mut worktree) = (false, None);
    let mut core = BTreeMap::new();
    for entry in split_nul(&found.stdout) {
        let mut parts = entry.splitn(2, |b| *b == b'\n');
        let (key, value) = (parts.next().unwrap_or_default(), parts.next());
        // A key without a value is true.
        let is_true = value.is_none_or(|v| matches!(v, b"true" | b"yes" | b"on" | b"1"));
        match (key, value) {
            (b"core.bare", _) => bare = is_true,
            (b"core.worktree", Some(value)) => {
                worktree = Some(common.join(PathBuf::from(OsString::from_vec(value.to_vec()))));
            }
            (b"core.sharedrepository", Some(value)) if value.iter().all(u8::is_ascii_alphanumeric) => {
                core.insert("sharedrepository", String::from_utf8_lossy(value).into_owned());
            }
            // An agent can write these two, and git would not see a changed mode or link. So the file system is asked.
            (b"core.filemode", _) => {
                core.insert("filemode", (is_true || marks_executable(common)).to_string());
            }
            (b"core.symlinks", _) => {
                core.insert("symlinks", (is_true || holds_links(common)).to_string());
            }
            (b"core.ignorecase", _) => {
                core.insert("ignorecase", is_true.to_string());
            }
            (b"core.precomposeunicode", _) => {
                core.insert("precomposeunicode", is_true.to_string());
            }
            _ => {}
        }
    }
    git.format.is_bare = bare;
    git.format.core = core.into_iter().collect();
    let hidden = common.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_dot_git = common.file_name().is_some_and(|name| name == ".git");
    let root = match (bare, worktree) {
        (false, Some(worktree)) => worktree,
        (false, None) if is_dot_git => common.parent().unwrap_or(common).to_path_buf(),
        (true, _) if hidden => common.parent().unwrap_or(common).to_path_buf(),
        _ => common.to_path_buf(),
    };
    #[expect(clippy::disallowed_methods, reason = "the user's configuration says where it is")]
    let root = root.canonicalize().map_err(|e| Error::at("resolving", &root, e))?;
    Ok(root)
}

/// Whether files in this directory can be executable or not. Tried, as `git init` does.
fn marks_executable(dir: &Path) -> bool {
    let path = dir.join(nonce_name("caliban-probe"));
    let probe = || -> std::io::Result<bool> {
        let file = std::fs::File::create_new(&path)?;
        let reads_back = |mode| -> std::io::Result<bool> {
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            Ok(file.metadata()?.permissions().mode() & 0o777 == mode)
        };
        Ok(reads_back(0o755)? && reads_back(0o644)?)
    };
    let found = probe();
    // Best effort by name: mostly it is there.
    let _gone = std::fs::remove_file(&path);
    // Where nothing can be written, modes cannot be told to be useless.
    found.unwrap_or(true)
}

/// Whether a link can be made in this directory. Tried.
fn holds_links(dir: &Path) -> bool {
    let path = dir.join(nonce_name("caliban-probe"));
    let made = std::os::unix::fs::symlink("nowhere", &path);
    // Best effort by name: it may not have been made.
    let _gone = std::fs::remove_file(&path);
    made.is_ok()
}
