//! `caliban agents merge`: lands an agent's work in the user's branch. The library decides and does it
//! (`caliban_worktrees::Repo::land`); here is who asks, for which agent, and what is said.

mod words;

use std::{io::Write, path::Path};

use caliban_control::{
    ClientError,
    protocol::{AgentRow, ErrorCode},
};
use caliban_core::{ids::AgentId, inert, lifecycle::State, names::Slug};
use caliban_worktrees::{GitOptions, LandAs, LandRequest, Landed, NotLanded, Repo};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(super) use self::words::{listed, say_files_are_gone, worded_work};
use super::{Fleet, json_line, row, say, worded, worktree_name};
use crate::{
    cli::fleet::MergeArgs,
    report::{Code, Failure},
};

/// What came of it; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct Merged {
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
    is_detached: bool,
    #[serde(skip)]
    is_nothing: bool,
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

/// A merge that was refused, as programs get it: the fields that one which has landed has, too, as far as they are known, and
/// why it has not.
#[derive(Debug, Serialize)]
struct Refused {
    agent: Option<AgentId>,
    branch: Option<String>,
    into: Option<String>,
    how: &'static str,
    reason: &'static str,
    files: Vec<String>,
    error: String,
    hint: Option<String>,
}

/// Why there was no merge: an error for people, and what programs get beside it.
struct Refusal {
    failure: Failure,
    reason: &'static str,
    files: Vec<String>,
    branch: Option<String>,
    into: Option<String>,
}

pub(super) async fn merge(fleet: &Fleet<'_>, args: &MergeArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let mut agent = None;
    match try_it(fleet, args, &mut agent).await {
        Ok(merged) => show(&merged, args.json, out),
        Err(Refusal { failure, reason, files, branch, into }) => {
            if args.json {
                let into = into.or_else(|| args.into.clone());
                let (error, hint) = (failure.message.clone(), failure.hint.clone());
                let refused = Refused { agent, branch, into, how: "refused", reason, files, error, hint };
                json_line(&refused, out)?;
            }
            Err(failure)
        }
    }
}

async fn try_it(fleet: &Fleet<'_>, args: &MergeArgs, known: &mut Option<AgentId>) -> Result<Merged, Refusal> {
    for (given, flag) in [(&args.message, "--message"), (&args.commit, "--commit")] {
        if given.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Failure::usage(format!("the message of {flag} is empty")).into());
        }
    }
    let mut client = fleet.client().await?;
    let agent = client.show(&args.agent.id).await?;
    *known = Some(agent.id);
    let name =
        worktree_name(&agent).map_err(|failure| Refusal { reason: "no_worktree", ..failure.into() })?;
    let repo = users_repo(fleet, &agent).await.map_err(|error| worded_work(&name, error))?;
    let waits = || say("another merge is under way in this repo; waiting for it");
    let turn = repo.landing_turn(waits, &CancellationToken::new()).await;
    let turn = turn.map_err(|error| worded_work(&name, error))?;
    // Looked at when it is our turn: it may have been woken meanwhile.
    let agent = client.show(&agent.id.to_string()).await?;
    if !row::has_ended(agent.state) && agent.state != State::Idle {
        let failure = Failure::new(format!("agent {} is still at work", row::name(&agent)))
            .hint(format!("wait for it: caliban agents wait {}", agent.id));
        return Err(Refusal { reason: "at_work", ..failure.into() });
    }
    let request = LandRequest {
        name: name.clone(),
        into: args.into.clone(),
        land_as: if args.squash { LandAs::Squash } else { LandAs::Merge },
        commit: args.commit.clone(),
        message: args.message.clone().unwrap_or_else(|| message(&agent)),
    };
    // From here on a signal ends git, and the library puts back what it leaves.
    let cancel = cancelled_by_signals()?;
    match repo.land(&turn, &request, &words::tell, &cancel).await {
        Ok(landed) => Ok(Merged::new(landed, &agent)),
        Err(not_landed) => Err(Refusal::of(&name, not_landed)),
    }
}

/// The repo from where the user is; from its main tree when that is the agent's own tree, or when it is among git's files.
async fn users_repo(fleet: &Fleet<'_>, agent: &AgentRow) -> Result<Repo, caliban_worktrees::Error> {
    let open = async |start: &Path| Repo::open(start, GitOptions::default(), &CancellationToken::new()).await;
    let main = fleet.places().repo();
    if agent.worktree.as_ref().is_some_and(|worktree| fleet.cwd.starts_with(worktree)) {
        return open(main).await;
    }
    let repo = open(&fleet.cwd).await?;
    if repo.source().is_some() { Ok(repo) } else { open(main).await }
}

/// A token that the first signal to end cancels.
fn cancelled_by_signals() -> Result<CancellationToken, Failure> {
    let cancel = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let cannot = |error| Failure::new(format!("cannot listen for signals: {error}"));
        let (mut signals, cancel) = (signal(kind).map_err(cannot)?, cancel.clone());
        tokio::spawn(async move {
            signals.recv().await;
            cancel.cancel();
        });
    }
    Ok(cancel)
}

fn message(agent: &AgentRow) -> String {
    format!("Merge agent {}\n\n{}\n", row::name(agent), inert::line(&agent.prompt))
}

impl Merged {
    fn new(landed: Landed, agent: &AgentRow) -> Self {
        let Landed { branch, into, landed_as, commit, commits, summary, left, is_detached, is_nothing } =
            landed;
        let how = match landed_as {
            Some(LandAs::Merge) => How::Merge,
            Some(LandAs::Squash) => How::Squash,
            None => How::UpToDate,
        };
        let (commit, has_ended) = (commit.to_string(), agent.state.is_ending());
        Self {
            agent: agent.id,
            branch,
            into,
            how,
            commit,
            commits,
            summary,
            left,
            is_detached,
            is_nothing,
            has_ended,
        }
    }
}

fn show(merged: &Merged, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    if json {
        json_line(merged, out)?;
        return Ok(Code::Done);
    }
    let Merged { branch, into, .. } = merged;
    let verb = match merged.how {
        How::UpToDate if merged.is_nothing => {
            writeln!(out, "{branch} has no changes: there is nothing to merge into {into}")?;
            return Ok(Code::Done);
        }
        How::UpToDate => {
            writeln!(out, "{into} has everything of {branch} already")?;
            return Ok(Code::Done);
        }
        How::Squash => "squashed",
        How::Merge => "merged",
    };
    let commits = match merged.commits {
        1 => "1 commit".to_owned(),
        more => format!("{more} commits"),
    };
    let short: String = merged.commit.chars().take(10).collect();
    writeln!(out, "{verb} {branch} into {into}: {commits}, {}; now at {short}", merged.summary)?;
    if !merged.left.is_empty() {
        say(&format!("stays in its worktree, in no commit: {}", listed(&merged.left)));
    }
    if merged.is_detached {
        say(
            "HEAD is on no branch here: git switch -c NAME gives it one, else the merge is lost with the next checkout",
        );
    }
    let id = merged.agent;
    say(&if merged.has_ended {
        format!("done with it? caliban rm {id}")
    } else {
        format!("it waits for more; done with it? caliban stop {id} && caliban rm {id}")
    });
    Ok(Code::Done)
}

impl Refusal {
    fn of(name: &Slug, not_landed: NotLanded) -> Self {
        let NotLanded { branch, into, refusal } = not_landed;
        let (reason, files) = (refusal.code(), refusal.files());
        let failure = words::failure(name, branch.as_deref(), into.as_deref(), refusal);
        Self { failure, reason, files, branch, into }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let reason = match failure.code {
            Code::Usage => "usage",
            Code::Interrupted => "interrupted",
            Code::Done | Code::Failed | Code::Refused | Code::Limit | Code::Timeout => "failed",
        };
        Self { failure, reason, files: Vec::new(), branch: None, into: None }
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        let reason = match &error {
            ClientError::Refused(error) if error.code == ErrorCode::NotFound => "not_found",
            ClientError::Refused(error) if error.code == ErrorCode::Ambiguous => "ambiguous",
            _ => "failed",
        };
        Self { reason, ..worded(error).into() }
    }
}
