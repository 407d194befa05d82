//! `caliban agents logs`: what an agent did, from its own files; it need not be running.

use std::{io::Write, time::Duration};

use caliban_agent::{
    conversation::Conversation,
    event::{Outcome, Record},
    session_file::{self, SessionFile},
    transcript,
};
use caliban_core::{inert, lifecycle::State};
use caliban_supervisor::{
    Client,
    protocol::{AgentRow, FleetEvent},
    records,
};

use super::{Fleet, json_line, row, say, tail::Tail, worded};
use crate::{
    cli::fleet::LogsArgs,
    report::{Code, Failure},
    sessions::replay::{Length, Reader},
};

/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Records,
    Raw,
}

pub(super) async fn logs(fleet: &Fleet<'_>, args: &LogsArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let mut client = fleet.client().await?;
    let agent = client.show(&args.agent.id).await.map_err(worded)?;
    if args.json && !args.follow {
        return session(&agent, out);
    }
    let form = match (args.raw, args.json) {
        (true, _) => Form::Raw,
        (false, true) => Form::Records,
        (false, false) => Form::Text,
    };
    let file = if form == Form::Raw { records::WORKER_LOG } else { transcript::FILE_NAME };
    let mut tail = Tail::new(agent.dir.join(file));
    let mut reader = Reader::new(if args.whole { Length::Whole } else { Length::Short });
    if form == Form::Raw {
        // The part that was put aside when the log grew too large.
        let mut older = Tail::new(agent.dir.join(format!("{file}.1")));
        print(&older.all()?, &mut reader, form, out)?;
    } else if form == Form::Text {
        writeln!(out, "agent {}: {}", row::name(&agent), inert::line(&agent.prompt))?;
    }
    let lines = tail.all()?;
    print(&lines, &mut reader, form, out)?;
    if args.follow {
        let agent = follow(&client, &agent, &mut tail, &mut reader, form, out).await?;
        finish(&agent, form, out)?;
        return Ok(Code::Done);
    }
    if form == Form::Raw {
        write!(out, "{}", tail.rest())?;
    }
    if lines.is_empty() {
        say(&format!("nothing yet: {}", row::doing(&agent, row::now_ms())));
    }
    finish(&agent, form, out)?;
    Ok(Code::Done)
}

/// Prints a transcript as far as it goes; for attach, too.
pub(super) fn replay(agent: &AgentRow, out: &mut dyn Write) -> Result<(), Failure> {
    let mut tail = Tail::new(agent.dir.join(transcript::FILE_NAME));
    print(&tail.all()?, &mut Reader::default(), Form::Text, out)
}

/// How it ended and what it spent, in a line.
pub(super) fn verdict(agent: &AgentRow) -> String {
    let branch = agent.branch.as_ref().map(|branch| format!("; branch {}", inert::line(branch)));
    format!(
        "-- {}: {}; {}{} --",
        agent.state,
        row::doing(agent, row::now_ms()),
        row::spent(agent),
        branch.unwrap_or_default()
    )
}

fn finish(agent: &AgentRow, form: Form, out: &mut dyn Write) -> Result<(), Failure> {
    if form == Form::Text {
        writeln!(out, "\n{}", verdict(agent))?;
    }
    Ok(())
}

/// The session file as it is; for an agent that was ended in the middle of a turn, as it would be.
fn session(agent: &AgentRow, out: &mut dyn Write) -> Result<Code, Failure> {
    if row::has_ended(agent.state)
        && let Some(file) = cut_short(agent)
    {
        json_line(&file, out)?;
        return Ok(Code::Done);
    }
    let path = agent.dir.join(session_file::FILE_NAME);
    match std::fs::File::open(&path) {
        Ok(mut file) => {
            std::io::copy(&mut file, out)?;
            Ok(Code::Done)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("agent {} has no session file yet", agent.id))
                .hint("it is written at the end of each turn; --follow --json prints what there is"))
        }
        Err(error) => Err(Failure::new(format!("cannot read {}: {error}", path.display()))),
    }
}

/// The session of an agent whose last turn nobody ended; none when it is in the file. Only shown: the next resume goes on
/// from the transcript, as always.
fn cut_short(agent: &AgentRow) -> Option<SessionFile> {
    let records = transcript::read(&agent.dir).ok()?;
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    let header = conversation.header().filter(|_| conversation.is_turn_open())?.clone();
    let outcome = match agent.state {
        State::Killed => Outcome::Cancelled,
        _ => Outcome::failed(row::ended(agent)),
    };
    Some(SessionFile {
        version: header.version,
        id: header.session,
        label: header.label,
        parent: header.parent,
        cwd: header.cwd,
        provider: header.provider,
        model: header.model,
        created: records.first()?.at,
        updated: records.last()?.at,
        outcome,
        replies: conversation.replies(),
        usage: conversation.usage(),
        micro_usd: agent.micro_usd.map(|micro| micro.0),
        todos: conversation.todos().clone(),
        messages: conversation.messages().to_vec(),
    })
}

/// Prints what comes until the agent has ended; the agent as it was then.
async fn follow(
    client: &Client,
    agent: &AgentRow,
    tail: &mut Tail,
    reader: &mut Reader,
    form: Form,
    out: &mut dyn Write,
) -> Result<AgentRow, Failure> {
    let mut agent = agent.clone();
    let mut events = client.events().await.map_err(worded)?;
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut is_over = row::has_ended(agent.state);
        if !is_over {
            tokio::select! {
                event = events.next() => match event.map_err(worded)? {
                    Some(FleetEvent::Agent(row)) if row.id == agent.id => agent = *row,
                    Some(FleetEvent::Removed { id }) if id == agent.id => {
                        say(&format!("agent {id} was removed"));
                        is_over = true;
                    }
                    Some(_) => {}
                    None => {
                        say("the daemon has left; the agent goes on");
                        is_over = true;
                    }
                },
                _ = look.tick() => {}
            }
        }
        // Looked at after the end was seen, so the last lines are not missed.
        print(&tail.all()?, reader, form, out)?;
        if is_over || row::has_ended(agent.state) {
            print(&tail.all()?, reader, form, out)?;
            return Ok(agent);
        }
    }
}

fn print(lines: &[String], reader: &mut Reader, form: Form, out: &mut dyn Write) -> Result<(), Failure> {
    for line in lines {
        match form {
            Form::Raw => writeln!(out, "{line}")?,
            Form::Records => writeln!(out, "{}", line.trim_end())?,
            Form::Text => match serde_json::from_str::<Record>(line) {
                Ok(record) => reader.event(&record.event, out)?,
                Err(error) => writeln!(out, "note: a record cannot be read: {error}")?,
            },
        }
    }
    if !lines.is_empty() {
        out.flush()?;
    }
    Ok(())
}
