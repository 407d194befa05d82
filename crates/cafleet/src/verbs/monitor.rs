//! `monitor`: shows the members on one screen, and does the deliverer's work while it runs.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use caliban_store::Stamp;
use caliban_store::broker::SessionId;
use caliban_store::signals::PaneLock;
use serde_json::json;

use super::monitor_scan::{living, look_around, sessions, table};
use crate::answer::VerbAnswer;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::deliverer::Rounds;
use crate::pane::process;

/// The interval at which the screen is drawn.
const PACE: Duration = Duration::from_secs(1);

/// A session on the screen.
struct Watched {
    id: SessionId,
    rounds: Rounds,
    /// The deliverer's lock, if no deliverer has it.
    lock: Option<PaneLock>,
}

pub(crate) async fn run(context: &mut VerbContext, once: bool) -> Result<VerbAnswer, Failure> {
    let sessions = sessions(context).await?;
    let settings = context.settings.clone();
    let mut watched: Vec<Watched> = sessions
        .iter()
        .map(|session| Watched { id: session.id, rounds: Rounds::default(), lock: None })
        .collect();
    // Without a terminal the screen is printed once.
    let once = once || !std::io::stdout().is_terminal();
    loop {
        let broker = context.broker().await?;
        let now = Stamp::now();
        let mut blocks = Vec::new();
        let mut pace = PACE;
        for one in &mut watched {
            let Some(session) = living(broker, one.id).await? else { continue };
            if one.lock.is_none() {
                one.lock = broker.lock_deliverer(one.id).await;
                if one.lock.is_some() && !once {
                    broker.record_deliverer(one.id, &process::own().unwrap_or_default(), now).await?;
                }
            }
            let by = match &one.lock {
                Some(_) => {
                    pace = pace.min(one.rounds.round(broker, &settings, one.id).await?);
                    "this monitor delivers"
                }
                None => "its deliverer runs",
            };
            let label = session.label.as_deref().map(shown).unwrap_or_default();
            let rows = look_around(broker, &settings, &session).await?;
            blocks.push(format!("session {} {label} ({by})\n{}", session.id, table(&rows, now)));
        }
        let screen =
            if blocks.is_empty() { "No sessions with panes.".to_owned() } else { blocks.join("\n\n") };
        if once || blocks.is_empty() {
            return Ok(VerbAnswer::new(screen, json!({"screen": blocks})));
        }
        draw(&format!("{screen}\n\n* Director   {now}   Ctrl+C leaves"))?;
        tokio::select! {
            () = tokio::time::sleep(pace) => {}
            _ = tokio::signal::ctrl_c() => return Ok(VerbAnswer::new("", json!({}))),
        }
    }
}

/// Draws over the previous screen line by line, so that it does not flicker.
fn draw(screen: &str) -> Result<(), Failure> {
    let mut text = String::from("\u{1b}[H");
    for line in screen.lines() {
        text.push_str(&format!("{line}\u{1b}[K\r\n"));
    }
    text.push_str("\u{1b}[J");
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::internal(format!("cannot draw: {error}")))
}
