//! What files were before the agent's tools changed them, so that the changes of a turn can be undone.
//!
//! Owns `<session>/checkpoints/`: `index.jsonl`, and one file for each content, named by its SHA-256. Contents are kept
//! byte for byte, secrets included, because an undo must restore them: so they are readable by the owner alone, in no fence,
//! never exported, and gone with the session. Only what a tool says that it writes is here: what a shell command changes
//! is not known, and is not undone.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use caliban_contract::records::{BACKGROUND, CHECKPOINTS, SUB_AGENTS};
use caliban_core::hex;
use caliban_permissions::Policy;
use caliban_rooted::{
    Below, Root, Roots, real_path,
    tree::{self, FoundFile},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{fence, transcript::make_private_directory};

const INDEX: &str = "index.jsonl";
/// A larger file is not kept, and so not brought back.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Keeps what the files of one session were. Helpers that work in the same session share it.
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    /// The turn that is under way: how many have ended.
    turn: AtomicU32,
    writing: Mutex<()>,
}

/// One line of the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CheckpointLine {
    /// A call is about to write this file. `content` is none when there is no such file.
    Before { turn: u32, path: PathBuf, content: Option<KeptContent> },
    /// The call has ended. `digest` is none when there is no such file.
    After { turn: u32, path: PathBuf, digest: Option<String> },
    /// The changes of this turn and of later ones were undone, but for these files, where it failed.
    Undone {
        from: u32,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<PathBuf>,
    },
}

/// A content that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeptContent {
    digest: String,
    mode: u32,
}

/// What came of an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Files that have their earlier content again.
    pub restored: Vec<PathBuf>,
    /// Files that did not exist before, and do not exist now.
    pub removed: Vec<PathBuf>,
    /// Files that were left alone, with the reason.
    pub left: Vec<(PathBuf, String)>,
}

/// A file that the session's tools have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// Its content before the session; none when it did not exist.
    pub before: Option<Vec<u8>>,
}

/// Where the sessions of all repos keep theirs, helpers included: `<data>/repos/<hash>/{sessions,agents,archive}/<id>/`.
pub(crate) fn directories_below(data: &Path) -> Vec<Root> {
    let shelves = directories(&data.join("repos")).into_iter().flat_map(|repo| directories(&repo));
    let mut open: Vec<PathBuf> = shelves.flat_map(|shelf| directories(&shelf)).collect();
    let mut found = Vec::new();
    while let Some(session) = open.pop() {
        // One that goes meanwhile has nothing to hide.
        found.extend(Root::pin(&session.join(CHECKPOINTS)));
        open.extend([SUB_AGENTS, BACKGROUND].iter().flat_map(|kind| directories(&session.join(kind))));
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
fn directories(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}

impl Checkpoints {
    /// Those of the session in this directory. Nothing is made before something is kept.
    pub fn new(session: &Path) -> Self {
        let directory = session.join(CHECKPOINTS);
        Self { directory, turn: AtomicU32::new(0), writing: Mutex::new(()) }
    }

    /// What follows belongs to this turn.
    pub(crate) fn begin(&self, turn: u32) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    /// Keeps these files as they are now. Best effort: an undo that cannot be prepared must not stop the work.
    pub(crate) async fn before(self: &Arc<Self>, paths: Vec<PathBuf>) {
        self.note(paths, |this, path| {
            let content = match read_real(path)? {
                Some((bytes, mode)) => Some(KeptContent { digest: this.keep(&bytes)?, mode }),
                None => None,
            };
            Ok(CheckpointLine::Before {
                turn: this.turn.load(Ordering::Relaxed),
                path: path.to_owned(),
                content,
            })
        })
        .await;
    }

    /// Notes what these files have become: what differs from that later was changed by somebody else.
    pub(crate) async fn after(self: &Arc<Self>, paths: Vec<PathBuf>) {
        self.note(paths, |this, path| {
            let digest = read_real(path)?.map(|(bytes, _)| digest(&bytes));
            Ok(CheckpointLine::After {
                turn: this.turn.load(Ordering::Relaxed),
                path: path.to_owned(),
                digest,
            })
        })
        .await;
    }

    async fn note(
        self: &Arc<Self>,
        paths: Vec<PathBuf>,
        line: impl Fn(&Self, &Path) -> io::Result<CheckpointLine> + Send + 'static,
    ) {
        if paths.is_empty() {
            return;
        }
        let this = self.clone();
        let noted = tokio::task::spawn_blocking(move || {
            for path in paths.iter().map(|path| real(path)) {
                if let Err(error) = line(&this, &path).and_then(|line| this.append(&line)) {
                    tracing::warn!(path = %path.display(), %error, "a file cannot be kept for an undo");
                }
            }
        });
        if let Err(error) = noted.await {
            tracing::error!(%error, "keeping files for an undo has crashed");
        }
    }

    /// Keeps a content; its name.
    #[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
    fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        let name = digest(bytes);
        let path = self.directory.join(&name);
        if path.exists() {
            return Ok(name);
        }
        make_private_directory(&self.directory)?;
        let beside = self.directory.join(format!("{name}.{:?}.tmp", std::thread::current().id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        // On the disk before it has its name: after a power cut, what has the name has the content.
        let kept =
            file.write_all(bytes).and_then(|()| file.sync_data()).and_then(|()| fs::rename(&beside, path));
        if kept.is_err() {
            let _best_effort = fs::remove_file(&beside);
        }
        kept.map(|()| name)
    }

    /// A content that was kept; an error when it is not what its name says.
    fn content(&self, kept: &KeptContent) -> io::Result<Vec<u8>> {
        let path = self.directory.join(&kept.digest);
        let bytes = fs::read(&path)?;
        match digest(&bytes) == kept.digest {
            true => Ok(bytes),
            false => Err(io::Error::other(format!("what was kept of it is damaged: {}", path.display()))),
        }
    }

    fn append(&self, line: &CheckpointLine) -> io::Result<()> {
        // A line that a full disk has cut must not swallow this one: the newline before ends it, and empty lines say nothing.
        let text = format!("\n{}\n", serde_json::to_string(line)?);
        make_private_directory(&self.directory)?;
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.directory.join(INDEX);
        fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(text.as_bytes())
    }

    /// The lines that count: those of turns that were undone are left out.
    fn lines(&self) -> Vec<CheckpointLine> {
        let text = fs::read_to_string(self.directory.join(INDEX)).unwrap_or_default();
        let mut lines: Vec<CheckpointLine> = Vec::new();
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                CheckpointLine::Undone { from, failed } => {
                    let stays = |path: Option<&PathBuf>| path.is_some_and(|path| failed.contains(path));
                    lines.retain(|line| turn_of(line) < from || stays(path_of(line)));
                }
                other => lines.push(other),
            }
        }
        lines
    }
}

/// The last turn in which a tool has written files, if there is one that was not undone.
pub fn last_turn(session: &Path) -> Option<u32> {
    Checkpoints::new(session).lines().iter().map(turn_of).max()
}

/// The files that the session's tools have changed, in order.
pub fn changed(session: &Path) -> Vec<Changed> {
    let kept = Checkpoints::new(session);
    let mut first: BTreeMap<PathBuf, Option<Vec<u8>>> = BTreeMap::new();
    for line in kept.lines() {
        if let CheckpointLine::Before { path, content, .. } = line {
            let before = || content.and_then(|content| kept.content(&content).ok());
            first.entry(path).or_insert_with(before);
        }
    }
    first.into_iter().map(|(path, before)| Changed { path, before }).collect()
}

/// Brings the files back that tools have changed in this turn and later ones. A file that something else has changed
/// since, or between two calls, is left alone; what is overwritten or removed is kept first. No link is followed, and nothing
/// is written beneath a root of the session that was moved or replaced.
pub fn undo(session: &Path, from: u32) -> io::Result<Undone> {
    let kept = Checkpoints::new(session);
    let roots = roots_of(session);
    let mut files: BTreeMap<PathBuf, FileHistory> = BTreeMap::new();
    for line in kept.lines().into_iter().filter(|line| turn_of(line) >= from) {
        match line {
            CheckpointLine::Before { path, content, .. } => match files.get_mut(&path) {
                Some(history) => history.begins_again(content.as_ref()),
                None => {
                    files.insert(path, FileHistory { before: content, last: None, is_mixed: false });
                }
            },
            CheckpointLine::After { path, digest, .. } => {
                if let Some(history) = files.get_mut(&path) {
                    history.last = Some(digest);
                }
            }
            CheckpointLine::Undone { .. } => {}
        }
    }
    let mut undone = Undone::default();
    let mut failed = Vec::new();
    for (path, history) in files {
        let back = directory_of(&roots, &path).and_then(|found| match found {
            Some(found) => kept.bring_back(found, &history),
            None => Ok(Back::Left("its directory is gone".to_owned())),
        });
        match back {
            Ok(Back::Restored) => undone.restored.push(path),
            Ok(Back::Removed) => undone.removed.push(path),
            Ok(Back::Nothing) => {}
            Ok(Back::Left(why)) => undone.left.push((path, why)),
            Err(error) => {
                failed.push(path.clone());
                undone.left.push((path, error.to_string()));
            }
        }
    }
    kept.append(&CheckpointLine::Undone { from, failed })?;
    Ok(undone)
}

/// Those that the session wrote down before its first command in a fence.
fn roots_of(session: &Path) -> Roots {
    let policy = Policy::new("/", "/");
    fence::recall_roots(&policy, None, session);
    policy.roots
}

/// The directory of a file, held open, and the file's name in it. None when it is gone, or a link is on the way. An error when
/// the root that it is in was moved or replaced.
fn directory_of(roots: &Roots, path: &Path) -> io::Result<Option<(OwnedFd, Below)>> {
    let in_a_root = roots.holding_in_place(path).map_err(|error| io::Error::other(error.to_string()))?;
    let (top, name) = match in_a_root {
        Some((root, name)) => (tree::walk_to(&*root, &Below::here())?, name),
        None => real_path::from_top(path)?,
    };
    let Some((directory, name)) = name.split() else { return Ok(None) };
    let name = Below::new(name)?;
    Ok(tree::walk_to(top, &directory).ok().map(|directory| (directory, name)))
}

/// What the calls of the turns that are undone have made of one file.
struct FileHistory {
    /// What it was before the first of them; none when it did not exist.
    before: Option<KeptContent>,
    /// What the last call has made of it: the digest, or none for no file. Unknown when the call was cut off.
    last: Option<Option<String>>,
    /// Whether something else has changed it between two calls: a person, or a command.
    is_mixed: bool,
}

impl FileHistory {
    /// One more call is about to write the file, which is so now.
    fn begins_again(&mut self, now: Option<&KeptContent>) {
        let now = now.map(|now| now.digest.clone());
        self.is_mixed |= self.last.take() != Some(now);
    }
}

/// Gives a fork of a session what is known of the turns before this one.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
pub(crate) fn copy(from: &Path, to: &Path, before: u32) -> io::Result<()> {
    let (old, new) = (Checkpoints::new(from), Checkpoints::new(to));
    for line in old.lines().into_iter().filter(|line| turn_of(line) < before) {
        if let CheckpointLine::Before { content: Some(content), .. } = &line {
            make_private_directory(&new.directory)?;
            let (there, here) = (old.directory.join(&content.digest), new.directory.join(&content.digest));
            if !here.exists() && fs::hard_link(&there, &here).is_err() {
                fs::copy(there, here)?;
            }
        }
        new.append(&line)?;
    }
    Ok(())
}

enum Back {
    Restored,
    Removed,
    /// It is as it was.
    Nothing,
    Left(String),
}

impl Checkpoints {
    fn bring_back(&self, (directory, name): (OwnedFd, Below), history: &FileHistory) -> io::Result<Back> {
        let before = history.before.as_ref();
        let now = read(&directory, &name)?;
        let now_digest = now.as_ref().map(|(bytes, _)| digest(bytes));
        if now_digest.as_ref() == before.map(|before| &before.digest) {
            return Ok(Back::Nothing);
        }
        let why = match &history.last {
            None => Some("the last call was cut off, so nobody knows what it has written"),
            Some(last) if *last != now_digest => Some("it was changed since"),
            Some(_) if history.is_mixed => Some("something else has changed it between two calls"),
            Some(_) => None,
        };
        if let Some(why) = why {
            let there = before.map(|before| self.directory.join(&before.digest));
            let there = there.map(|there| format!("; as it was before: {}", there.display()));
            return Ok(Back::Left(format!("{why}{}", there.unwrap_or_default())));
        }
        if let Some((bytes, _)) = &now {
            self.keep(bytes)?;
        }
        let Some(before) = before else {
            tree::remove_file(&directory, &name)?;
            return Ok(Back::Removed);
        };
        let bytes = self.content(before)?;
        tree::replace(&directory, &name, 0o600, |file| {
            file.write_all(&bytes)?;
            file.set_permissions(fs::Permissions::from_mode(before.mode))
        })?;
        Ok(Back::Restored)
    }
}

fn turn_of(line: &CheckpointLine) -> u32 {
    match line {
        CheckpointLine::Before { turn, .. }
        | CheckpointLine::After { turn, .. }
        | CheckpointLine::Undone { from: turn, .. } => *turn,
    }
}

fn path_of(line: &CheckpointLine) -> Option<&PathBuf> {
    match line {
        CheckpointLine::Before { path, .. } | CheckpointLine::After { path, .. } => Some(path),
        CheckpointLine::Undone { .. } => None,
    }
}

/// The path with its links followed, as the tools write it.
#[expect(
    clippy::disallowed_methods,
    reason = "the name of a file for the record; it is opened beneath a root"
)]
pub(crate) fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// The content and the mode of a file; none when there is none.
fn read(directory: &OwnedFd, name: &Below) -> io::Result<Option<(Vec<u8>, u32)>> {
    match tree::find(directory, name)? {
        FoundFile::File { file, size, .. } if size <= MAX_BYTES => {
            let mode = file.metadata()?.permissions().mode() & 0o7777;
            let mut bytes = Vec::new();
            file.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(Some((bytes, mode)))
        }
        FoundFile::Nothing => Ok(None),
        _ => Err(io::Error::other(format!("not a file of at most {MAX_BYTES} bytes"))),
    }
}

/// The same for a path in which every link is resolved.
fn read_real(path: &Path) -> io::Result<Option<(Vec<u8>, u32)>> {
    let (top, name) = real_path::from_top(path)?;
    read(&top, &name)
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _keep: tempfile::TempDir,
        session: PathBuf,
        file: PathBuf,
        kept: Arc<Checkpoints>,
    }

    impl Place {
        fn new() -> Self {
            let keep = tempfile::tempdir().unwrap();
            let root = keep.path().canonicalize().unwrap();
            let (session, file) = (root.join("session"), root.join("file"));
            let kept = Arc::new(Checkpoints::new(&session));
            Self { _keep: keep, session, file, kept }
        }

        async fn writes(&self, turn: u32, path: &Path, text: &str) {
            self.kept.begin(turn);
            self.kept.before(vec![path.to_owned()]).await;
            fs::write(path, text).unwrap();
            self.kept.after(vec![path.to_owned()]).await;
        }
    }

    #[tokio::test]
    async fn turns_are_undone_one_after_the_other() {
        let place = Place::new();
        let new = place.file.with_file_name("new");
        fs::write(&place.file, "zero").unwrap();
        fs::set_permissions(&place.file, fs::Permissions::from_mode(0o754)).unwrap();
        place.writes(0, &place.file, "one").await;
        place.writes(1, &place.file, "two").await;
        place.writes(1, &place.file, "three").await;
        place.writes(1, &new, "new").await;
        let last = last_turn(&place.session).unwrap();
        let undone = undo(&place.session, last).unwrap();
        assert_eq!((undone.restored, undone.removed), (vec![place.file.clone()], vec![new.clone()]));
        assert_eq!((fs::read(&place.file).unwrap(), new.exists()), (b"one".to_vec(), false));
        assert_eq!(last_turn(&place.session), Some(0));
        undo(&place.session, 0).unwrap();
        assert_eq!(fs::read(&place.file).unwrap(), b"zero");
        assert_eq!(fs::metadata(&place.file).unwrap().permissions().mode() & 0o7777, 0o754);
        assert_eq!(last_turn(&place.session), None);
    }

    #[tokio::test]
    async fn r19_an_undo_leaves_what_somebody_else_has_written_and_keeps_what_it_overwrites() {
        let place = Place::new();
        fs::write(&place.file, "before").unwrap();
        place.writes(0, &place.file, "the agent's").await;
        fs::write(&place.file, "the user's").unwrap();
        let undone = undo(&place.session, 0).unwrap();
        assert_eq!((undone.left.len(), &undone.left[0].0), (1, &place.file));
        assert!(undone.left[0].1.starts_with("it was changed since; as it was before: "), "{undone:?}");
        assert_eq!(fs::read(&place.file).unwrap(), b"the user's");
        place.writes(1, &place.file, "again").await;
        undo(&place.session, 1).unwrap();
        assert_eq!(fs::read(place.session.join(CHECKPOINTS).join(digest(b"again"))).unwrap(), b"again");
    }

    #[tokio::test]
    async fn r19_an_undo_leaves_a_file_that_somebody_has_changed_between_two_calls() {
        let place = Place::new();
        fs::write(&place.file, "before").unwrap();
        place.writes(0, &place.file, "one").await;
        fs::write(&place.file, "one and the user's").unwrap();
        place.writes(1, &place.file, "one and the user's and two").await;
        let undone = undo(&place.session, 0).unwrap();
        assert_eq!((undone.restored.len(), undone.left.len()), (0, 1), "{undone:?}");
        assert_eq!(fs::read(&place.file).unwrap(), b"one and the user's and two");
    }

    #[tokio::test]
    async fn r19_an_undo_leaves_a_file_of_a_call_that_was_cut_off() {
        let place = Place::new();
        place.kept.before(vec![place.file.clone()]).await;
        fs::write(&place.file, "the user's").unwrap();
        let undone = undo(&place.session, 0).unwrap();
        assert_eq!((undone.removed.len(), undone.left.len()), (0, 1), "{undone:?}");
        assert_eq!(fs::read(&place.file).unwrap(), b"the user's");
    }

    #[tokio::test]
    async fn r19_a_damaged_content_is_not_brought_back() {
        let place = Place::new();
        fs::write(&place.file, "before").unwrap();
        place.writes(0, &place.file, "after").await;
        let content = place.session.join(CHECKPOINTS).join(digest(b"before"));
        fs::write(&content, "").unwrap();
        let undone = undo(&place.session, 0).unwrap();
        assert_eq!((undone.restored.len(), undone.left.len()), (0, 1), "{undone:?}");
        assert_eq!(fs::read(&place.file).unwrap(), b"after");
        // Repaired, it can be tried again.
        fs::write(&content, "before").unwrap();
        assert_eq!(undo(&place.session, 0).unwrap().restored, std::slice::from_ref(&place.file));
    }

    #[tokio::test]
    async fn a_line_that_was_cut_swallows_no_other() {
        let place = Place::new();
        fs::write(&place.file, "before").unwrap();
        fs::create_dir_all(place.session.join(CHECKPOINTS)).unwrap();
        fs::write(place.session.join(CHECKPOINTS).join(INDEX), "{\"before\":{\"tur").unwrap();
        place.writes(0, &place.file, "after").await;
        assert_eq!(undo(&place.session, 0).unwrap().restored, std::slice::from_ref(&place.file));
    }

    #[tokio::test]
    async fn an_undo_that_failed_can_be_tried_again() {
        let place = Place::new();
        fs::write(&place.file, "before").unwrap();
        place.writes(0, &place.file, "after").await;
        let content = place.session.join(CHECKPOINTS).join(digest(b"before"));
        let hidden = content.with_extension("hidden");
        fs::rename(&content, &hidden).unwrap();
        assert_eq!(undo(&place.session, 0).unwrap().left.len(), 1);
        assert_eq!(last_turn(&place.session), Some(0));
        fs::rename(hidden, content).unwrap();
        assert_eq!(undo(&place.session, 0).unwrap().restored, std::slice::from_ref(&place.file));
        assert_eq!(fs::read(&place.file).unwrap(), b"before");
        assert_eq!(last_turn(&place.session), None);
    }

    #[tokio::test]
    async fn an_undo_does_not_follow_a_directory_that_has_become_a_link() {
        let place = Place::new();
        let (inside, outside) = (place.file.with_file_name("in"), place.file.with_file_name("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("f"), "before").unwrap();
        place.writes(0, &inside.join("f"), "after").await;
        fs::rename(&inside, inside.with_file_name("moved")).unwrap();
        fs::write(outside.join("f"), "after").unwrap();
        std::os::unix::fs::symlink(&outside, &inside).unwrap();
        let undone = undo(&place.session, 0).unwrap();
        assert_eq!(undone.left.len(), 1, "{undone:?}");
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"after");
    }

    #[tokio::test]
    async fn a07_a_directory_that_becomes_a_link_during_an_undo_is_not_written_through() {
        let place = Place::new();
        let (inside, outside) = (place.file.with_file_name("in"), place.file.with_file_name("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        for (file, before) in [("f", Some("before")), ("new", None)] {
            before.into_iter().for_each(|text| fs::write(inside.join(file), text).unwrap());
            place.writes(0, &inside.join(file), "after").await;
            fs::write(outside.join(file), "after").unwrap();
        }
        let found =
            ["f", "new"].map(|file| directory_of(&Roots::default(), &inside.join(file)).unwrap().unwrap());
        let moved = inside.with_file_name("moved");
        fs::rename(&inside, &moved).unwrap();
        std::os::unix::fs::symlink(&outside, &inside).unwrap();
        let kept = KeptContent { digest: digest(b"before"), mode: 0o644 };
        for (found, before) in found.into_iter().zip([Some(kept), None]) {
            let history = FileHistory { before, last: Some(Some(digest(b"after"))), is_mixed: false };
            assert!(matches!(place.kept.bring_back(found, &history), Ok(Back::Restored | Back::Removed)));
        }
        assert_eq!(fs::read(moved.join("f")).unwrap(), b"before");
        assert!(!moved.join("new").exists());
        for file in ["f", "new"] {
            assert_eq!(fs::read(outside.join(file)).unwrap(), b"after");
        }
    }

    #[tokio::test]
    async fn a07_an_undo_writes_nothing_beneath_a_root_that_was_replaced() {
        let place = Place::new();
        let project = place.file.with_file_name("project");
        let file = project.join("f");
        fs::create_dir(&project).unwrap();
        fs::write(&file, "before").unwrap();
        let policy = Policy::new(&project, "/");
        policy.roots.pin(&project).unwrap();
        fs::create_dir(&place.session).unwrap();
        fence::remember_roots(&policy, &crate::fence::Fences::off(PathBuf::new()), &place.session).unwrap();
        place.writes(0, &file, "after").await;
        let away = place.file.with_file_name("away");
        fs::rename(&project, &away).unwrap();
        fs::create_dir(&project).unwrap();
        fs::write(&file, "after").unwrap();
        let undone = undo(&place.session, 0).unwrap();
        assert!(undone.left[0].1.contains("was moved or replaced"), "{undone:?}");
        assert_eq!(fs::read(&file).unwrap(), b"after");
        // Back in its place, it can be tried again.
        fs::remove_dir_all(&project).unwrap();
        fs::rename(&away, &project).unwrap();
        assert_eq!(undo(&place.session, 0).unwrap().restored, std::slice::from_ref(&file));
        assert_eq!(fs::read(&file).unwrap(), b"before");
    }
}
