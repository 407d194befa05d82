//! The agent view: `caliban agents` on a terminal, `ui.start = "agents"`, and Alt+A in a session. An agent is opened from
//! it, and leaving that one comes back to it.

mod dispatch;
mod follow;
mod orders;

use std::{cell::RefCell, collections::BTreeMap, io::Write as _, path::PathBuf};

use caliban_fleet::protocol::AgentRow;
use caliban_tui::{
    FleetLeft,
    fleet::{AgentKey, FleetEffect, FleetEvent, FleetScope, FleetState},
};
use futures_util::{StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use tokio::sync::{Notify, mpsc};

use super::{Fleet, attach, say};
use crate::{
    report::{self, Code, Failure, Result},
    screen,
};

/// What the view knows of the fleets.
struct FleetBoard {
    /// By the paths of their repos; in the order in which the agents were spawned.
    rows: RefCell<BTreeMap<PathBuf, Vec<AgentRow>>>,
    scope: RefCell<FleetScope>,
    /// Rows have changed.
    changed: Notify,
    /// Other repos are to be shown, or not.
    rescoped: Notify,
}

impl FleetBoard {
    fn row(&self, key: &AgentKey) -> Result<AgentRow> {
        let rows = self.rows.borrow();
        let of_repo = rows.get(&key.repo).map(Vec::as_slice).unwrap_or_default();
        let row = of_repo.iter().find(|row| row.id.to_string() == key.id).cloned();
        row.ok_or_else(|| Failure::new(format!("agent {} is not there any more", key.id)))
    }
}

/// An order that is being carried out; what the screen is told of it.
type RunningOrder<'a> = LocalBoxFuture<'a, Vec<FleetEvent>>;

/// Shows the agents until the person leaves.
pub(super) async fn view(fleet: &Fleet<'_>) -> Result<Code> {
    if !screen::is_possible(fleet.environment) {
        return Err(Failure::usage("the agent view needs a terminal").hint("caliban agents list"));
    }
    let (talk, mut talked) = mpsc::unbounded_channel();
    let diverted = report::divert(talk);
    let place = screen::place(fleet.places().repo(), fleet.environment);
    let mut state = FleetState::new(
        (80, 24),
        screen::theme(fleet.environment, &screen::ui(fleet.environment, &fleet.cwd)),
        place,
    );
    let board = FleetBoard {
        rows: RefCell::default(),
        scope: RefCell::new(FleetScope::Repo),
        changed: Notify::new(),
        rescoped: Notify::new(),
    };
    let mut under_way: FuturesUnordered<RunningOrder<'_>> = FuturesUnordered::new();
    let code = loop {
        let left = show(fleet, &board, &mut state, &mut under_way, &mut talked).await?;
        let opened: LocalBoxFuture<'_, Result<Code>> = match left {
            FleetLeft::Person => break Code::Done,
            FleetLeft::Signal => break Code::Interrupted,
            FleetLeft::Panic => break Code::Failed,
            FleetLeft::Attach(key) => Box::pin(open(fleet, key)),
            FleetLeft::Merge(key, message) => Box::pin(orders::land(fleet, &board, key, message)),
        };
        // What one agent refuses is no reason to leave the others.
        match beside(opened, &mut under_way, &mut state).await {
            // A signal, or a crash of the screen, is for all of it.
            Ok(code @ (Code::Interrupted | Code::Failed)) => break code,
            Ok(_) => {}
            Err(failure) => state.tell(&orders::worded(&failure)),
        }
        let told: Vec<String> = std::iter::from_fn(|| talked.try_recv().ok()).collect();
        if !told.is_empty() {
            state.tell(&told.join("; "));
        }
    };
    drop(diverted);
    for text in state.unsent() {
        report::note(&format!("this was not sent: {text}"));
    }
    if !under_way.is_empty() {
        say("finishing what was ordered; Ctrl+C leaves it");
        while under_way.next().await.is_some() {}
    }
    Ok(code)
}

/// Opens the conversation of an agent.
async fn open(fleet: &Fleet<'_>, key: AgentKey) -> Result<Code> {
    let fleet = orders::fleet_of(fleet, &key)?;
    let mut out = Vec::new();
    // It may have to be woken first.
    writeln!(std::io::stdout(), "opening agent {}; Ctrl+C goes back", key.id)?;
    tokio::select! {
        code = attach::attach(&fleet, &key.id, true, &mut out) => code,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(format!("agent {} was not opened", key.id))),
    }
}

/// Waits for what has the terminal, while orders go on.
async fn beside(
    mut opened: LocalBoxFuture<'_, Result<Code>>,
    under_way: &mut FuturesUnordered<RunningOrder<'_>>,
    state: &mut FleetState,
) -> Result<Code> {
    loop {
        tokio::select! {
            code = &mut opened => return code,
            Some(events) = under_way.next(), if !under_way.is_empty() => {
                for event in events {
                    state.update(event, std::time::Instant::now());
                }
            }
        }
    }
}

/// Shows the agents until the terminal is needed for something else.
async fn show<'a>(
    fleet: &'a Fleet<'_>,
    board: &'a FleetBoard,
    state: &mut FleetState,
    under_way: &mut FuturesUnordered<RunningOrder<'a>>,
    talked: &mut mpsc::UnboundedReceiver<String>,
) -> Result<FleetLeft> {
    let (news, mut told) = mpsc::unbounded_channel();
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let ui = screen::ui(fleet.environment, &fleet.cwd);
    let tells_ground = screen::tells_ground(fleet.environment, &ui);
    let notice = screen::notice(fleet.environment, ui.notify);
    let screen = caliban_tui::run_fleet(state, &mut told, &orders, tells_ground, notice);
    tokio::pin!(screen);
    let follow = follow::follow(fleet, board, &news);
    tokio::pin!(follow);
    // The screen lives as long as this does.
    let tell = |event| drop(news.send(event));
    loop {
        tokio::select! {
            left = &mut screen => {
                return left.map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")));
            }
            lost = &mut follow => return Err(lost),
            Some(order) = ordered.recv() => match order {
                FleetEffect::Show(scope) => {
                    *board.scope.borrow_mut() = scope;
                    board.rescoped.notify_one();
                }
                order => under_way.extend(orders::split(order).into_iter().map(|order| {
                    let order: RunningOrder<'a> = Box::pin(orders::carry_out(fleet, board, order));
                    order
                })),
            },
            Some(events) = under_way.next(), if !under_way.is_empty() => {
                let talk: Vec<String> = std::iter::from_fn(|| talked.try_recv().ok()).collect();
                for event in events {
                    tell(orders::with_talk(event, &talk));
                }
            }
            // What is said while an order goes on is told with its outcome.
            Some(text) = talked.recv(), if under_way.is_empty() => tell(FleetEvent::Told(text)),
        }
    }
}
