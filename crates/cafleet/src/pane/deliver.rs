//! Typing an agent's waiting messages into its pane, in order, each at most once.
//!
//! Owns the order of effects: lock the pane, look, claim the message in the store, type, look
//! again, record. A message that cannot be typed now holds back those behind it. A failure here does not fail the
//! command that stored the message; it becomes the message's delivery state.

use std::fs::File;
use std::time::Duration;

use caliban_store::broker::{
    Agent, Broker, BrokerError, Delivery, DeliveryState, PaneIdentity, Placement, Task, TaskId,
};
use tokio::time::Instant;

use super::classify::{self, Backend, Composer};
use super::tmux::{PaneFacts, Pasted, Tmux, TmuxError};
use super::{compose, here, process};
use crate::settings::Settings;

/// How long to wait for another process that types into the same pane.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// How long one command types what others have left before it; the rest is for the next.
const DELIVER_LIMIT: Duration = Duration::from_secs(10);
/// How long to look whether the agent took a message.
const CONFIRM_LIMIT: Duration = Duration::from_millis(1500);
/// How often to look.
const LOOK_INTERVAL: Duration = Duration::from_millis(40);
/// How often a paste is tried that tmux refuses because the screen moved.
const PASTE_ATTEMPTS: usize = 3;
/// The largest status file of a coding agent that is read.
const STATUS_BYTES: u64 = 64 * 1024;

/// What a look at a pane decided.
enum Verdict {
    /// Type, if the pane is still as it was seen here.
    Go(Backend, Box<PaneFacts>),
    /// Not now.
    Hold(String),
    /// Never: the pane is not the one any more.
    Gone(String),
}

/// A pane that an agent was placed in.
struct Target<'a> {
    tmux: Tmux,
    pane: &'a str,
    identity: &'a PaneIdentity,
    agent: &'a str,
    /// Whether the pane is on this machine.
    is_here: bool,
}

/// Types what waits for `recipient` and says how many messages that were. Does nothing for an
/// agent without a pane.
pub(crate) async fn deliver(
    broker: &mut Broker,
    settings: &Settings,
    recipient: &Agent,
) -> Result<usize, BrokerError> {
    let Some(target) = recipient.placement.as_ref().and_then(target) else { return Ok(0) };
    let (lock, locked) = if target.is_here {
        (broker.lock_pane(recipient.id, LOCK_LIMIT).await, "another cafleet is typing into the pane")
    } else {
        (None, "its pane is on another machine")
    };
    let waiting = broker.undelivered(recipient.id).await?;
    if waiting.is_empty() {
        return Ok(0);
    }
    if lock.is_none() {
        put_off(broker, &waiting, DeliveryState::Held, locked).await?;
        return Ok(0);
    }
    let mut typed = 0;
    let enough = Instant::now() + DELIVER_LIMIT;
    for (at, task) in waiting.iter().enumerate() {
        if at > 0 && Instant::now() >= enough {
            let why = "more was waiting than could be typed in one go";
            put_off(broker, &waiting[at..], DeliveryState::Held, why).await?;
            break;
        }
        match look(&target, settings).await {
            Verdict::Go(..) => {}
            Verdict::Hold(why) => {
                put_off(broker, &waiting[at..], DeliveryState::Held, &why).await?;
                break;
            }
            Verdict::Gone(why) => {
                put_off(broker, &waiting[at..], DeliveryState::Failed, &why).await?;
                break;
            }
        };
        if !broker.claim_delivery(task.id).await? {
            continue;
        }
        let done = type_one(&target, settings, task).await;
        broker.record_delivery(task.id, &done).await?;
        match done.state {
            DeliveryState::Typed | DeliveryState::Confirmed => typed += 1,
            DeliveryState::Held => {
                let why = "an earlier message is held";
                put_off(broker, &waiting[at + 1..], DeliveryState::Held, why).await?;
                break;
            }
            DeliveryState::Stored | DeliveryState::Failed => {}
        }
    }
    Ok(typed)
}

fn target(placement: &Placement) -> Option<Target<'_>> {
    let pane = placement.tmux_pane.as_deref().filter(|pane| here::is_pane_id(pane))?;
    let identity = placement.identity.as_ref()?;
    Some(Target {
        tmux: Tmux::at(&identity.socket),
        pane,
        identity,
        agent: &placement.coding_agent,
        is_here: here::host().is_ok_and(|host| host == placement.host),
    })
}

async fn look(target: &Target<'_>, settings: &Settings) -> Verdict {
    let pattern = Backend::named(target.agent).map_or("", Backend::dialog_pattern);
    match target.tmux.look(target.pane, pattern).await {
        Ok(Some(facts)) => judge(target, facts, settings),
        Ok(None) => Verdict::Gone(format!("there is no pane {} any more", target.pane)),
        // Another sender, or a later one, may have better luck.
        Err(error @ (TmuxError::Missing | TmuxError::Silent)) => Verdict::Hold(error.words()),
        Err(TmuxError::Failed(why)) => Verdict::Gone(format!("the tmux server is gone ({why})")),
    }
}

/// From what tmux and the system know about the pane to what may be done with it.
fn judge(target: &Target<'_>, facts: PaneFacts, settings: &Settings) -> Verdict {
    let identity = target.identity;
    if facts.server_pid != identity.server_pid {
        return Verdict::Gone("another tmux server has the socket now".to_owned());
    }
    if facts.dead {
        return Verdict::Gone("the pane is dead".to_owned());
    }
    let same = facts.pane_pid == identity.pane_pid
        && process::started(facts.pane_pid).is_some_and(|started| started == identity.pane_started);
    if !same {
        return Verdict::Gone("the pane has another process now".to_owned());
    }
    let Some(backend) = Backend::named(target.agent) else {
        return Verdict::Gone(format!("'{}' is no known coding agent", target.agent));
    };
    let Some(agent_pid) = process::foreground_agent(facts.pane_pid, &facts.tty, target.agent) else {
        return Verdict::Hold(format!("{} is not the pane's foreground program", target.agent));
    };
    let status = match backend {
        Backend::Claude => claude_status(settings, agent_pid),
        Backend::Codex => None,
    };
    match classify::composer(backend, &facts, status.as_deref()) {
        Composer::Free => Verdict::Go(backend, Box::new(facts)),
        Composer::Draft => Verdict::Hold("there is a draft in its input line".to_owned()),
        Composer::Dialog => Verdict::Hold("it waits for an answer from its user".to_owned()),
        Composer::Unknown => Verdict::Hold("its input line is not to be seen".to_owned()),
    }
}

/// Types a claimed message. The look that decides is repeated, because a screen that moves between
/// look and paste makes tmux refuse.
async fn type_one(target: &Target<'_>, settings: &Settings, task: &Task) -> Delivery {
    let held = |why: String| Delivery { state: DeliveryState::Held, note: Some(why) };
    for _ in 0..PASTE_ATTEMPTS {
        let (backend, facts) = match look(target, settings).await {
            Verdict::Go(backend, facts) => (backend, facts),
            Verdict::Hold(why) | Verdict::Gone(why) => return held(why),
        };
        match paste(target, settings, backend, &facts, task).await {
            Ok(Pasted::Sent) if confirmed(target, backend, task).await => {
                return Delivery { state: DeliveryState::Confirmed, note: None };
            }
            Ok(Pasted::Sent) => return Delivery { state: DeliveryState::Typed, note: None },
            Ok(Pasted::Refused) => {}
            Err(error) => return Delivery { state: DeliveryState::Failed, note: Some(error.words()) },
        }
    }
    held("the pane changed just before typing".to_owned())
}

async fn paste(
    target: &Target<'_>,
    settings: &Settings,
    backend: Backend,
    facts: &PaneFacts,
    task: &Task,
) -> Result<Pasted, TmuxError> {
    let text = compose::preview(task, settings.max_text_len);
    let buffer = format!("cafleet-{}", task.id.short());
    // All that tmux itself can check is checked again at the moment of typing.
    let condition = format!(
        "#{{&&:#{{==:#{{pid}}/#{{pane_id}}/#{{pane_pid}}/#{{pane_dead}},{}/{}/{}/0}},{}}}",
        target.identity.server_pid,
        target.pane,
        target.identity.pane_pid,
        backend.condition(facts)
    );
    target.tmux.paste(target.pane, &buffer, &text, &condition).await
}

/// Looks until the message stands on the screen above an empty input line, or time is up.
async fn confirmed(target: &Target<'_>, backend: Backend, task: &Task) -> bool {
    let marker = compose::marker(task);
    let give_up = Instant::now() + CONFIRM_LIMIT;
    loop {
        if let Ok(Some(facts)) = target.tmux.look(target.pane, "").await
            && classify::was_taken(backend, &facts.screen, &marker)
        {
            return true;
        }
        if Instant::now() >= give_up {
            return false;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The word that Claude Code writes about itself: `idle`, `busy` or `waiting`.
fn claude_status(settings: &Settings, pid: i64) -> Option<String> {
    use std::io::Read;
    let file = settings.claude_dir.as_ref()?.join("sessions").join(format!("{pid}.json"));
    let mut text = String::new();
    File::open(file).ok()?.take(STATUS_BYTES).read_to_string(&mut text).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    value.get("status")?.as_str().map(str::to_owned)
}

async fn put_off(
    broker: &mut Broker,
    tasks: &[Task],
    state: DeliveryState,
    why: &str,
) -> Result<(), BrokerError> {
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    broker.put_off(&ids, &Delivery { state, note: Some(why.to_owned()) }).await
}
