//! `caliban agents` on a terminal: the agent view. One agent is opened from it, and leaving that one comes back to it.

use std::time::Duration;

use caliban_control::{
    Client,
    protocol::{AgentRow, FleetEvent as News, KillRequest},
};
use caliban_core::lifecycle::State;
use caliban_tui::fleet::{FleetEffect, FleetEvent, FleetRow, FleetState, Group};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    Fleet, attach, resume,
    row::{self, cost, doing, has_ended, needs_you},
    watch::{self, Daemons, Left},
    worded,
};
use crate::{
    cli::fleet::{AttachArgs, IdArg, ResumeArgs},
    report::{Code, Failure},
    screen,
};

/// How often the list is sent to the screen at most; ages and waits move on meanwhile.
const EVERY: Duration = Duration::from_millis(250);

/// Shows the agents until the person leaves.
pub(super) async fn view(fleet: &Fleet<'_>) -> Result<Code, Failure> {
    if !screen::is_possible(fleet.environment) {
        return Err(Failure::usage("the agent view needs a terminal").hint("caliban agents list"));
    }
    let place = screen::place(&fleet.cwd, fleet.environment);
    let mut state = FleetState::new((80, 24), screen::theme(fleet.environment), place);
    loop {
        let (id, resumes) = match show(fleet, &mut state).await? {
            None => return Ok(Code::Done),
            Some(FleetEffect::Attach(id)) => (id, false),
            Some(FleetEffect::Resume(id)) => (id, true),
            Some(FleetEffect::Stop(_) | FleetEffect::Repaint | FleetEffect::Quit) => continue,
        };
        let agent = IdArg { id };
        let mut out = anstream::stdout().lock();
        let opened = async {
            if resumes {
                resume::resume(
                    fleet,
                    &ResumeArgs { agent: agent.clone(), ..ResumeArgs::default() },
                    &mut out,
                )
                .await?;
            }
            attach::attach(fleet, &AttachArgs { agent, plain: false }, &mut out).await
        };
        // What one agent refuses is no reason to leave the others.
        match opened.await {
            // A signal, or a crash of the screen, is for all of it.
            Ok(code @ (Code::Interrupted | Code::Failed)) => return Ok(code),
            Ok(_) => {}
            Err(failure) => state.tell(&failure.message),
        }
    }
}

/// Shows the agents until one is to be opened; none when the person leaves.
async fn show(fleet: &Fleet<'_>, state: &mut FleetState) -> Result<Option<FleetEffect>, Failure> {
    let (news, mut told) = mpsc::unbounded_channel();
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let screen = caliban_tui::run_fleet(state, &mut told, &orders);
    tokio::pin!(screen);
    let follow = follow(fleet, &news);
    tokio::pin!(follow);
    // Ending an agent takes as long as its grace; the keys work on meanwhile.
    let mut stops = FuturesUnordered::new();
    loop {
        tokio::select! {
            left = &mut screen => {
                return left.map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")));
            }
            lost = &mut follow => return Err(lost),
            Some(order) = ordered.recv() => {
                if let FleetEffect::Stop(id) = order {
                    stops.push(stop(fleet, id));
                }
            }
            Some(text) = stops.next(), if !stops.is_empty() => {
                // The screen lives as long as this does.
                let _gone = news.send(FleetEvent::Told(text));
            }
        }
    }
}

/// Ends an agent; what came of it.
async fn stop(fleet: &Fleet<'_>, id: String) -> String {
    let ended = async {
        let mut client = fleet.client().await?;
        client.kill(&id, &KillRequest { grace_ms: None }).await.map_err(worded)
    };
    match ended.await {
        Ok(row) => format!("{}: {}", row::name(&row), row.state),
        Err(failure) => failure.message,
    }
}

/// Tells the screen how the agents stand, from whichever daemon; returns why that is over.
async fn follow(fleet: &Fleet<'_>, news: &mpsc::UnboundedSender<FleetEvent>) -> Failure {
    let mut daemons = Daemons::new(fleet);
    let mut client = match fleet.client().await {
        Ok(client) => client,
        Err(failure) => return failure,
    };
    loop {
        let left = listen(&client, &mut daemons, news).await;
        client = match daemons.next(left).await {
            Ok(Some(client)) => client,
            Ok(None) => return Failure::new("the daemon was stopped; agents go on"),
            Err(failure) => return failure,
        };
    }
}

async fn listen(
    client: &Client,
    daemons: &mut Daemons<'_>,
    news: &mpsc::UnboundedSender<FleetEvent>,
) -> Left {
    let mut events = match watch::events(client).await {
        Ok(events) => events,
        Err(left) => return left,
    };
    let mut rows: Vec<AgentRow> = Vec::new();
    let (mut is_ready, mut has_changed) = (false, false);
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Ok(Some(News::Agent(row))) => {
                    has_changed = true;
                    match rows.iter_mut().find(|known| known.id == row.id) {
                        Some(known) => *known = *row,
                        None => rows.push(*row),
                    }
                }
                Ok(Some(News::Removed { id })) => {
                    has_changed = true;
                    rows.retain(|row| row.id != id);
                }
                Ok(Some(News::Ready {})) => {
                    is_ready = true;
                    has_changed = true;
                    daemons.is_well();
                }
                // All agents follow anew.
                Ok(Some(News::Gap { .. })) => {
                    is_ready = false;
                    rows.clear();
                }
                Ok(Some(News::Bye {})) => return Left::Stopped,
                Ok(None) | Err(_) => return Left::Gone,
            },
            _ = tick.tick(), if is_ready && has_changed => {
                has_changed = false;
                let now = caliban_contract::wall_ms();
                // The screen is gone when nobody listens.
                let _gone = news.send(FleetEvent::Rows(rows.iter().map(|row| shown(row, now)).collect()));
            }
        }
    }
}

/// A row of the screen.
fn shown(row: &AgentRow, now_ms: u64) -> FleetRow {
    let group = match row.state {
        state if has_ended(state) => Group::Finished,
        _ if needs_you(row) => Group::NeedsYou,
        State::Spawning => Group::Queued,
        _ => Group::Working,
    };
    let doing = match group {
        Group::Finished => row.last_text.clone().unwrap_or_else(|| doing(row, now_ms)),
        _ => doing(row, now_ms),
    };
    let spent = match row.micro_usd {
        Some(_) => format!("{} {}", row::turns(row.turns), cost(row)),
        None => row::turns(row.turns),
    };
    FleetRow {
        id: row.id.to_string(),
        label: row.label.clone(),
        group,
        state: row.state.to_string(),
        doing,
        spent,
    }
}
