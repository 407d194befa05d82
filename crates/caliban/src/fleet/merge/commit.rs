//! What an agent left uncommitted, as a commit: made from the files alone, through the repository's store. No hook and no
//! filter is run. The agent's branch and index move only when the commit has landed; until then nothing of the agent's
//! is changed, so there is nothing to take back.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    io::{Read as _, Write},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use caliban_core::inert;
use caliban_worktrees::{ChangeKind, Repo};

use super::{
    super::git::{self, Git},
    Work,
    attributes::{self, Treatment},
    files::{self, Found, quoted},
    refused::{Reason, Refused},
};
use crate::report::Failure;

/// The largest file whose line ends are converted.
const TEXT_CAP: u64 = 64 * 1024 * 1024;

/// A commit that nothing but a temporary ref holds yet; settled or dropped.
pub(super) struct Prepared {
    common: PathBuf,
    worktree: PathBuf,
    admin: PathBuf,
    branch: String,
    before: String,
    commit: String,
    place: String,
}

/// How one path goes into the commit.
enum Step {
    Delete,
    /// Not in the files, because the checkout is sparse or it is a submodule: the index alone has it.
    Staged {
        mode: String,
        oid: String,
    },
    /// As it stands in the files.
    Read,
}

impl Prepared {
    /// Makes the commit. `into` is where it is meant to land.
    pub(super) async fn make(repo: &Repo, work: &Work, message: &str, into: &str) -> Result<Self, Refused> {
        let common = repo.common_dir().to_owned();
        let worktree = repo.path_of(&work.changes.name);
        let branch = format!("refs/heads/{}", work.changes.branch);
        let by_hand = format!("commit it by hand in {}", worktree.display());
        if work.at.as_deref() != Some(&work.changes.branch) {
            return Err(Failure::new(format!(
                "the worktree does not have its branch {} checked out",
                work.changes.branch
            ))
            .hint(by_hand)
            .into());
        }
        let root = files::open_dir(&worktree)
            .map_err(|error| Failure::new(format!("cannot open {}: {error}", worktree.display())))?;
        let before = work.head.clone();
        let index = index(&common, &work.admin, &worktree, work).await?;
        let steps = steps(&root, work, &index)
            .map_err(|(path, failed)| Refused::new(Reason::CannotCommit, failed.hint(by_hand), &[path]))?;
        let read: Vec<PathBuf> = steps
            .iter()
            .filter(|(_, step)| matches!(step, Step::Read))
            .map(|(path, _)| path.clone())
            .collect();
        let mut treatments = attributes::treatments(repo.root(), &before, &read).await?;
        settle_guesses(&common, &root, &before, &mut treatments).await?;
        for (path, treatment) in &treatments {
            if let Treatment::Refused(why) = treatment {
                let failure = cannot_read(path, &format!("{why}, and nothing is run on an agent's files"))
                    .hint("let the agent commit it, or commit it by hand in its worktree");
                return Err(Refused::new(Reason::CannotCommit, failure, &[path]));
            }
        }
        let place = format!("refs/caliban/tmp/landing-{}", work.changes.name.as_str());
        let earlier = resolve(&common, &place).await?;
        let head = header(repo, &place, &before, message).await?;
        let import = ["fast-import", "--quiet", "--done", "--force", "--date-format=raw"];
        Git::hardened(&common)
            .args(import)
            .feed(move |out| {
                out.write_all(head.as_bytes()).map_err(|error| git::gone(&error))?;
                stream(&root, &steps, &treatments, out)
            })
            .await?;
        let unmade = || Failure::new("git fast-import made no commit");
        let mut commit = resolve(&common, &place).await?.ok_or_else(unmade)?;
        if let Some(earlier) = earlier
            && is_same(&common, &earlier, &commit).await?
            && is_ancestor(&common, &earlier, into).await?
        {
            // A merge that was killed landed it already.
            let args = ["update-ref", place.as_str(), earlier.as_str()];
            Git::hardened(&common).args(args).text().await?;
            commit = earlier;
        }
        Ok(Self { common, worktree, admin: work.admin.clone(), branch, before, commit, place })
    }

    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// It has landed: the agent's branch moves to it, and the worktree's index is brought up to it, so that it shows as
    /// clean.
    pub(super) async fn settle(self) -> Result<(), Failure> {
        let Self { branch, before, commit, place, .. } = &self;
        let order = format!("update {branch} {commit} {before}\ndelete {place} {commit}\n");
        Git::hardened(&self.common)
            .args(["update-ref", "--stdin"])
            .feed(move |out| out.write_all(order.as_bytes()).map_err(|error| git::gone(&error)))
            .await?;
        let scratch = self.common.join(format!("caliban-index-{}", std::process::id()));
        let done = self.bring_up(&scratch).await;
        // Best effort by name: it is gone when it took the index's place.
        let _gone = fs::remove_file(&scratch);
        done
    }

    /// It has not landed: only the temporary ref goes.
    pub(super) async fn drop_it(self) {
        // Best effort by name: a ref that stays only keeps more, and is overwritten by the next merge.
        let args = ["update-ref", "-d", &self.place, &self.commit];
        let _tried = Git::hardened(&self.common).args(args).text().await;
    }

    /// Writes the index beside the old one and puts it in its place in one step: a link that stands there is replaced,
    /// not followed. What a sparse checkout leaves out stays left out.
    async fn bring_up(&self, scratch: &Path) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::new(format!("the index in {} is not up to date: {error}", self.worktree.display()))
        };
        let admin = files::open_dir(&self.admin).map_err(cannot)?;
        if let Found::File { mut file, .. } =
            files::look(admin.as_fd(), Path::new("index")).map_err(cannot)?
        {
            let mut copy = fs::File::create(scratch).map_err(cannot)?;
            std::io::copy(&mut file, &mut copy).map_err(cannot)?;
        }
        let git =
            || Git::hardened_at(&self.common, &self.admin, &self.worktree).env("GIT_INDEX_FILE", scratch);
        git().args(["read-tree", "-i", "-m", self.commit.as_str()]).text().await?;
        if self.admin.join("info/sparse-checkout").is_file() {
            let absent = git().args(["ls-files", "-z", "--deleted"]).bytes().await?;
            let rules = git().args(["sparse-checkout", "check-rules", "-z"]);
            let asked = absent.clone();
            let inside =
                rules.feed(move |out| out.write_all(&asked).map_err(|error| git::gone(&error))).await?;
            let inside: BTreeSet<OsString> = git::fields(&inside).into_iter().collect();
            let outside: Vec<u8> = git::fields(&absent)
                .into_iter()
                .filter(|path| !inside.contains(path))
                .flat_map(|path| [path.as_bytes(), b"\0"].concat())
                .collect();
            git()
                .args(["update-index", "--skip-worktree", "-z", "--stdin"])
                .feed(move |out| out.write_all(&outside).map_err(|error| git::gone(&error)))
                .await?;
        }
        // git's own lock, so that no git of somebody else writes in between.
        let lock = self.admin.join("index.lock");
        fs::File::create_new(&lock).map_err(cannot)?;
        let renamed = fs::rename(scratch, self.admin.join("index"));
        fs::remove_file(&lock).and(renamed).map_err(cannot)
    }
}

/// What each uncommitted path becomes; deletions first, because a file may have become a directory or the other way
/// round.
fn steps(
    root: &OwnedFd,
    work: &Work,
    index: &BTreeMap<PathBuf, (String, String)>,
) -> Result<Vec<(PathBuf, Step)>, (String, Failure)> {
    let (mut steps, mut kept) = (Vec::new(), Vec::new());
    for (path, kinds) in &work.uncommitted {
        let refuse = |why: &str| (path.clone(), cannot_read(Path::new(path), why));
        if kinds.contains(&ChangeKind::Conflicted) {
            return Err(refuse("it is in conflict"));
        }
        if path.contains('\u{FFFD}') {
            return Err(refuse("its name is not text"));
        }
        let path = PathBuf::from(path);
        let found = files::look(root.as_fd(), &path).map_err(|error| refuse(&error.to_string()))?;
        let is_staged = kinds.iter().all(|kind| *kind == ChangeKind::Staged);
        match found {
            Found::File { .. } | Found::Link(_) => kept.push((path, Step::Read)),
            Found::Special => return Err(refuse("it is no file")),
            // Not in the files, or a submodule's directory: the index alone knows.
            Found::Nothing | Found::Directory if is_staged => match index.get(&path) {
                Some((mode, oid)) => {
                    kept.push((path, Step::Staged { mode: mode.clone(), oid: oid.clone() }));
                }
                None => steps.push((path, Step::Delete)),
            },
            Found::Nothing | Found::Directory => steps.push((path, Step::Delete)),
        }
    }
    steps.append(&mut kept);
    Ok(steps)
}

/// What the index has for the paths that are staged: mode and blob.
async fn index(
    common: &Path,
    admin: &Path,
    worktree: &Path,
    work: &Work,
) -> Result<BTreeMap<PathBuf, (String, String)>, Failure> {
    let mut found = BTreeMap::new();
    if !work.uncommitted.values().any(|kinds| kinds.contains(&ChangeKind::Staged)) {
        return Ok(found);
    }
    let listed =
        Git::hardened_at(common, admin, worktree).args(["ls-files", "-z", "--stage"]).fields().await?;
    for entry in listed {
        let bytes = entry.as_bytes();
        let Some(tab) = bytes.iter().position(|byte| *byte == b'\t') else { continue };
        let words = String::from_utf8_lossy(&bytes[..tab]).into_owned();
        if let [mode, oid, "0"] = words.split(' ').collect::<Vec<_>>().as_slice() {
            let path = PathBuf::from(OsStr::from_bytes(&bytes[tab + 1..]));
            found.insert(path, ((*mode).to_owned(), (*oid).to_owned()));
        }
    }
    Ok(found)
}

/// Where git would guess: what is no text, or had CRLF before, is committed as it is.
async fn settle_guesses(
    common: &Path,
    root: &OwnedFd,
    before: &str,
    treatments: &mut BTreeMap<PathBuf, Treatment>,
) -> Result<(), Failure> {
    for (path, treatment) in treatments.iter_mut().filter(|(_, treatment)| **treatment == Treatment::Guessed)
    {
        let is_text = read_text(root, path)?
            .is_some_and(|(bytes, _)| attributes::has_crlf(&bytes) && attributes::looks_like_text(&bytes));
        let had_crlf = is_text && {
            let blob = committed(common, before, path).await?;
            blob.is_some_and(|(bytes, _)| attributes::has_crlf(&bytes))
        };
        *treatment = if is_text && !had_crlf { Treatment::Text } else { Treatment::Kept };
    }
    Ok(())
}

/// Takes out what looks modified only because its line ends are not those of the commit.
pub(super) async fn without_line_ends(
    repo: &Repo,
    worktree: &Path,
    head: &str,
    uncommitted: &mut BTreeMap<String, BTreeSet<ChangeKind>>,
) -> Result<(), Failure> {
    let is_modified = |kinds: &BTreeSet<ChangeKind>| kinds.iter().all(|kind| *kind == ChangeKind::Modified);
    let modified: Vec<PathBuf> =
        uncommitted.iter().filter(|(_, kinds)| is_modified(kinds)).map(|(path, _)| path.into()).collect();
    let Ok(root) = files::open_dir(worktree) else { return Ok(()) };
    for (path, treatment) in attributes::treatments(repo.root(), head, &modified).await? {
        if !matches!(treatment, Treatment::Text | Treatment::Guessed) {
            continue;
        }
        let Some((bytes, executable)) = read_text(&root, &path)? else { continue };
        if attributes::has_crlf(&bytes)
            && committed(repo.common_dir(), head, &path).await?
                == Some((attributes::converted(&bytes), executable))
        {
            uncommitted.remove(&*path.to_string_lossy());
        }
    }
    Ok(())
}

/// A file's content, and whether it is executable; nothing for what is no file or too large for a text.
fn read_text(root: &OwnedFd, path: &Path) -> Result<Option<(Vec<u8>, bool)>, Failure> {
    let unreadable = |error: std::io::Error| cannot_read(path, &error.to_string());
    let Found::File { file, size, executable } = files::look(root.as_fd(), path).map_err(unreadable)? else {
        return Ok(None);
    };
    if size > TEXT_CAP {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(TEXT_CAP).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(Some((bytes, executable)))
}

/// A file of a commit, and whether it is executable.
async fn committed(common: &Path, commit: &str, path: &Path) -> Result<Option<(Vec<u8>, bool)>, Failure> {
    let listed = Git::hardened(common)
        .env("GIT_LITERAL_PATHSPECS", "1")
        .args(["ls-tree", "-z", "--full-tree", commit, "--"])
        .args([path])
        .fields()
        .await?;
    let mode = listed.first().and_then(|entry| entry.as_bytes().get(..6)).unwrap_or_default().to_vec();
    let mut name = OsString::from(format!("{commit}:"));
    name.push(path);
    let blob = Git::hardened(common).args(["cat-file", "blob"]).args([name]).output().await?;
    Ok(blob.status.success().then(|| (blob.stdout, mode == b"100755")))
}

async fn header(repo: &Repo, place: &str, before: &str, message: &str) -> Result<String, Failure> {
    let identity = |which: &'static str| Git::plain(repo.root()).args(["var", which]).text();
    let (author, committer) = (identity("GIT_AUTHOR_IDENT").await?, identity("GIT_COMMITTER_IDENT").await?);
    let message = format!("{}\n", message.trim_end());
    Ok(format!(
        "commit {place}\nauthor {author}\ncommitter {committer}\ndata {}\n{message}\nfrom {before}\n",
        message.len()
    ))
}

/// The changes, in the words of `git fast-import`.
fn stream(
    root: &OwnedFd,
    steps: &[(PathBuf, Step)],
    treatments: &BTreeMap<PathBuf, Treatment>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let send = |out: &mut dyn Write, bytes: &[u8]| out.write_all(bytes).map_err(|error| git::gone(&error));
    for (path, step) in steps {
        match step {
            Step::Delete => send(out, &[b"D ", &*quoted(path), b"\n"].concat())?,
            Step::Staged { mode, oid } => {
                send(out, &[format!("M {mode} {oid} ").as_bytes(), &*quoted(path), b"\n"].concat())?;
            }
            Step::Read => {
                let header = |mode: &str, length: u64| {
                    [
                        format!("M {mode} inline ").as_bytes(),
                        &*quoted(path),
                        format!("\ndata {length}\n").as_bytes(),
                    ]
                    .concat()
                };
                let unreadable = |error: std::io::Error| cannot_read(path, &error.to_string());
                match files::look(root.as_fd(), path).map_err(unreadable)? {
                    Found::Link(target) => {
                        send(out, &header("120000", target.len() as u64))?;
                        send(out, &target)?;
                    }
                    Found::File { mut file, size, executable } => {
                        let mode = if executable { "100755" } else { "100644" };
                        if treatments.get(path) == Some(&Treatment::Text) {
                            if size > TEXT_CAP {
                                return Err(cannot_read(
                                    path,
                                    "it is too large for its line ends to be converted",
                                ));
                            }
                            let mut bytes = Vec::new();
                            file.take(TEXT_CAP).read_to_end(&mut bytes).map_err(unreadable)?;
                            let bytes = attributes::converted(&bytes);
                            send(out, &header(mode, bytes.len() as u64))?;
                            send(out, &bytes)?;
                        } else {
                            send(out, &header(mode, size))?;
                            let copied = std::io::copy(&mut (&mut file).take(size), out)
                                .map_err(|error| git::gone(&error))?;
                            if copied != size {
                                return Err(cannot_read(path, "it changed while it was read"));
                            }
                        }
                    }
                    Found::Nothing | Found::Directory | Found::Special => {
                        return Err(cannot_read(path, "it changed while it was read"));
                    }
                }
                send(out, b"\n")?;
            }
        }
    }
    send(out, b"\ndone\n")
}

fn cannot_read(path: &Path, why: &str) -> Failure {
    Failure::new(format!("{} cannot be committed: {why}", inert::line(&path.to_string_lossy())))
}

async fn resolve(common: &Path, reference: &str) -> Result<Option<String>, Failure> {
    let name = format!("{reference}^{{commit}}");
    let found =
        Git::hardened(common).args(["rev-parse", "--verify", "--quiet", name.as_str()]).output().await?;
    let oid = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(found.status.success().then_some(oid))
}

/// Whether two commits have the same tree on the same parent.
async fn is_same(common: &Path, one: &str, other: &str) -> Result<bool, Failure> {
    let asked =
        [format!("{one}^{{tree}}"), format!("{other}^{{tree}}"), format!("{one}^"), format!("{other}^")];
    let found = Git::hardened(common).args(["rev-parse"]).args(asked).output().await?;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    Ok(matches!(found.lines().collect::<Vec<_>>().as_slice(), [a, b, c, d] if a == b && c == d))
}

async fn is_ancestor(common: &Path, one: &str, of: &str) -> Result<bool, Failure> {
    let args = ["merge-base", "--is-ancestor", one, of];
    Ok(Git::hardened(common).args(args).output().await?.status.success())
}
