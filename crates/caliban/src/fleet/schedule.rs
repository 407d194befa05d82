//! `caliban schedule …`: what starts agents by itself, and when.

use std::{io::Write, time::Duration};

use caliban_core::{
    inert,
    names::Slug,
    priority::Priority,
    recurrence::Recurrence,
    spec::{Isolation, SpawnSpec},
    wait::QueuedFor,
};
use caliban_fleet::{
    Client, caller_environment,
    protocol::{AgentRow, ScheduleRequest, ScheduleRow},
};
use serde::Serialize;

use super::{
    Fleet, json_line, row, say,
    width::{Side, columns, padded},
};
use crate::{
    cli::schedule::{NameArg, ScheduleCommand},
    report::{Code, Failure, Result},
    settings::Loaded,
};

/// Words and characters of a task that make the name of its schedule.
const NAME_WORDS: usize = 3;
const NAME_CHARS: usize = 40;

pub(super) async fn schedule(
    fleet: &Fleet<'_>,
    command: &ScheduleCommand,
    out: &mut dyn Write,
) -> Result<Code> {
    match command {
        ScheduleCommand::List { json } => list(fleet, *json, out).await,
        ScheduleCommand::Show(args) => {
            let row = find(fleet, args).await?;
            if args.json {
                json_line(&row, out)?
            } else {
                show(&row, out)?
            }
            Ok(Code::Done)
        }
        ScheduleCommand::Rm(args) => {
            let row = fleet.client().await?.unschedule(&args.name).await?;
            said(&row, args, "removed; its agents stay", out)
        }
        ScheduleCommand::Pause(args) => {
            let row = fleet.client().await?.pause_schedule(&args.name, true).await?;
            said(&row, args, "paused", out)
        }
        ScheduleCommand::Continue(args) => {
            let row = fleet.client().await?.pause_schedule(&args.name, false).await?;
            said(&row, args, &format!("next run {}", next(&row)), out)
        }
        ScheduleCommand::Run(args) => {
            let made = fleet.client().await?.run_schedule(&args.name).await?;
            if args.json {
                json_line(&made, out)?;
            } else {
                writeln!(out, "{}", made.id)?;
                out.flush()?;
                say(&format!("watch it: caliban attach {}", made.id));
            }
            Ok(Code::Done)
        }
    }
}

/// `--every`: makes a schedule of what is asked for.
pub(super) async fn make(
    fleet: &Fleet<'_>,
    loaded: &Loaded,
    client: &mut Client,
    (mut spec, every, overlap): (SpawnSpec, Recurrence, bool),
    json: bool,
    out: &mut dyn Write,
) -> Result<Code> {
    let name = spec.label.take().unwrap_or_else(|| named_after(&spec.prompt));
    // Each agent begins from what is there when it starts.
    if let Isolation::Worktree(worktree) = &mut spec.isolation {
        worktree.base_commit = None;
    }
    let mut caller = caller_environment::caller(fleet.environment, loaded);
    let task = spec.prompt.clone();
    caller.veil_task(&mut spec.prompt);
    if spec.prompt != task {
        return Err(Failure::usage(
            "the task holds a secret, which a schedule cannot keep: it outlives a reboot",
        )
        .hint("name the variable or the file that has it instead"));
    }
    spec.env = caller.env;
    let program = Some(crate::compose::own_program()?);
    let request = ScheduleRequest { name, every, overlap, spec, secrets: caller.handover.into(), program };
    let row = client.schedule(&request).await?;
    if json {
        return json_line(&row, out).map(|()| Code::Done);
    }
    writeln!(out, "{}", row.name)?;
    out.flush()?;
    say(&format!("runs every {}, next {}; see it: caliban schedule list", row.every, next(&row)));
    Ok(Code::Done)
}

/// A name for a schedule that has none: the first words of its task.
fn named_after(prompt: &str) -> Slug {
    let words: Vec<&str> = prompt.split_whitespace().take(NAME_WORDS).collect();
    let short: String = words.join(" ").chars().take(NAME_CHARS).collect();
    Slug::slugify(&short)
}

/// What `list --json` prints.
#[derive(Serialize)]
struct ListedSchedule<'a> {
    schedules: &'a [ScheduleRow],
    /// Agents that start at a time.
    planned: Vec<row::ShownAgent<'a>>,
}

async fn list(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?;
    let schedules = fleet.with_keys(&mut client).await?;
    let agents = client.list().await?;
    let now = caliban_contract::wall_ms();
    let is_planned = |row: &&AgentRow| matches!(row.queued_for, Some(QueuedFor::Time { .. }));
    let planned: Vec<&AgentRow> = agents.iter().filter(is_planned).collect();
    if json {
        let planned = planned.into_iter().map(|row| row::ShownAgent::new(row, now)).collect();
        return json_line(&ListedSchedule { schedules: &schedules, planned }, out).map(|()| Code::Done);
    }
    if schedules.is_empty() && planned.is_empty() {
        writeln!(
            out,
            "No schedules. Make one: caliban --bg \"<task>\" --label NAME --every \"mon-fri 07:00\""
        )?;
        return Ok(Code::Done);
    }
    let head = ["NAME", "EVERY", "NEXT", "RUNS", "LAST"].map(str::to_owned);
    let mut lines = vec![head];
    for row in &schedules {
        let every = row.every.to_string();
        lines.push([row.name.to_string(), every, next(row), row.runs.to_string(), last(row)]);
    }
    for row in planned {
        let name = row.label.as_deref().map_or(row.id.to_string(), |label| inert::line(label).into_owned());
        let at = match &row.queued_for {
            Some(QueuedFor::Time { at_ms }) => row::clock(*at_ms, now),
            _ => String::new(),
        };
        lines.push([name, "once".to_owned(), at, "0".to_owned(), format!("agent {}", row.id)]);
    }
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(columns(cell));
        }
    }
    for line in &lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| padded(cell, width, Side::Left));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(Code::Done)
}

async fn find(fleet: &Fleet<'_>, args: &NameArg) -> Result<ScheduleRow> {
    let mut client = fleet.client().await?;
    let all = fleet.with_keys(&mut client).await?;
    let found = all.into_iter().find(|row| row.name.as_str() == args.name);
    found.ok_or_else(|| {
        Failure::new(format!("there is no schedule {}", inert::quoted(&args.name)))
            .hint("`caliban schedule list` shows all")
    })
}

fn show(row: &ScheduleRow, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "name     {}", row.name)?;
    writeln!(out, "every    {}{}", row.every, if row.overlap { ", also beside the last one" } else { "" })?;
    writeln!(out, "next     {}", next(row))?;
    writeln!(out, "runs     {}", row.runs)?;
    writeln!(out, "last     {}", last(row))?;
    if row.priority != Priority::default() {
        writeln!(out, "priority {}", row.priority)?;
    }
    writeln!(out, "task     {}", inert::line(&row.prompt))?;
    writeln!(out, "in       {}", inert::line(&row.cwd.display().to_string()))
}

fn said(row: &ScheduleRow, args: &NameArg, what: &str, out: &mut dyn Write) -> Result<Code> {
    if args.json {
        json_line(row, out)?;
    } else {
        writeln!(out, "{}: {what}", row.name)?;
    }
    Ok(Code::Done)
}

/// When it runs next.
pub(super) fn next(row: &ScheduleRow) -> String {
    match (row.paused, row.needs_keys) {
        (true, _) => "paused".to_owned(),
        (false, true) => "needs your keys".to_owned(),
        (false, false) => row::clock(row.next_at, caliban_contract::wall_ms()),
    }
}

/// What became of its last run.
fn last(row: &ScheduleRow) -> String {
    let run = row.last.as_ref().map(|last| {
        let late = match last.late_ms {
            0..60_000 => String::new(),
            late => format!(", {} late", row::time(Duration::from_millis(late))),
        };
        format!("agent {}{late}", last.agent)
    });
    let note = row.note.as_deref().map(|note| inert::line(note).into_owned());
    match (run, note) {
        (Some(run), Some(note)) => format!("{run} ({note})"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "-".to_owned(),
    }
}
