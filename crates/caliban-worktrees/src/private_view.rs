//! The private git of an agent in a worktree of its own: a git directory that the agent's commands find in the place of the
//! repository's, so that `git commit` works in a fence and nothing of the repository can be changed there.
//!
//! It lies in `.git/caliban/<name>/`. Its objects are its own; the repository's are read through a mount. Before a command it
//! takes in what the user's git says ([`refresh`]), after a command the repository takes over what the agent's git says
//! ([`publish`]): the branch, HEAD, the index, unfinished operations. Objects of the agent's stay in it until the worktree is
//! removed. Everything in it may be hostile: it is read and written beneath open directories, and git reads it only in a fence.

mod base;
mod config;
mod index_file;
mod names;
mod objects;
mod plan;
mod publish;
mod refresh;
mod side;
mod state_files;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use caliban_core::fence::Profile;
use caliban_core::names::Slug;
use caliban_fence::{Access, Around, Fence};
use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};
use rustix::fs::FlockOperation;
use tokio_util::sync::CancellationToken;

use self::base::Base;
use self::names::RefNames;
use crate::error::{Error, Result};
use crate::repo::{Located, Repo};

/// Where the private gits of a repository are, in its store.
pub(crate) const PLACE: &str = "caliban";
/// Says that all of a private git is published, and that it goes with its worktree.
const PUBLISHED: &str = "published";
/// The configuration that is made from the user's; the agent's own includes it.
const CONFIG: &str = "caliban-config";
/// Where the user's hooks are in the fence.
const HOOKS: &str = "/caliban/hooks";
const LARGE: &str = "/caliban/lfs";

/// The paths that an index names, in either format of object ids. None when it cannot be read.
pub(crate) fn indexed(index: &[u8]) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStringExt as _;
    let parsed = [20, 32].into_iter().find_map(|id| index_file::Index::parse(index, id).ok());
    let paths = parsed?.entries.into_iter().map(|entry| PathBuf::from(OsString::from_vec(entry.path)));
    Some(paths.collect())
}

/// The places of submodules that an index names, in either format of object ids. None when it cannot be read.
pub(crate) fn gitlinks(index: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let parsed = [20, 32].into_iter().find_map(|id| index_file::Index::parse(index, id).ok());
    let entries = parsed.map(|index| index.entries).unwrap_or_default();
    let links = entries.into_iter().filter(index_file::IndexFileEntry::is_gitlink);
    links.map(|entry| PathBuf::from(OsString::from_vec(entry.path))).collect()
}

fn words(why: &str) -> Error {
    Error::PrivateGit(why.to_owned())
}

/// The private git of one worktree.
#[derive(Debug, Clone)]
pub struct PrivateGit {
    repo: Repo,
    at: Located,
    /// Where it lies.
    dir: PathBuf,
    /// The name of the worktree's record.
    id: OsString,
    names: RefNames,
    /// Our own program, which puts fences up.
    helper: PathBuf,
    /// The configuration that the agent's git begins with.
    config: String,
}

impl Repo {
    /// The private git of a worktree, made when it is not there. An error says why commands there cannot have one.
    pub async fn private_git(
        &self,
        name: &Slug,
        helper: &Path,
        cancel: &CancellationToken,
    ) -> Result<PrivateGit> {
        let repo = &self.until(cancel);
        let at = repo.locate(name)?;
        at.marker.finished()?;
        if at.moved.is_some() {
            return Err(words("the worktree was moved"));
        }
        for (place, why) in [
            (repo.common_dir().join("reftable"), "the repository keeps its refs in tables"),
            (
                repo.common_dir().join("objects/info/alternates"),
                "the repository takes objects from another one",
            ),
            (
                at.admin.join("config.worktree"),
                "the worktree has a configuration of its own (sparse checkout)",
            ),
            (at.admin.join("info/sparse-checkout"), "the worktree is a sparse checkout"),
            (at.admin.join("modules"), "the worktree has submodules"),
        ] {
            if place.symlink_metadata().is_ok() {
                return Err(words(why));
            }
        }
        let config = config::of(repo).await?;
        let id = at.admin.file_name().unwrap_or_default().to_owned();
        let dir = repo.common_dir().join(PLACE).join(name.as_str());
        let names = RefNames::new(name.as_str());
        let view = PrivateGit { repo: repo.clone(), at, dir, id, names, helper: helper.to_owned(), config };
        if Base::read(&view.dir)?.is_some_and(|base| base.made != view.at.marker.created) {
            aside(&view.dir).map_err(|e| Error::at("setting aside", &view.dir, e))?;
        }
        // What cannot be read now could not be read after a command either.
        view.outside()?;
        Ok(view)
    }

    /// Publishes what commands of the agent's left in the private git of a worktree, if it has one. None when it has none.
    pub(crate) async fn publish_private(&self, at: &Located) -> Result<Option<PrivateGit>> {
        if self.common_dir().join(PLACE).join(at.name.as_str()).join("git").symlink_metadata().is_err() {
            return Ok(None);
        }
        let helper =
            self.git.options.helper.clone().ok_or_else(|| words("nobody said what puts fences up"))?;
        let view = self.private_git(&at.name, &helper, &self.git.cancel).await?;
        let settled = tokio::task::spawn_blocking(move || view.settle().map(|_| view)).await;
        settled.map_err(|e| Error::io("publishing", io::Error::other(e)))?.map(Some)
    }

    /// The same before the work of an agent is looked at or landed: a worker that was killed has not published what its last command
    /// did. What cannot be published stays where it is.
    pub(crate) async fn publish_left(&self, at: &Located) -> Result<()> {
        if at.moved.is_some() || at.marker.finished().is_err() {
            return Ok(());
        }
        self.publish_private(at).await.map(drop)
    }

    /// Deletes the private git of a worktree that is removed, when all of it was published. Otherwise it is kept under another
    /// name, and the note says where.
    pub(crate) async fn retire_private(
        &self,
        at: &Located,
        published: Result<Option<PrivateGit>>,
    ) -> Vec<String> {
        let parent = self.common_dir().join(PLACE);
        let why = match &published {
            Ok(None) => return Vec::new(),
            Ok(Some(view)) if view.has_modules() => "it has submodules of the agent's".to_owned(),
            Ok(Some(view)) => {
                let gone =
                    tree::open_dir(&parent).and_then(|dir| tree::delete(dir, &Below::new(at.name.as_str())?));
                let refs = view.refs().unwrap_or_default();
                let held: Vec<&str> =
                    refs.keys().map(String::as_str).filter(|name| view.names.holds(name)).collect();
                let mut notes = Vec::new();
                if !held.is_empty() {
                    notes.push(format!("other refs of it stay: {}", held.join(", ")));
                }
                match gone {
                    Ok(()) => return notes,
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        let aside = aside(&parent.join(at.name.as_str()));
        match aside {
            Ok(path) => vec![format!("its private git is kept in {}: {why}", path.display())],
            Err(error) => vec![format!("its private git stays: {why}; {error}")],
        }
    }
}

/// Whether a private git whose worktree is gone holds nothing that is nowhere else: all of it was published, or there is none.
pub(crate) fn may_go(dir: &Path) -> bool {
    let is_there = |name: &str| dir.join(name).symlink_metadata().is_ok();
    is_there(PUBLISHED) || !is_there("git")
}

/// Gives it another name.
#[expect(clippy::disallowed_methods, reason = "in a directory that no agent can write")]
fn aside(dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // No worktree can have this name.
    let path = dir.with_file_name(nonce_name(&format!("{name}.kept")));
    fs::rename(dir, &path)?;
    Ok(path)
}

impl PrivateGit {
    /// Says on the disk that it goes with its worktree, before that does: whoever finds it later knows that it may go.
    pub(crate) fn mark_published(&self) -> Result<()> {
        if self.has_modules() {
            return Ok(());
        }
        let failed = |e: io::Error| Error::at("marking", &self.dir, e);
        self.lock_file(PUBLISHED).and_then(|file| file.sync_all()).map_err(failed)?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    fn has_modules(&self) -> bool {
        let has = |directory: Result<OwnedFd>| {
            directory.is_ok_and(|it| !matches!(tree::stat(it, &Below::fixed("modules")), Ok(None)))
        };
        has(self.open_git()) || has(self.open_git().and_then(|git| self.open_own_record(&git)))
    }

    /// What is done around one command of the agent's.
    pub fn around(self: &Arc<Self>) -> Arc<dyn Around> {
        Arc::new(ViewCommand { view: self.clone(), alive: Mutex::new(None) })
    }

    /// Publishes what is there; lines for the model.
    pub fn settle(&self) -> Result<Vec<String>> {
        // One that was removed meanwhile is not made again.
        if self.dir.symlink_metadata().is_err() {
            return Ok(Vec::new());
        }
        let _turn = self.lock().map_err(|e| Error::at("locking", &self.dir, e))?;
        let Some(mut base) = Base::read(&self.dir)? else { return Ok(Vec::new()) };
        if self.git_dir().symlink_metadata().is_err() {
            return Ok(Vec::new());
        }
        let alive = self.alive()?;
        if is_alone(&alive) {
            self.sweep_locks()?;
        }
        self.publish(&mut base)
    }

    fn git_dir(&self) -> PathBuf {
        self.dir.join("git")
    }

    /// Bytes of an object id.
    fn id_bytes(&self) -> usize {
        if self.repo.git.format.is_sha256 { 32 } else { 20 }
    }

    fn open_git(&self) -> Result<OwnedFd> {
        tree::open_dir(&self.git_dir()).map_err(|e| Error::at("opening", &self.git_dir(), e))
    }

    /// The worktree's record in the agent's git.
    fn open_own_record(&self, git: &OwnedFd) -> Result<OwnedFd> {
        let failed = |e| Error::at("opening", &self.git_dir().join("worktrees").join(&self.id), e);
        let name = Below::fixed("worktrees").join(&self.id).map_err(failed)?;
        tree::walk_to(git, &name).map_err(failed)
    }

    /// One at a time works on it.
    fn turn(&self) -> Result<File> {
        let failed = |e: io::Error| Error::at("locking", &self.dir, e);
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let turn = self.lock().map_err(failed)?;
        // A removal that did not come about has said so; from now on there is more.
        match fs::remove_file(self.dir.join(PUBLISHED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(turn),
        }
    }

    fn lock(&self) -> io::Result<File> {
        let file = self.lock_file("lock")?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Every command of the agent's holds this together with the others.
    fn alive(&self) -> Result<File> {
        self.lock_file("alive").map_err(|e| Error::at("locking", &self.dir, e))
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        File::options().read(true).write(true).create(true).truncate(false).open(self.dir.join(name))
    }

    /// Before a command: everything that was left is published, then the agent's git takes in what the user's says.
    fn begin(&self) -> Result<File> {
        let _turn = self.turn()?;
        let mut base = match Base::read(&self.dir)? {
            Some(base) => base,
            None => {
                let base = Base { made: self.at.marker.created, ..Base::default() };
                base.write(&self.dir)?;
                base
            }
        };
        if self.git_dir().symlink_metadata().is_err() {
            if !base.is_new() {
                return Err(words(&format!("{} is gone", self.git_dir().display())));
            }
            self.make().map_err(|e| Error::at("making", &self.git_dir(), e))?;
        }
        let alive = self.alive()?;
        if is_alone(&alive) {
            self.sweep_locks()?;
            if base.is_new() {
                self.refresh(&mut base)?;
            } else {
                // What cannot be published must not be covered either. The agent may have to mend its git itself; what is
                // wrong is told after the command.
                let _told_then = self.publish(&mut base).and_then(|_| self.refresh(&mut base));
            }
        }
        rustix::fs::flock(&alive, FlockOperation::LockShared)
            .map_err(|e| Error::at("locking", &self.dir, e))?;
        Ok(alive)
    }

    /// After a command.
    fn end(&self, alive: File) -> Result<Vec<String>> {
        let _turn = self.turn()?;
        let mut base = Base::read(&self.dir)?.ok_or_else(|| words("its record is gone"))?;
        if is_alone(&alive) {
            self.sweep_locks()?;
        }
        self.publish(&mut base)
    }

    /// Makes an empty one, whole or not at all.
    #[expect(clippy::disallowed_methods, reason = "in a directory that no agent can write")]
    fn make(&self) -> io::Result<()> {
        let new = self.dir.join(nonce_name("git"));
        let record = new.join("worktrees").join(&self.id);
        for made in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            fs::create_dir_all(new.join(made))?;
        }
        fs::create_dir_all(record.join("logs"))?;
        let is_sha256 = self.repo.git.format.config(false);
        fs::write(new.join("config"), format!("{is_sha256}[include]\npath = {CONFIG}\n"))?;
        fs::write(new.join("objects/info/alternates"), format!("{}\n", objects::SHARED))?;
        fs::write(new.join("HEAD"), "ref: refs/heads/main\n")?;
        fs::write(record.join("HEAD"), format!("ref: {}\n", self.names.own()))?;
        fs::write(record.join("commondir"), "../..\n")?;
        fs::copy(self.at.admin.join("gitdir"), record.join("gitdir"))?;
        fs::rename(&new, self.git_dir())
    }

    /// What the agent's command finds in the place of the repository's git directory.
    fn show(&self, fence: &mut Fence) -> Result<()> {
        let common = self.repo.common_dir();
        // The worktrees of a bare repository lie in it.
        let tree = &self.at.path;
        let is_gits = |path: &Path| path.starts_with(common) && !path.starts_with(tree);
        fence.binds.retain(|bind| !is_gits(bind.target.path()));
        fence.held.retain(|held| !is_gits(held.target.path()));
        if let Ok(inside) = tree.strip_prefix(common) {
            let place = self.git_dir().join(inside);
            fs::create_dir_all(&place).map_err(|e| Error::at("making", &place, e))?;
        }
        let access = if fence.profile == Profile::Edit { Access::ReadWrite } else { Access::ReadOnly };
        objects::show(fence, &self.git_dir(), common, access)?;
        objects::show(fence, &common.join("objects"), Path::new(objects::SHARED), Access::ReadOnly)?;
        for (name, place) in [("hooks", HOOKS), ("lfs", LARGE)] {
            if common.join(name).is_dir() {
                objects::show(fence, &common.join(name), Path::new(place), Access::ReadOnly)?;
            }
        }
        Ok(())
    }
}

/// Whether no other command of the agent's holds it. Asked in turn, so that none begins meanwhile.
fn is_alone(alive: &File) -> bool {
    rustix::fs::flock(alive, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// The steps around one command.
struct ViewCommand {
    view: Arc<PrivateGit>,
    alive: Mutex<Option<File>>,
}

impl Around for ViewCommand {
    fn before(&self, fence: &mut Fence) -> std::result::Result<(), String> {
        let alive = self.view.begin().map_err(|error| error.to_string())?;
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(alive);
        self.view.show(fence).map_err(|error| error.to_string())
    }

    fn after(&self, _: &Fence) -> Vec<String> {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(alive) = alive else { return Vec::new() };
        self.view.end(alive).unwrap_or_else(|error| {
            vec![format!(
                "[what git did here is not visible outside of this worktree's private git yet: {error}; it is tried again with \
                 the next command]"
            )]
        })
    }
}
