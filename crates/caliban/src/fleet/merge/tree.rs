//! Merging in the user's own tree: refused where something that is not committed stands in the way, done by git as the
//! user would do it, and taken back where git or a hook refuses. "Nothing was changed" is said only after a look.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    super::git::{Git, failure, gone},
    Ends, How, listed,
    preview::{self, Touched, literal},
    refused::{Reason, Refused},
    target, tree_of,
};
use crate::report::{self, Code, Failure};

/// Every tracked path that differs between HEAD, index and files.
const STATUS: [&str; 6] =
    ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"];

/// Refuses a tree in which the merge would meet what is not committed, or another operation that is not finished. What
/// the merge will touch.
pub(super) async fn check(tree: &Path, ends: &Ends) -> Result<Vec<Touched>, Refused> {
    let git_dir = git_dir(tree).await?;
    if let Some((mark, what)) = target::unfinished(&git_dir) {
        let hint = match mark {
            "MERGE_HEAD" if is_ours(&git_dir, ends) => {
                "it is a merge of this agent that was interrupted: git merge --abort takes it back"
            }
            _ => "finish or abort it first: git status says how",
        };
        let failure = Failure::new(format!("{what} is not finished in {}", tree.display())).hint(hint);
        return Err(Refused::of(Reason::Unfinished, failure));
    }
    let lock = git_dir.join("index.lock");
    if lock.symlink_metadata().is_ok() {
        let failure = Failure::new(format!("another git is at work in {}", tree.display()))
            .hint(format!("wait for it; if there is none, a git was killed here: delete {}", lock.display()));
        return Err(Refused::of(Reason::Unfinished, failure));
    }
    let touched = preview::touched(tree, &ends.into, &ends.merged).await?;
    let status = Git::plain(tree).args(STATUS).fields().await?;
    let (mut staged, mut announced, mut dirty) = (Vec::new(), Vec::new(), BTreeSet::new());
    for entry in &status {
        let Some((marks, path)) = entry.as_bytes().split_at_checked(3) else { continue };
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        match marks {
            b" A " => announced.push(path),
            [b' ', ..] => {
                dirty.insert(path);
            }
            _ => staged.push(path),
        }
    }
    if !staged.is_empty() {
        let failed =
            Failure::new(format!("there are staged changes in {}: {}", tree.display(), listed(&staged)));
        let index = Git::plain(tree).args(["write-tree"]).output().await?;
        let is_merged = String::from_utf8_lossy(&index.stdout).trim() == ends.merged;
        let failed = failed.hint(if is_merged {
            "they are this agent's work, staged by a merge that was interrupted: git reset --merge takes it back"
        } else {
            "commit them first, or put them aside with git stash"
        });
        return Err(Refused::new(Reason::Staged, failed, &staged));
    }
    if !announced.is_empty() {
        let failure = Failure::new(format!(
            "there are files in {} that git add -N announced, and git cannot merge beside them: {}",
            tree.display(),
            listed(&announced)
        ))
        .hint("commit them first, or git reset -- FILE takes the announcement back");
        return Err(Refused::new(Reason::Staged, failure, &announced));
    }
    let mut in_the_way: BTreeSet<PathBuf> = touched
        .iter()
        .filter(|touched| dirty.contains(&touched.path))
        .map(|touched| touched.path.clone())
        .collect();
    in_the_way.extend(unwatched(tree, &touched).await?);
    in_the_way.extend(untracked(tree, &touched).await?);
    if in_the_way.is_empty() {
        return Ok(touched);
    }
    let paths: Vec<PathBuf> = in_the_way.into_iter().collect();
    let failure =
        Failure::new(format!("the merge would touch files that are not committed here: {}", listed(&paths)))
            .hint("commit them first, or put them aside; nothing was changed");
    Err(Refused::new(Reason::InTheWay, failure, &paths))
}

/// Merges, with the user's hooks; undone when git or a hook refuses, or the user interrupts it. The new commit.
pub(super) async fn merge(
    tree: &Path,
    ends: &Ends,
    touched: &[Touched],
    message: &str,
    how: How,
) -> Result<String, Failure> {
    if at(tree).await.is_none_or(|(commit, _)| commit != ends.into) {
        return Err(
            Failure::new(format!("HEAD of {} has just moved", tree.display())).hint("give the command again")
        );
    }
    let git_dir = git_dir(tree).await?;
    // From here on a signal ends git, and we put back what it leaves.
    let mut interrupts = Interrupts::new()?;
    let head = ends.head.as_str();
    let steps: &[&[&str]] = match how {
        How::Squash => &[
            &["merge", "--squash", "--ff", "--no-autostash", "--quiet", head],
            &["commit", "--quiet", "-m", message],
        ],
        How::Merge | How::UpToDate => &[&[
            "merge",
            "--no-ff",
            "--no-squash",
            "--commit",
            "--no-autostash",
            "--no-edit",
            "--quiet",
            "-m",
            message,
            head,
        ]],
    };
    for step in steps {
        let output = Git::plain(tree).args(step.iter().copied()).output_until(interrupts.next()).await?;
        let is_cut = interrupts.came || output.status.signal().is_some();
        if output.status.success() && !is_cut {
            continue;
        }
        // A hook that runs after the commit may fail or be cut: the merge is there.
        if let Some((commit, parents)) = at(tree).await
            && is_it(tree, ends, how, &commit, &parents).await
        {
            return Ok(commit);
        }
        let failed = match is_cut {
            true => Failure { code: Code::Interrupted, ..Failure::new("the merge was interrupted") },
            false => failure(step[0], &output),
        };
        return Err(undone(tree, &git_dir, ends, touched, failed).await);
    }
    match at(tree).await {
        // Whatever a hook put on top of it.
        Some((commit, _)) if commit != ends.into => Ok(commit),
        _ => {
            let failed = Failure::new("git made no commit of the merge");
            Err(undone(tree, &git_dir, ends, touched, failed).await)
        }
    }
}

/// Whether this commit is the merge, and not one that somebody else made meanwhile.
async fn is_it(tree: &Path, ends: &Ends, how: How, commit: &str, parents: &[String]) -> bool {
    match how {
        How::Squash => {
            *parents == [ends.into.clone()] && tree_of(tree, commit).await.as_ref() == Ok(&ends.merged)
        }
        How::Merge | How::UpToDate => *parents == [ends.into.clone(), ends.head.clone()],
    }
}

/// The commit that HEAD is at, and its parents.
async fn at(tree: &Path) -> Option<(String, Vec<String>)> {
    let args = ["rev-list", "--parents", "--max-count=1", "HEAD", "--"];
    let line = Git::plain(tree).args(args).undisturbed().text().await.ok()?;
    let mut oids = line.split(' ').map(str::to_owned);
    Some((oids.next()?, oids.collect()))
}

/// Puts the tree back to where it was. Only called on a tree that had nothing staged and nothing in the merge's way: what
/// is at the touched paths is what HEAD has, or comes from git and the hooks. What somebody else did meanwhile is left
/// alone.
async fn undone(tree: &Path, git_dir: &Path, ends: &Ends, touched: &[Touched], failed: Failure) -> Failure {
    let look = format!("git status shows what is left of it in {}", tree.display());
    if at(tree).await.is_some_and(|(commit, _)| commit != ends.into) {
        return failed.hint(format!("HEAD was moved meanwhile, so the merge was not taken back\n{look}"));
    }
    let is_merging = git_dir.join("MERGE_HEAD").symlink_metadata().is_ok();
    if is_merging && !is_ours(git_dir, ends) {
        return failed.hint(format!("another merge began meanwhile, so this one was not taken back\n{look}"));
    }
    let is_untouched = !is_merging && is_back(tree, touched).await.is_ok_and(|is| is);
    let forced = if is_untouched { Ok(()) } else { put_back(tree, touched).await };
    if is_back(tree, touched).await.is_ok_and(|is| is) {
        if is_merging {
            let _looked_at_by_the_next =
                Git::plain(tree).args(["merge", "--quit"]).undisturbed().output().await;
        }
        // Best effort by name: a message that nobody asks for.
        let _gone = std::fs::remove_file(git_dir.join("SQUASH_MSG"));
        return failed.hint("nothing was changed");
    }
    let why = forced.err().map_or_else(String::new, |failed| format!(": {failed}"));
    failed.hint(format!("the merge could not be taken back{why}\n{look}"))
}

/// Takes back, path by path, what git wrote and what a hook changed. What is neither HEAD's nor the merge's goes into the
/// store first.
async fn put_back(tree: &Path, touched: &[Touched]) -> Result<(), Failure> {
    let git = || Git::plain(tree).env("GIT_LITERAL_PATHSPECS", "1").undisturbed();
    let index: BTreeSet<OsString> = git().args(["ls-files", "-z"]).fields().await?.into_iter().collect();
    let changed = git().args(["diff-files", "--name-only", "--no-ext-diff", "-z"]).fields().await?;
    let changed: BTreeSet<OsString> = changed.into_iter().collect();
    for Touched { path, was, will_be } in touched {
        let is_file = tree.join(path).symlink_metadata().is_ok_and(|found| found.is_file());
        if !is_file || (index.contains(path.as_os_str()) && !changed.contains(path.as_os_str())) {
            continue;
        }
        let kept = git().args(["hash-object", "-w", "--"]).args([path]).text().await?;
        if Some(&kept) != was.as_ref() && Some(&kept) != will_be.as_ref() {
            let shown = path.display();
            report::note(&format!("{shown} was changed by a hook; `git cat-file blob {kept}` shows how"));
        }
    }
    let listed = |of: &dyn Fn(&&Touched) -> bool| -> Vec<u8> {
        touched.iter().filter(of).flat_map(|t| [t.path.as_os_str().as_bytes(), b"\0"].concat()).collect()
    };
    let (all, old) = (listed(&|_| true), listed(&|touched| touched.was.is_some()));
    let reset = git().args(["reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul"]);
    reset.feed(move |out| out.write_all(&all).map_err(|error| gone(&error))).await?;
    for Touched { path, .. } in touched.iter().filter(|touched| touched.was.is_none()) {
        let place = tree.join(path);
        if place.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            std::fs::remove_file(&place)
                .map_err(|error| Failure::new(format!("cannot remove {}: {error}", place.display())))?;
        }
        // The directories that were made for it, as far as nothing else is in them.
        for dir in place.ancestors().skip(1).take_while(|dir| *dir != tree) {
            if std::fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
    let back = git().args(["checkout-index", "--force", "-z", "--stdin"]);
    back.feed(move |out| out.write_all(&old).map_err(|error| gone(&error))).await.map(drop)
}

/// Whether every touched path is as HEAD has it, there and in the index.
async fn is_back(tree: &Path, touched: &[Touched]) -> Result<bool, Failure> {
    let is_new =
        |touched: &Touched| touched.was.is_none() && tree.join(&touched.path).symlink_metadata().is_ok();
    if touched.iter().any(is_new) {
        return Ok(false);
    }
    let paths: BTreeSet<&[u8]> = touched.iter().map(|touched| touched.path.as_os_str().as_bytes()).collect();
    let entries = Git::plain(tree).args(STATUS).undisturbed().fields().await?;
    Ok(!entries.iter().any(|entry| entry.as_bytes().get(3..).is_some_and(|path| paths.contains(path))))
}

/// Signals that would end us between two steps.
struct Interrupts {
    signals: [Signal; 3],
    came: bool,
}

impl Interrupts {
    fn new() -> Result<Self, Failure> {
        let on =
            |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        let signals = [on(SignalKind::interrupt())?, on(SignalKind::terminate())?, on(SignalKind::hangup())?];
        Ok(Self { signals, came: false })
    }

    /// Ends with the next one.
    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        self.came = true;
    }
}

async fn git_dir(tree: &Path) -> Result<PathBuf, Failure> {
    Git::plain(tree).args(["rev-parse", "--absolute-git-dir"]).path().await
}

/// Whether the merge that is not finished is the one that is wanted.
fn is_ours(git_dir: &Path, ends: &Ends) -> bool {
    std::fs::read(git_dir.join("MERGE_HEAD")).is_ok_and(|text| text.trim_ascii() == ends.head.as_bytes())
}

/// Tracked files that git was told not to look at ("assume unchanged", "skip worktree") and that differ: git would
/// not tell, and may lose them.
async fn unwatched(tree: &Path, touched: &[Touched]) -> Result<Vec<PathBuf>, Failure> {
    let touched: BTreeSet<&Path> = touched
        .iter()
        .filter(|touched| touched.was.is_some())
        .map(|touched| touched.path.as_path())
        .collect();
    let mut found = Vec::new();
    for entry in Git::plain(tree).args(["ls-files", "-v", "--stage", "-z"]).fields().await? {
        let bytes = entry.as_bytes();
        let Some(tag) = bytes.first().filter(|tag| **tag == b'S' || tag.is_ascii_lowercase()) else {
            continue;
        };
        let Some(tab) = bytes.iter().position(|byte| *byte == b'\t') else { continue };
        let path = Path::new(std::ffi::OsStr::from_bytes(&bytes[tab + 1..]));
        if !touched.contains(path) {
            continue;
        }
        let is_there = tree.join(path).symlink_metadata().is_ok();
        // What a sparse checkout left out is not missed.
        if !is_there && matches!(tag, b'S' | b's') {
            continue;
        }
        let words = String::from_utf8_lossy(&bytes[..tab]).into_owned();
        let recorded = words.split(' ').nth(2).unwrap_or_default().to_owned();
        let args = [OsString::from("hash-object"), OsString::from("--"), path.as_os_str().to_owned()];
        let now = Git::plain(tree).args(args).output().await?;
        let is_link = tree.join(path).is_symlink();
        if is_link || String::from_utf8_lossy(&now.stdout).trim() != recorded {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}

/// Files that git does not track, ignored ones too, where the merge would put something: git would overwrite them, or
/// stop half-way.
async fn untracked(tree: &Path, touched: &[Touched]) -> Result<Vec<PathBuf>, Failure> {
    let new: Vec<&Path> = touched
        .iter()
        .filter(|t| t.will_be.is_some() && t.was.is_none())
        .map(|touched| touched.path.as_path())
        .collect();
    let tracked: BTreeSet<OsString> = match new.is_empty() {
        true => return Ok(Vec::new()),
        false => Git::plain(tree).args(["ls-files", "-z"]).fields().await?.into_iter().collect(),
    };
    let mut found = Vec::new();
    for path in new {
        let mut place = PathBuf::new();
        for part in path {
            place.push(part);
            let Ok(there) = tree.join(&place).symlink_metadata() else { break };
            if there.is_dir() && place != path {
                continue;
            }
            if there.is_dir() {
                // A file or link in the place of a directory: all that is in it would go.
                let args = ["ls-files", "--others", "-z", "--"].map(OsString::from);
                let others = Git::plain(tree).args(args).args([literal(path)]).fields().await?;
                found.extend(others.into_iter().map(PathBuf::from));
            } else if !tracked.contains(place.as_os_str()) {
                found.push(place.clone());
            }
            break;
        }
    }
    Ok(found)
}
