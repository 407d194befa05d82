//! `caliban agents merge`: lands an agent's work in the user's branch.
//!
//! Decides first, on what git foretells: conflicts, a tree that is not clean where it matters, work that is not
//! committed. Only then something is touched, and what fails after that is undone. In the user's own tree git runs as
//! the user would run it, hooks included. One merge at a time in a repo.

mod attributes;
mod commit;
mod files;
mod landing;
mod preview;
mod refused;
mod target;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{File, TryLockError},
    io::Write,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use caliban_control::protocol::AgentRow;
use caliban_core::{ids::AgentId, inert, lifecycle::State, names::Slug};
use caliban_worktrees::{ChangeKind, Changes, GitOptions, Repo};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub(super) use self::landing::Landing;
use self::{
    commit::Prepared,
    landing::Left,
    preview::{Outcome, Preview},
    refused::{Known, Reason, Refused},
    target::Target,
};
use super::{
    Fleet,
    git::{self, Git},
    json_line, row, say, worktree_name,
};
use crate::{
    cli::fleet::MergeArgs,
    report::{self, Code, Failure},
};

/// Files that are named in an error.
const NAMED: usize = 20;
/// The largest HEAD that is read: one name.
const HEAD_CAP: u64 = 64 * 1024;

/// What came of it; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct Landed {
    agent: AgentId,
    branch: String,
    into: String,
    how: How,
    /// Where the branch is now.
    commit: String,
    /// How many commits of the agent that brings.
    commits: u64,
    /// What it changed there.
    summary: String,
    /// What stays in the worktree, because no commit is meant to have it: ignored files, repositories of their own.
    left: Vec<String>,
    #[serde(skip)]
    is_on_no_branch: bool,
    #[serde(skip)]
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    Merge,
    Squash,
    UpToDate,
}

/// What there is of the agent's.
struct Work {
    changes: Changes,
    /// The repository's record of the worktree.
    admin: PathBuf,
    /// The branch that is checked out, usually its own; `None` when HEAD is detached.
    at: Option<String>,
    /// The commit that is checked out: what is landed.
    head: String,
    /// What is in no commit and should be in one.
    uncommitted: BTreeMap<String, BTreeSet<ChangeKind>>,
    /// What is in no commit and is not meant to be.
    left: Vec<String>,
}

pub(super) async fn merge(fleet: &Fleet<'_>, args: &MergeArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let mut known = Known::default();
    match try_it(fleet, args, &mut known).await {
        Ok(landed) => show(&landed, args.json, out),
        Err(refused) => {
            if args.json {
                json_line(&refused.told(known), out)?;
            }
            Err(refused.failure)
        }
    }
}

async fn try_it(fleet: &Fleet<'_>, args: &MergeArgs, known: &mut Known) -> Result<Landed, Refused> {
    for (given, flag) in [(&args.message, "--message"), (&args.commit, "--commit")] {
        if given.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Failure::usage(format!("the message of {flag} is empty")).into());
        }
    }
    known.into.clone_from(&args.into);
    let mut client = fleet.client().await?;
    let agent = client.show(&args.agent.id).await?;
    known.agent = Some(agent.id);
    let name = worktree_name(&agent).map_err(|failure| Refused::of(Reason::NoWorktree, failure))?;
    let cancel = CancellationToken::new();
    let tree = users_tree(fleet, &agent).await?;
    let repo = Repo::open(&tree, GitOptions::default(), &cancel).await;
    let repo = repo.map_err(|error| git::worded_work(&name, error))?;
    let _turn = take_turn(&repo).await?;
    // Looked at when it is our turn: it may have been woken meanwhile.
    let agent = client.show(&agent.id.to_string()).await?;
    if !row::has_ended(agent.state) && agent.state != State::Idle {
        let failure = Failure::new(format!("agent {} is still at work", row::name(&agent)))
            .hint(format!("wait for it: caliban agents wait {}", agent.id));
        return Err(Refused::of(Reason::AtWork, failure));
    }
    let target = Target::find(&repo, tree, args.into.as_deref()).await?;
    known.into = Some(target.name().to_owned());
    let work = Work::find(&repo, &name, &cancel).await?;
    known.branch = Some(work.branch());
    let into = target.commit().await?;
    let before = match Landing::read(&work.admin) {
        Some(landing) => landing.left_in(repo.common_dir(), &into).await?,
        None => Left::default(),
    };
    let prepared = match (&args.commit, work.uncommitted.is_empty()) {
        (_, true) => None,
        (Some(message), false) => Some(Prepared::make(&repo, &work, message, &into).await?),
        (None, false) => return Err(uncommitted(&work)),
    };
    let head = prepared.as_ref().map_or(work.head.as_str(), Prepared::commit).to_owned();
    let landed = land(&target, &work, into, head, before, &agent, args).await;
    match (&landed, prepared) {
        (_, None) => {}
        (Ok(_), Some(prepared)) => {
            if let Err(failed) = prepared.settle().await {
                report::note(&format!(
                    "the work has landed, but the agent's worktree is not up to date: {failed}"
                ));
            }
        }
        (Err(_), Some(prepared)) => prepared.drop_it().await,
    }
    let (landed, record) = landed?;
    if let Some(Err(error)) = record.map(|record| record.write(&work.admin)) {
        report::note(&format!(
            "that it has landed could not be recorded, so its branch will be kept: {error}"
        ));
    }
    Ok(landed)
}

fn show(landed: &Landed, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    if json {
        json_line(landed, out)?;
        return Ok(Code::Done);
    }
    let Landed { branch, into, .. } = landed;
    match landed.how {
        How::UpToDate => writeln!(out, "{into} has everything of {branch} already")?,
        How::Merge | How::Squash => {
            let verb = if landed.how == How::Squash { "squashed" } else { "merged" };
            let commits = if landed.commits == 1 {
                "1 commit".to_owned()
            } else {
                format!("{} commits", landed.commits)
            };
            let short: String = landed.commit.chars().take(10).collect();
            writeln!(out, "{verb} {branch} into {into}: {commits}, {}; now at {short}", landed.summary)?;
            if !landed.left.is_empty() {
                say(&format!("stays in its worktree, in no commit: {}", listed(&landed.left)));
            }
            if landed.is_on_no_branch {
                say(
                    "HEAD is on no branch here: git switch -c NAME gives it one, else the merge is lost with the next checkout",
                );
            }
            let id = landed.agent;
            say(&if landed.has_ended {
                format!("done with it? caliban rm {id}")
            } else {
                format!("it waits for more; done with it? caliban stop {id} && caliban rm {id}")
            });
        }
    }
    Ok(Code::Done)
}

/// Lands it. What a squash leaves for the record comes with it.
async fn land(
    target: &Target,
    work: &Work,
    into: String,
    head: String,
    before: Left,
    agent: &AgentRow,
    args: &MergeArgs,
) -> Result<(Landed, Option<Landing>), Refused> {
    let preview = Preview::new(target, into, head, before.landing).await?;
    let mut landed = Landed {
        agent: agent.id,
        branch: work.branch(),
        into: target.name().to_owned(),
        how: if args.squash { How::Squash } else { How::Merge },
        commit: preview.into.clone(),
        commits: preview.commits,
        summary: String::new(),
        left: work.left.clone(),
        has_ended: agent.state.is_ending(),
        is_on_no_branch: target.is_detached(),
    };
    let is_in = matches!(preview.outcome, Outcome::UpToDate);
    let merged = match preview.outcome {
        _ if is_in => None,
        Outcome::Conflicts(files) => return Err(conflicts(work, target.name(), &files)),
        // One commit without a change would say nothing; a merge still says which commits are in.
        Outcome::Clean(tree) if args.squash && tree == tree_of(target.tree(), &preview.into).await? => None,
        Outcome::Clean(tree) => Some(tree),
        Outcome::UpToDate => None,
    };
    let tip = preview.head.clone();
    let Some(merged) = merged else {
        landed.how = How::UpToDate;
        landed.commits = 0;
        landed.summary = preview::summary(target.tree(), &landed.commit, &landed.commit).await?;
        // Commits that come to nothing would be on nothing.
        let record = (!is_in && work.changes.file_count > 0)
            .then(|| Landing::after(preview.landed, tip, landed.commit.clone()));
        return Ok((landed, record));
    };
    let message = args.message.clone().unwrap_or_else(|| message(agent));
    let mut ends = Ends { into: preview.into, head: preview.head, merged };
    landed.commit = match target {
        Target::Here { tree, .. } => {
            if preview.landed.is_some() {
                // git, which knows nothing of what landed before, gets what came of the merge.
                ends.head = outcome(tree, &ends, landed.how).await?;
            }
            let touched = tree::check(tree, &ends).await?;
            tree::merge(tree, &ends, &touched, &message, landed.how).await.map_err(by_git)?
        }
        Target::Branch { tree, name, .. } => {
            in_store(tree, name, &ends, &message, landed.how).await.map_err(by_git)?
        }
    };
    landed.summary = preview::summary(target.tree(), &ends.into, &landed.commit).await?;
    if let Some(undone) = before.undone {
        let (short, into) = (undone.get(..10).unwrap_or(&undone), &landed.into);
        report::note(&format!("what landed before as {short} is not in {into} any more; it lands again"));
    }
    let record =
        (landed.how == How::Squash).then(|| Landing::after(preview.landed, tip, landed.commit.clone()));
    Ok((landed, record))
}

/// What comes of the merge as a commit on top of both ends, which git merges without looking for where it begins.
async fn outcome(tree: &Path, ends: &Ends, how: How) -> Result<String, Failure> {
    let mut args = vec!["commit-tree", "-m", "the agent's work, onto what landed before", "-p", &ends.into];
    if how == How::Merge {
        args.extend(["-p", &ends.head]);
    }
    args.push(&ends.merged);
    Git::plain(tree).args(args).text().await
}

/// Merges into a branch that no tree has: a commit and the branch, nothing else. The new commit.
async fn in_store(tree: &Path, name: &str, ends: &Ends, message: &str, how: How) -> Result<String, Failure> {
    let (into, head) = (ends.into.as_str(), ends.head.as_str());
    let mut args = vec!["commit-tree", "-m", message, "-p", into];
    if how == How::Merge {
        args.extend(["-p", head]);
    }
    let signs = Git::plain(tree).args(["config", "--type=bool", "--get", "commit.gpgSign"]).output().await?;
    if signs.stdout.trim_ascii() == b"true" {
        args.push("-S");
    }
    args.push(&ends.merged);
    let commit = Git::plain(tree).args(args).text().await?;
    let reference = format!("refs/heads/{name}");
    let reason = "caliban agents merge";
    Git::plain(tree)
        .args(["update-ref", "-m", reason, reference.as_str(), commit.as_str(), into])
        .text()
        .await?;
    Ok(commit)
}

impl Work {
    async fn find(repo: &Repo, name: &Slug, cancel: &CancellationToken) -> Result<Self, Refused> {
        let changes = repo.changes(name, cancel).await.map_err(|error| git::worded_work(name, error))?;
        git::say_if_files_are_gone(repo, name);
        let (common, worktree) = (repo.common_dir(), repo.path_of(name));
        let by_hand = || format!("look at it by hand in {}", worktree.display());
        let unknown = || Failure::new(format!("git has no record of {}", worktree.display()));
        let admin = git::admin_dir(common, &worktree).ok_or_else(unknown)?;
        if let Some((_, what)) = target::unfinished(&admin) {
            let failure = Failure::new(format!("{what} is not finished in the agent's worktree"));
            return Err(Refused::of(Reason::Unfinished, failure.hint(by_hand())));
        }
        let Some(head) = changes.head.as_ref().map(|head| head.as_str().to_owned()) else {
            return Err(Failure::new("the agent's worktree has no commit checked out")
                .hint(by_hand())
                .into());
        };
        let branch = format!("refs/heads/{}", changes.branch);
        // Everything that the agent committed must be in what is landed, wherever it put it.
        let args =
            ["rev-list", "--max-count=1", "--ignore-missing", branch.as_str(), "--not", head.as_str(), "--"];
        let has_branch = Git::hardened(common).args(["show-ref", "--verify", "--quiet", branch.as_str()]);
        if has_branch.output().await?.status.success()
            && !Git::hardened(common).args(args).text().await?.is_empty()
        {
            return Err(Failure::new(format!(
                "the agent's worktree does not have all of its branch {} checked out",
                changes.branch
            ))
            .hint(by_hand())
            .into());
        }
        let at = checked_out(&admin);
        let mut left: Vec<String> = changes.left.iter().map(|change| change.path.clone()).collect();
        let mut uncommitted = BTreeMap::<String, BTreeSet<ChangeKind>>::new();
        for change in &changes.uncommitted {
            uncommitted.entry(change.path.clone()).or_default().insert(change.kind);
        }
        commit::without_line_ends(repo, &worktree, &head, &mut uncommitted).await?;
        // What is asked about files leaves submodules out.
        for path in staged_submodules(common, &admin, &worktree, &changes, &head).await? {
            left.retain(|left| *left != path);
            uncommitted.entry(path).or_default().insert(ChangeKind::Staged);
        }
        Ok(Self { changes, admin, at, head, uncommitted, left })
    }

    /// What is landed, for people.
    fn branch(&self) -> String {
        self.at.clone().unwrap_or_else(|| format!("the detached HEAD of {}", self.changes.name.as_str()))
    }
}

/// Submodules that were added, moved or removed in the worktree's index.
async fn staged_submodules(
    common: &Path,
    admin: &Path,
    worktree: &Path,
    changes: &Changes,
    head: &str,
) -> Result<Vec<String>, Failure> {
    if changes.uncommitted.is_empty() && changes.left.is_empty() {
        return Ok(Vec::new());
    }
    let git = || Git::hardened_at(common, admin, worktree).args(["diff-index", "--cached", "--no-ext-diff"]);
    // The index of an agent that commits with another one is as old as the worktree, and says nothing.
    let base = changes.base.as_str();
    if head != base && git().args(["--quiet", base, "--"]).output().await?.status.success() {
        return Ok(Vec::new());
    }
    let found =
        git().args(["-z", "--raw", "--no-renames", "--ignore-submodules=none", head, "--"]).fields().await?;
    let is_link = |pair: &&[OsString]| {
        let words = pair[0].to_string_lossy().into_owned();
        words.trim_start_matches(':').split(' ').take(2).any(|mode| mode == "160000")
    };
    Ok(found.chunks_exact(2).filter(is_link).map(|pair| pair[1].to_string_lossy().into_owned()).collect())
}

/// The branch that a worktree's HEAD names.
fn checked_out(admin: &Path) -> Option<String> {
    let path = admin.join("HEAD");
    path.symlink_metadata().ok().filter(|found| found.is_file() && found.len() <= HEAD_CAP)?;
    let text = std::fs::read_to_string(path).ok()?;
    text.trim_end().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

/// What is merged into what, and the tree that it makes.
struct Ends {
    into: String,
    head: String,
    merged: String,
}

/// The tree that the user is in; the repo's main one when that is the agent's own, and of a bare repo, which has none,
/// the repo itself.
async fn users_tree(fleet: &Fleet<'_>, agent: &AgentRow) -> Result<PathBuf, Failure> {
    let is_agents = agent.worktree.as_ref().is_some_and(|worktree| fleet.cwd.starts_with(worktree));
    let start = if is_agents { fleet.places().repo() } else { &fleet.cwd };
    let asked = ["rev-parse", "--is-inside-work-tree", "--show-toplevel"];
    let output = Git::plain(start).args(asked).output().await?;
    if !output.status.success() && output.stdout.starts_with(b"false") {
        return Ok(fleet.places().repo().to_owned());
    }
    if !output.status.success() {
        return Err(git::no_repo(start, &String::from_utf8_lossy(&output.stderr)));
    }
    let bytes = output.stdout.strip_prefix(b"true\n").unwrap_or(&output.stdout);
    Ok(PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes))))
}

/// Two merges at once would take each other's unfinished work for their own.
async fn take_turn(repo: &Repo) -> Result<File, Failure> {
    let place = repo.common_dir().join("refs");
    let cannot = |error: std::io::Error| Failure::new(format!("cannot lock {}: {error}", place.display()));
    let turn = File::open(&place).map_err(cannot)?;
    match turn.try_lock() {
        Ok(()) => return Ok(turn),
        Err(TryLockError::Error(error)) => return Err(cannot(error)),
        Err(TryLockError::WouldBlock) => say("another merge is under way in this repo; waiting for it"),
    }
    let waited = tokio::task::spawn_blocking(move || turn.lock().map(|()| turn)).await;
    waited.map_err(std::io::Error::other).and_then(|locked| locked).map_err(cannot)
}

async fn tree_of(tree: &Path, commit: &str) -> Result<String, Failure> {
    let name = format!("{commit}^{{tree}}");
    Git::plain(tree).args(["rev-parse", "--verify", name.as_str()]).text().await
}

fn message(agent: &AgentRow) -> String {
    format!("Merge agent {}\n\n{}\n", row::name(agent), inert::line(&agent.prompt))
}

fn uncommitted(work: &Work) -> Refused {
    let paths: Vec<&String> = work.uncommitted.keys().collect();
    let failure = Failure::new(format!("the agent left work that is not committed: {}", listed(&paths)))
        .hint("--commit \"message\" commits it first");
    Refused::new(Reason::Uncommitted, failure, &paths)
}

fn conflicts(work: &Work, into: &str, files: &[String]) -> Refused {
    let branch = work.branch();
    let name = work.at.as_deref().unwrap_or(&work.head);
    let failure =
        Failure::new(format!("{branch} does not merge into {into}: conflicts in {}", listed(files))).hint(
            format!(
                "nothing was changed; merge by hand with `git merge {name}`, or let the agent rebase its work"
            ),
        );
    Refused::new(Reason::Conflicts, failure, files)
}

/// What stopped the merge itself.
fn by_git(failure: Failure) -> Refused {
    match failure.code {
        Code::Interrupted => failure.into(),
        _ => Refused::of(Reason::Git, failure),
    }
}

pub(super) fn listed<P: AsRef<Path>>(paths: &[P]) -> String {
    let shown = |path: &P| inert::line(&path.as_ref().to_string_lossy()).into_owned();
    let shown: Vec<String> = paths.iter().take(NAMED).map(shown).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
