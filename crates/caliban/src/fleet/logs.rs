//! `caliban agents logs`: what an agent did, from its own files; it need not be running.

use std::{
    io::{Read as _, Seek as _, SeekFrom, Write},
    time::Duration,
};

use caliban_agent::{
    conversation::Conversation,
    event::{Outcome, Record},
    session_file::{self, LastTurn, SessionFile},
    transcript,
};
use caliban_contract::{records, tail::Tail};
use caliban_core::{inert, lifecycle::State};
use caliban_fleet::{
    Client,
    feed::{DaemonEnd, FleetFeed, FleetNews},
    protocol::AgentRow,
};

use super::{
    Fleet, json_escape, row, say,
    watch::{self, Daemons},
};
use crate::{
    cli::fleet::LogsArgs,
    report::{Code, Failure, Result},
    sessions::replay::{Length, ReplayReader},
};

/// The part of a transcript that is read for its last lines.
const LAST_BYTES: u64 = 512 * 1024;
/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogsForm {
    Text,
    Records,
    Raw,
}

pub(super) async fn logs(fleet: &Fleet<'_>, args: &LogsArgs, out: &mut dyn Write) -> Result<Code> {
    let mut client = fleet.client().await?;
    let agent = client.show(&args.agent.id).await?;
    if args.json && !args.follow {
        return session(&agent, out);
    }
    let form = match (args.raw, args.json) {
        (true, _) => LogsForm::Raw,
        (false, true) => LogsForm::Records,
        (false, false) => LogsForm::Text,
    };
    let file = if form == LogsForm::Raw { records::WORKER_LOG } else { transcript::FILE_NAME };
    let mut tail = Tail::new(agent.dir.join(file));
    let mut reader = ReplayReader::new(if args.whole { Length::Whole } else { Length::Short });
    if form == LogsForm::Raw {
        // The part that was put aside when the log grew too large.
        let mut older = Tail::new(agent.dir.join(format!("{file}.1")));
        print(&older.all()?, &mut reader, form, out)?;
    } else if form == LogsForm::Text {
        writeln!(out, "agent {}: {}", row::name(&agent), inert::line(&agent.prompt))?;
    }
    let lines = tail.all()?;
    print(&lines, &mut reader, form, out)?;
    if args.follow {
        let mut print = |lines: &[String]| print(lines, &mut reader, form, out);
        let agent = follow(fleet, client, agent, &mut tail, &mut print).await?;
        finish(&agent, form, &mut reader, out)?;
        return Ok(Code::Done);
    }
    if form == LogsForm::Raw {
        write!(out, "{}", tail.rest())?;
    }
    if lines.is_empty() {
        say(&format!("nothing yet: {}", row::doing(&agent, caliban_contract::wall_ms())));
    }
    finish(&agent, form, &mut reader, out)?;
    Ok(Code::Done)
}

/// Prints a transcript as far as it goes; for attach, too.
pub(super) fn replay(agent: &AgentRow, out: &mut dyn Write) -> Result<()> {
    let mut tail = Tail::new(agent.dir.join(transcript::FILE_NAME));
    let mut reader = ReplayReader::default();
    print(&tail.all()?, &mut reader, LogsForm::Text, out)?;
    Ok(reader.finish(out)?)
}

/// The last lines of what an agent did, from the end of its transcript.
pub(super) fn last_lines(agent: &AgentRow, count: usize) -> Result<Vec<String>> {
    let path = agent.dir.join(transcript::FILE_NAME);
    let cannot = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let mut file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let length = file.metadata().map_err(cannot)?.len();
    let start = length.saturating_sub(LAST_BYTES);
    file.seek(SeekFrom::Start(start)).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    let text = String::from_utf8_lossy(&bytes);
    // A record that begins before the part that is read is left out, and one that is being written.
    let skipped = usize::from(start > 0);
    let whole = text.rsplit_once('\n').map(|(whole, _)| whole).unwrap_or_default();
    let lines: Vec<String> = whole.lines().skip(skipped).map(str::to_owned).collect();
    let mut out = Vec::new();
    print(&lines, &mut ReplayReader::default(), LogsForm::Text, &mut out)?;
    let text = String::from_utf8_lossy(&out);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(count);
    Ok(lines.into_iter().skip(first).map(str::to_owned).collect())
}

/// How it ended and what it spent, in a line.
pub(super) fn verdict(agent: &AgentRow) -> String {
    let branch = agent.branch.as_ref().map(|branch| format!("; branch {}", inert::line(branch)));
    format!(
        "-- {}: {}; {}{} --",
        agent.state,
        row::doing(agent, caliban_contract::wall_ms()),
        row::spent(agent),
        branch.unwrap_or_default()
    )
}

fn finish(agent: &AgentRow, form: LogsForm, reader: &mut ReplayReader, out: &mut dyn Write) -> Result<()> {
    if form == LogsForm::Text {
        reader.finish(out)?;
        writeln!(out, "\n{}", verdict(agent))?;
    }
    Ok(())
}

/// The session file as it is; for an agent that was ended in the middle of a turn, as it would be.
fn session(agent: &AgentRow, out: &mut dyn Write) -> Result<Code> {
    if row::has_ended(agent.state)
        && let Some(file) = cut_short(agent)
    {
        let json = serde_json::to_string(&file).map_err(std::io::Error::from)?;
        writeln!(out, "{}", json_escape::json(&json))?;
        return Ok(Code::Done);
    }
    let path = agent.dir.join(session_file::FILE_NAME);
    match std::fs::read_to_string(&path) {
        Ok(json) => {
            writeln!(out, "{}", json_escape::json(json.trim_end()))?;
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
    if !conversation.is_turn_open() {
        return None;
    }
    let outcome = match agent.state {
        State::Killed => Outcome::Cancelled,
        _ => Outcome::failed(row::ended(agent)),
    };
    let micro_usd = agent.micro_usd.map(|micro| micro.0);
    let last = LastTurn { updated: records.last()?.at, outcome, micro_usd };
    SessionFile::of(&conversation, records.first()?.at, last)
}

/// Prints what comes until the agent has ended; the agent as it was then. Daemons may come and go meanwhile: what is
/// printed is in a file of the agent's own.
async fn follow(
    fleet: &Fleet<'_>,
    client: Client,
    mut agent: AgentRow,
    tail: &mut Tail,
    print: &mut impl FnMut(&[String]) -> Result<()>,
) -> Result<AgentRow> {
    let mut daemons = Daemons::new(fleet);
    let mut next = Some(client);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !row::has_ended(agent.state) {
        let left = match &next {
            Some(client) => listen(client, &mut daemons, &mut agent, &mut look, tail, print).await?,
            None => alone(fleet, &agent, &mut look, tail, print).await?,
        };
        next = match left {
            LogsEnd::Ended => break,
            LogsEnd::Removed => {
                say(&format!("agent {} was removed", agent.id));
                break;
            }
            LogsEnd::Running(client) => Some(*client),
            LogsEnd::Left(left) => daemons.next(left).await?,
        };
        if next.is_none() {
            say("the daemon was stopped; the agent goes on, and what it does is printed on");
        }
    }
    // Looked at after the end was seen, so the last lines are not missed.
    print(&tail.all()?)?;
    Ok(agent)
}

/// Why one stops listening to a daemon, or doing without one.
enum LogsEnd {
    Ended,
    Removed,
    Left(DaemonEnd),
    /// There is a daemon.
    Running(Box<Client>),
}

/// Prints what comes until the agent has ended or the daemon leaves.
async fn listen(
    client: &Client,
    daemons: &mut Daemons<'_>,
    agent: &mut AgentRow,
    look: &mut tokio::time::Interval,
    tail: &mut Tail,
    print: &mut impl FnMut(&[String]) -> Result<()>,
) -> Result<LogsEnd> {
    let mut feed = match FleetFeed::open(client).await {
        Ok(feed) => feed,
        Err(left) => return Ok(LogsEnd::Left(left)),
    };
    loop {
        tokio::select! {
            news = feed.next() => {
                let found = match news {
                    Ok(FleetNews::All(rows)) => {
                        daemons.is_well();
                        match rows.into_iter().find(|row| row.id == agent.id) {
                            Some(row) => row,
                            None => return Ok(LogsEnd::Removed),
                        }
                    }
                    Ok(FleetNews::Changed(row)) if row.id == agent.id => *row,
                    Ok(FleetNews::Removed(id)) if id == agent.id => return Ok(LogsEnd::Removed),
                    Ok(FleetNews::Changed(_) | FleetNews::Removed(_)) => continue,
                    Err(left) => return Ok(LogsEnd::Left(left)),
                };
                *agent = found;
                if row::has_ended(agent.state) {
                    return Ok(LogsEnd::Ended);
                }
            }
            _ = look.tick() => print(&tail.all()?)?,
        }
    }
}

/// Prints what comes until there is a daemon again. None is started: somebody has stopped the last. But when the agent
/// is gone, only a daemon can tell how it ended.
async fn alone(
    fleet: &Fleet<'_>,
    agent: &AgentRow,
    look: &mut tokio::time::Interval,
    tail: &mut Tail,
    print: &mut impl FnMut(&[String]) -> Result<()>,
) -> Result<LogsEnd> {
    let has_begun = agent.pid.is_some();
    loop {
        look.tick().await;
        print(&tail.all()?)?;
        if let Some(client) = watch::running(fleet).await {
            return Ok(LogsEnd::Running(Box::new(client)));
        }
        if has_begun && tokio::net::UnixStream::connect(&agent.socket).await.is_err() {
            return Ok(LogsEnd::Running(Box::new(fleet.client().await?)));
        }
    }
}

fn print(lines: &[String], reader: &mut ReplayReader, form: LogsForm, out: &mut dyn Write) -> Result<()> {
    for line in lines {
        match form {
            LogsForm::Raw => writeln!(out, "{line}")?,
            LogsForm::Records => writeln!(out, "{}", json_escape::json(line.trim_end()))?,
            LogsForm::Text => match serde_json::from_str::<Record>(line) {
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
