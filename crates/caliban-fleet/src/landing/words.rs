//! What is said of work that lands or does not, in words and with hints.

use std::path::Path;

use caliban_core::{inert, names::Slug, review::ReviewState};
use caliban_worktrees::{CannotCommit, Error, LandNote, LandingRefusal, Operation, TreeAfter};

use crate::{
    protocol::MergeForecast,
    refusal::{Refusal, RefusalKind},
};

/// Files that are named in an error.
const NAMED: usize = 20;

/// The refusal as an error for people. `branch` and `into` are what was to be merged into what.
pub(super) fn refusal(
    name: &Slug,
    branch: Option<&str>,
    into: Option<&str>,
    refusal: LandingRefusal,
) -> Refusal {
    let (branch, into) = (branch.unwrap_or_default(), into.unwrap_or_default());
    let by_hand = |worktree: &Path| format!("look at it by hand in {}", worktree.display());
    match refusal {
        LandingRefusal::BareHead => Refusal::usage("this bare repo's HEAD names no branch")
            .hint("say with --into which branch is meant"),
        LandingRefusal::NoSuchBranch(name) => {
            let shown = inert::line(&name);
            Refusal::usage(format!("there is no branch {}", inert::quoted(&name))).hint(format!(
                "git branch lists them; git branch {shown} makes it from what is checked out here"
            ))
        }
        LandingRefusal::CheckedOutElsewhere { branch, place } => {
            Refusal::usage(format!("the branch {branch} is checked out in {}", inert::line(&place)))
                .hint("give the command there, or with -C DIR")
        }
        LandingRefusal::NoCommit(target) => Refusal::new(format!("{target} has no commit yet to merge into"))
            .hint("make a first commit, or say another branch with --into"),
        LandingRefusal::BranchInUse { operation, branch } => {
            Refusal::new(format!("{} of the branch {branch} is not finished", shown(operation)))
                .hint("finish or abort it first: git status says how, in the worktree where it is")
        }
        LandingRefusal::UnfinishedHere { operation, tree, is_same_merge } => {
            let hint = match is_same_merge {
                true => "it is a merge of this agent that was interrupted: git merge --abort takes it back",
                false => "finish or abort it first: git status says how",
            };
            Refusal::new(format!("{} is not finished in {}", shown(operation), tree.display())).hint(hint)
        }
        LandingRefusal::IndexLocked { tree, lock } => Refusal::new(format!(
            "another git is at work in {}",
            tree.display()
        ))
        .hint(format!("wait for it; if there is none, a git was killed here: delete {}", lock.display())),
        LandingRefusal::UnfinishedInWorktree { operation, worktree } => {
            Refusal::new(format!("{} is not finished in the agent's worktree", shown(operation)))
                .hint(by_hand(&worktree))
        }
        LandingRefusal::NoHead(worktree) => {
            Refusal::new("the agent's worktree has no commit checked out").hint(by_hand(&worktree))
        }
        LandingRefusal::BranchNotCheckedOut { branch, worktree } => {
            Refusal::new(format!("the agent's worktree does not have all of its branch {branch} checked out"))
                .hint(by_hand(&worktree))
        }
        LandingRefusal::Uncommitted(files) => {
            Refusal::new(format!("the agent left work that is not committed: {}", listed(&files)))
                .hint("--commit \"message\" commits it first")
        }
        LandingRefusal::NotOnItsBranch { branch, worktree } => {
            Refusal::new(format!("the worktree does not have its branch {branch} checked out"))
                .hint(format!("commit it by hand in {}", worktree.display()))
        }
        LandingRefusal::CannotCommit { path, why, worktree } => cannot_commit(&path, why, &worktree),
        LandingRefusal::Conflicts { revision, files } => Refusal::new(format!(
            "{branch} does not merge into {into}: conflicts in {}",
            listed(&files)
        ))
        .hint(format!(
            "nothing was changed; merge by hand with `git merge {revision}`, or let the agent rebase its work"
        )),
        LandingRefusal::SubmoduleCommits { submodules, worktree } => {
            let paths: Vec<&str> = submodules.iter().map(|submodule| submodule.path.as_str()).collect();
            let pushes: Vec<String> = submodules
                .iter()
                .map(|submodule| {
                    let place = worktree.join(&submodule.path);
                    format!("git -C {} push origin {}:refs/heads/NAME", place.display(), submodule.commit)
                })
                .collect();
            Refusal::new(format!(
                "{into} would point at commits of submodules that only the agent's worktree has: {}",
                listed(&paths)
            ))
            .hint(format!("publish them first: {}", pushes.join("\n")))
        }
        LandingRefusal::Staged { tree, files, is_same_merge } => {
            let hint = match is_same_merge {
                true => {
                    "they are this agent's work, staged by a merge that was interrupted: git reset --merge takes it back"
                }
                false => "commit them first, or put them aside with git stash",
            };
            Refusal::new(format!("there are staged changes in {}: {}", tree.display(), listed(&files)))
                .hint(hint)
        }
        LandingRefusal::Announced { tree, files } => Refusal::new(format!(
            "there are files in {} that git add -N announced, and git cannot merge beside them: {}",
            tree.display(),
            listed(&files)
        ))
        .hint("commit them first, or git reset -- FILE takes the announcement back"),
        LandingRefusal::InTheWay(files) => Refusal::new(format!(
            "the merge would touch files that are not committed here: {}",
            listed(&files)
        ))
        .hint("commit them first, or put them aside; nothing was changed"),
        LandingRefusal::HeadMoved(tree) => {
            Refusal::new(format!("HEAD of {} has just moved", tree.display())).hint("give the command again")
        }
        LandingRefusal::MergeFailed { error, after } => with_tree(error.into(), after),
        LandingRefusal::NoCommitMade(after) => {
            with_tree(Refusal::new("git made no commit of the merge"), after)
        }
        LandingRefusal::Interrupted(after) => with_tree(
            Refusal { kind: RefusalKind::Interrupted, ..Refusal::new("the merge was interrupted") },
            after,
        ),
        LandingRefusal::Failed(error) => work(name, error),
    }
}

/// With what became of the user's tree.
fn with_tree(words: Refusal, after: TreeAfter) -> Refusal {
    let look = |tree: &Path| format!("git status shows what is left of it in {}", tree.display());
    let hint = match after {
        TreeAfter::AsBefore => "nothing was changed".to_owned(),
        TreeAfter::HeadMoved(tree) => {
            format!("HEAD was moved meanwhile, so the merge was not taken back\n{}", look(&tree))
        }
        TreeAfter::OtherMerge(tree) => {
            format!("another merge began meanwhile, so this one was not taken back\n{}", look(&tree))
        }
        TreeAfter::Changed(tree, why) => {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            format!("the merge could not be taken back{why}\n{}", look(&tree))
        }
    };
    let hint = match &words.hint {
        Some(earlier) => format!("{hint}\n{earlier}"),
        None => hint,
    };
    words.hint(hint)
}

fn cannot_commit(path: &str, why: CannotCommit, worktree: &Path) -> Refusal {
    let by_hand = format!("commit it by hand in {}", worktree.display());
    let by_agent = "let the agent commit it, or commit it by hand in its worktree".to_owned();
    let nothing_is_run = "and nothing is run on an agent's files";
    let (why, hint) = match why {
        CannotCommit::Conflicted => ("it is in conflict".to_owned(), by_hand),
        CannotCommit::NameIsNoText => ("its name is not text".to_owned(), by_hand),
        CannotCommit::NameIsGits => ("git refuses its name".to_owned(), by_hand),
        CannotCommit::NoFile => ("it is no file".to_owned(), by_hand),
        CannotCommit::Unreadable(why) => (why, by_hand),
        CannotCommit::TooLarge => ("it is too large for its line ends to be converted".to_owned(), by_hand),
        CannotCommit::Filter(name) => {
            (format!("it goes through the filter {}, {nothing_is_run}", inert::quoted(&name)), by_agent)
        }
        CannotCommit::Encoding => (format!("it is kept in another encoding, {nothing_is_run}"), by_agent),
        CannotCommit::Ident => (format!("it has its id put in by git, {nothing_is_run}"), by_agent),
    };
    Refusal::new(format!("{} cannot be committed: {why}", inert::line(path))).hint(hint)
}

fn shown(operation: Operation) -> &'static str {
    match operation {
        Operation::Merge => "a merge",
        Operation::CherryPick => "a cherry-pick",
        Operation::Revert => "a revert",
        Operation::Rebase => "a rebase",
        Operation::Bisect => "a bisection",
    }
}

/// What a merge would do, line by line; as one commit or as a merge.
#[must_use]
pub fn forecast(forecast: &MergeForecast, is_squash: bool) -> Vec<String> {
    let into = inert::line(&forecast.into).into_owned();
    let mut lines = vec![match forecast.would_be.as_str() {
        "conflicts" => format!("it does not merge into {into}: conflicts in {}", listed(&forecast.conflicts)),
        "up_to_date" => match forecast.review.map(|review| review.state) {
            Some(ReviewState::NothingChanged) => {
                format!("nothing changed: there is nothing to merge into {into}")
            }
            _ => format!("{into} has everything of it already"),
        },
        _ => format!("it merges into {into} without conflicts"),
    }];
    lines.extend(forecast.messages.iter().map(|message| inert::line(message.trim()).into_owned()));
    lines.push(forecast.summary.clone());
    if !forecast.uncommitted.is_empty() {
        lines.push(format!("not committed yet, committed first: {}", listed(&forecast.uncommitted)));
    }
    if forecast.can_land() {
        lines.push("suggested message:".to_owned());
        let shown = |line: &str| format!("  {}", inert::line(line));
        lines.extend(
            suggested(forecast, is_squash).trim_end().lines().map(|line| shown(line).trim_end().to_owned()),
        );
    }
    lines
}

/// Whether the work lands as one commit.
#[must_use]
pub fn is_one_commit(forecast: &MergeForecast, is_squash: bool) -> bool {
    is_squash || (!forecast.uncommitted.is_empty() && forecast.commits == 0)
}

/// The message that is suggested for it.
#[must_use]
pub fn suggested(forecast: &MergeForecast, is_squash: bool) -> &str {
    if is_one_commit(forecast, is_squash) { &forecast.message } else { &forecast.merge_message }
}

/// What is worth knowing while work lands.
#[must_use]
pub fn note(note: &LandNote) -> String {
    match note {
        LandNote::FilesGone { worktree } => files_are_gone(worktree),
        LandNote::NotPublished(error) => {
            format!("what git did in its last commands is not taken over, and does not land: {error}")
        }
        LandNote::HookChanged { path, blob } => {
            format!("{} was changed by a hook; `git cat-file blob {blob}` shows how", path.display())
        }
        LandNote::LandsAgain { commit, into } => {
            format!("what landed before as {} is not in {into} any more; it lands again", commit.short())
        }
        LandNote::WorktreeBehind(error) => {
            format!("the work has landed, but the agent's worktree is not up to date: {error}")
        }
        LandNote::NoRecord(error) => {
            format!("that it has landed could not be recorded, so its branch will be kept: {error}")
        }
    }
}

/// That there is only what git has of an agent's work.
#[must_use]
pub fn files_are_gone(worktree: &Path) -> String {
    format!("{} is gone: this is what was committed or staged in it", worktree.display())
}

/// What is said of an agent's work that cannot be looked at.
#[must_use]
pub fn work(name: &Slug, error: Error) -> Refusal {
    match error {
        Error::NotFound { .. } => {
            let branch = caliban_worktrees::branch_of(name);
            Refusal::new(format!("git has no record of the worktree of agent {name} any more")).hint(format!(
                "was it removed by hand? what was committed in it is on the branch {branch}, if that is there: git log {branch}"
            ))
        }
        Error::NotARepository { path, detail } if detail.contains("not a git repository") => {
            Refusal::new(format!("{} is in no git repo any more", path.display()))
                .hint("was it moved, or its .git deleted? what agents committed is in that .git")
        }
        Error::NotARepository { path, detail } => {
            let detail = inert::block(detail.trim()).into_owned();
            Refusal::new(format!("git does not work in {}: {detail}", path.display()))
        }
        other => other.into(),
    }
}

/// The first of the paths, and how many more there are.
#[must_use]
pub fn listed<P: AsRef<Path>>(paths: &[P]) -> String {
    let shown = |path: &P| inert::line(&path.as_ref().to_string_lossy()).into_owned();
    let shown: Vec<String> = paths.iter().take(NAMED).map(shown).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
