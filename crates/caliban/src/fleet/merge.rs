//! `caliban agents merge`: lands an agent's work in the user's branch.
//!
//! Decides first, on what git foretells: conflicts, a tree that is not clean where it matters, work that is not
//! committed. Only then something is touched, and what fails after that is undone. In the user's own tree git runs as
//! the user would run it, hooks included.

mod commit;

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
};

use caliban_core::{ids::AgentId, inert, lifecycle::State};
use caliban_supervisor::protocol::AgentRow;
use caliban_worktrees::{Changes, GitOptions, MergeKind, MergePreview, Repo};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::commit::Committed;
use super::{
    Fleet,
    git::{Git, failure},
    json_line, row, say, worded, worded_git, worktree_name,
};
use crate::{
    cli::fleet::MergeArgs,
    report::{Code, Failure},
};

/// Files that are named in an error.
const NAMED: usize = 20;

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
    summary: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    Merge,
    Squash,
    UpToDate,
}

/// Where it goes.
enum Target {
    /// What is checked out in this tree.
    Here { tree: PathBuf, name: String },
    /// A branch that is checked out nowhere.
    Branch { common: PathBuf, tree: PathBuf, name: String },
}

pub(super) async fn merge(fleet: &Fleet<'_>, args: &MergeArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let agent = fleet.client().await?.show(&args.agent.id).await.map_err(worded)?;
    if !row::has_ended(agent.state) && agent.state != State::Idle {
        return Err(Failure::new(format!("agent {} is still at work", row::name(&agent)))
            .hint(format!("wait for it: caliban agents wait {}", agent.id)));
    }
    let name = worktree_name(&agent)?;
    let cancel = CancellationToken::new();
    let tree = users_tree(fleet, &agent).await?;
    let repo = Repo::open(&tree, GitOptions::default(), &cancel).await.map_err(worded_git)?;
    let changes = repo.changes(&name, &cancel).await.map_err(worded_git)?;
    let target = Target::find(&repo, tree, args.into.as_deref()).await?;
    let committed = match (&args.commit, changes.uncommitted.is_empty()) {
        (_, true) => None,
        (Some(message), false) => Some(Committed::make(&repo, &changes, message).await?),
        (None, false) => return Err(uncommitted(&changes)),
    };
    let landed = land(&repo, &changes, &target, &agent, args, &cancel).await;
    // Whatever came of it, the agent's branch is left as one would expect it.
    match (&landed, committed) {
        (_, None) => {}
        (Ok(_), Some(committed)) => committed.settle().await,
        (Err(_), Some(committed)) => committed.undo().await?,
    }
    show(&landed?, args.json, out)
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
            say(&format!("done with it? caliban rm {}", landed.agent));
        }
    }
    Ok(Code::Done)
}

async fn land(
    repo: &Repo,
    changes: &Changes,
    target: &Target,
    agent: &AgentRow,
    args: &MergeArgs,
    cancel: &CancellationToken,
) -> Result<Landed, Failure> {
    let into = match target {
        Target::Here { .. } => None,
        Target::Branch { name, .. } => Some(format!("refs/heads/{name}")),
    };
    let preview = repo.merge_preview(&changes.name, into.as_deref(), cancel).await.map_err(worded_git)?;
    let name = target.name().to_owned();
    let mut landed = Landed {
        agent: agent.id,
        branch: changes.branch.clone(),
        into: name.clone(),
        how: if args.squash { How::Squash } else { How::Merge },
        commit: preview.into.as_str().to_owned(),
        commits: count(repo.common_dir(), &preview).await?,
        summary: changes.summary(),
    };
    match preview.merge {
        MergeKind::UpToDate => {
            landed.how = How::UpToDate;
            return Ok(landed);
        }
        MergeKind::Conflicts => return Err(conflicts(changes, &name, &preview)),
        MergeKind::FastForward | MergeKind::Clean => {}
    }
    let message = args.message.clone().unwrap_or_else(|| message(agent));
    landed.commit = match target {
        Target::Here { tree, .. } => {
            check_tree(tree, &preview).await?;
            in_tree(tree, &preview, &message, landed.how).await?
        }
        Target::Branch { common, tree, name } => {
            in_store(common, tree, name, &preview, &message, landed.how).await?
        }
    };
    Ok(landed)
}

impl Target {
    async fn find(repo: &Repo, tree: PathBuf, into: Option<&str>) -> Result<Self, Failure> {
        let git = || Git::plain(&tree);
        let head = git().args(["symbolic-ref", "--quiet", "--short", "HEAD"]).output().await?;
        let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        let Some(into) = into else {
            let name = if head.is_empty() { "the detached HEAD".to_owned() } else { head };
            return Ok(Self::Here { tree, name });
        };
        let into = into.strip_prefix("refs/heads/").unwrap_or(into);
        if into == head {
            return Ok(Self::Here { tree, name: head });
        }
        let reference = format!("refs/heads/{into}");
        let known = git()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", reference.as_str()])
            .output()
            .await?;
        if !known.status.success() {
            return Err(Failure::usage(format!("there is no branch {}", inert::quoted(into))));
        }
        let trees = git().args(["worktree", "list", "--porcelain", "-z"]).fields().await?;
        let mut place = String::new();
        for field in trees {
            if let Some(path) = field.strip_prefix("worktree ") {
                path.clone_into(&mut place);
            } else if field.strip_prefix("branch ") == Some(reference.as_str()) {
                return Err(Failure::usage(format!(
                    "the branch {into} is checked out in {}",
                    inert::line(&place)
                ))
                .hint("give the command there, or with -C DIR"));
            }
        }
        Ok(Self::Branch { common: repo.common_dir().to_owned(), tree, name: into.to_owned() })
    }

    fn name(&self) -> &str {
        match self {
            Self::Here { name, .. } | Self::Branch { name, .. } => name,
        }
    }
}

/// The tree that the user is in; the repo's main one when that is the agent's own.
async fn users_tree(fleet: &Fleet<'_>, agent: &AgentRow) -> Result<PathBuf, Failure> {
    let is_agents = agent.worktree.as_ref().is_some_and(|worktree| fleet.cwd.starts_with(worktree));
    let start = if is_agents { fleet.places().repo() } else { &fleet.cwd };
    Git::plain(start).args(["rev-parse", "--show-toplevel"]).text().await.map(PathBuf::from)
}

/// Refuses a tree in which the merge would meet what is not committed, or another operation that is not finished.
async fn check_tree(tree: &Path, preview: &MergePreview) -> Result<(), Failure> {
    for (reference, what) in
        [("MERGE_HEAD", "a merge"), ("CHERRY_PICK_HEAD", "a cherry-pick"), ("REVERT_HEAD", "a revert")]
    {
        let found = Git::plain(tree).args(["rev-parse", "--verify", "--quiet", reference]).output().await?;
        if found.status.success() {
            return Err(Failure::new(format!("{what} is not finished in {}", tree.display()))
                .hint("finish or abort it first: git status says how"));
        }
    }
    let status = Git::plain(tree).args([
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=no",
        "--ignore-submodules=dirty",
    ]);
    let status = status.fields().await?;
    let is_staged = |entry: &&String| !entry.starts_with(' ');
    let staged: Vec<&str> = status.iter().filter(is_staged).filter_map(|entry| entry.get(3..)).collect();
    if !staged.is_empty() {
        return Err(Failure::new(format!(
            "there are staged changes in {}: {}",
            tree.display(),
            listed(&staged)
        ))
        .hint("commit them first, or put them aside with git stash"));
    }
    let range = format!("{}...{}", preview.into, preview.head);
    let touched = Git::plain(tree)
        .args(["diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", range.as_str(), "--"])
        .fields()
        .await?;
    let touched: BTreeSet<&str> = touched.iter().map(String::as_str).collect();
    let mut in_the_way: BTreeSet<&str> =
        status.iter().filter_map(|entry| entry.get(3..)).filter(|path| touched.contains(path)).collect();
    // What git does not track, ignored files too, would be overwritten or stop the merge half-way.
    let tracked = Git::plain(tree).args(["ls-files", "-z"]).fields().await?;
    let tracked: BTreeSet<&str> = tracked.iter().map(String::as_str).collect();
    let is_there = |path: &&&str| tree.join(**path).symlink_metadata().is_ok_and(|found| !found.is_dir());
    in_the_way.extend(touched.difference(&tracked).filter(is_there).copied());
    if in_the_way.is_empty() {
        return Ok(());
    }
    let paths: Vec<&str> = in_the_way.into_iter().collect();
    Err(Failure::new(format!("the merge would touch files that are not committed here: {}", listed(&paths)))
        .hint("commit them first, or put them aside with git stash; nothing was changed"))
}

/// Merges in the tree, with the user's hooks; undone when git or a hook refuses. The new commit.
async fn in_tree(tree: &Path, preview: &MergePreview, message: &str, how: How) -> Result<String, Failure> {
    let head = preview.head.as_str();
    let merged = match how {
        How::Squash => Git::plain(tree).args(["merge", "--squash", "--quiet", head]),
        How::Merge | How::UpToDate => {
            Git::plain(tree).args(["merge", "--no-ff", "--no-edit", "--quiet", "-m", message, head])
        }
    };
    let output = merged.output().await?;
    if !output.status.success() {
        return Err(undone(tree, failure("merge", &output)).await);
    }
    if how == How::Squash {
        let output = Git::plain(tree).args(["commit", "--quiet", "-m", message]).output().await?;
        if !output.status.success() {
            return Err(undone(tree, failure("commit", &output)).await);
        }
    }
    Git::plain(tree).args(["rev-parse", "HEAD"]).text().await
}

/// Puts the tree back to where it was. Only called on a tree that had nothing staged and nothing in the merge's way.
async fn undone(tree: &Path, failed: Failure) -> Failure {
    let abort = Git::plain(tree).args(["merge", "--abort"]).output().await;
    if abort.is_ok_and(|output| output.status.success()) {
        return failed.hint("nothing was changed");
    }
    // Not in a merge: a squash, or git refused before it began.
    match Git::plain(tree).args(["reset", "--quiet", "--merge"]).output().await {
        Ok(output) if output.status.success() => failed.hint("nothing was changed"),
        _ => failed.hint(format!("look at {} with git status: it could not be put back", tree.display())),
    }
}

/// Merges into a branch that no tree has: a commit and the branch, nothing else. The new commit.
async fn in_store(
    common: &Path,
    tree: &Path,
    name: &str,
    preview: &MergePreview,
    message: &str,
    how: How,
) -> Result<String, Failure> {
    let (into, head) = (preview.into.as_str(), preview.head.as_str());
    let merged = Git::hardened(common).args(["merge-tree", "--write-tree", into, head]).text().await?;
    let merged = merged.lines().next().unwrap_or_default().to_owned();
    let mut args = vec!["commit-tree", "-m", message, "-p", into];
    if how == How::Merge {
        args.extend(["-p", head]);
    }
    args.push(&merged);
    let commit = Git::plain(tree).args(args).text().await?;
    let reference = format!("refs/heads/{name}");
    let reason = "caliban agents merge";
    Git::plain(tree)
        .args(["update-ref", "-m", reason, reference.as_str(), commit.as_str(), into])
        .text()
        .await?;
    Ok(commit)
}

async fn count(common: &Path, preview: &MergePreview) -> Result<u64, Failure> {
    let range = format!("{}..{}", preview.into, preview.head);
    let count = Git::hardened(common).args(["rev-list", "--count", range.as_str(), "--"]).text().await?;
    count.parse().map_err(|_| Failure::new(format!("git rev-list answered {}", inert::quoted(&count))))
}

fn message(agent: &AgentRow) -> String {
    format!("Merge agent {}\n\n{}\n", row::name(agent), inert::line(&agent.prompt))
}

fn uncommitted(changes: &Changes) -> Failure {
    let paths: Vec<&str> = changes.uncommitted.iter().map(|change| change.path.as_str()).collect();
    Failure::new(format!("the agent left work that is not committed: {}", listed(&paths)))
        .hint("--commit \"message\" commits it first")
}

fn conflicts(changes: &Changes, into: &str, preview: &MergePreview) -> Failure {
    let files: Vec<&str> = preview.conflicts.iter().map(String::as_str).collect();
    Failure::new(format!("{} does not merge into {into}: conflicts in {}", changes.branch, listed(&files)))
        .hint(format!(
            "nothing was changed; merge by hand with `git merge {}`, or let the agent rebase its work",
            changes.branch
        ))
}

fn listed(paths: &[&str]) -> String {
    let shown: Vec<String> = paths.iter().take(NAMED).map(|path| inert::line(path).into_owned()).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
