//! `caliban agents merge`: lands an agent's work in the user's branch. The library decides and does it
//! (`caliban_worktrees::Repo::land`) in this process, not in the daemon's: hooks, signing and passphrases are of this terminal.

use std::{io::Write, path::Path};

use caliban_core::inert;
use caliban_fleet::landing::{
    self, NotMerged,
    words::{self, listed},
};
use caliban_fleet::{
    ClientError, git_programs,
    protocol::{AgentRow, ErrorCode, MergeForecast, MergeHow, MergeRequest, Merged},
    refusal::{Refusal, RefusalKind},
};
use caliban_worktrees::{GitOccasion, GitOptions, LandNote, Repo};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Fleet, json_line, say};
use crate::{
    cli::fleet::{IdArg, MergeArgs},
    report::{self, Code, Failure, Result},
    settings::Layer,
};

pub(super) async fn merge(fleet: &Fleet<'_>, args: &MergeArgs, out: &mut dyn Write) -> Result<Code> {
    let request = MergeRequest {
        commit: args.commit.clone().flatten(),
        commit_left: args.commit.is_some(),
        squash: args.squash,
        into: args.into.clone(),
        message: args.message.clone(),
        preview: args.preview,
    };
    let mut agent = None;
    let told = match args.preview {
        true => match try_to_foretell(fleet, &args.agent.id, &request, &mut agent).await {
            Ok(forecast) => return show_forecast(&forecast, args, out),
            Err(refused) => Err(refused),
        },
        false => try_it(fleet, &args.agent.id, &request, &mut agent).await,
    };
    match told {
        Ok(merged) => show(&merged, agent.as_ref(), args.json, out),
        Err(refused) => {
            if args.json {
                json_line(&refused.told(agent.as_ref(), &request), out)?;
            }
            Err((*refused.words).into())
        }
    }
}

/// Lands an agent's work for the agent view, with this message in place of the suggested one; what it left uncommitted is
/// committed first.
pub(super) async fn from_view(
    fleet: &Fleet<'_>,
    agent: &AgentRow,
    message: Option<String>,
) -> Result<String> {
    let is_one = match message {
        Some(_) => words::is_one_commit(
            &forecast_for_view(fleet, agent).await.map_err(|refused| *refused.words)?,
            false,
        ),
        None => false,
    };
    // One message is for one commit: that of the work, or that of the merge.
    let (commit, message) = if is_one { (message, None) } else { (None, message) };
    let agent = IdArg { id: agent.id.to_string() };
    let args = MergeArgs { agent, commit: Some(commit), message, ..MergeArgs::default() };
    let mut out = Vec::new();
    merge(fleet, &args, &mut out).await?;
    Ok(String::from_utf8_lossy(&out).trim().to_owned())
}

/// What landing would do for the agent view, as the command line foretells it.
pub(super) async fn forecast_for_view(
    fleet: &Fleet<'_>,
    agent: &AgentRow,
) -> Result<MergeForecast, NotMerged> {
    let request = MergeRequest { preview: true, ..MergeRequest::default() };
    try_to_foretell(fleet, &agent.id.to_string(), &request, &mut None).await
}

async fn try_to_foretell(
    fleet: &Fleet<'_>,
    agent: &str,
    request: &MergeRequest,
    known: &mut Option<AgentRow>,
) -> Result<MergeForecast, NotMerged> {
    let mut client = fleet.client().await.map_err(failed)?;
    let agent = known.insert(client.show(agent).await.map_err(not_shown)?);
    let name = landing::worktree(agent)?;
    let repo = users_repo(fleet, agent).await.map_err(|error| NotMerged::from(words::work(&name, error)))?;
    landing::forecast(&repo, agent, request, &CancellationToken::new()).await
}

fn show_forecast(forecast: &MergeForecast, args: &MergeArgs, out: &mut dyn Write) -> Result<Code> {
    if args.json {
        json_line(forecast, out)?;
    } else {
        for line in words::forecast(forecast, args.squash) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if forecast.conflicts.is_empty() { Code::Done } else { Code::Failed })
}

async fn try_it(
    fleet: &Fleet<'_>,
    agent: &str,
    request: &MergeRequest,
    known: &mut Option<AgentRow>,
) -> Result<Merged, NotMerged> {
    landing::check(request)?;
    let mut client = fleet.client().await.map_err(failed)?;
    let agent = known.insert(client.show(agent).await.map_err(not_shown)?);
    let name = landing::worktree(agent)?;
    let worded = |error| NotMerged::from(words::work(&name, error));
    let repo = users_repo(fleet, agent).await.map_err(worded)?;
    let waits = || say("another merge is under way in this repo; waiting for it");
    let turn = repo.landing_turn(waits, &CancellationToken::new()).await.map_err(worded)?;
    // Looked at when it is our turn: it may have been woken meanwhile.
    *agent = client.show(&agent.id.to_string()).await.map_err(not_shown)?;
    let wanted = landing::request(agent, request)?;
    let loaded = crate::settings::load(fleet.environment, &fleet.cwd, Layer::default())
        .map_err(|error| failed(error.into()))?;
    let setting = loaded.settings.git_programs;
    let program = crate::compose::own_program().map_err(failed)?;
    git_programs::check(&fleet.caller(&program), setting, &repo, GitOccasion::Landing)
        .await
        .map_err(|refusal| NotMerged { reason: "git_programs", ..refusal.into() })?;
    // From here on a signal ends git, and the library puts back what it leaves.
    let cancel = cancelled_by_signals().map_err(failed)?;
    let tell = |note| match note {
        LandNote::FilesGone { .. } => say(&words::note(&note)),
        _ => report::note(&words::note(&note)),
    };
    match repo.land(&turn, &wanted, &tell, &cancel).await {
        Ok(landed) => {
            // The daemon's list shows it at once. It has landed whatever becomes of that.
            let _not_seen = client.review(&agent.id.to_string()).await;
            Ok(landing::merged(landed, agent))
        }
        Err(not_landed) => Err(NotMerged::of(&name, not_landed)),
    }
}

/// The repo from where the user is; from its main tree when that is the agent's own tree, or when it is among git's files.
async fn users_repo(fleet: &Fleet<'_>, agent: &AgentRow) -> Result<Repo, caliban_worktrees::Error> {
    let open = async |start: &Path| {
        Repo::open(start, GitOptions::accepting(fleet.places().base()), &CancellationToken::new()).await
    };
    let main = fleet.places().repo();
    if agent.worktree.as_ref().is_some_and(|worktree| fleet.cwd.starts_with(worktree)) {
        return open(main).await;
    }
    let repo = open(&fleet.cwd).await?;
    if repo.source().is_some() { Ok(repo) } else { open(main).await }
}

/// A token that the first signal to end cancels.
fn cancelled_by_signals() -> Result<CancellationToken> {
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

fn show(merged: &Merged, agent: Option<&AgentRow>, json: bool, out: &mut dyn Write) -> Result<Code> {
    if json {
        return json_line(merged, out).map(|()| Code::Done);
    }
    let Merged { branch, into, .. } = merged;
    let verb = match merged.how {
        MergeHow::UpToDate if merged.is_nothing => {
            writeln!(out, "{branch} has no changes: there is nothing to merge into {into}")?;
            return Ok(Code::Done);
        }
        MergeHow::UpToDate => {
            writeln!(out, "{into} has everything of {branch} already")?;
            return Ok(Code::Done);
        }
        MergeHow::Squash => "squashed",
        MergeHow::Merge | MergeHow::Refused => "merged",
    };
    let commits = match merged.commits {
        1 => "1 commit".to_owned(),
        more => format!("{more} commits"),
    };
    let short: String = merged.commit.chars().take(10).collect();
    writeln!(out, "{verb} {branch} into {into}: {commits}, {}; now at {short}", merged.summary)?;
    if let Some(message) = &merged.committed_as {
        let subject = message.lines().next().unwrap_or_default();
        say(&format!("its uncommitted work was committed first, as \"{}\"", inert::line(subject)));
    }
    if !merged.left.is_empty() {
        say(&format!("stays in its worktree, in no commit: {}", listed(&merged.left)));
    }
    if merged.is_detached {
        say(
            "HEAD is on no branch here: git switch -c NAME gives it one, else the merge is lost with the next checkout",
        );
    }
    let id = merged.agent;
    say(&if agent.is_some_and(|agent| agent.state.is_ending()) {
        format!("done with it? caliban rm {id}")
    } else {
        format!("it waits for more; done with it? caliban stop {id} && caliban rm {id}")
    });
    Ok(Code::Done)
}

/// A failure on the way to the merge.
fn failed(failure: Failure) -> NotMerged {
    Refusal { message: failure.message, hint: failure.hint, kind: RefusalKind::Failed }.into()
}

fn not_shown(error: ClientError) -> NotMerged {
    let reason = match &error {
        ClientError::Refused(error) if error.code == ErrorCode::NotFound => "not_found",
        ClientError::Refused(error) if error.code == ErrorCode::Ambiguous => "ambiguous",
        _ => "failed",
    };
    NotMerged { reason, ..failed(error.into()) }
}
