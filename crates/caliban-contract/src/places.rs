//! Where everything of one repo's fleet is: sockets and secrets in the runtime directory, the rest in the data
//! directory.
//!
//! Owns the names (f04, f05), the limit of a socket's path (a02) and the checks that a directory is ours alone
//! (a01). Refuses to read the environment: the binary hands in what it found there, as [`PlaceSources`].

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use caliban_core::hex;
use caliban_core::ids::AgentId;
use sha2::{Digest as _, Sha256};

/// The longest path of a socket that every system takes, with its end mark.
pub const SOCKET_PATH_LIMIT: usize = 104;

/// What the longest socket path adds to the runtime directory: `/<hash>/<id>.sock`.
const LONGEST_TAIL: usize = 1 + HASH_LEN + 1 + AgentId::LEN + 5;
/// The registry's file.
pub const DATABASE: &str = "fleet.db";
/// The runtime directory below the one for temporary files.
pub const TEMPORARY: &str = "caliban-daemon";
/// Characters of a repo's hash.
const HASH_LEN: usize = 16;
/// The largest `.git` or `commondir` file: one path.
const GIT_FILE_CAP: u64 = 16 * 1024;

/// What the binary found in its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceSources {
    /// `$CALIBAN_DAEMON_RUNTIME_DIR`.
    pub daemon_runtime_dir: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `$TMPDIR`; `/tmp` when absent.
    pub tmpdir: Option<PathBuf>,
    /// Caliban's data directory: `$XDG_DATA_HOME/caliban`, else `~/.local/share/caliban`.
    pub data: PathBuf,
}

/// The places of one repo's fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    repo: PathBuf,
    hash: String,
    runtime: PathBuf,
    base: PathBuf,
    /// Why the sockets are not where the environment says, in words.
    elsewhere: Option<String>,
}

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// The directory of the repo cannot be resolved.
    #[error("the directory {path} cannot be used: {source}", path = path.display())]
    Repo {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory cannot be made or looked at.
    #[error("the directory {path} cannot be made: {source}", path = path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not ours alone.
    #[error("the directory {path} is refused: {why}", path = path.display())]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A relative directory would mean another place in another process.
    #[error("the directory {path} is not absolute", path = .0.display())]
    Relative(PathBuf),
    /// Even the short path is over the limit.
    #[error("the socket path {path} has {} bytes, the system takes less than {SOCKET_PATH_LIMIT}", .0.as_os_str().len(), path = .0.display())]
    TooLong(PathBuf),
}

impl PlacesError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Repo { .. } => "run the command in a directory that exists",
            Self::Make { .. } => {
                "set CALIBAN_DAEMON_RUNTIME_DIR (sockets) and XDG_DATA_HOME (data) to directories that you can write"
            }
            Self::NotOurs { .. } => {
                "it must be a directory of yours that nobody else can write; remove it, or set CALIBAN_DAEMON_RUNTIME_DIR to another one"
            }
            Self::Relative(_) => "write the whole path, beginning with /",
            Self::TooLong(_) => "set CALIBAN_DAEMON_RUNTIME_DIR to a shorter directory",
        }
    }
}

impl Places {
    /// The places of the repo that `start` is in.
    pub fn find(start: &Path, sources: &PlaceSources) -> Result<Self, PlacesError> {
        let repo = repo_root(start).map_err(|source| PlacesError::Repo { path: start.to_owned(), source })?;
        Self::of(repo, sources)
    }

    /// The places of the repo with this root, which must be absolute and canonical.
    pub fn of(repo: PathBuf, sources: &PlaceSources) -> Result<Self, PlacesError> {
        let hash = repo_hash(&repo);
        let base = sources.data.join("repos").join(&hash);
        let Runtime { wanted, mut elsewhere } = runtime_dir(sources);
        for path in [&repo, &base, &wanted] {
            if !path.is_absolute() {
                return Err(PlacesError::Relative(path.clone()));
            }
        }
        let runtime = if wanted.as_os_str().len() + LONGEST_TAIL < SOCKET_PATH_LIMIT {
            wanted
        } else {
            elsewhere = Some(format!("{} is too long for a socket", wanted.display()));
            short_dir(&wanted)
        };
        Ok(Self { repo, hash, runtime, base, elsewhere })
    }

    /// Exactly these, as the client hands them to the daemon that it starts.
    pub fn exactly(repo: PathBuf, runtime: PathBuf, base: PathBuf) -> Result<Self, PlacesError> {
        for path in [&repo, &runtime, &base] {
            if !path.is_absolute() {
                return Err(PlacesError::Relative(path.clone()));
            }
        }
        let places = Self { hash: repo_hash(&repo), repo, runtime, base, elsewhere: None };
        let longest = places.runtime.as_os_str().len() + LONGEST_TAIL;
        if longest >= SOCKET_PATH_LIMIT {
            return Err(PlacesError::TooLong(places.socket()));
        }
        Ok(places)
    }

    /// The same fleet with its sockets in another directory.
    pub fn at(&self, runtime: &Path) -> Result<Self, PlacesError> {
        Self::exactly(self.repo.clone(), runtime.to_owned(), self.base.clone())
    }

    /// The same fleet with its sockets below `/tmp`: for when their own directory cannot be made again.
    pub fn refuge(&self) -> Self {
        Self { runtime: short_dir(&self.runtime), ..self.clone() }
    }

    /// Makes the directories, or makes sure that those which are there are ours alone.
    pub fn prepare(&self) -> Result<(), PlacesError> {
        self.prepare_runtime()?;
        for dir in [self.base.clone(), self.agents_dir(), self.sockets_dir()] {
            private_dir(&dir)?;
        }
        let note = self.base.join("repo");
        if !note.exists() {
            let mut text = self.repo.as_os_str().as_bytes().to_vec();
            text.push(b'\n');
            // Best effort: the note is for people.
            let _for_people = fs::write(note, text);
        }
        crate::moved_repos::remember(self);
        Ok(())
    }

    /// The part of [`Places::prepare`] that a client needs before it trusts a socket.
    pub fn prepare_runtime(&self) -> Result<(), PlacesError> {
        if let Some(parent) = self.runtime.parent().filter(|_| self.is_short()) {
            private_dir(parent)?;
        }
        private_dir(&self.runtime)
    }

    /// Why the sockets are not where the environment says, in words; none when they are.
    pub fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// The repo's root.
    pub fn repo(&self) -> &Path {
        &self.repo
    }

    /// The repo's hash (f05).
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The directory of the sockets.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// `<base>`: the data directory of the repo.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The daemon's socket (f04).
    pub fn socket(&self) -> PathBuf {
        self.runtime.join(format!("{}.sock", self.hash))
    }

    /// The lock that clients take to start a daemon.
    pub fn start_lock(&self) -> PathBuf {
        self.runtime.join(format!("{}.start", self.hash))
    }

    /// The directory of the agents' sockets and secrets.
    pub fn sockets_dir(&self) -> PathBuf {
        self.runtime.join(&self.hash)
    }

    /// An agent's socket (f19).
    pub fn agent_socket(&self, id: AgentId) -> PathBuf {
        self.sockets_dir().join(format!("{id}.sock"))
    }

    /// The part of an agent's environment that is on no disk.
    pub fn agent_secrets(&self, id: AgentId) -> PathBuf {
        crate::secrets::secrets_file(&self.agent_socket(id))
    }

    /// Where sockets and secrets of agents are.
    pub fn runtime_dirs(&self) -> Vec<PathBuf> {
        let sockets = self.sockets_dir();
        let secrets = crate::secrets::memory_dir(&sockets);
        std::iter::once(sockets).chain(secrets).collect()
    }

    /// The directory of the agents.
    pub fn agents_dir(&self) -> PathBuf {
        self.base.join("agents")
    }

    /// An agent's directory.
    pub fn agent_dir(&self, id: AgentId) -> PathBuf {
        self.agents_dir().join(id.to_string())
    }

    /// Where the directories of agents go that are in no registry any more.
    pub fn archive_dir(&self) -> PathBuf {
        self.base.join(crate::archive::DIRECTORY)
    }

    /// The registry.
    pub fn database(&self) -> PathBuf {
        self.base.join(DATABASE)
    }

    /// What the daemon says.
    pub fn log(&self) -> PathBuf {
        self.base.join("daemon.log")
    }

    /// The lock that a daemon holds for life.
    pub fn daemon_lock(&self) -> PathBuf {
        self.base.join(caliban_process::DAEMON_LOCK)
    }

    fn is_short(&self) -> bool {
        self.runtime.parent() == Some(&short_parent())
    }
}

/// The first 16 hex characters of the SHA-256 of the absolute repo root path (f05).
pub fn repo_hash(root: &Path) -> String {
    hex_prefix(root, HASH_LEN)
}

/// The root that stands for the repo: the directory with `.git` above `start`; for a linked worktree the main
/// one, so that all worktrees of a repo share a daemon; in a bare repo that repo; outside of git the directory itself.
pub fn repo_root(start: &Path) -> io::Result<PathBuf> {
    let start = start.canonicalize()?;
    for dir in start.ancestors() {
        let git = dir.join(".git");
        let Ok(found) = fs::symlink_metadata(&git) else {
            if is_bare(dir) {
                return Ok(root_of_store(dir).to_owned());
            }
            continue;
        };
        if found.is_file()
            && let Some(main) = main_root(dir, &git)
        {
            return main.canonicalize();
        }
        return Ok(dir.to_owned());
    }
    Ok(start)
}

/// The main root behind the `.git` file of a linked worktree; none for a submodule, and for one of which that repo does not know.
fn main_root(dir: &Path, git_file: &Path) -> Option<PathBuf> {
    let text = read_path_file(git_file)?;
    let admin = dir.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let common = admin.join(read_path_file(&admin.join("commondir"))?.trim()).canonicalize().ok()?;
    // Whoever packed a tree may have written the file: the store has to know the record, and the record this directory.
    let record = common.join("worktrees").join(admin.file_name()?).canonicalize().ok()?;
    let back = admin.join(read_path_file(&admin.join("gitdir"))?.trim()).parent()?.canonicalize().ok()?;
    (record == admin && back == dir).then(|| root_of_store(&common).to_owned())
}

/// The root of a repo whose store has this directory: the one around it when it is hidden there (`.git`, `.bare`).
fn root_of_store(common: &Path) -> &Path {
    let hidden = common.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    common.parent().filter(|_| hidden).unwrap_or(common)
}

/// Whether a directory is a repo by itself, as git finds it. What is in a `.git` is of the repo around that.
fn is_bare(dir: &Path) -> bool {
    !dir.iter().any(|part| part == ".git")
        && dir.join("HEAD").is_file()
        && ["objects", "refs"].iter().all(|part| dir.join(part).is_dir())
}

fn read_path_file(path: &Path) -> Option<String> {
    let bytes = crate::records::read_capped(path, GIT_FILE_CAP).ok()?;
    String::from_utf8(bytes).ok()
}

/// The directory of the sockets, and why it is another one than the environment says.
struct Runtime {
    wanted: PathBuf,
    elsewhere: Option<String>,
}

fn runtime_dir(sources: &PlaceSources) -> Runtime {
    let plainly = |wanted| Runtime { wanted, elsewhere: None };
    // The XDG rules: what is not absolute counts as not set.
    let absolute = |dir: &Option<PathBuf>| dir.clone().filter(|dir| dir.is_absolute());
    if let Some(dir) = sources.daemon_runtime_dir.clone().filter(|dir| !dir.as_os_str().is_empty()) {
        return plainly(dir);
    }
    match absolute(&sources.xdg_runtime_dir) {
        Some(dir) => plainly(dir.join("caliban")),
        None => {
            let shared = absolute(&sources.tmpdir).unwrap_or_else(|| PathBuf::from("/tmp")).join(TEMPORARY);
            // The name has no user in it: on a machine with several users the first one has it (f04).
            if !is_somebody_elses(&shared) {
                return plainly(shared);
            }
            let elsewhere = Some(format!("{} belongs to another user", shared.display()));
            Runtime { wanted: short_dir(&shared), elsewhere }
        }
    }
}

fn is_somebody_elses(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() != rustix::process::getuid().as_raw())
}

/// The stand-in for a directory that is too deep for sockets (a02), or cannot be made again.
pub fn short_dir(wanted: &Path) -> PathBuf {
    short_parent().join(hex_prefix(wanted, HASH_LEN))
}

/// Where the short runtime directories of this user are, for paths over the limit.
pub fn short_parent() -> PathBuf {
    PathBuf::from(format!("/tmp/caliban-{}", rustix::process::getuid().as_raw()))
}

fn hex_prefix(path: &Path, len: usize) -> String {
    hex::encode(&Sha256::digest(path.as_os_str().as_bytes())[..len / 2])
}

/// Makes a directory that only we can use, or checks the one that is there (a01).
pub fn private_dir(path: &Path) -> Result<(), PlacesError> {
    let make = |source| PlacesError::Make { path: path.to_owned(), source };
    let refuse = |why| Err(PlacesError::NotOurs { path: path.to_owned(), why });
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(make)?;
        }
        Err(error) => return Err(make(error)),
    }
    // Looked at after making: somebody else may have been faster.
    let found = fs::symlink_metadata(path).map_err(make)?;
    if found.file_type().is_symlink() {
        return refuse("it is a symbolic link");
    }
    if !found.is_dir() {
        return refuse("it is not a directory");
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return refuse("it belongs to somebody else");
    }
    if found.mode() & 0o022 != 0 {
        return refuse("others can write in it");
    }
    if found.mode() & 0o077 != 0 {
        // Ours, and only readable: made by an older program or by hand.
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).map_err(make)?;
    }
    Ok(())
}
