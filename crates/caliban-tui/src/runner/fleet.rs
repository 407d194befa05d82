//! The agent view on a terminal.

use std::{io, time::Instant};

use crossterm::event::{Event as TerminalEvent, EventStream};
use futures_util::StreamExt as _;
use ratatui::{buffer::Buffer, layout::Rect};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
};

use super::{
    painter::Painter,
    terminal::{self, Modes},
};
use crate::fleet::{FleetEffect, FleetEvent, FleetState};

/// Shows the agents until one is to be opened or resumed, or the person leaves (none). News come in by `news`; what else
/// is to be done goes out by `orders`. The terminal is as before when this returns.
pub async fn run_fleet(
    state: &mut FleetState,
    news: &mut UnboundedReceiver<FleetEvent>,
    orders: &UnboundedSender<FleetEffect>,
) -> io::Result<Option<FleetEffect>> {
    let size = crossterm::terminal::size()?;
    state.update(FleetEvent::Resize(size.0, size.1), Instant::now());
    let _modes = Modes::enter(false)?;
    let mut painter = Painter::new(io::stdout(), size);
    let mut keys = EventStream::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        if terminal::has_panicked() {
            return Ok(None);
        }
        let mut frame = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
        let cursor = state.draw(&mut frame);
        painter.paint(frame, cursor)?;
        let deadline = state.deadline();
        let sleep = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(None),
            _ = hangup.recv() => return Ok(None),
            _ = interrupt.recv() => return Ok(None),
            key = keys.next() => match key {
                None => return Ok(None),
                Some(key) => match key? {
                    TerminalEvent::Key(key) => FleetEvent::Key(key),
                    TerminalEvent::Resize(columns, rows) => FleetEvent::Resize(columns, rows),
                    _ => continue,
                },
            },
            Some(event) = news.recv() => event,
            () = sleep => FleetEvent::Tick,
        };
        match state.update(event, Instant::now()) {
            None => {}
            Some(FleetEffect::Quit) => return Ok(None),
            Some(opens @ (FleetEffect::Attach(_) | FleetEffect::Resume(_))) => return Ok(Some(opens)),
            Some(FleetEffect::Repaint) => painter.repaint(),
            // Without a receiver nobody carries it out; the screen is about to be left then.
            Some(order) => drop(orders.send(order)),
        }
    }
}
