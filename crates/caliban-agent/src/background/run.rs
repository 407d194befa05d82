//! One background agent from its first request to its report.

use std::path::Path;

use caliban_contract::wall_ms;
use caliban_core::{background::BackgroundStatus, message::Message, spec::WorktreeSpec};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Background, Spawner, name, rows::Assignment, text};
use crate::{
    agent::{Agent, Kit, TurnReport},
    event::{Author, Event, Outcome},
    feed::{Cursor, FeedEntry},
    subagent::{
        ReportOutputs,
        worktree::{self, Work},
    },
};

/// What an agent is started for, for the first time or again.
pub(super) struct BackgroundTask {
    pub(super) id: u32,
    pub(super) assignment: Assignment,
    pub(super) cancel: CancellationToken,
    /// How it goes on that has ended before; none for a new one.
    pub(super) again: Option<GoOn>,
}

/// How one goes on that has ended before.
pub(super) struct GoOn {
    /// What it hears.
    pub(super) text: String,
    /// The branch that has its work.
    pub(super) branch: Option<String>,
}

/// What came of the work.
struct Worked {
    report: TurnReport,
    /// What is in its worktree, when it had one.
    work: Option<Work>,
}

/// Runs the agent to its end, then tells people and the model. Without a kit it works in a worktree of its own.
pub(super) async fn run(background: Background, kit: Option<Kit>, task: BackgroundTask) {
    let (id, spawner, cancel) = (task.id, task.assignment.spawner, task.cancel.clone());
    let starter = &background.0.starter;
    let redactor = &starter.blueprint.redactor;
    // In a task of its own: if it panics, the row still ends.
    let work = AbortOnDropHandle::new(tokio::spawn(work(background.clone(), kit, task)));
    let (outcome, result, work) = match work.await {
        Ok(Ok(Worked { report, work })) => (report.outcome, report.text, work),
        Ok(Err(_)) if cancel.is_cancelled() => (Outcome::Cancelled, String::new(), None),
        Ok(Err(problem)) => (Outcome::failed(problem), String::new(), None),
        Err(error) => (Outcome::failed(format!("it has crashed: {error}")), String::new(), None),
    };
    let branch = work.as_ref().and_then(Work::kept);
    background.0.board().leaves_work(id, branch);
    let goes_on = outcome == Outcome::Cancelled && background.0.board().stopped(id);
    let Some(row) = background.0.board().ended(id, status(&outcome), wall_ms()) else { return };
    if goes_on {
        // Who has stopped it tells where.
        return background.changed();
    }
    let result = redactor.redact(&result).into_owned();
    let session = background.session(id);
    let keep = ReportOutputs { directory: starter.workspace.output_dir(), session: &session, redactor };
    let merge = branch.map(|branch| format!("its work is on a branch: `git merge {branch}`"));
    let shown: Vec<String> = reason(id, &session, &outcome).into_iter().chain(merge).collect();
    let shown = (!shown.is_empty()).then(|| shown.join("; "));
    let told = async {
        background.record(id, row.status, text::ended(&row, shown.as_deref(), &result)).await?;
        if background.0.board().is_closed() {
            // The model has no next request.
            return Ok(());
        }
        let mut text = text::for_model(&row, reason(id, &session, &outcome).as_deref(), &result, &keep);
        if let Some(work) = &work {
            text.push_str(&format!("\n\n{work}"));
        }
        background.tell_model(text, spawner).await
    };
    if let Err(error) = told.await {
        tracing::warn!(id, %error, "the end of a background agent could not be recorded");
    }
    background.changed();
}

async fn work(background: Background, kit: Option<Kit>, task: BackgroundTask) -> Result<Worked, String> {
    if let Some(kit) = kit {
        return Ok(Worked { report: drive(&background, kit, &task).await?, work: None });
    }
    let (id, starter) = (task.id, &background.0.starter);
    background.does(id, Some("makes its worktree".to_owned()));
    let (isolation, session) = (&starter.blueprint.isolation, background.session(id));
    let (named, root) = (worktree::name(None, &session), starter.workspace.root());
    let branch = task.again.as_ref().and_then(|again| again.branch.clone());
    let wanted =
        branch.map(|base_ref| WorktreeSpec { base_ref, ..WorktreeSpec::default() }).unwrap_or_default();
    let made = isolation.create(named, &wanted, root, &session, &task.cancel, &|_| {}).await?;
    let kit = background.kit(id, task.assignment.model.clone(), Some(made.path()));
    // Whatever goes wrong from here on: the worktree is finished.
    let report = match kit {
        Ok(kit) => drive(&background, kit, &task).await,
        Err(problem) => Err(problem),
    };
    let work = made.finish(&name(id)).await;
    match report {
        Ok(report) => Ok(Worked { report, work: Some(work) }),
        Err(problem) => Err(format!("{problem}\n{work}")),
    }
}

async fn drive(background: &Background, kit: Kit, task: &BackgroundTask) -> Result<TurnReport, String> {
    let (feed, redactor) = (kit.feed.clone(), kit.shared.redactor.clone());
    let made = match &task.again {
        None => Agent::new(kit).await,
        Some(_) => Agent::resume_here(kit).await,
    };
    let mut agent = made.map_err(|error| error.to_string())?;
    let author = match task.assignment.spawner {
        Spawner::Person => Author::User,
        Spawner::Model => Author::Parent,
    };
    let mut cursor = Cursor::default();
    if let Some(again) = &task.again {
        let told = agent.handle().queue(again.text.clone(), Author::Caliban, None).await;
        told.map_err(|error| error.to_string())?;
    }
    let report = {
        let turn = async {
            match &task.again {
                None => agent.prompt(Message::user(task.assignment.task.clone()), author, &task.cancel).await,
                Some(_) => agent.go_on(&task.cancel).await,
            }
        };
        tokio::pin!(turn);
        loop {
            tokio::select! {
                report = &mut turn => break report,
                Some(entry) = feed.wait(&mut cursor) => {
                    if let Some(activity) = activity(&entry) {
                        background.does(task.id, activity.map(|line| redactor.redact(&line).into_owned()));
                    }
                }
            }
        }
    };
    agent.close().await;
    Ok(report)
}

impl Background {
    fn does(&self, id: u32, activity: Option<String>) {
        self.0.board().does(id, activity);
        self.changed();
    }
}

/// What the agent does from now on; nothing when the entry does not change that.
fn activity(entry: &FeedEntry) -> Option<Option<String>> {
    let FeedEntry::Record(record) = entry else { return None };
    match &record.event {
        Event::Reply { .. } | Event::CallEnded { .. } => Some(None),
        Event::CallStarted { name, input, .. } => {
            let line = format!("{name} {}", crate::calls::quote(input));
            Some(Some(caliban_core::inert::line(&line).into_owned()))
        }
        Event::AskOpened(ask) => Some(Some(format!("waits for your answer about {}", ask.name))),
        _ => None,
    }
}

fn status(outcome: &Outcome) -> BackgroundStatus {
    match outcome {
        Outcome::Done => BackgroundStatus::Completed,
        Outcome::Failed { .. } | Outcome::TurnLimit { .. } => BackgroundStatus::Failed,
        Outcome::Budget { .. } => BackgroundStatus::BudgetExceeded,
        Outcome::Cancelled => BackgroundStatus::Killed,
    }
}

/// Why it ended, in words. `session` is what its account is called.
fn reason(id: u32, session: &str, outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done | Outcome::Cancelled => None,
        Outcome::Failed { error, .. } => Some(error.clone()),
        Outcome::TurnLimit { limit } => Some(format!("the limit of {limit} model requests is reached")),
        Outcome::Budget { limit } => Some(format!(
            "{}; `/bg raise {id}` lets it go on where it stopped (`per_agent_budget` and `global_budget` of \
             [background_agents] in the settings are the limits)",
            limit.replace(session, &name(id))
        )),
    }
}

/// The number of the next background agent: earlier processes of the session have left a directory for each of theirs.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
pub(super) fn next_id(directory: &Path) -> u32 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.map(|id| id.saturating_add(1)).max().unwrap_or_default()
}
