//! `caliban daemon …`: how the daemon of this repo is, and its end.

use std::{collections::VecDeque, io::Write, path::Path, time::Duration};

use caliban_core::inert;
use caliban_supervisor::{Client, ClientError, protocol::DaemonStatus};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::{Fleet, json_line, row, say, tail::Tail, worded};
use crate::{
    cli::daemon::DaemonCommand,
    report::{Code, Failure},
};

/// How long a daemon that was told to leave by a signal may take before it is ended by force. It can die at any
/// instant without loss, so this is short.
const LEAVE_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(100);

pub(super) async fn daemon(
    fleet: &Fleet<'_>,
    command: &DaemonCommand,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    match command {
        DaemonCommand::Status { json } => status(fleet, *json, out).await,
        DaemonCommand::Stop => {
            let line = if stop(fleet).await? {
                "The daemon has left; agents go on."
            } else {
                "No daemon was running."
            };
            writeln!(out, "{line}")?;
            Ok(Code::Done)
        }
        DaemonCommand::Restart => {
            stop(fleet).await?;
            let status = fleet.client().await?.status().await.map_err(worded)?;
            writeln!(out, "A daemon runs with pid {}: {}.", status.pid, inert::line(&status.found.line()))?;
            Ok(Code::Done)
        }
        DaemonCommand::Logs { follow, lines } => logs(fleet, *follow, *lines, out).await,
    }
}

async fn status(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let status = match Client::connect(fleet.places()).await {
        Ok(mut client) => client.status().await.map_err(worded)?,
        Err(ClientError::NotRunning(repo)) if json => {
            json_line(&serde_json::json!({"health": "not running", "repo": repo}), out)?;
            return Ok(Code::Failed);
        }
        Err(error) => return Err(worded(error)),
    };
    if json {
        json_line(&status, out)?;
    } else {
        text(&status, out)?;
    }
    Ok(Code::Done)
}

fn text(status: &DaemonStatus, out: &mut dyn Write) -> Result<(), Failure> {
    let path = |path: &Path| inert::line(&path.display().to_string()).into_owned();
    let states: Vec<String> = status.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    writeln!(out, "health   {}", inert::line(&status.health))?;
    writeln!(out, "pid      {}", status.pid)?;
    writeln!(out, "uptime   {}", row::time(Duration::from_millis(status.uptime_ms)))?;
    writeln!(out, "agents   {}{states}", status.agents)?;
    writeln!(out, "queue    {} waiting; at most {} run at once", status.queued, status.max_running)?;
    writeln!(out, "socket   {}", path(&status.socket))?;
    writeln!(out, "repo     {}", path(&status.repo))?;
    writeln!(out, "data     {}", path(&status.base))?;
    writeln!(out, "log      {}", path(&status.log))?;
    writeln!(out, "version  {} (protocol {})", inert::line(&status.version), status.protocol)?;
    writeln!(out, "start    {}", inert::line(&status.found.line()))?;
    for note in &status.found.notes {
        writeln!(out, "         {}", inert::line(note))?;
    }
    Ok(())
}

/// Ends the daemon; false when there was none. One that does not understand us, or does not answer, gets a signal.
async fn stop(fleet: &Fleet<'_>) -> Result<bool, Failure> {
    let ended = match Client::connect(fleet.places()).await {
        Ok(client) => client.shutdown().await,
        Err(ClientError::NotRunning(_)) => return Ok(false),
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => Ok(true),
        Err(error @ (ClientError::Protocol { .. } | ClientError::Silent(_) | ClientError::Broken(_))) => {
            match by_signal(&fleet.places().daemon_lock()).await {
                Ok(true) => Ok(true),
                // It left between our question and our look.
                Ok(false) if matches!(error, ClientError::Broken(_)) => Ok(true),
                Ok(false) => Err(worded(error)),
                Err(failure) => Err(failure),
            }
        }
        Err(error) => Err(worded(error)),
    }
}

/// Ends the process that says in its lock file that it is the daemon; false when there is none.
async fn by_signal(lock: &Path) -> Result<bool, Failure> {
    let Some((pid, start)) = std::fs::read_to_string(lock).ok().as_deref().and_then(holder) else {
        return Ok(false);
    };
    if start_time(pid) != Some(start) {
        return Ok(false);
    }
    let Some(process) = Pid::from_raw(pid) else { return Ok(false) };
    for signal in [Signal::TERM, Signal::KILL] {
        // It may be gone by now, which is what we want.
        let _gone = kill_process(process, signal);
        let give_up = Instant::now() + LEAVE_LIMIT;
        while Instant::now() < give_up {
            if start_time(pid) != Some(start) {
                return Ok(true);
            }
            sleep(LOOK).await;
        }
        say(&format!("the daemon (pid {pid}) does not leave"));
    }
    Err(Failure::new(format!("the daemon (pid {pid}) cannot be ended")))
}

/// `pid 123 start 456`, as the daemon writes it.
fn holder(text: &str) -> Option<(i32, u64)> {
    let mut words = text.split_whitespace();
    match (words.next()?, words.next()?, words.next()?, words.next()?) {
        ("pid", pid, "start", start) => Some((pid.parse().ok()?, start.parse().ok()?)),
        _ => None,
    }
}

/// When the kernel started a process that still runs, in ticks since boot.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

async fn logs(
    fleet: &Fleet<'_>,
    follow: bool,
    last: Option<usize>,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_a_process_and_its_start() {
        assert_eq!(holder("pid 12 start 345\n"), Some((12, 345)));
        for text in ["", "pid 12", "pid x start 1", "start 1 pid 2"] {
            assert_eq!(holder(text), None, "{text}");
        }
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(start_time(own).is_some_and(|start| start > 0));
        assert_eq!(start_time(i32::MAX), None);
    }
}
