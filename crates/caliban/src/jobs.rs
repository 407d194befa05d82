//! `caliban jobs list` and `caliban jobs stop`: commands that agents of this repo left running.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_contract::detached::{self, DetachedRecord, DetachedState};
use caliban_core::inert;
use serde::Serialize;

use crate::{
    Here,
    cli::jobs::JobsCommand,
    fleet::{Fleet, json::At},
    report::{Code, Failure, Result},
    settings::Environment,
};

/// Columns of a command in the list.
const COMMAND_COLUMNS: usize = 60;

/// A detached command as the list shows it.
#[derive(Debug, Serialize)]
pub(crate) struct ListedJob<'a> {
    id: &'a str,
    state: DetachedState,
    command: &'a str,
    cwd: &'a Path,
    agent: &'a str,
    started_at: At,
    pid: i32,
    output: &'a Path,
    exit_code: Option<i32>,
    /// Why it was ended, when it took too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<String>,
    ended_at: Option<At>,
}

impl<'a> ListedJob<'a> {
    pub(crate) fn new(record: &'a DetachedRecord, jobs: &Path) -> Self {
        let at = |ms: u64| At::seconds(i64::try_from(ms / 1_000).unwrap_or(i64::MAX));
        Self {
            id: &record.id,
            state: record.state(jobs),
            command: &record.command,
            cwd: &record.directory,
            agent: &record.agent,
            started_at: at(record.started_at),
            pid: record.pid,
            output: &record.output,
            exit_code: record.ended.as_ref().and_then(|ended| ended.code),
            exceeded: record.ended.as_ref().and_then(|ended| Some(ended.exceeded?.to_string())),
            ended_at: record.ended.as_ref().map(|ended| at(ended.at)),
        }
    }

    fn state_in_words(&self) -> String {
        match (self.state, self.exit_code) {
            (DetachedState::Running, _) => "running".to_owned(),
            (DetachedState::Ended, Some(code)) => format!("ended ({code})"),
            (DetachedState::Ended, None) => "ended".to_owned(),
            (DetachedState::Lost, _) => "lost".to_owned(),
        }
    }
}

pub(crate) async fn jobs(command: &JobsCommand, Here { environment, cwd, out }: Here<'_>) -> Result<Code> {
    let jobs = directory(environment, cwd)?;
    let all = detached::list(&jobs);
    match command {
        JobsCommand::List { json } => list(&all, &jobs, *json, out).map(|()| Code::Done),
        JobsCommand::Stop { ids, all: is_all, json } => {
            let wanted = if *is_all { left(&all, &jobs) } else { named(&all, ids)? };
            stop(&wanted, &jobs, *json, out).await
        }
    }
}

/// Where the detached commands of the repo are recorded.
fn directory(environment: &Environment, cwd: &Path) -> Result<PathBuf> {
    Ok(Fleet::open(environment, cwd)?.places().base().join(detached::DIRECTORY))
}

fn list(all: &[DetachedRecord], jobs: &Path, json: bool, out: &mut dyn Write) -> Result<()> {
    let listed: Vec<ListedJob<'_>> = all.iter().map(|record| ListedJob::new(record, jobs)).collect();
    if json {
        return crate::fleet::json_line(&listed, out);
    }
    if listed.is_empty() {
        writeln!(out, "No detached commands.")?;
        return Ok(());
    }
    writeln!(out, "{:<8}  {:<11}  {:>4}  {:<8}  COMMAND", "ID", "STATE", "AGE", "AGENT")?;
    let now = caliban_contract::wall_ms();
    for (record, listed) in all.iter().zip(&listed) {
        let age = caliban_fleet::words::time(Duration::from_millis(now.saturating_sub(record.started_at)));
        let mut command: String = inert::line(listed.command).chars().take(COMMAND_COLUMNS).collect();
        if let Some(exceeded) = &listed.exceeded {
            command = format!("{command}  [{exceeded}]");
        }
        let agent: String = inert::line(listed.agent).chars().take(8).collect();
        writeln!(out, "{:<8}  {:<11}  {age:>4}  {agent:<8}  {command}", listed.id, listed.state_in_words())?;
    }
    Ok(())
}

/// Those of which something may run.
fn left<'a>(all: &'a [DetachedRecord], jobs: &Path) -> Vec<&'a DetachedRecord> {
    all.iter().filter(|record| record.state(jobs) != DetachedState::Ended).collect()
}

fn named<'a>(all: &'a [DetachedRecord], ids: &[String]) -> Result<Vec<&'a DetachedRecord>> {
    let hint = "`caliban jobs list` lists them";
    let find = |id: &String| {
        let fitting: Vec<&DetachedRecord> =
            all.iter().filter(|record| record.id.starts_with(id.as_str())).collect();
        match fitting.as_slice() {
            [one] => Ok(*one),
            [] => Err(Failure::new(format!("there is no detached command {id:?}")).hint(hint)),
            _ => Err(Failure::new(format!("{id:?} is the beginning of several ids")).hint(hint)),
        }
    };
    ids.iter().map(find).collect()
}

async fn stop(wanted: &[&DetachedRecord], jobs: &Path, json: bool, out: &mut dyn Write) -> Result<Code> {
    let mut failed = None;
    for record in wanted {
        let was = record.state(jobs);
        let failure = match caliban_keeper::stop_detached(jobs, record).await {
            Ok(true) => None,
            Ok(false) => Some("not all of its processes could be ended".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        match failure {
            // The others are ended all the same.
            Some(why) => {
                Failure::new(format!("{} could not be ended: {why}", record.id)).keep_in(&mut failed);
            }
            None if json => {}
            None if was == DetachedState::Ended => writeln!(out, "{} had ended already", record.id)?,
            None => writeln!(out, "{} ended", record.id)?,
        }
    }
    if json {
        let now = detached::list(jobs);
        let stopped = now.iter().filter(|record| wanted.iter().any(|wanted| wanted.id == record.id));
        let listed: Vec<ListedJob<'_>> = stopped.map(|record| ListedJob::new(record, jobs)).collect();
        crate::fleet::json_line(&listed, out)?;
    } else if wanted.is_empty() {
        writeln!(out, "No detached commands run.")?;
    }
    failed.map_or(Ok(Code::Done), Err)
}
