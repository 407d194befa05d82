//! `caliban daemon …`: how the daemon of this repo is, and its end.

use std::{collections::VecDeque, io::Write, path::Path, time::Duration};

use caliban_core::inert;
use caliban_fleet::{
    Client, ClientError, SignalResult, end_by_signal,
    protocol::{DaemonStatus, ErrorCode},
};
use tokio::time::sleep;

use caliban_contract::tail::Tail;

use super::{Fleet, json_line, row, say};
use crate::{
    cli::daemon::DaemonCommand,
    report::{Code, Failure, Result},
};

/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(100);

/// What becomes of a daemon that is told to leave and does not answer.
const SIGNALLED: &str = "it gets a signal if it does not leave by itself; agents go on";

pub(super) async fn daemon(fleet: &Fleet<'_>, command: &DaemonCommand, out: &mut dyn Write) -> Result<Code> {
    match command {
        DaemonCommand::Status { json } => status(fleet, *json, out).await,
        DaemonCommand::Stop => {
            match fleet.patiently(stop(fleet), SIGNALLED).await? {
                DaemonStopped::None => writeln!(out, "No daemon was running.")?,
                DaemonStopped::Left { queued: 0 } => writeln!(out, "The daemon has left; agents go on.")?,
                DaemonStopped::Left { queued } => {
                    let who = if queued == 1 {
                        "1 agent waits".to_owned()
                    } else {
                        format!("{queued} agents wait")
                    };
                    writeln!(
                        out,
                        "The daemon has left; agents that run go on. {who} for a start, which only a daemon can give: \
                         the next command that needs one starts it (caliban agents list, for one)."
                    )?;
                }
            }
            Ok(Code::Done)
        }
        DaemonCommand::Restart => {
            fleet.patiently(stop(fleet), SIGNALLED).await?;
            let status = fleet.client().await?.status().await?;
            writeln!(out, "A daemon runs with pid {}: {}.", status.pid, inert::line(&status.found.line()))?;
            Ok(Code::Done)
        }
        DaemonCommand::Logs { follow, lines } => logs(fleet, *follow, *lines, out).await,
    }
}

async fn status(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let asked = async { Client::connect(fleet.places()).await?.status().await };
    let status = match fleet.patiently(asked, "`caliban daemon restart` replaces it").await {
        Ok(status) => status,
        Err(ClientError::NotRunning(repo)) if json => {
            json_line(&serde_json::json!({"health": "not running", "repo": repo}), out)?;
            return Ok(Code::Failed);
        }
        Err(error) => return Err(Failure::from(error)),
    };
    if status.base != fleet.places().base() {
        let own = fleet.places().base().display();
        say(&format!("that daemon keeps its data in {}, this command in {own}", status.base.display()));
    }
    if json {
        json_line(&status, out)?;
    } else {
        let is_own = status.socket == fleet.places().socket();
        text(&status, fleet.places().elsewhere().filter(|_| is_own), out)?;
    }
    Ok(Code::Done)
}

/// `elsewhere` is why the socket is not where the environment says.
fn text(status: &DaemonStatus, elsewhere: Option<&str>, out: &mut dyn Write) -> Result<()> {
    let path = |path: &Path| inert::line(&path.display().to_string()).into_owned();
    let states: Vec<String> = status.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    writeln!(out, "health   {}", inert::line(&status.health))?;
    writeln!(out, "pid      {}", status.pid)?;
    writeln!(out, "uptime   {}", row::time(Duration::from_millis(status.uptime_ms)))?;
    writeln!(out, "agents   {}{states}", status.agents)?;
    let user = status.max_running_user.map_or(String::new(), |limit| format!(", {limit} over all repos"));
    writeln!(out, "queue    {} waiting; at most {} run at once{user}", status.queued, status.max_running)?;
    if status.schedules > 0 {
        writeln!(out, "schedules {} (caliban schedule list)", status.schedules)?;
    }
    let why = elsewhere.map(|why| format!(" ({})", inert::line(why))).unwrap_or_default();
    writeln!(out, "socket   {}{why}", path(&status.socket))?;
    writeln!(out, "repo     {}", path(&status.repo))?;
    writeln!(out, "data     {}", path(&status.base))?;
    writeln!(out, "log      {}", path(&status.log))?;
    writeln!(out, "version  {} (protocol {})", inert::line(&status.version), status.protocol)?;
    writeln!(out, "start    {}", inert::line(&status.found.line()))?;
    for note in status.found.missed.iter().chain(&status.found.notes) {
        writeln!(out, "         {}", inert::line(note))?;
    }
    Ok(())
}

/// What `stop` did.
enum DaemonStopped {
    /// There was none.
    None,
    /// It has left; so many agents waited for a place, when that could be asked.
    Left { queued: u64 },
}

/// Ends the daemon. One that does not understand us, does not answer or does not listen gets a signal.
async fn stop(fleet: &Fleet<'_>) -> Result<DaemonStopped> {
    let mut queued = 0;
    let ended = match Client::connect(fleet.places()).await {
        Ok(mut client) => {
            // One of another version may not say.
            match client.status().await {
                // What it does not answer now it does not answer later.
                Err(silent @ ClientError::Silent(_)) => Err(silent),
                status => {
                    queued = status.map_or(0, |status| status.queued);
                    client.shutdown().await
                }
            }
        }
        Err(ClientError::NotRunning(_)) => return Ok(DaemonStopped::None),
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => Ok(DaemonStopped::Left { queued }),
        Err(error) if needs_signal(&error) => match end_by_signal(fleet.places()).await? {
            SignalResult::Left => Ok(DaemonStopped::Left { queued }),
            SignalResult::Killed => {
                say("the daemon did not leave when it was told to, and was killed");
                Ok(DaemonStopped::Left { queued })
            }
            // It left between our question and our look.
            SignalResult::None if matches!(error, ClientError::Broken(_) | ClientError::Deaf { .. }) => {
                Ok(DaemonStopped::Left { queued })
            }
            SignalResult::None => Err(Failure::from(error)),
        },
        Err(error) => Err(Failure::from(error)),
    }
}

/// Whether a daemon does not understand us, does not answer, does not listen, or has no descriptor to look with at who asks.
fn needs_signal(error: &ClientError) -> bool {
    match error {
        ClientError::Protocol(_) | ClientError::Silent(_) => true,
        ClientError::Broken(_) | ClientError::Deaf { .. } => true,
        ClientError::Refused(refusal) => refusal.code == ErrorCode::Busy,
        _ => false,
    }
}

async fn logs(fleet: &Fleet<'_>, follow: bool, last: Option<usize>, out: &mut dyn Write) -> Result<Code> {
    let path = fleet.places().log();
    if !path.exists() && !follow {
        return Err(Failure::new(format!("there is no log at {}", path.display()))
            .hint("no daemon has run for this repo yet"));
    }
    let mut tail = Tail::new(path);
    let mut lines: VecDeque<String> = tail.all()?.into();
    while last.is_some_and(|last| lines.len() > last) {
        lines.pop_front();
    }
    for line in &lines {
        writeln!(out, "{}", inert::line(line))?;
    }
    out.flush()?;
    if !follow {
        return Ok(Code::Done);
    }
    loop {
        sleep(FOLLOW).await;
        for line in tail.all()? {
            writeln!(out, "{}", inert::line(&line))?;
        }
        out.flush()?;
    }
}
