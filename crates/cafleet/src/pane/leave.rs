//! Ending a member's program: it is asked first, and its pane is closed if that is requested.
//!
//! Owns the rule that no agent is interrupted: nothing is typed into a pane that is not free, not even to end it.

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

/// The interval between looks at the pane.
const INTERVAL: Duration = Duration::from_millis(200);
/// Time after which Enter is pressed again.
const ENTER_AGAIN: Duration = Duration::from_millis(1200);
/// Grace period of a program whose terminal is gone.
const HANGUP: Duration = Duration::from_millis(1500);

/// Asks the program to end and waits for its pane to close; `Err` says why it is still there.
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
            (PaneState::Gone, ..) => {
                close_dead(target).await;
                return Ok(());
            }
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
            // A program that does not report its state is asked, too: it may have lost its socket.
            (PaneState::Free | PaneState::OnItsOwn, Leave::Terminate, None) => {
                signal(target, Signal::TERM);
                asked = Some(Instant::now());
            }
            (PaneState::Draft, Leave::Line(line), Some(at)) if at.elapsed() > ENTER_AGAIN => {
                if let Some(facts) =
                    seen.facts.filter(|facts| classify::is_in_composer(target.backend, &facts.screen, line))
                {
                    asked = Some(Instant::now());
                    // Best effort: a refusal means that the screen has changed, and the next look decides.
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

/// Closes the pane. A program that survives the loss of its terminal is killed.
pub(crate) async fn kill(target: &PaneTarget<'_>) -> Result<(), String> {
    match target.tmux.kill_pane(target.pane, &target.is_same()).await {
        // Either another pane has this id now, or none: ours is gone.
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

/// Closes a pane that stays though its program has ended (`remain-on-exit`). Best effort: there may be none.
pub(crate) async fn close_dead(target: &PaneTarget<'_>) {
    let _none = target.tmux.kill_pane(target.pane, &target.is_same_and_dead()).await;
}

/// Whether the recorded first process of the pane still runs.
fn lives(target: &PaneTarget<'_>) -> bool {
    let identity = target.identity;
    process::started(identity.pane_pid).is_some_and(|started| started == identity.pane_started)
}

/// Best effort: the process may just be ending by itself.
fn signal(target: &PaneTarget<'_>, signal: Signal) {
    let pid = i32::try_from(target.identity.pane_pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| lives(target)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
