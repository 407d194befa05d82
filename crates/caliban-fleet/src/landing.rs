//! Landing an agent's work: what the daemon and the command line ask and tell alike. The work itself is done by
//! `caliban_worktrees::Repo::land`, which the command line calls in the user's terminal and the daemon for a page.

pub mod words;

use caliban_contract::records;
use caliban_core::inert;
use caliban_core::lifecycle::State;
use caliban_core::names::Slug;
use caliban_core::review::ReviewState;
use caliban_core::spec::{Isolation, SpawnSpec};
use caliban_worktrees::{CommitLeft, LandAs, LandRequest, Landed, MergeKind, NotLanded, Repo};
use tokio_util::sync::CancellationToken;

use crate::protocol::{AgentRow, MergeForecast, MergeHow, MergeRefused, MergeRequest, Merged};
use crate::refusal::{Refusal, RefusalKind};
use crate::words as row_words;

/// Why there was no merge: an error for people, and what programs get beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMerged {
    /// For people.
    pub words: Box<Refusal>,
    /// For programs; stable.
    pub reason: &'static str,
    /// The files that it is about.
    pub files: Vec<String>,
    /// What was to land, as far as that is known.
    pub branch: Option<String>,
    /// Where.
    pub into: Option<String>,
}

impl From<Refusal> for NotMerged {
    fn from(words: Refusal) -> Self {
        let reason = match words.kind {
            RefusalKind::Usage => "usage",
            RefusalKind::Interrupted => "interrupted",
            RefusalKind::Failed => "failed",
        };
        Self { words: Box::new(words), reason, files: Vec::new(), branch: None, into: None }
    }
}

impl NotMerged {
    /// Of what the library says about a worktree.
    #[must_use]
    pub fn of(name: &Slug, not_landed: NotLanded) -> Self {
        let NotLanded { branch, into, refusal } = not_landed;
        let (reason, files) = (refusal.code(), refusal.files());
        let words = words::refusal(name, branch.as_deref(), into.as_deref(), refusal);
        Self { words: Box::new(words), reason, files, branch, into }
    }

    /// For programs.
    #[must_use]
    pub fn told(&self, agent: Option<&AgentRow>, request: &MergeRequest) -> MergeRefused {
        MergeRefused {
            agent: agent.map(|agent| agent.id),
            branch: self.branch.clone(),
            into: self.into.clone().or_else(|| request.into.clone()),
            how: MergeHow::Refused,
            reason: self.reason.to_owned(),
            files: self.files.clone(),
            error: self.words.message.clone(),
            hint: self.words.hint.clone(),
        }
    }
}

/// Refuses a request that makes no sense.
pub fn check(request: &MergeRequest) -> Result<(), NotMerged> {
    for (given, flag) in [(&request.message, "--message"), (&request.commit, "--commit")] {
        if given.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Refusal::usage(format!("the message of {flag} is empty")).into());
        }
    }
    Ok(())
}

/// The name of the worktree that is to land.
pub fn worktree(agent: &AgentRow) -> Result<Slug, NotMerged> {
    worktree_name(agent).map_err(|words| NotMerged { reason: "no_worktree", ..words.into() })
}

/// What to ask of git, for an agent that does not work any more. Look at the agent when it is the merge's turn: it may have
/// been woken before.
pub fn request(agent: &AgentRow, request: &MergeRequest) -> Result<LandRequest, NotMerged> {
    if !agent.state.is_ending() && agent.state != State::Idle {
        let words = Refusal::new(format!("agent {} is still at work", row_words::name(agent)))
            .hint(format!("wait for it: caliban agents wait {}", agent.id));
        return Err(NotMerged { reason: "at_work", ..words.into() });
    }
    Ok(land_request(agent, request))
}

fn land_request(agent: &AgentRow, request: &MergeRequest) -> LandRequest {
    LandRequest {
        name: Slug::from(agent.id),
        into: request.into.clone(),
        land_as: if request.squash { LandAs::Squash } else { LandAs::Merge },
        commit: match (&request.commit, request.commit_left) {
            (Some(message), _) => CommitLeft::As(message.clone()),
            (None, true) => CommitLeft::Suggested,
            (None, false) => CommitLeft::IfAlone,
        },
        message: request.message.clone(),
        agent: row_words::name(agent),
        task: inert::line(&agent.prompt).into_owned(),
    }
}

/// What a merge would do, where it would land, and the messages that are suggested for it.
pub async fn forecast(
    repo: &Repo,
    agent: &AgentRow,
    request: &MergeRequest,
    cancel: &CancellationToken,
) -> Result<MergeForecast, NotMerged> {
    let name = worktree(agent)?;
    let worded = |error| NotMerged::from(words::work(&name, error));
    let into = repo.landing_target(request.into.as_deref(), cancel).await.map_err(|refusal| {
        NotMerged::of(&name, NotLanded { branch: None, into: request.into.clone(), refusal })
    })?;
    let found = repo.merge_preview(&name, request.into.as_deref(), cancel).await.map_err(worded)?;
    let changes = repo.changes(&name, cancel).await.map_err(worded)?;
    let review = repo.review(&changes, cancel).await.map_err(worded)?;
    let wanted = LandRequest { land_as: LandAs::Merge, ..land_request(agent, request) };
    // A squash shares no commit: git alone would bring its work once more.
    let merge = if review.state == ReviewState::Merged { MergeKind::UpToDate } else { found.merge };
    Ok(MergeForecast {
        agent: agent.id,
        would_be: word_of(merge),
        conflicts: found.conflicts,
        messages: found.messages,
        into,
        message: changes.suggested_message(&wanted.task),
        merge_message: wanted.landing_message(&changes),
        commits: changes.commit_count,
        summary: changes.summary(),
        review: Some(review),
        uncommitted: changes.uncommitted.into_iter().map(|change| change.path).collect(),
    })
}

/// Work that has landed, for programs.
#[must_use]
pub fn merged(landed: Landed, agent: &AgentRow) -> Merged {
    Merged {
        agent: agent.id,
        branch: landed.branch,
        into: landed.into,
        how: match landed.landed_as {
            Some(LandAs::Merge) => MergeHow::Merge,
            Some(LandAs::Squash) => MergeHow::Squash,
            None => MergeHow::UpToDate,
        },
        commit: landed.commit.to_string(),
        commits: landed.commits,
        summary: landed.summary,
        left: landed.left,
        is_detached: landed.is_detached,
        is_nothing: landed.is_nothing,
        committed_as: landed.committed_as,
    }
}

/// The word that serde has for a variant.
#[must_use]
pub fn word_of(kind: impl serde::Serialize) -> String {
    let value = serde_json::to_value(kind).ok();
    value.and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The name of an agent's worktree; an error for an agent that has none.
pub fn worktree_name(row: &AgentRow) -> Result<Slug, Refusal> {
    if row.worktree.is_some() {
        return Ok(Slug::from(row.id));
    }
    let id = row.id;
    let spec = std::fs::read_to_string(row.dir.join(records::SPEC)).ok();
    let spec = spec.and_then(|json| SpawnSpec::from_json(&json).ok());
    let was_to_have_one = spec.is_some_and(|spec| matches!(spec.isolation, Isolation::Worktree(_)));
    Err(match row.state {
        State::Spawning => Refusal::new(format!("agent {id} has not begun: there is no worktree yet"))
            .hint(format!("wait for it: caliban agents wait {id}")),
        state if was_to_have_one && !state.is_ending() => {
            Refusal::new(format!("the worktree of agent {id} is being made"))
                .hint(format!("wait for it: caliban agents wait {id}"))
        }
        _ if was_to_have_one => {
            Refusal::new(format!("agent {id} ended before its worktree was there: it has changed nothing"))
                .hint(format!("caliban resume {id} lets it begin"))
        }
        _ => {
            let is_git = row.cwd.ancestors().any(|place| place.join(".git").symlink_metadata().is_ok());
            let how = if is_git { ": git diff shows them" } else { "" };
            Refusal::new(format!("agent {id} has no worktree: it worked in {}", row.cwd.display()))
                .hint(format!("its changes are in that directory{how}"))
        }
    })
}
