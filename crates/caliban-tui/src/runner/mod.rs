//! Connects the state to a terminal and an agent.
//!
//! Draws on demand: keys at once, what the agent says at most thirty times a second, and nothing at all when nothing has
//! changed. Keys go before events of the agent, so a busy agent never makes typing slow.

mod agent_link;
mod fleet;
mod frame_pace;
mod inline;
mod input;
mod lend_terminal;
mod machine;
mod painter;
mod presenter;
mod shell;
mod signals;
mod terminal;

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use caliban_acp::{AcpClient, AcpEvents};
use caliban_core::redact::Redactor;
use crossterm::event::{Event as TerminalEvent, MouseButton, MouseEventKind};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use self::{
    agent_link::Link,
    frame_pace::{Pace, until},
    input::{Happened, TerminalInput},
    presenter::Presenter,
    signals::Signals,
    terminal::Modes,
};
pub use self::{
    agent_link::SessionChoice,
    fleet::{FleetLeft, run_fleet},
    machine::{Machine, NoticeKind, ProgramLine},
};
use crate::{
    events::{AgentEvent, FailureEvent, MouseAction, ScreenEffect, ScreenEvent},
    state::{Look, ScreenFacts, ScreenState},
    theme::Theme,
};

/// Events of the agent that are taken before the next key and the next frame.
const BATCH: usize = 256;

/// How the screen is opened.
#[derive(Debug)]
pub struct ScreenOptions {
    /// What does not change.
    pub facts: ScreenFacts,
    /// The looks.
    pub theme: Theme,
    /// Where the agent works.
    pub cwd: PathBuf,
    /// Which session.
    pub open: SessionChoice,
    /// What is said first.
    pub prompt: Option<String>,
    /// Where what was written is remembered.
    pub history: Option<PathBuf>,
    /// Takes secrets out of what is remembered.
    pub redactor: Redactor,
    /// What is to be said beside the conversation, as it comes.
    pub notes: Option<UnboundedReceiver<String>>,
    /// How the screen is used.
    pub look: Look,
    /// What is around the screen.
    pub machine: Machine,
    /// Shows the agents of the fleet.
    pub fleet: Option<FleetView>,
}

/// Ends when the person comes back from the agent view; what went wrong, in words.
type AgentViewRun = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Shows the agents of the fleet until the person comes back. The terminal is its own meanwhile.
pub struct FleetView(pub Box<dyn FnMut() -> AgentViewRun>);

impl std::fmt::Debug for FleetView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetView")
    }
}

/// Why the screen was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveReason {
    /// The person wanted to.
    Person,
    /// A signal.
    Signal,
    /// Something panicked; the terminal is restored and the report is on it.
    Panic,
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct ScreenEnd {
    /// Why.
    pub why: LeaveReason,
    /// The session that was open.
    pub session: Option<String>,
    /// What was written and not sent.
    pub unsent: Vec<String>,
    /// Whether the agent was gone.
    pub is_gone: bool,
    /// Whether nothing was said.
    pub is_empty: bool,
    /// Why there was never a session.
    pub failure: Option<FailureEvent>,
    /// Where the session goes on, when it was sent away.
    pub farewell: Option<String>,
}

/// Shows the conversation until the person leaves. The terminal is as before when this returns, however it returns.
pub async fn run(client: AcpClient, events: AcpEvents, options: ScreenOptions) -> io::Result<ScreenEnd> {
    let size = crossterm::terminal::size()?;
    let mut link = Link::new(client, events, options.cwd.clone());
    let look = options.look;
    let mut state = ScreenState::new(size, options.theme, options.facts.clone());
    state.set_look(look);
    state.remember(options.history.as_deref().map(machine::remembered).unwrap_or_default());
    link.open(options.open.clone());
    if options.open == SessionChoice::Ask {
        link.list_sessions();
    }
    if let Some(prompt) = &options.prompt {
        state.say_first(prompt);
    }
    let mut runner = Runner {
        modes: Modes::enter(look.is_alternate, look.has_mouse)?,
        presenter: Presenter::new(look.is_alternate, size),
        keys: Some(TerminalInput::new()?),
        link,
        state,
        options,
        shell: None,
        title: String::new(),
    };
    if runner.options.machine.tells_ground
        && let Some(keys) = &mut runner.keys
    {
        keys.ask_ground()?;
    }
    let why = runner.run().await;
    // First the terminal: whatever follows may take its time.
    runner.leave_terminal();
    let left = ScreenEnd {
        why: why?,
        session: runner.link.session().map(str::to_owned),
        unsent: runner.state.unsent(),
        is_gone: runner.state.is_gone,
        is_empty: runner.state.is_empty(),
        failure: runner.state.failure.take(),
        farewell: runner.state.farewell.take(),
    };
    runner.link.close().await;
    Ok(left)
}

struct Runner {
    modes: Modes,
    presenter: Presenter,
    /// Absent while the terminal is somebody else's.
    keys: Option<TerminalInput>,
    link: Link,
    state: ScreenState,
    options: ScreenOptions,
    /// Dropped, it ends the command of the person's that runs.
    shell: Option<oneshot::Sender<()>>,
    /// What the window is called.
    title: String,
}

/// What the loop does before it goes on.
enum LoopStep {
    Quit,
    /// The person's editor has the terminal, and begins with this text.
    Edit(String),
    /// The same, and what is changed there does not count.
    View(String),
    /// This text goes into the terminal's own scrollback, and the person looks at it there.
    Print(String),
    /// The agent view has it.
    Fleet,
}

/// What woke the loop.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Woken {
    Key(Option<io::Result<Happened>>),
    Agent(AgentEvent),
    Note(String),
    Deadline,
    Signal,
}

impl Runner {
    async fn run(&mut self) -> io::Result<LeaveReason> {
        let mut signals = Signals::new()?;
        let mut pace = Pace::default();
        pace.at_once(Instant::now());
        loop {
            if terminal::has_panicked() {
                return Ok(LeaveReason::Panic);
            }
            let now = Instant::now();
            if pace.take(now) {
                self.draw(now)?;
            }
            let deadline = [pace.due(), self.state.deadline(now)].into_iter().flatten().min();
            let woken = {
                let keys = &mut self.keys;
                let key = async {
                    match keys {
                        Some(keys) => keys.next().await,
                        None => std::future::pending().await,
                    }
                };
                let notes = &mut self.options.notes;
                let note = async {
                    match notes {
                        Some(notes) => notes.recv().await,
                        None => None,
                    }
                };
                tokio::select! {
                    biased;
                    () = signals.next() => Woken::Signal,
                    key = key => Woken::Key(key),
                    Some(note) = note => Woken::Note(note),
                    event = self.link.next() => Woken::Agent(event),
                    () = until(deadline) => Woken::Deadline,
                }
            };
            let now = Instant::now();
            let next = match woken {
                Woken::Signal | Woken::Key(None) => return Ok(LeaveReason::Signal),
                Woken::Key(Some(happened)) => {
                    pace.at_once(now);
                    match happened? {
                        Happened::Terminal(event) => self.key(event, now)?,
                        Happened::Ground(ground) => self.take(ScreenEvent::Ground(ground), now)?,
                    }
                }
                Woken::Agent(event) => {
                    pace.soon(now);
                    self.events(event, now)?
                }
                Woken::Note(text) => {
                    pace.at_once(now);
                    self.take(ScreenEvent::Agent(AgentEvent::Noted(text)), now)?
                }
                Woken::Deadline => {
                    pace.at_once(now);
                    self.take(ScreenEvent::Tick, now)?
                }
            };
            match next {
                None => {}
                Some(LoopStep::Quit) => return Ok(LeaveReason::Person),
                Some(away) => {
                    if self.away_for(away, &mut signals).await?.is_none() {
                        return Ok(LeaveReason::Signal);
                    }
                    pace.at_once(Instant::now());
                }
            }
        }
    }

    /// Takes one event of the terminal.
    fn key(&mut self, event: TerminalEvent, now: Instant) -> io::Result<Option<LoopStep>> {
        let event = match event {
            TerminalEvent::Key(key) => ScreenEvent::Key(key),
            TerminalEvent::Paste(text) => ScreenEvent::Paste(text),
            TerminalEvent::Resize(columns, rows) => {
                self.presenter.resized(rows);
                ScreenEvent::Resize(columns, rows)
            }
            TerminalEvent::FocusGained => ScreenEvent::Focus(true),
            TerminalEvent::FocusLost => ScreenEvent::Focus(false),
            TerminalEvent::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => ScreenEvent::Wheel(-1),
                MouseEventKind::ScrollDown => ScreenEvent::Wheel(1),
                MouseEventKind::Down(MouseButton::Left) => {
                    ScreenEvent::Mouse(MouseAction::Down, mouse.column, mouse.row)
                }
                MouseEventKind::Drag(MouseButton::Left) => {
                    ScreenEvent::Mouse(MouseAction::Drag, mouse.column, mouse.row)
                }
                MouseEventKind::Up(MouseButton::Left) => {
                    ScreenEvent::Mouse(MouseAction::Up, mouse.column, mouse.row)
                }
                _ => return Ok(None),
            },
        };
        self.take(event, now)
    }

    /// An event of the agent and those that wait behind it.
    fn events(&mut self, first: AgentEvent, now: Instant) -> io::Result<Option<LoopStep>> {
        let mut event = Some(first);
        for _ in 0..BATCH {
            let Some(next) = event else { break };
            if let Some(next) = self.take(ScreenEvent::Agent(next), now)? {
                return Ok(Some(next));
            }
            event = self.link.next().now_or_never();
        }
        Ok(None)
    }

    /// Takes one event and does what it leads to.
    fn take(&mut self, event: ScreenEvent, now: Instant) -> io::Result<Option<LoopStep>> {
        let mut next = None;
        for effect in self.state.update(event, now) {
            match effect {
                ScreenEffect::Prompt(text) => self.link.prompt(text),
                ScreenEffect::KeepAgents => self.link.keep_agents(),
                ScreenEffect::Cancel => self.link.cancel(),
                ScreenEffect::SetMode(mode) => self.link.set_mode(mode),
                ScreenEffect::Answer(number, reply) => self.link.answer(number, reply),
                ScreenEffect::New => self.link.open(SessionChoice::New),
                ScreenEffect::Load(session) => self.link.open(SessionChoice::Load(session)),
                ScreenEffect::FindSession(query) => self.link.find_session(query),
                ScreenEffect::ListSessions => self.link.list_sessions(),
                ScreenEffect::ListFiles => {
                    let cwd = self.options.cwd.clone();
                    self.link.later(async move {
                        let files = tokio::task::spawn_blocking(move || machine::files(&cwd)).await;
                        AgentEvent::Files(files.unwrap_or_default())
                    });
                }
                ScreenEffect::ListPrompts => self.link.list_prompts(),
                ScreenEffect::Shell(command) => {
                    let (stop, stopped) = oneshot::channel();
                    self.shell = Some(stop);
                    let (shell, cwd) = (self.options.machine.shell.clone(), self.options.cwd.clone());
                    self.link.later(shell::run(shell, command, cwd, stopped));
                }
                ScreenEffect::StopShell => self.shell = None,
                ScreenEffect::Edit(text) => next = Some(LoopStep::Edit(text)),
                ScreenEffect::View(text) => next = Some(LoopStep::View(text)),
                ScreenEffect::Print(text) => next = Some(LoopStep::Print(text)),
                ScreenEffect::ReadClipboard => {
                    let read = machine::read_clipboard(self.options.machine.clone());
                    self.link.later(async move { AgentEvent::Clipboard(read.await) });
                }
                ScreenEffect::Fleet => next = Some(LoopStep::Fleet),
                ScreenEffect::Copy(text) => {
                    let programs = self.options.machine.copy.clone();
                    self.link.later(machine::copy(programs, text));
                }
                ScreenEffect::SendToTerminal(text) => {
                    terminal::write(machine::clipboard(&text).as_bytes())?;
                    let told = "sent to the clipboard of the terminal".to_owned();
                    self.take(ScreenEvent::Agent(AgentEvent::Told(told)), now)?;
                }
                ScreenEffect::Export(path, text) => {
                    let path = self.options.cwd.join(path);
                    let told = match machine::export(&path, &text) {
                        Ok(()) => format!("written: {}", path.display()),
                        Err(why) => why,
                    };
                    self.take(ScreenEvent::Agent(AgentEvent::Told(told)), now)?;
                }
                ScreenEffect::Remember(text) => {
                    if let Some(path) = &self.options.history {
                        machine::remember(path, &self.options.redactor.redact(&text));
                    }
                }
                ScreenEffect::Mouse(is_on) => self.modes.set_mouse(is_on)?,
                ScreenEffect::Repaint => self.presenter.repaint(),
                ScreenEffect::Suspend => self.suspend()?,
                ScreenEffect::Notify(_) if !self.state.is_unfocused => {}
                ScreenEffect::Notify(text) | ScreenEffect::Ring(text) => {
                    terminal::write(self.options.machine.notice.sequence(&text).as_bytes())?;
                }
                ScreenEffect::Quit => next = Some(LoopStep::Quit),
            }
        }
        Ok(next)
    }

    fn draw(&mut self, now: Instant) -> io::Result<()> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.state.set_wall(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        self.presenter.draw(&mut self.state, now)?;
        self.state.drawn(Instant::now());
        let title = self.state.window_title();
        if title != self.title {
            terminal::set_title(&title)?;
            self.title = title;
        }
        Ok(())
    }
}
