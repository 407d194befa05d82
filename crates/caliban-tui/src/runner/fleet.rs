//! The agent view on a terminal.

use std::{io, time::Instant};

use crossterm::event::Event as TerminalEvent;
use ratatui::{buffer::Buffer, layout::Rect};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{
    frame_pace::until,
    input::{Happened, TerminalInput},
    machine::NoticeKind,
    painter::Painter,
    signals::Signals,
    terminal::{self, Modes},
};
use crate::fleet::{AgentKey, FleetEffect, FleetEvent, FleetState};

/// Why the agent view has given the terminal back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetLeft {
    /// The person left.
    Person,
    /// A signal, or the terminal is gone.
    Signal,
    /// Something panicked; the report is on the terminal.
    Panic,
    /// The conversation of this agent is to be opened.
    Attach(AgentKey),
    /// This agent's work is to land, with this message in place of the suggested one; git may want the terminal for that.
    Merge(AgentKey, Option<String>),
}

/// Shows the agents until the person leaves or the terminal is needed for something else. News come in by `news`; what
/// else is to be done goes out by `orders`; the terminal is asked for its ground if it may be, and rings as `notice` says. The terminal is as before when this returns.
pub async fn run_fleet(
    state: &mut FleetState,
    news: &mut UnboundedReceiver<FleetEvent>,
    orders: &UnboundedSender<FleetEffect>,
    tells_ground: bool,
    notice: NoticeKind,
) -> io::Result<FleetLeft> {
    let size = crossterm::terminal::size()?;
    state.update(FleetEvent::Resize(size.0, size.1), Instant::now());
    let _modes = Modes::enter(true, false)?;
    let mut painter = Painter::new(io::stdout(), size);
    let mut keys = TerminalInput::new()?;
    if tells_ground {
        keys.ask_ground()?;
    }
    let mut signals = Signals::new()?;
    loop {
        if terminal::has_panicked() {
            return Ok(FleetLeft::Panic);
        }
        let mut frame = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
        let cursor = state.draw(Instant::now(), &mut frame);
        painter.paint(frame, cursor)?;
        state.drawn(Instant::now());
        let deadline = state.deadline(Instant::now());
        let event = tokio::select! {
            biased;
            () = signals.next() => return Ok(FleetLeft::Signal),
            key = keys.next() => match key {
                None => return Ok(FleetLeft::Signal),
                Some(happened) => match happened? {
                    Happened::Ground(ground) => FleetEvent::Ground(ground),
                    Happened::Terminal(TerminalEvent::Key(key)) => FleetEvent::Key(key),
                    Happened::Terminal(TerminalEvent::Paste(text)) => FleetEvent::Paste(text),
                    Happened::Terminal(TerminalEvent::Resize(columns, rows)) => FleetEvent::Resize(columns, rows),
                    Happened::Terminal(_) => continue,
                },
            },
            Some(event) = news.recv() => event,
            () = until(deadline) => FleetEvent::Tick,
        };
        for effect in state.update(event, Instant::now()) {
            match effect {
                FleetEffect::Quit => return Ok(FleetLeft::Person),
                FleetEffect::Attach(key) => return Ok(FleetLeft::Attach(key)),
                FleetEffect::Merge(key, message) => return Ok(FleetLeft::Merge(key, message)),
                FleetEffect::Repaint => painter.repaint(),
                FleetEffect::Ring(text) => terminal::write(notice.sequence(&text).as_bytes())?,
                // Without a receiver nobody carries it out; the screen is about to be left then.
                order => drop(orders.send(order)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::{
        fleet::FleetRow,
        theme::{Depth, Ground, Theme},
    };

    fn rows(activity: &str) -> Vec<FleetRow> {
        let row = |n: usize| FleetRow {
            key: AgentKey { repo: "/work/project".into(), id: format!("{n:08x}") },
            label: Some(format!("label-{n}")),
            status: caliban_core::status_word::StatusWord::ALL[n % 12],
            state: "running".to_owned(),
            doing: if n == 1 { activity.to_owned() } else { "Bash cargo test --workspace".to_owned() },
            waiting: None,
            spent: "12 turns $0.34".to_owned(),
            asks: Vec::new(),
            revision: 0,
        };
        (0..200).map(row).collect()
    }

    #[test]
    fn t11_a_step_among_two_hundred_agents_writes_two_rows_and_an_idle_frame_nothing() {
        let size = (200, 60);
        let theme = Theme { depth: Depth::True, ground: Ground::Dark };
        let mut state = FleetState::new(size, theme, "~/work".to_owned());
        let mut painter = Painter::new(Vec::new(), size);
        let mut frame = |state: &mut FleetState, event: FleetEvent| {
            let now = Instant::now();
            state.update(event, now);
            let mut frame = Buffer::empty(Rect::new(0, 0, size.0, size.1));
            let cursor = state.draw(now, &mut frame);
            painter.paint(frame, cursor).unwrap()
        };
        frame(&mut state, FleetEvent::Rows(rows("Bash make")));
        assert_eq!(frame(&mut state, FleetEvent::Rows(rows("Bash make"))), 0, "nothing has changed");
        assert_eq!(frame(&mut state, FleetEvent::Tick), 0);
        let down = || FleetEvent::Key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        for _ in 0..30 {
            let bytes = frame(&mut state, down());
            assert!(bytes < 3 * 200, "{bytes} bytes for a step");
        }
        // The last row of the screen is passed: all of it moves, once a step.
        for _ in 0..60 {
            let bytes = frame(&mut state, down());
            assert!(bytes < 60 * 200 * 2, "{bytes} bytes for a scroll");
        }
        for _ in 0..90 {
            frame(&mut state, FleetEvent::Key(KeyEvent::new(KeyCode::Up, KeyModifiers::NONE)));
        }
        let bytes = frame(&mut state, FleetEvent::Rows(rows("Bash make test")));
        assert!(bytes < 200, "{bytes} bytes for an agent that does something else");
    }
}
