//! Making a worktree: all of it, or nothing is left.
//!
//! The order is: claim the directory, make the branch, let git record the worktree without files, write our
//! marker, then fill it (sparse patterns, checkout, links, included files, setup command). Whatever fails,
//! the directory, the record and the branch go again.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use caliban_contract::disk_room;
use caliban_core::names::Slug;
use caliban_rooted::{Below, tree};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::exclude;
use crate::git::GitCall;
use crate::include;
use crate::links::{self, LinkPath};
use crate::marker::{Making, Marker, Oid};
use crate::progress::{CreationPhase, Progress, parse_checkout};
use crate::repo::{Lease, Missing, PLACE, Repo, branch_of};
use crate::setup::{self, Setup};
use crate::sparse::{self, SparsePath};

/// With less room than this, a file that git cannot write means a full disk.
const NEARLY_FULL: u64 = 16 * 1024 * 1024;
/// With less room than this, whatever git cannot do means a full disk.
const FULL: u64 = 256 * 1024;

/// What a worktree's branch starts from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BaseRef {
    /// The current commit.
    #[default]
    Head,
    /// The current commit, with hardly a file checked out: the root's own files and what `sparse_paths` names.
    Fresh,
    /// Whatever `git rev-parse` makes a commit of.
    Revision(String),
}

impl From<String> for BaseRef {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" | "head" | "HEAD" => Self::Head,
            "fresh" => Self::Fresh,
            _ => Self::Revision(text),
        }
    }
}

impl From<BaseRef> for String {
    fn from(base: BaseRef) -> Self {
        match base {
            BaseRef::Head => "head".into(),
            BaseRef::Fresh => "fresh".into(),
            BaseRef::Revision(text) => text,
        }
    }
}

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    /// The worktree's name; its branch is `caliban/<name>`.
    pub name: Slug,
    /// What it starts from.
    pub base_ref: BaseRef,
    /// The commit that `base_ref` stood for when somebody asked; what it stands for now when absent.
    pub base_commit: Option<String>,
    /// Directories to check out, cone mode; empty means all files.
    pub sparse_paths: Vec<String>,
    /// Directories of the repository that are linked, not copied.
    pub symlink_directories: Vec<String>,
    /// A command that runs in the new worktree.
    pub setup: Option<Setup>,
    /// Who asks: an agent's id, a session's id. Recorded, not interpreted.
    pub owner: Option<String>,
    /// A path that exists for as long as somebody counts on the worktree: until then no sweep takes it.
    pub holder: Option<PathBuf>,
}

impl CreateRequest {
    /// A plain worktree of HEAD.
    pub fn new(name: Slug) -> Self {
        Self {
            name,
            base_ref: BaseRef::Head,
            base_commit: None,
            sparse_paths: Vec::new(),
            symlink_directories: Vec::new(),
            setup: None,
            owner: None,
            holder: None,
        }
    }
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Created {
    /// Its name.
    pub name: Slug,
    /// Its root: the agent's working directory.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
    /// The commit it starts from.
    pub base: Oid,
    /// Directories linked into it.
    pub links: Vec<String>,
    /// Files copied into it through `.worktreeinclude`.
    pub included: Vec<String>,
    /// What the user should know: submodules left alone, files not copied, paths that match nothing.
    pub notes: Vec<String>,
}

/// A worktree, held by its lease.
#[derive(Debug)]
pub struct Worktree {
    /// What was made.
    pub created: Created,
    /// Keeps sweeps of other processes away while it lives.
    pub lease: Lease,
    branch_made: bool,
}

/// A callback for progress.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A request whose every part was checked.
struct Checked {
    name: Slug,
    base: Oid,
    sparse: Option<Vec<SparsePath>>,
    links: Vec<LinkPath>,
    /// The base that is recorded, when a worktree is made again.
    recorded: Option<Oid>,
}

/// Where a new worktree's branch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Branch {
    Made,
    Taken,
}

/// What exists so far, so that a failure can take it away again.
struct Undo {
    claimed: bool,
    branch_made: bool,
}

impl Repo {
    /// Makes the worktree, or leaves nothing behind.
    pub async fn create(
        &self,
        request: CreateRequest,
        progress: OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Worktree> {
        let repo = &self.until(cancel);
        repo.create_at(request, None, progress).await
    }

    /// The worktree of that name, for whoever goes on in it: found and held, finished where its making was cut short, made
    /// again where its files are gone, or made. Its base and branch are then the recorded ones, whatever HEAD is now.
    pub async fn take_up(
        &self,
        request: CreateRequest,
        progress: OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Worktree> {
        let repo = &self.until(cancel);
        let at = match repo.locate(&request.name) {
            Ok(at) => at,
            Err(Error::NotFound(_)) => return repo.recreate(request, None, progress).await,
            Err(error) => return Err(error),
        };
        if let Some(path) = at.moved {
            return Err(Error::Moved { name: at.name.as_str().to_owned(), path });
        }
        if at.path.symlink_metadata().is_err() {
            return repo.recreate(request, Some(&at), progress).await;
        }
        if !at.path.is_dir() {
            return Err(Error::FilesGone { name: at.name.as_str().to_owned(), path: at.path });
        }
        let lease = repo.hold(&at).await?;
        let created = match at.marker.making {
            Making::Finished => created(&at.marker, at.path),
            Making::Begun => {
                let (sparse, links) = repo.wanted(&request)?;
                let checked =
                    Checked { name: at.name, base: at.marker.base.clone(), recorded: None, sparse, links };
                clear_unfinished(&lease, &at.admin).map_err(|e| Error::at("clearing", &at.path, e))?;
                let filled = repo.fill(&request, &checked, &lease, &at.admin, at.marker, progress).await;
                filled.map_err(|e| repo.full_disk(e))?
            }
        };
        Ok(Worktree { created, lease, branch_made: false })
    }

    /// Like [`Repo::create`]; with `recorded`, a worktree that existed is made again: its branch is taken when it
    /// is still where it was, and that commit is recorded as its base.
    pub(crate) async fn create_at(
        &self,
        request: CreateRequest,
        recorded: Option<Oid>,
        progress: OnProgress<'_>,
    ) -> Result<Worktree> {
        progress(Progress::begin(CreationPhase::Resolve));
        let checked = self.check(&request, recorded).await?;
        exclude::ensure(self.common_dir(), &format!("/{PLACE}/"))?;
        let place = self.open_place(Missing::Make)?;
        self.clear_half_made(&checked.name, &place).await?;
        let mut undo = Undo { claimed: false, branch_made: false };
        let made = self.make(&request, &checked, &place, &mut undo, progress).await;
        // Looked at before the undo makes room.
        let made = made.map_err(|e| self.full_disk(e));
        if made.is_err() {
            self.undo(&checked.name, &checked.base, &place, undo).await;
        }
        made
    }

    /// Takes a worktree away that was made a moment ago and that nobody has worked in.
    pub(crate) async fn discard(&self, worktree: &Worktree, base: &Oid) {
        if let Ok(place) = self.open_place(Missing::Fail) {
            let undo = Undo { claimed: true, branch_made: worktree.branch_made };
            self.undo(&worktree.created.name, base, &place, undo).await;
        }
    }

    async fn check(&self, request: &CreateRequest, recorded: Option<Oid>) -> Result<Checked> {
        let (sparse, links) = self.wanted(request)?;
        let base = match request.base_commit.clone() {
            Some(commit) => self.resolve_base(&BaseRef::Revision(commit)).await?,
            None => self.resolve_base(&request.base_ref).await?,
        };
        Ok(Checked { name: request.name.clone(), base, recorded, sparse, links })
    }

    /// The parts that the request names: what is checked out, if not all, and what is linked.
    fn wanted(&self, request: &CreateRequest) -> Result<(Option<Vec<SparsePath>>, Vec<LinkPath>)> {
        let sparse = request.sparse_paths.iter().map(|p| SparsePath::parse(p)).collect::<Result<Vec<_>>>()?;
        let sparse = match (&request.base_ref, sparse.is_empty()) {
            (BaseRef::Fresh, _) | (_, false) => Some(sparse),
            (BaseRef::Head | BaseRef::Revision(_), true) => None,
        };
        Ok((sparse, links::check(self.source(), &request.symlink_directories)?))
    }

    async fn resolve_base(&self, base: &BaseRef) -> Result<Oid> {
        let revision = match base {
            BaseRef::Head | BaseRef::Fresh => "HEAD",
            BaseRef::Revision(text) => text.as_str(),
        };
        self.resolve_revision(revision).await.map_err(|error| match error {
            Error::UnknownRevision(_) if revision == "HEAD" => Error::UnbornHead,
            other => other,
        })
    }

    async fn make(
        &self,
        request: &CreateRequest,
        checked: &Checked,
        place: &OwnedFd,
        undo: &mut Undo,
        progress: OnProgress<'_>,
    ) -> Result<Worktree> {
        let path = self.path_of(&checked.name);
        let lease = self.claim(&checked.name, place, undo)?;
        undo.branch_made = self.make_branch(checked).await? == Branch::Made;
        let branch = branch_of(&checked.name);
        let admin = self.record(&path, &branch).await?;
        let lease = self.keep_lease(lease, &checked.name, place)?;
        let marker = Marker {
            making: Making::Begun,
            kept: false,
            name: checked.name.clone(),
            base: checked.recorded.clone().unwrap_or_else(|| checked.base.clone()),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            owner: request.owner.clone(),
            holder: request.holder.clone(),
            rescues: self.rescues_of(&checked.name).await?.into_iter().map(|r| r.commit).collect(),
            // A path that is not text cannot be recorded; then removal saves what it cannot compare.
            source: self.source().filter(|p| p.to_str().is_some()).map(Path::to_path_buf),
            links: checked.links.iter().map(|l| l.relative()).collect(),
            excludes: exclude::rules(self.common_dir())?,
            included: Vec::new(),
        };
        marker.write(&admin)?;
        let created = self.fill(request, checked, &lease, &admin, marker, progress).await?;
        Ok(Worktree { created, lease, branch_made: undo.branch_made })
    }

    /// Puts everything into a worktree that git has recorded, and records that it is whole.
    async fn fill(
        &self,
        request: &CreateRequest,
        checked: &Checked,
        lease: &Lease,
        admin: &Path,
        mut marker: Marker,
        progress: OnProgress<'_>,
    ) -> Result<Created> {
        let path = self.path_of(&checked.name);
        let mut notes = Vec::new();
        self.check_out(checked, &path, admin, &mut notes, progress).await?;
        self.link(checked, lease, &mut notes, progress).await?;
        marker.included = self.include(lease, &mut notes, progress).await?;
        if path.join(".gitmodules").symlink_metadata().is_ok() {
            notes.push("submodules are left alone: their directories are empty".to_owned());
        }
        if let Some(setup) = &request.setup {
            progress(Progress::begin(CreationPhase::Setup));
            setup::run(setup, &path, self.root(), &self.git.cancel).await?;
        }
        marker.making = Making::Finished;
        marker.write(admin)?;
        Ok(Created { notes, base: checked.base.clone(), ..created(&marker, path) })
    }

    /// Lets git record the worktree, without files yet, and gives its administrative directory.
    async fn record(&self, path: &Path, branch: &str) -> Result<PathBuf> {
        let _records = self.lock_records().await?;
        let added = self.git.retry_locks(&|_| {}, || {
            let call = self.trusted_store("worktree").args(["add", "--quiet", "--no-checkout", "--"]);
            call.arg(path).arg(branch)
        });
        added.await?.ok()?;
        self.admin_of(path)?.ok_or_else(|| Error::Answer {
            command: "worktree add",
            detail: format!("no record of {} was made", path.display()),
        })
    }

    /// A `git worktree add` that failed and was tried again may have made the directory anew.
    fn keep_lease(&self, lease: Lease, name: &Slug, place: &OwnedFd) -> Result<Lease> {
        let path = self.path_of(name);
        let failed = |e: std::io::Error| Error::at("locking", &path, e);
        let id =
            |fd: &OwnedFd| rustix::fs::fstat(fd).map(|s| (s.st_dev, s.st_ino)).map_err(|e| failed(e.into()));
        let there = Below::new(name.as_str()).and_then(|name| tree::walk_to(place, &name)).map_err(failed)?;
        if id(&there)? == id(&lease.fd)? {
            return Ok(lease);
        }
        let busy = || Error::Busy { name: name.as_str().to_owned(), path: path.clone() };
        Lease::take(there).map_err(failed)?.ok_or_else(busy)
    }

    /// Makes the directory: of two that try, one wins. A directory that a killed creation left empty and
    /// unlocked is taken over.
    fn claim(&self, name: &Slug, place: &OwnedFd, undo: &mut Undo) -> Result<Lease> {
        let (text, path) = (name.as_str(), self.path_of(name));
        let exists = || Error::Exists { name: text.to_owned(), path: path.clone() };
        let made = match rustix::fs::mkdirat(place, text, Mode::from_raw_mode(0o777)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(Error::at("making", &path, e)),
        };
        let opened = Below::new(text).and_then(|name| tree::walk_to(place, &name)).map_err(|_| exists())?;
        let lease = Lease::take(opened).map_err(|e| Error::at("locking", &path, e))?.ok_or_else(exists)?;
        // Ours only if it is still the directory at that place: its maker may just have undone it.
        let held = rustix::fs::fstat(&lease.fd).map_err(|e| Error::at("reading", &path, e))?;
        let there = rustix::fs::statat(place, text, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_err()
            || there.is_ok_and(|there| (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino))
        {
            return Err(exists());
        }
        let empty = tree::entries(&lease.fd).map_err(|e| Error::at("reading", &path, e))?.is_empty();
        if !empty || self.admin_of(&path)?.is_some() {
            if made {
                // The files are gone, the record is not: its index and HEAD may still hold work.
                let _emptied = rustix::fs::unlinkat(place, text, AtFlags::REMOVEDIR);
            }
            return Err(exists());
        }
        undo.claimed = true;
        Ok(lease)
    }

    async fn make_branch(&self, checked: &Checked) -> Result<Branch> {
        let branch = branch_of(&checked.name);
        let order = format!("create refs/heads/{branch}\0{}\0", checked.base);
        let answer = self.git.retry_locks(&|_| {}, || {
            let call = self.git.hardened(self.store(), "update-ref").args(["-m", "caliban: worktree"]);
            call.args(["--stdin", "-z"]).stdin(order.clone().into_bytes())
        });
        let answer = answer.await?;
        if answer.status.success() {
            return Ok(Branch::Made);
        }
        match self.resolve_ref(&format!("refs/heads/{branch}")).await? {
            Some(tip) if checked.recorded.is_some() && tip == checked.base => return Ok(Branch::Taken),
            Some(_) => return Err(Error::BranchExists(branch)),
            None => {}
        }
        match answer.failure() {
            Error::Git { stderr, .. } if stderr.contains("cannot lock ref") => {
                Err(Error::BranchConflict { branch, detail: stderr })
            }
            other => Err(other),
        }
    }

    /// A trusted call on the store itself, whatever directory this was opened in.
    fn trusted_store(&self, subcommand: &str) -> GitCall {
        self.git.trusted(self.common_dir(), subcommand).env("GIT_DIR", self.common_dir())
    }

    fn trusted_tree(&self, path: &Path, admin: &Path, subcommand: &str) -> GitCall {
        let call = self.git.trusted(path, subcommand).env("GIT_DIR", admin);
        call.env("GIT_COMMON_DIR", self.common_dir()).env("GIT_WORK_TREE", path)
    }

    async fn check_out(
        &self,
        checked: &Checked,
        path: &Path,
        admin: &Path,
        notes: &mut Vec<String>,
        progress: OnProgress<'_>,
    ) -> Result<()> {
        if let Some(paths) = &checked.sparse {
            notes.extend(sparse::missing(self, &checked.base, paths).await?);
            let patterns = sparse::stdin(paths);
            let set = self.git.retry_locks(&|_| {}, || {
                let call = self.trusted_tree(path, admin, "sparse-checkout");
                call.args(["set", "--cone", "--skip-checks", "--stdin"]).stdin(patterns.clone())
            });
            set.await?.ok()?;
        }
        progress(Progress::begin(CreationPhase::Checkout));
        let line = |line: &str| {
            if let Some(step) = parse_checkout(line) {
                progress(step);
            }
        };
        let checkout = self.git.retry_locks(&line, || {
            let call = self.trusted_tree(path, admin, "checkout");
            call.args(["--progress", "--force", "--no-recurse-submodules"])
        });
        checkout.await?.ok().map(drop)
    }

    async fn link(
        &self,
        checked: &Checked,
        lease: &Lease,
        notes: &mut Vec<String>,
        progress: OnProgress<'_>,
    ) -> Result<()> {
        let (false, Some(source)) = (checked.links.is_empty(), self.source()) else { return Ok(()) };
        progress(Progress::begin(CreationPhase::Links));
        links::make(source, lease.fd.as_fd(), &checked.links)?;
        // `target/` in an ignore file matches a directory, not the link that stands for it.
        let ignored = links::ignored(self, &checked.links).await?;
        for link in &checked.links {
            if ignored.contains(link) {
                exclude::ensure(self.common_dir(), &link.exclude_line())?;
            } else {
                notes.push(format!(
                    "{} is not ignored by git: `git add -A` would commit the link",
                    link.shown()
                ));
            }
        }
        Ok(())
    }

    async fn include(
        &self,
        lease: &Lease,
        notes: &mut Vec<String>,
        progress: OnProgress<'_>,
    ) -> Result<Vec<PathBuf>> {
        let Some(source) = self.source() else { return Ok(Vec::new()) };
        let Some(wanted) = include::wanted(self, source).await? else { return Ok(Vec::new()) };
        progress(Progress::begin(CreationPhase::Include));
        let to =
            tree::walk_to(&lease.fd, &Below::here()).map_err(|e| Error::io("opening the worktree", e))?;
        let (source, stop) = (source.to_path_buf(), self.git.cancel.clone());
        let copied = tokio::task::spawn_blocking(move || include::copy(&source, to.as_fd(), wanted, &stop));
        let copied =
            copied.await.map_err(|e| Error::io("copying included files", std::io::Error::other(e)))??;
        notes.extend(copied.notes);
        Ok(copied.files)
    }

    /// git does not always say why it could not write a file (`couldn't write 'refs/heads/x.lock'`); a disk without room does.
    fn full_disk(&self, error: Error) -> Error {
        let left = |path: &Path| disk_room::left(path).unwrap_or(u64::MAX);
        let room = left(self.common_dir()).min(left(&self.root().join(PLACE)));
        match error {
            Error::Git { command, stderr, .. }
                if room < FULL || (stderr.contains("write") && room < NEARLY_FULL) =>
            {
                Error::DiskFull(format!("running git {command}"))
            }
            Error::BranchConflict { branch, .. } if room < FULL => {
                Error::DiskFull(format!("making the branch {branch}"))
            }
            other => other,
        }
    }

    /// Takes away what a failed creation made. Best effort by name: each step is tried whatever the others do,
    /// and files go first because they give the room that the refs need.
    async fn undo(&self, name: &Slug, base: &Oid, place: &OwnedFd, undo: Undo) {
        if !undo.claimed {
            return;
        }
        let path = self.path_of(name);
        let admin = self.admin_of(&path).ok().flatten();
        let place = place.try_clone().map(Arc::new);
        let (directory, records) = (name.clone(), self.common_dir().join("worktrees"));
        let files = tokio::task::spawn_blocking(move || {
            if let Ok(place) = place {
                let _tried = Below::new(directory.as_str()).and_then(|name| tree::delete(&*place, &name));
            }
            // Does not take the lock for records: an undo must not wait, and a git process that races with it tries again.
            if let (Some(id), Ok(records)) =
                (admin.as_deref().and_then(Path::file_name), tree::open_dir(&records))
            {
                let _tried = Below::new(id).and_then(|id| tree::delete(&records, &id));
            }
        });
        let _tried = files.await;
        if undo.branch_made {
            let order = format!("delete refs/heads/{}\0{base}\0", branch_of(name));
            // The undo runs to its end even when the caller has given up.
            let repo = self.uncancelled();
            let _tried = repo
                .git
                .retry_locks(&|_| {}, || {
                    let call = repo.git.hardened(repo.store(), "update-ref").args(["--stdin", "-z"]);
                    call.stdin(order.clone().into_bytes())
                })
                .await;
        }
    }
}

/// Empties a worktree whose making was cut short, so that it can be filled again: nobody has worked in it.
fn clear_unfinished(lease: &Lease, admin: &Path) -> std::io::Result<()> {
    for (name, _) in tree::entries(&lease.fd)? {
        if name != ".git" {
            tree::delete(&lease.fd, &Below::new(name)?)?;
        }
    }
    // A lock file of the git process that was killed. We hold the lease, so no other process uses this worktree.
    match std::fs::remove_file(admin.join("index.lock")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a marker says of the worktree at `path`.
pub(crate) fn created(marker: &Marker, path: PathBuf) -> Created {
    let shown = |paths: &[PathBuf]| paths.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    Created {
        name: marker.name.clone(),
        path,
        branch: branch_of(&marker.name),
        base: marker.base.clone(),
        links: shown(&marker.links),
        included: shown(&marker.included),
        notes: Vec::new(),
    }
}
