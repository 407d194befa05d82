//! `caliban sessions …`: what is kept of conversations. One file for each verb.

mod audit;
mod compact;
mod fork;
mod list;
pub(crate) mod replay;
mod rm;
mod show;
pub(crate) mod summary;

use caliban_agent::{
    conversation::Conversation,
    event::{Event, Record},
    past_spending::SessionSpending,
    transcript,
};
use caliban_core::usage::Usage;

use crate::{
    Here,
    cli::sessions::SessionsCommand,
    report::{Code, Failure, Result},
    session_places::{FoundSession, Sessions, Shelf},
};

/// Carries a verb out.
pub(crate) fn sessions(command: &SessionsCommand, Here { environment, cwd, out }: Here<'_>) -> Result<Code> {
    let paths = environment.paths()?;
    let root = crate::settings::project_root(cwd)?;
    let sessions = Sessions::new(paths.repo(&root));
    // Background agents have labels: the fleet knows those of today, the archive has those of before.
    let find = |query: &str| {
        sessions.find_any(query).or_else(|unknown| match crate::fleet::labelled(environment, cwd, query)? {
            Some(labelled) => sessions.find_any(&labelled.to_string()),
            None => sessions.find_archived(query)?.ok_or(unknown),
        })
    };
    match command {
        SessionsCommand::List { all, archived, json } => {
            let repos = if *all { crate::session_places::all_repos(&paths.data) } else { vec![sessions] };
            let which = if *archived { Shelf::Archive } else { Shelf::Sessions };
            list::list(&repos, which, *all, *json, out)?;
        }
        SessionsCommand::Show { id, json } => show::show(&find(id)?, *json, out)?,
        SessionsCommand::Replay { id, speed } => replay::replay(&find(id)?, *speed, out)?,
        SessionsCommand::Audit { id, json } => audit::audit(&find(id)?, *json, out)?,
        SessionsCommand::Compact { id } => {
            return compact::compact(&find(id)?, Here { environment, cwd, out });
        }
        SessionsCommand::Fork { id, before, json } => {
            fork::fork(&sessions, &sessions.find(id)?, *before, fork::Files::Stay, *json, out)?;
        }
        SessionsCommand::Rewind { id, before, json } => {
            fork::fork(&sessions, &sessions.find(id)?, *before, fork::Files::Back, *json, out)?;
        }
        SessionsCommand::Rm { ids } => rm::rm(&sessions, ids, out)?,
    }
    Ok(Code::Done)
}

fn records(found: &FoundSession) -> Result<Vec<Record>> {
    transcript::read(&found.directory).map_err(|error| {
        Failure::new(error.to_string()).hint(format!("`caliban sessions rm {}` removes it", found.id))
    })
}

/// What the session has spent, its sub-agents and background agents included: its money and its budget count them, too.
fn usage(found: &FoundSession, conversation: &Conversation) -> Usage {
    SessionSpending::of(&found.directory, conversation).usage()
}

/// What the session has spent, in a line.
fn spent_line(found: &FoundSession, conversation: &Conversation, records: &[Record]) -> String {
    let usage = usage(found, conversation);
    format!("spent    {} turns, {}, {}", conversation.replies(), usage.words(), dollars(micro_usd(records)))
}

/// What it has cost by the end of its last turn.
fn micro_usd(records: &[Record]) -> Option<u64> {
    records.iter().rev().find_map(|record| match &record.event {
        Event::TurnEnded { micro_usd, .. } => Some(*micro_usd),
        _ => None,
    })?
}

/// The first thing that the user asked for, in one line.
pub(crate) fn title(records: &[Record]) -> String {
    caliban_core::event::title(&records.iter().find_map(|record| record.event.typed()).unwrap_or_default())
}

/// Micro-dollars as people write them.
fn dollars(micro_usd: Option<u64>) -> String {
    micro_usd.map_or_else(|| "-".to_owned(), |micro| format!("${:.4}", micro as f64 / 1_000_000.0))
}

/// How the last turn ended, in a word.
fn ending(records: &[Record]) -> &'static str {
    records.iter().fold(Ending::Empty, |ending, record| ending.after(&record.event)).word()
}

/// How the last turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nothing was said.
    Empty,
    Unfinished,
    /// With this word.
    Ended(&'static str),
}

impl Ending {
    /// With one event more.
    fn after(self, event: &Event) -> Self {
        use caliban_agent::event::Outcome;
        match event {
            Event::TurnEnded { outcome, .. } => Self::Ended(match outcome {
                Outcome::Done => "done",
                Outcome::Failed { .. } => "failed",
                Outcome::TurnLimit { .. } => "turn limit",
                Outcome::Budget { .. } => "budget exceeded",
                Outcome::Cancelled => "interrupted",
            }),
            Event::Prompt { .. } | Event::Reply { .. } => Self::Unfinished,
            _ => self,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Unfinished => "unfinished",
            Self::Ended(word) => word,
        }
    }
}
