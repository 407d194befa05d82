//! How a member's program ends: asked first, and closed with its pane when that is wanted.
//!
//! Owns the rule that nobody is interrupted: a pane that is not free is not typed into, also not to end it.

use std::time::Duration;

use caliban_store::broker::Broker;
use rustix::process::{Pid, Signal};
use tokio::time::Instant;

use super::backend::Leave;
use super::classify;
use super::deliver::{WriteResult, type_text};
use super::inspect::{PaneState, PaneTarget};
use super::process;
use super::tmux::Pasted;
use crate::settings::Settings;

/// How often the pane is looked at.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long Enter may take before it is pressed again.
const ENTER_AGAIN: Duration = Duration::from_millis(1200);
/// How long a program may ignore that its terminal is gone.
const HANGUP: Duration = Duration::from_millis(1500);

/// Asks the program to leave and waits for its pane to close; `Err` says why it is still there.
pub(crate) async fn ask(
    broker: &Broker,
    settings: &Settings,
    target: &PaneTarget<'_>,
    limit: Duration,
) -> Result<(), String> {
    let give_up = Instant::now() + limit;
    let mut asked: Option<Instant> = None;
    loop {
        let seen = target.look(settings).await;
        match (seen.state, target.backend.leave, asked) {
            (PaneState::Gone, ..) => return Ok(()),
            (PaneState::Unreachable, ..) => return Err(seen.why),
            (_, Leave::Hangup, _) => return kill(target).await,
            (PaneState::Free, Leave::Line(line), None) => {
                let lock = broker.lock_pane(&target.lock_name(), INTERVAL).await;
                let buffer = format!("cafleet-leave-{}", target.pane.trim_start_matches('%'));
                if lock.is_some()
                    && type_text(target, settings, seen, line, &buffer).await == WriteResult::Sent
                {
                    asked = Some(Instant::now());
                    continue;
                }
            }
            // One that does not say what it is at is asked, too: it may have lost its socket.
            (PaneState::Free | PaneState::OnItsOwn, Leave::Terminate, None) => {
                signal(target, Signal::TERM);
                asked = Some(Instant::now());
            }
            (PaneState::Draft, Leave::Line(line), Some(at)) if at.elapsed() > ENTER_AGAIN => {
                if let Some(facts) =
                    seen.facts.filter(|facts| classify::is_in_composer(target.backend, &facts.screen, line))
                {
                    asked = Some(Instant::now());
                    // Best effort: refused means that the screen moved, and the next look decides.
                    let _ = target.tmux.press(target.pane, "Enter", &target.condition(&facts)).await;
                }
            }
            _ if Instant::now() >= give_up => {
                return Err(match asked {
                    Some(_) => "it was asked to leave and is still there".to_owned(),
                    None => seen.why,
                });
            }
            _ => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Closes the pane. A program that goes on without a terminal is killed.
pub(crate) async fn kill(target: &PaneTarget<'_>) -> Result<(), String> {
    match target.tmux.kill_pane(target.pane, &target.is_same()).await {
        // Another pane has the name now, or none has: ours is gone.
        Ok(Pasted::Sent | Pasted::Refused) => {}
        Err(error) if error.words().contains("can't find") => {}
        Err(error) => return Err(error.words()),
    }
    let lives = || lives(target);
    let give_up = Instant::now() + HANGUP;
    while lives() {
        if Instant::now() >= give_up {
            signal(target, Signal::KILL);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Whether the pane's first process is still the one that was placed.
fn lives(target: &PaneTarget<'_>) -> bool {
    let identity = target.identity;
    process::started(identity.pane_pid).is_some_and(|started| started == identity.pane_started)
}

/// Best effort: it may end by itself at this moment.
fn signal(target: &PaneTarget<'_>, signal: Signal) {
    let pid = i32::try_from(target.identity.pane_pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| lives(target)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
