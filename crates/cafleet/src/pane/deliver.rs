//! Types what waits for an agent into its pane, one thing at a time, each at most once.
//!
//! Owns the order of effects: lock the pane, look, confirm what was typed before, claim in the store, type, record. One
//! step does one thing and never waits; a caller that wants more takes another step. What a step needs to know about
//! earlier ones is in the store, so that steps of several processes can follow each other.
//!
//! Nothing is typed unless the pane is seen to be free, nothing is ever interrupted, and no message is typed twice. A
//! failure here does not fail the command that stored the message; it becomes the message's delivery state.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use caliban_store::Stamp;
use caliban_store::broker::{
    Agent, Broker, BrokerError, Delivery, DeliveryState, Exec, ExecEnd, ExecState, Task, TaskId,
};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::backend::TextWay;
use super::evidence::{self, Proof};
use super::inspect::{PaneLook, PaneState, PaneTarget};
use super::tmux::Pasted;
use super::{classify, compose};
use crate::settings::Settings;

/// Maximum time that a command waits for another process that types into the same pane.
const LOCK_LIMIT: Duration = Duration::from_millis(500);
/// The interval at which it tries to take that lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of panes that are looked at and typed into at the same time.
const PANES_AT_ONCE: usize = 8;
/// Maximum time that a command stays to see its messages received; the rest is left to the deliverer.
const STAY: Duration = Duration::from_millis(1500);
/// The interval at which it looks meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(40);
/// How long a typed text may stay in the input line before Enter is pressed again.
const ENTER_AGAIN: Duration = Duration::from_millis(400);
/// How long a typed text is looked for before the next one may be typed.
const SETTLE: Duration = Duration::from_secs(3);
/// For programs that need Enter separately: the time until a paste is visible, ...
const PASTE_SHOWS: Duration = Duration::from_millis(200);
/// ... and the number of its first characters that are then looked for.
const BEGIN_CHARS: usize = 12;
/// Number of attempts to paste while tmux refuses because the screen has changed.
const PASTE_ATTEMPTS: usize = 3;
/// A typed command that has not begun after this time is overdue.
const EXEC_BEGINS_WITHIN: Duration = Duration::from_secs(20);

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryStep {
    /// There is nothing to do for this agent.
    Nothing,
    /// Something was typed.
    Typed,
    /// Something was typed before, and is not confirmed yet or still runs.
    Waiting(String),
    /// The pane cannot take anything now.
    Held(String),
}

/// What one process remembers between its steps.
#[derive(Debug, Default)]
pub(crate) struct DeliveryMemory {
    typed: HashMap<TaskId, Instant>,
    /// When Enter was last pressed, by the marker of the text in the input line.
    entered: HashMap<String, Instant>,
}

impl DeliveryMemory {
    /// Whether to press Enter again for the text with this marker, which is still in the input line.
    fn enter_again(&mut self, marker: &str) -> bool {
        let last = self.entered.entry(marker.to_owned()).or_insert_with(Instant::now);
        let is_due = last.elapsed() >= ENTER_AGAIN;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }
}

/// Does the next thing for an agent's pane.
pub(crate) async fn step(
    broker: &mut Broker,
    settings: &Settings,
    agent: &Agent,
    memory: &mut DeliveryMemory,
) -> Result<DeliveryStep, BrokerError> {
    step_at(&Mutex::new(Desk { broker, memory }), settings, agent).await
}

/// Does the next thing for each of these agents' panes: several panes at once, since most of the time goes by waiting for tmux. What is
/// claimed is typed next, and recorded, also when the store fails for another agent.
pub(crate) async fn steps(
    broker: &mut Broker,
    settings: &Settings,
    agents: &[Agent],
    memory: &mut DeliveryMemory,
) -> Result<Vec<DeliveryStep>, BrokerError> {
    let desk = Mutex::new(Desk { broker, memory });
    let steps =
        stream::iter(agents).map(|agent| step_at(&desk, settings, agent)).buffer_unordered(PANES_AT_ONCE);
    steps.collect::<Vec<_>>().await.into_iter().collect()
}

/// The store, and what this process remembers: one pane uses them at a time.
struct Desk<'a> {
    broker: &'a mut Broker,
    memory: &'a mut DeliveryMemory,
}

/// What a pane is given to type.
enum Typing {
    Message(Task),
    Exec(Exec),
}

/// What comes after a look at a pane.
enum AfterLook {
    Done(DeliveryStep),
    /// It is claimed.
    Type(Box<PaneLook>, Typing),
}

async fn step_at(
    desk: &Mutex<Desk<'_>>,
    settings: &Settings,
    agent: &Agent,
) -> Result<DeliveryStep, BrokerError> {
    let Some(target) = agent.placement.as_ref().and_then(PaneTarget::of) else {
        return Ok(DeliveryStep::Nothing);
    };
    if target.backend.text == TextWay::Mailbox {
        return Ok(DeliveryStep::Nothing);
    }
    let due = Due::of(desk.lock().await.broker, agent).await?;
    if due.is_empty() {
        return Ok(DeliveryStep::Nothing);
    }
    if !target.is_here {
        return hold(desk.lock().await.broker, &due.waiting, "its pane is on another machine").await;
    }
    let Some(_lock) = lock_pane(desk, &target).await else {
        return Ok(DeliveryStep::Waiting("another cafleet is typing into the pane".to_owned()));
    };
    let seen = target.look(settings).await;
    let (seen, typing) = match desk.lock().await.after_look(settings, agent, &target, seen, &due).await? {
        AfterLook::Done(step) => return Ok(step),
        AfterLook::Type(seen, typing) => (seen, typing),
    };
    let (text, name) = match &typing {
        Typing::Message(task) => (compose::preview(task, settings.max_text_len), task.id.short()),
        Typing::Exec(exec) => {
            let own = std::env::current_exe().ok();
            (compose::exec_line(own.as_deref().and_then(Path::to_str), exec.id), exec.id.short())
        }
    };
    let written = type_text(&target, settings, *seen, &text, &format!("cafleet-{name}")).await;
    desk.lock().await.after_typing(typing, written, &due).await
}

/// Takes the lock of a pane; the desk is free for others meanwhile.
async fn lock_pane(desk: &Mutex<Desk<'_>>, target: &PaneTarget<'_>) -> Option<impl Sized> {
    let give_up = Instant::now() + LOCK_LIMIT;
    loop {
        let lock = desk.lock().await.broker.lock_pane(&target.lock_name(), Duration::ZERO).await;
        if lock.is_some() || Instant::now() >= give_up {
            return lock;
        }
        tokio::time::sleep(LOCK_INTERVAL).await;
    }
}

/// What the store has for an agent's pane.
struct Due {
    waiting: Vec<Task>,
    typed: Vec<Task>,
    execs: Vec<Exec>,
}

impl Due {
    async fn of(broker: &mut Broker, agent: &Agent) -> Result<Self, BrokerError> {
        let waiting = broker.undelivered(agent.id).await?;
        let typed = broker.unconfirmed(agent.id).await?;
        let mut execs = broker.open_execs(agent.session).await?;
        execs.retain(|exec| exec.member == agent.id);
        Ok(Self { waiting, typed, execs })
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.typed.is_empty() && self.execs.is_empty()
    }
}

impl Desk<'_> {
    /// Records what a look shows, and claims what is typed next.
    async fn after_look(
        &mut self,
        settings: &Settings,
        agent: &Agent,
        target: &PaneTarget<'_>,
        seen: PaneLook,
        due: &Due,
    ) -> Result<AfterLook, BrokerError> {
        let Self { broker, memory } = self;
        let Due { waiting, typed, execs } = due;
        match seen.state {
            PaneState::Gone => {
                put_off(broker, waiting, DeliveryState::Failed, &seen.why).await?;
                broker.give_up_typed(agent.id).await?;
                for exec in execs {
                    broker.end_exec(exec.id, &ExecEnd::Lost(seen.why.clone()), Stamp::now()).await?;
                }
                return Ok(AfterLook::Done(DeliveryStep::Held(seen.why)));
            }
            PaneState::Unreachable => return hold(broker, waiting, &seen.why).await.map(AfterLook::Done),
            _ => {}
        }
        if let Some(why) = settle(broker, settings, target, &seen, typed, memory).await? {
            hold(broker, waiting, "an earlier message is not taken yet").await?;
            return Ok(AfterLook::Done(DeliveryStep::Waiting(why)));
        }
        if let Some(exec) = execs.first() {
            return step_exec(broker, target, seen, exec, waiting, memory).await;
        }
        let Some(task) = waiting.first() else { return Ok(AfterLook::Done(DeliveryStep::Nothing)) };
        if seen.state != PaneState::Free {
            return hold(broker, waiting, &seen.why).await.map(AfterLook::Done);
        }
        if !broker.claim_delivery(task.id).await? {
            // It was acknowledged or cancelled meanwhile.
            return Ok(AfterLook::Done(DeliveryStep::Waiting("it is not wanted any more".to_owned())));
        }
        Ok(AfterLook::Type(Box::new(seen), Typing::Message(task.clone())))
    }

    /// Records what came of typing.
    async fn after_typing(
        &mut self,
        typing: Typing,
        written: WriteResult,
        due: &Due,
    ) -> Result<DeliveryStep, BrokerError> {
        let Self { broker, memory } = self;
        match (typing, written) {
            (Typing::Message(task), WriteResult::Sent) => {
                memory.typed.insert(task.id, Instant::now());
                memory.entered.insert(compose::marker(&task), Instant::now());
                record(broker, task.id, DeliveryState::Typed, None).await?;
                Ok(DeliveryStep::Typed)
            }
            (Typing::Message(task), WriteResult::NotNow(why)) => {
                record(broker, task.id, DeliveryState::Held, Some(&why)).await?;
                hold(broker, &due.waiting[1..], "an earlier message is held").await?;
                Ok(DeliveryStep::Held(why))
            }
            // The claim stands: the message counts as interrupted, and later steps look for its outcome.
            (Typing::Message(_), WriteResult::Failed(why)) => Ok(DeliveryStep::Held(why)),
            (Typing::Exec(_), WriteResult::Sent) => Ok(DeliveryStep::Typed),
            (Typing::Exec(exec), WriteResult::NotNow(why)) => {
                broker.unclaim_exec(exec.id, &why, Stamp::now()).await?;
                Ok(DeliveryStep::Held(why))
            }
            (Typing::Exec(exec), WriteResult::Failed(why)) => {
                broker.end_exec(exec.id, &ExecEnd::Lost(why.clone()), Stamp::now()).await?;
                Ok(DeliveryStep::Held(why))
            }
        }
    }
}

/// Takes steps until nothing is left, nothing moves, or time is up; returns how many things were typed. Where a deliverer runs, it sees to
/// what was typed: a Director with thirty members does not wait for each of them.
pub(crate) async fn deliver(
    broker: &mut Broker,
    settings: &Settings,
    agent: &Agent,
) -> Result<usize, BrokerError> {
    let is_served = broker.lock_deliverer(agent.session).await.is_none();
    let mut memory = DeliveryMemory::default();
    let mut typed = 0;
    let mut enough = Instant::now() + STAY;
    loop {
        match step(broker, settings, agent, &mut memory).await? {
            DeliveryStep::Nothing | DeliveryStep::Held(_) => return Ok(typed),
            DeliveryStep::Typed if is_served => return Ok(typed + 1),
            DeliveryStep::Typed => {
                typed += 1;
                enough = Instant::now() + STAY;
            }
            DeliveryStep::Waiting(_) if Instant::now() >= enough => return Ok(typed),
            DeliveryStep::Waiting(_) => {}
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Determines the outcome of what was typed. Returns a reason if something is still under way.
async fn settle(
    broker: &mut Broker,
    settings: &Settings,
    target: &PaneTarget<'_>,
    seen: &PaneLook,
    typed: &[Task],
    memory: &mut DeliveryMemory,
) -> Result<Option<String>, BrokerError> {
    let Some(facts) = &seen.facts else { return Ok(None) };
    let mut under_way = None;
    for task in typed {
        let marker = compose::marker(task);
        let proof = evidence::find(target.backend, settings, &seen.agents, &marker);
        let is_taken = match proof {
            Proof::Taken => true,
            // The agent's own file takes precedence over its screen.
            Proof::NotThere => false,
            Proof::None => classify::was_taken(target.backend, &facts.screen, &marker),
        };
        if is_taken {
            record(broker, task.id, DeliveryState::Confirmed, None).await?;
            continue;
        }
        let since = *memory.typed.entry(task.id).or_insert_with(Instant::now);
        if seen.state == PaneState::Draft && classify::is_in_composer(target.backend, &facts.screen, &marker)
        {
            // The input line has exactly our text: Enter was lost.
            if memory.enter_again(&marker) {
                // Best effort: a refusal means that the screen has changed, and the next step looks again.
                let _ = target.tmux.press(target.pane, "Enter", &target.condition(facts)).await;
                if task.delivery.state == DeliveryState::Failed {
                    record(broker, task.id, DeliveryState::Typed, None).await?;
                }
            }
            under_way = Some("Enter was not taken".to_owned());
        } else if task.delivery.state == DeliveryState::Typed && since.elapsed() < SETTLE {
            under_way = Some("it was typed and is not seen to be taken".to_owned());
        }
    }
    Ok(under_way)
}

/// The next step of a command: claim it for typing, or wait for its end. Messages wait meanwhile.
async fn step_exec(
    broker: &mut Broker,
    target: &PaneTarget<'_>,
    seen: PaneLook,
    exec: &Exec,
    waiting: &[Task],
    memory: &mut DeliveryMemory,
) -> Result<AfterLook, BrokerError> {
    let why = format!("a command runs in it (exec {})", exec.id.short());
    hold(broker, waiting, &why).await?;
    match exec.state {
        ExecState::Running => return Ok(AfterLook::Done(DeliveryStep::Waiting(why))),
        ExecState::Typed => {
            let marker = exec.id.short();
            if let (PaneState::Draft, Some(facts)) = (seen.state, &seen.facts)
                && classify::is_in_composer(target.backend, &facts.screen, &marker)
                && memory.enter_again(&marker)
            {
                // Best effort, as for a message.
                let _ = target.tmux.press(target.pane, "Enter", &target.condition(facts)).await;
            }
            return Ok(AfterLook::Done(DeliveryStep::Waiting(why)));
        }
        ExecState::Done | ExecState::Lost => return Ok(AfterLook::Done(DeliveryStep::Nothing)),
        ExecState::Queued => {}
    }
    if seen.state != PaneState::Free {
        return Ok(AfterLook::Done(DeliveryStep::Held(seen.why)));
    }
    if !broker.claim_exec(exec.id, Stamp::now()).await? {
        return Ok(AfterLook::Done(DeliveryStep::Waiting(why)));
    }
    Ok(AfterLook::Type(Box::new(seen), Typing::Exec(exec.clone())))
}

/// Whether a typed command should have begun by now.
pub(crate) fn is_overdue(exec: &Exec, now: Stamp) -> bool {
    let waited = now.as_micros().saturating_sub(exec.changed_at.as_micros());
    u128::try_from(waited).is_ok_and(|waited| waited > EXEC_BEGINS_WITHIN.as_micros())
}

/// The result of typing a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// Typed and entered.
    Sent,
    /// Nothing was typed; to be tried later.
    NotNow(String),
    /// It is unknown whether it was typed.
    Failed(String),
}

/// Types a text and Enter into a pane that was seen to be free. The deciding look is repeated, because tmux refuses if
/// the screen has changed between look and paste.
pub(crate) async fn type_text(
    target: &PaneTarget<'_>,
    settings: &Settings,
    mut seen: PaneLook,
    text: &str,
    buffer: &str,
) -> WriteResult {
    if target.backend.text != TextWay::Paste {
        return WriteResult::NotNow(seen.why);
    }
    for _ in 0..PASTE_ATTEMPTS {
        let facts = match (seen.state, &seen.facts) {
            (PaneState::Free, Some(facts)) => facts,
            _ => return WriteResult::NotNow(seen.why),
        };
        let keys = target.backend.enters_at_once.then_some("Enter");
        match target.tmux.paste(target.pane, buffer, text, keys, &target.condition(facts)).await {
            Ok(Pasted::Sent) if keys.is_none() => {
                enter_apart(target, settings, text).await;
                return WriteResult::Sent;
            }
            Ok(Pasted::Sent) => return WriteResult::Sent,
            Ok(Pasted::Refused) => {}
            Err(error) => return WriteResult::Failed(error.words()),
        }
        seen = target.look(settings).await;
    }
    WriteResult::NotNow("the pane changed just before typing".to_owned())
}

/// Presses Enter for a text that was just pasted, once it is visible in the input line. Best effort: the step that
/// confirms the text presses Enter again.
async fn enter_apart(target: &PaneTarget<'_>, settings: &Settings, text: &str) {
    tokio::time::sleep(PASTE_SHOWS).await;
    let seen = target.look(settings).await;
    let begin: String = text.chars().take(BEGIN_CHARS).collect();
    if let (PaneState::Draft, Some(facts)) = (seen.state, &seen.facts)
        && classify::is_in_composer(target.backend, &facts.screen, &begin)
    {
        let _ = target.tmux.press(target.pane, "Enter", &target.condition(facts)).await;
    }
}

async fn record(
    broker: &mut Broker,
    task: TaskId,
    state: DeliveryState,
    why: Option<&str>,
) -> Result<(), BrokerError> {
    broker.record_delivery(task, &Delivery { state, note: why.map(str::to_owned) }).await
}

async fn hold(broker: &mut Broker, tasks: &[Task], why: &str) -> Result<DeliveryStep, BrokerError> {
    put_off(broker, tasks, DeliveryState::Held, why).await?;
    Ok(DeliveryStep::Held(why.to_owned()))
}

/// Writes only changes: panes are looked at often.
async fn put_off(
    broker: &mut Broker,
    tasks: &[Task],
    state: DeliveryState,
    why: &str,
) -> Result<(), BrokerError> {
    let ids: Vec<TaskId> = tasks
        .iter()
        .filter(|task| task.delivery.state != state || task.delivery.note.as_deref() != Some(why))
        .map(|task| task.id)
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    broker.put_off(&ids, &Delivery { state, note: Some(why.to_owned()) }).await
}
