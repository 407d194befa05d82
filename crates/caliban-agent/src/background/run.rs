//! One background agent from its first request to its report.

use std::path::Path;

use caliban_core::{background::BackgroundStatus, message::Message};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Background, Spawner, now_ms, text};
use crate::{
    agent::{Agent, Kit, TurnReport},
    event::{Author, Event, Outcome},
    feed::{Cursor, Entry},
    subagent::Keep,
};

/// What an agent is started for.
pub(super) struct Task {
    pub(super) id: u32,
    pub(super) prompt: String,
    pub(super) spawner: Spawner,
    pub(super) cancel: CancellationToken,
}

/// Runs the agent to its end, then tells people and the model.
pub(super) async fn run(background: Background, kit: Kit, task: Task) {
    let (id, spawner, session) = (task.id, task.spawner, kit.session.clone());
    let (outputs, redactor) = (kit.workspace.output_dir().to_owned(), kit.redactor.clone());
    // In a task of its own: if it panics, the row still ends.
    let work = AbortOnDropHandle::new(tokio::spawn(work(background.clone(), kit, task)));
    let (outcome, result) = match work.await {
        Ok(Ok(report)) => (report.outcome, report.text),
        Ok(Err(problem)) => (Outcome::failed(problem), String::new()),
        Err(error) => (Outcome::failed(format!("it has crashed: {error}")), String::new()),
    };
    let result = redactor.redact(&result).into_owned();
    let keep = Keep { directory: &outputs, session: &session, redactor: &redactor };
    let Some(row) = background.0.board().ended(id, status(&outcome), now_ms()) else { return };
    let why = reason(&outcome);
    let told = background.record(id, row.status, text::ended(&row, why.as_deref(), &result)).await;
    let is_closed = background.0.board().is_closed();
    let told = match told {
        // The model has no next request.
        Ok(()) if is_closed => Ok(()),
        Ok(()) => background.tell_model(text::for_model(&row, why.as_deref(), &result, &keep), spawner).await,
        Err(error) => Err(error),
    };
    if let Err(error) = told {
        tracing::warn!(id, %error, "the end of a background agent could not be recorded");
    }
    background.changed();
}

async fn work(background: Background, kit: Kit, task: Task) -> Result<TurnReport, String> {
    let Task { id, prompt, spawner, cancel } = task;
    let (feed, redactor) = (kit.feed.clone(), kit.redactor.clone());
    let mut agent = Agent::new(kit).await.map_err(|error| error.to_string())?;
    let author = match spawner {
        Spawner::Person => Author::User,
        Spawner::Model => Author::Parent,
    };
    let mut cursor = Cursor::default();
    let report = {
        let turn = agent.prompt(Message::user(prompt), author, &cancel);
        tokio::pin!(turn);
        loop {
            tokio::select! {
                report = &mut turn => break report,
                Some(entry) = feed.wait(&mut cursor) => {
                    if let Some(activity) = activity(&entry) {
                        let activity = activity.map(|line| redactor.redact(&line).into_owned());
                        background.0.board().does(id, activity);
                        background.changed();
                    }
                }
            }
        }
    };
    agent.close().await;
    Ok(report)
}

/// What the agent does from now on; nothing when the entry does not change that.
fn activity(entry: &Entry) -> Option<Option<String>> {
    let Entry::Record(record) = entry else { return None };
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

fn reason(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done | Outcome::Cancelled => None,
        Outcome::Failed { error, .. } => Some(error.clone()),
        Outcome::TurnLimit { limit } => Some(format!("the limit of {limit} model requests is reached")),
        Outcome::Budget { limit } => Some(limit.clone()),
    }
}

/// The number of the next background agent: earlier processes of the session have left a directory for each of theirs.
pub(super) fn next_id(directory: &Path) -> u32 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.map(|id| id.saturating_add(1)).max().unwrap_or_default()
}
