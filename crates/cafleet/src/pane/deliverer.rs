//! The deliverer: one small process per session, which types what is due when panes become free, and reports what waits
//! for too long.
//!
//! Every command that leaves something to be typed starts it. A lock ensures that there is only one. It exits with its
//! session, with the Director's pane, or with its database. Before it takes the lock it asks tmux: a deliverer that was
//! started where tmux cannot be reached exits at once.
//!
//! Refuses: pressing a key to make room. What is overdue becomes a notice to the Director and to the user.

use std::process::{Command, Stdio};
use std::time::Duration;

use caliban_store::broker::{
    Agent, Broker, BrokerError, ExecEnd, ExecState, IdPrefix, Notice, Session, SessionId, Speaker,
};
use caliban_store::{Stamp, StoreUrl};
use tokio::time::Instant;

use super::deliver::{DeliveryMemory, DeliveryStep, is_overdue, steps};
use super::inspect::{PaneState, PaneTarget, look_at};
use super::own_pane;
use super::process;
use crate::failure::{Failure, shown};
use crate::settings::Settings;

/// The interval between looks at panes while something is due and something moves, ...
const LIVELY: Duration = Duration::from_millis(60);
/// ... while something is due, ...
const OWED: Duration = Duration::from_millis(300);
/// ... and while nothing is due.
const IDLE: Duration = Duration::from_secs(2);
/// It exits when tmux or the store has not answered for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of the housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Starts a deliverer for the session if there is none, and wakes it. Best effort: what is due stays due, and the next
/// command tries again.
pub(crate) async fn ensure(broker: &Broker, settings: &Settings, session: SessionId) {
    broker.wake_deliverer(session).await;
    // A process that a fleet agent starts ends with the agent's command.
    let outlives = matches!(broker.speaker(), Speaker::Anybody | Speaker::Member(_));
    if !settings.starts_deliverer || !outlives {
        return;
    }
    let Some(lock) = broker.lock_deliverer(session).await else { return };
    drop(lock);
    let (Ok(program), Ok(database)) = (std::env::current_exe(), settings.database_for_others()) else {
        return;
    };
    let mut command = Command::new(program);
    command.args(["--session-id", &session.to_string(), "deliver-run"]);
    command.env("CAFLEET_DATABASE_URL", database).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It is reparented soon, because this command ends.
    let _ = command.spawn();
}

/// Why a deliverer exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelivererEnd {
    Another,
    NoTmux,
    DirectorGone,
    SessionGone,
    DatabaseGone,
    NothingToDo,
}

/// Delivers until the deliverer is no longer needed.
pub(crate) async fn serve(
    broker: &mut Broker,
    settings: &Settings,
    session: SessionId,
) -> Result<DelivererEnd, Failure> {
    // A session of our own, so that neither the end of the terminal nor of the starter ends us. Fails for the leader of
    // a process group, which has one already.
    let _ = rustix::process::setsid();
    if let Some(left) = may_serve(broker, settings, session).await? {
        return Ok(left);
    }
    let Some(_lock) = broker.lock_deliverer(session).await else { return Ok(DelivererEnd::Another) };
    let own = process::own().unwrap_or_default();
    broker.record_deliverer(session, &own, Stamp::now()).await?;
    let mut bell = broker.deliverer_bell(session).await;
    let mut rounds = Rounds::default();
    // When tmux or the store stopped answering. No other process would deliver the held messages, so a short outage is
    // waited out.
    let mut silent: Option<Instant> = None;
    loop {
        let StoreUrl::Sqlite(file) = settings.database()?;
        if !file.path().exists() {
            return Ok(DelivererEnd::DatabaseGone);
        }
        let round = match may_serve(broker, settings, session).await {
            Ok(Some(DelivererEnd::NoTmux)) => Err(Ok(DelivererEnd::NoTmux)),
            Ok(Some(left)) => return Ok(left),
            Ok(None) => rounds.round(broker, settings, session).await.map_err(|error| Err(error.into())),
            Err(failure) => Err(Err(failure)),
        };
        let pace = match round {
            Ok(pace) => {
                silent = None;
                pace
            }
            Err(end) if silent.get_or_insert_with(Instant::now).elapsed() >= PATIENCE => return end,
            Err(_) => OWED,
        };
        match &mut bell {
            Some(ear) => {
                // A failed bell is not used again.
                if let Ok(Err(_)) = tokio::time::timeout(pace, ear.rung()).await {
                    bell = None;
                }
            }
            None => tokio::time::sleep(pace).await,
        }
    }
}

/// Why the deliverer is not needed; `None` if it is.
async fn may_serve(
    broker: &mut Broker,
    settings: &Settings,
    session: SessionId,
) -> Result<Option<DelivererEnd>, Failure> {
    let found = match broker.session(&IdPrefix::from(session)).await {
        Ok(found) => found,
        Err(BrokerError::SessionNotFound(_)) => return Ok(Some(DelivererEnd::SessionGone)),
        Err(other) => return Err(other.into()),
    };
    if found.deleted_at.is_some() {
        return Ok(Some(DelivererEnd::SessionGone));
    }
    let agents = broker.agents(session).await?;
    let mut placed = agents.iter().filter(|agent| agent.placement.is_some());
    if let Some(director) = root(&found, &agents).filter(|director| director.placement.is_some()) {
        return Ok(match look_at(director, settings).await.state {
            PaneState::Gone => Some(DelivererEnd::DirectorGone),
            PaneState::Unreachable => Some(DelivererEnd::NoTmux),
            _ => None,
        });
    }
    // The Director has no pane: the members' panes keep the deliverer running.
    match placed.next() {
        None => Ok(Some(DelivererEnd::NothingToDo)),
        Some(member) => {
            let is_unreachable = look_at(member, settings).await.state == PaneState::Unreachable;
            Ok(is_unreachable.then_some(DelivererEnd::NoTmux))
        }
    }
}

fn root<'a>(session: &Session, agents: &'a [Agent]) -> Option<&'a Agent> {
    agents.iter().find(|agent| Some(agent.id) == session.director)
}

/// The rounds of a deliverer, or of a monitor in its place.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    memory: DeliveryMemory,
    housekept: Option<Instant>,
}

impl Rounds {
    /// Takes a step for every pane of a session; returns the time until the next round.
    pub(crate) async fn round(
        &mut self,
        broker: &mut Broker,
        settings: &Settings,
        session: SessionId,
    ) -> Result<Duration, BrokerError> {
        if self.housekept.is_none_or(|last| last.elapsed() >= HOUSEKEEPING) {
            self.housekept = Some(Instant::now());
            undo_unfinished(broker, session).await?;
            close_lost_execs(broker, session).await?;
            report(broker, settings, session).await?;
        }
        let mut agents = broker.agents(session).await?;
        agents.retain(|agent| agent.placement.is_some());
        let steps = steps(broker, settings, &agents, &mut self.memory).await?;
        let moves = steps.iter().any(|step| matches!(step, DeliveryStep::Typed | DeliveryStep::Waiting(_)));
        let is_owed = moves || broker.owed(session).await? > 0;
        Ok(match (is_owed, moves) {
            (true, true) => LIVELY,
            (true, false) => OWED,
            (false, _) => IDLE,
        })
    }
}

/// Undoes members that are incomplete because the command that made them was killed.
pub(crate) async fn undo_unfinished(broker: &mut Broker, session: SessionId) -> Result<(), BrokerError> {
    let here = own_pane::host().ok();
    for agent in broker.agents(session).await? {
        let Some(placement) = agent.placement.as_ref().filter(|placement| placement.tmux_pane.is_none())
        else {
            continue;
        };
        let is_ours = here.as_ref() == Some(&placement.host);
        let maker = broker.launch(agent.id).await?.map(|(_, maker)| maker);
        if is_ours && maker.is_some_and(|maker| process::living(&maker).is_none()) {
            broker.undo_member(agent.id, Stamp::now()).await?;
        }
    }
    Ok(())
}

/// Marks commands as lost that never began or whose runner is gone, and reports them.
async fn close_lost_execs(broker: &mut Broker, session: SessionId) -> Result<(), BrokerError> {
    let now = Stamp::now();
    for exec in broker.open_execs(session).await? {
        let runner_gone = exec.runner.as_deref().is_some_and(|runner| process::living(runner).is_none());
        let why = match exec.state {
            ExecState::Running if runner_gone => "its process is gone",
            ExecState::Typed if is_overdue(&exec, now) => "it was typed and never began",
            _ => continue,
        };
        if broker.end_exec(exec.id, &ExecEnd::Lost(why.to_owned()), now).await? {
            let text = format!(
                "exec {} for member {} is lost: {why}. Look with 'cafleet member capture', then run it again if it must be.",
                exec.id.short(),
                exec.member.short()
            );
            let subject = format!("exec:{}", exec.id);
            let notice = Notice { session, subject, director: Some(exec.director), to_user: true, text };
            broker.notice(&notice, now).await?;
        }
    }
    Ok(())
}

/// Reports what waits for too long, to the Director and to the user.
async fn report(broker: &mut Broker, settings: &Settings, session: SessionId) -> Result<(), BrokerError> {
    let now = Stamp::now();
    let overdue = |since: Stamp| {
        let waited = now.as_micros().saturating_sub(since.as_micros()) / 1_000_000;
        u64::try_from(waited).ok().filter(|waited| *waited >= settings.notice_after)
    };
    for agent in broker.agents(session).await? {
        let Some(placement) = &agent.placement else { continue };
        let name = format!("{} ({})", shown(&agent.name), agent.id.short());
        let mut said = Vec::new();
        let seen = look_at(&agent, settings).await;
        if seen.state == PaneState::Gone && placement.director.is_some() {
            let pid = placement.identity.as_ref().map_or(0, |identity| identity.pane_pid);
            let dead = PaneTarget::of(placement).filter(|_| seen.facts.is_some());
            let last = match dead {
                Some(dead) => dead.tmux.last_words(dead.pane).await,
                None => Vec::new(),
            };
            let last = match last.is_empty() {
                true => String::new(),
                false => format!(" Its last lines: {}.", last.join(" ⏎ ")),
            };
            let text = format!(
                "member {name} is gone: {}.{last} 'cafleet member create --recover' brings it back with its mailbox; \
                 'cafleet member delete --force' removes it.",
                seen.why
            );
            said.push((format!("gone:{}:{pid}", agent.id), text));
        } else if let Some((task, waited)) = oldest(broker, &agent)
            .await?
            .and_then(|(task, since)| overdue(since).map(|waited| (task, waited)))
        {
            let text = format!(
                "a message for {name} is held for {waited} s: {}. It is in the queue and is typed when the pane is free.",
                if seen.why.is_empty() { "its pane is not free" } else { &seen.why }
            );
            said.push((format!("held:{task}"), text));
        }
        for task in broker.unconfirmed(agent.id).await? {
            if let Some(waited) = overdue(task.created_at).filter(|_| seen.state != PaneState::Gone) {
                let text = format!(
                    "message {} for {name} is {waited} s old, was typed, and is not seen to be taken. It is in the queue; look \
                     with 'cafleet member capture', and send it again if it must be.",
                    task.id.short()
                );
                said.push((format!("typed:{}", task.id), text));
            }
        }
        if placement.director.is_some()
            && let Some(waited) = overdue(placement.created_at)
            && seen.state != PaneState::Gone
        {
            let activity = broker.activity(agent.id).await?;
            if activity.sent.is_none() && activity.acked.is_none() {
                let text = format!(
                    "member {name} has said nothing for {waited} s since its start; its pane is {}.",
                    seen.state.word()
                );
                said.push((format!("silent:{}", agent.id), text));
            }
        }
        for (subject, text) in said {
            // A Director whose pane takes no text does not see the notice, so the user is told in tmux, too.
            let notice =
                Notice { session, subject, director: placement.director, to_user: true, text: text.clone() };
            if broker.notice(&notice, now).await?
                && let Some(target) = PaneTarget::of(placement)
            {
                target.tmux.tell_user(target.pane, &format!("cafleet: {text}")).await;
            }
        }
    }
    Ok(())
}

/// The oldest message that is still to be typed for an agent.
async fn oldest(broker: &mut Broker, agent: &Agent) -> Result<Option<(String, Stamp)>, BrokerError> {
    let waiting = broker.undelivered(agent.id).await?;
    Ok(waiting.first().map(|task| (task.id.to_string(), task.created_at)))
}
