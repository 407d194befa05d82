//! Connects the state to a terminal and an agent.
//!
//! Draws on demand: keys at once, what the agent says at most thirty times a second, and nothing at all when nothing has
//! changed. Keys go before events of the agent, so a busy agent never makes typing slow.

mod desk;
mod fleet;
mod link;
mod painter;
mod terminal;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use caliban_acp::{Client, Events};
use caliban_core::redact::Redactor;
use crossterm::event::{Event as TerminalEvent, EventStream, MouseEventKind};
use futures_util::{FutureExt as _, StreamExt as _};
use ratatui::{buffer::Buffer, layout::Rect};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::UnboundedReceiver,
};

pub use self::{fleet::run_fleet, link::Open};
use self::{link::Link, painter::Painter, terminal::Modes};
use crate::{
    events::{AgentEvent, Effect, Event, Failure},
    state::{Facts, State},
    theme::Theme,
    view,
};

/// Between two frames of a stream.
const FRAME: Duration = Duration::from_millis(33);
/// Events of the agent that are taken before the next key and the next frame.
const BATCH: usize = 256;
/// Rows of the conversation that stay on the terminal after leaving.
const LEFT_ROWS: usize = 200;

/// How the screen is opened.
#[derive(Debug)]
pub struct Options {
    /// What does not change.
    pub facts: Facts,
    /// The looks.
    pub theme: Theme,
    /// Where the agent works.
    pub cwd: PathBuf,
    /// Which session.
    pub open: Open,
    /// What is said first.
    pub prompt: Option<String>,
    /// The person's editor.
    pub editor: Option<String>,
    /// Where what was written is remembered.
    pub history: Option<PathBuf>,
    /// Takes secrets out of what is remembered.
    pub redactor: Redactor,
    /// What is to be said beside the conversation, as it comes.
    pub notes: Option<UnboundedReceiver<String>>,
}

/// Why the screen was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The person wanted to.
    Person,
    /// A signal.
    Signal,
    /// Something panicked; the terminal is restored and the report is on it.
    Panic,
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct Left {
    /// Why.
    pub why: Why,
    /// The session that was open.
    pub session: Option<String>,
    /// What was written and not sent.
    pub unsent: Vec<String>,
    /// Whether the agent was gone.
    pub is_gone: bool,
    /// Whether nothing was said.
    pub is_empty: bool,
    /// Why there was never a session.
    pub failure: Option<Failure>,
}

/// Shows the conversation until the person leaves. The terminal is as before when this returns, however it returns.
pub async fn run(client: Client, events: Events, options: Options) -> io::Result<Left> {
    let size = crossterm::terminal::size()?;
    let mut link = Link::new(client, events, options.cwd.clone());
    let mut state = State::new(size, options.theme, options.facts.clone());
    state.remember(options.history.as_deref().map(desk::remembered).unwrap_or_default());
    link.open(options.open.clone());
    if let Some(prompt) = &options.prompt {
        state.say_first(prompt);
    }
    let mut runner = Runner {
        modes: Modes::enter(true)?,
        painter: Painter::new(io::stdout(), size),
        keys: Some(EventStream::new()),
        link,
        state,
        options,
        last_frame: None,
    };
    let why = runner.run().await;
    // First the terminal: whatever follows may take its time.
    runner.modes.pause();
    runner.print_rest();
    let left = Left {
        why: why?,
        session: runner.link.session().map(str::to_owned),
        unsent: runner.state.unsent(),
        is_gone: runner.state.is_gone,
        is_empty: runner.state.is_empty(),
        failure: runner.state.failure.take(),
    };
    runner.link.close().await;
    Ok(left)
}

struct Runner {
    modes: Modes,
    painter: Painter<io::Stdout>,
    /// Absent while the terminal is somebody else's.
    keys: Option<EventStream>,
    link: Link,
    state: State,
    options: Options,
    last_frame: Option<Instant>,
}

/// What woke the loop.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Woken {
    Key(Option<io::Result<TerminalEvent>>),
    Agent(AgentEvent),
    Note(String),
    Deadline,
    Signal,
}

impl Runner {
    async fn run(&mut self) -> io::Result<Why> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut draw_at = Some(Instant::now());
        loop {
            if terminal::has_panicked() {
                return Ok(Why::Panic);
            }
            let now = Instant::now();
            if draw_at.is_some_and(|at| now >= at) {
                self.draw(now)?;
                draw_at = None;
            }
            let deadline = [draw_at, self.state.deadline(now)].into_iter().flatten().min();
            let woken = {
                let keys = &mut self.keys;
                let key = async {
                    match keys {
                        Some(keys) => keys.next().await,
                        None => std::future::pending().await,
                    }
                };
                let sleep = async {
                    match deadline {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                let notes = &mut self.options.notes;
                let note = async {
                    match notes {
                        Some(notes) => match notes.recv().await {
                            Some(note) => note,
                            None => std::future::pending().await,
                        },
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    _ = terminate.recv() => Woken::Signal,
                    _ = hangup.recv() => Woken::Signal,
                    _ = interrupt.recv() => Woken::Signal,
                    key = key => Woken::Key(key),
                    note = note => Woken::Note(note),
                    event = self.link.next() => Woken::Agent(event),
                    () = sleep => Woken::Deadline,
                }
            };
            let now = Instant::now();
            match woken {
                Woken::Signal => return Ok(Why::Signal),
                Woken::Key(None) => return Ok(Why::Signal),
                Woken::Key(Some(key)) => {
                    if self.key(key?, now)? {
                        return Ok(Why::Person);
                    }
                    draw_at = Some(now);
                }
                Woken::Agent(event) => {
                    if self.events(event, now)? {
                        return Ok(Why::Person);
                    }
                    let soonest = self.last_frame.map_or(now, |last| last + FRAME);
                    draw_at = Some(draw_at.map_or(soonest, |at| at.min(soonest)));
                }
                Woken::Note(text) => {
                    self.take(Event::Agent(AgentEvent::Noted(text)), now)?;
                    draw_at = Some(now);
                }
                Woken::Deadline => {
                    self.take(Event::Tick, now)?;
                    draw_at = Some(now);
                }
            }
        }
    }

    /// Takes one event of the terminal; true when the person leaves. (The stream keeps the waker of its first poll, so
    /// it must never be polled by anything but the loop.)
    fn key(&mut self, event: TerminalEvent, now: Instant) -> io::Result<bool> {
        let event = match event {
            TerminalEvent::Key(key) => Event::Key(key),
            TerminalEvent::Paste(text) => Event::Paste(text),
            TerminalEvent::Resize(columns, rows) => Event::Resize(columns, rows),
            TerminalEvent::FocusGained => Event::Focus(true),
            TerminalEvent::FocusLost => Event::Focus(false),
            TerminalEvent::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => Event::Wheel(-1),
                MouseEventKind::ScrollDown => Event::Wheel(1),
                _ => return Ok(false),
            },
        };
        self.take(event, now)
    }

    /// An event of the agent and those that wait behind it.
    fn events(&mut self, first: AgentEvent, now: Instant) -> io::Result<bool> {
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(event) = next else { break };
            if self.take(Event::Agent(event), now)? {
                return Ok(true);
            }
            next = self.link.next().now_or_never();
        }
        Ok(false)
    }

    /// Takes one event and does what it leads to; true when the person leaves.
    fn take(&mut self, event: Event, now: Instant) -> io::Result<bool> {
        for effect in self.state.update(event, now) {
            match effect {
                Effect::Prompt(text) => self.link.prompt(text),
                Effect::Cancel => self.link.cancel(),
                Effect::SetMode(mode) => self.link.set_mode(mode),
                Effect::Answer(number, reply) => self.link.answer(number, reply),
                Effect::New => self.link.open(Open::New),
                Effect::Load(session) => self.link.open(Open::Load(session)),
                Effect::ListSessions => self.link.list_sessions(),
                Effect::ListFiles => {
                    let cwd = self.options.cwd.clone();
                    self.link.later(async move {
                        let files = tokio::task::spawn_blocking(move || desk::files(&cwd)).await;
                        AgentEvent::Files(files.unwrap_or_default())
                    });
                }
                Effect::Edit(text) => {
                    let edited = self.edit(&text)?;
                    self.take(Event::Agent(AgentEvent::Edited(edited)), now)?;
                }
                Effect::Copy(text) => {
                    let mut out = io::stdout().lock();
                    out.write_all(desk::clipboard(&text).as_bytes())?;
                    out.flush()?;
                    let told = "sent to the clipboard of the terminal".to_owned();
                    self.take(Event::Agent(AgentEvent::Told(told)), now)?;
                }
                Effect::Export(path, text) => {
                    let path = self.options.cwd.join(path);
                    let told = match desk::export(&path, &text) {
                        Ok(()) => format!("written: {}", path.display()),
                        Err(why) => why,
                    };
                    self.take(Event::Agent(AgentEvent::Told(told)), now)?;
                }
                Effect::Remember(text) => {
                    if let Some(path) = &self.options.history {
                        desk::remember(path, &self.options.redactor.redact(&text));
                    }
                }
                Effect::Mouse(is_on) => self.modes.set_mouse(is_on)?,
                Effect::Repaint => self.painter.repaint(),
                Effect::Suspend => self.suspend()?,
                Effect::Notify(_) if self.state.has_focus => {}
                Effect::Notify(_) => {
                    let mut out = io::stdout().lock();
                    out.write_all(b"\x07")?;
                    out.flush()?;
                }
                Effect::Quit => return Ok(true),
            }
        }
        Ok(false)
    }

    fn draw(&mut self, now: Instant) -> io::Result<()> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.state.set_wall(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let (columns, rows) = self.state.size;
        let mut frame = Buffer::empty(Rect::new(0, 0, columns, rows));
        let cursor = view::draw(&self.state, now, &mut frame);
        self.painter.paint(frame, cursor)?;
        self.state.drawn(Instant::now());
        self.last_frame = Some(now);
        Ok(())
    }

    /// Ctrl+Z: the shell has the terminal until it continues us.
    fn suspend(&mut self) -> io::Result<()> {
        self.away(|| {
            let _not_stopped =
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        })
    }

    fn edit(&mut self, text: &str) -> io::Result<Result<String, String>> {
        let Some(editor) = self.options.editor.clone() else {
            return Ok(Err("there is no editor: set EDITOR".to_owned()));
        };
        let mut edited = Err(String::new());
        self.away(|| edited = desk::edit(&editor, text))?;
        Ok(edited)
    }

    /// Gives the terminal away for a while.
    fn away(&mut self, work: impl FnOnce()) -> io::Result<()> {
        self.keys = None;
        self.modes.pause();
        work();
        self.modes.resume()?;
        self.keys = Some(EventStream::new());
        let size = crossterm::terminal::size()?;
        self.state.update(Event::Resize(size.0, size.1), Instant::now());
        self.state.returned(Instant::now());
        self.painter.repaint();
        Ok(())
    }

    /// The end of the conversation, into the terminal's own scrollback. Best effort: the terminal may be gone.
    fn print_rest(&self) {
        let mut out = io::stdout().lock();
        for line in self.state.last_lines(LEFT_ROWS) {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
    }
}
