//! Connects the state to a terminal and an agent.
//!
//! Draws on demand: keys at once, what the agent says at most thirty times a second, and nothing at all when nothing has
//! changed. Keys go before events of the agent, so a busy agent never makes typing slow.

mod desk;
mod fleet;
mod inline;
mod input;
mod link;
mod pace;
mod painter;
mod presenter;
mod shell;
mod signals;
mod terminal;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    pin::Pin,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use caliban_acp::{Client, Events};
use caliban_core::redact::Redactor;
use crossterm::event::{Event as TerminalEvent, MouseButton, MouseEventKind};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

pub use self::{
    fleet::{FleetLeft, run_fleet},
    link::Open,
};
use self::{input::Input, link::Link, pace::Pace, presenter::Presenter, signals::Signals, terminal::Modes};
use crate::{
    events::{AgentEvent, Effect, Event, Failure, MouseAction},
    state::{Facts, Look, State},
    theme::Theme,
};

/// Events of the agent that are taken before the next key and the next frame.
const BATCH: usize = 256;

/// How long a signal may take that came with the end of the editor.
const AFTER_EDITOR: std::time::Duration = std::time::Duration::from_millis(20);

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
    /// How the screen is used.
    pub look: Look,
    /// Programs of this machine that put their input into the clipboard, with their arguments; the first that can does it.
    pub clipboard: Vec<Vec<String>>,
    /// The shell for `!command`.
    pub shell: PathBuf,
    /// Shows the agents of the fleet.
    pub fleet: Option<FleetView>,
}

/// Ends when the person comes back from the agent view; what went wrong, in words.
type Shown = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Shows the agents of the fleet until the person comes back. The terminal is its own meanwhile.
pub struct FleetView(pub Box<dyn FnMut() -> Shown>);

impl std::fmt::Debug for FleetView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetView")
    }
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
    /// Where the session goes on, when it was sent away.
    pub farewell: Option<String>,
}

/// Shows the conversation until the person leaves. The terminal is as before when this returns, however it returns.
pub async fn run(client: Client, events: Events, options: Options) -> io::Result<Left> {
    let size = crossterm::terminal::size()?;
    let mut link = Link::new(client, events, options.cwd.clone());
    let look = options.look;
    let mut state = State::new(size, options.theme, options.facts.clone());
    state.set_look(look);
    state.remember(options.history.as_deref().map(desk::remembered).unwrap_or_default());
    link.open(options.open.clone());
    if let Some(prompt) = &options.prompt {
        state.say_first(prompt);
    }
    let mut runner = Runner {
        modes: Modes::enter(look.is_alternate, look.has_mouse)?,
        presenter: Presenter::new(look.is_alternate, size),
        keys: Some(Input::new()?),
        link,
        state,
        options,
        shell: None,
    };
    let why = runner.run().await;
    // First the terminal: whatever follows may take its time.
    runner.leave_terminal();
    let left = Left {
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
    keys: Option<Input>,
    link: Link,
    state: State,
    options: Options,
    /// Dropped, it ends the command of the person's that runs.
    shell: Option<oneshot::Sender<()>>,
}

/// What the loop does before it goes on.
enum Next {
    Quit,
    /// The person's editor has the terminal, and begins with this text.
    Edit(String),
    /// The agent view has it.
    Fleet,
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
        let mut signals = Signals::new()?;
        let mut pace = Pace::default();
        pace.at_once(Instant::now());
        loop {
            if terminal::has_panicked() {
                return Ok(Why::Panic);
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
                    () = signals.next() => Woken::Signal,
                    key = key => Woken::Key(key),
                    note = note => Woken::Note(note),
                    event = self.link.next() => Woken::Agent(event),
                    () = sleep => Woken::Deadline,
                }
            };
            let now = Instant::now();
            let next = match woken {
                Woken::Signal | Woken::Key(None) => return Ok(Why::Signal),
                Woken::Key(Some(key)) => {
                    pace.at_once(now);
                    self.key(key?, now)?
                }
                Woken::Agent(event) => {
                    pace.soon(now);
                    self.events(event, now)?
                }
                Woken::Note(text) => {
                    pace.at_once(now);
                    self.take(Event::Agent(AgentEvent::Noted(text)), now)?
                }
                Woken::Deadline => {
                    pace.at_once(now);
                    self.take(Event::Tick, now)?
                }
            };
            match next {
                None => {}
                Some(Next::Quit) => return Ok(Why::Person),
                Some(away) => {
                    if self.away_for(away, &mut signals).await?.is_none() {
                        return Ok(Why::Signal);
                    }
                    pace.at_once(Instant::now());
                }
            }
        }
    }

    /// Takes one event of the terminal.
    fn key(&mut self, event: TerminalEvent, now: Instant) -> io::Result<Option<Next>> {
        let event = match event {
            TerminalEvent::Key(key) => Event::Key(key),
            TerminalEvent::Paste(text) => Event::Paste(text),
            TerminalEvent::Resize(columns, rows) => {
                self.presenter.resized(rows);
                Event::Resize(columns, rows)
            }
            TerminalEvent::FocusGained => Event::Focus(true),
            TerminalEvent::FocusLost => Event::Focus(false),
            TerminalEvent::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => Event::Wheel(-1),
                MouseEventKind::ScrollDown => Event::Wheel(1),
                MouseEventKind::Down(MouseButton::Left) => {
                    Event::Mouse(MouseAction::Down, mouse.column, mouse.row)
                }
                MouseEventKind::Drag(MouseButton::Left) => {
                    Event::Mouse(MouseAction::Drag, mouse.column, mouse.row)
                }
                MouseEventKind::Up(MouseButton::Left) => {
                    Event::Mouse(MouseAction::Up, mouse.column, mouse.row)
                }
                _ => return Ok(None),
            },
        };
        self.take(event, now)
    }

    /// An event of the agent and those that wait behind it.
    fn events(&mut self, first: AgentEvent, now: Instant) -> io::Result<Option<Next>> {
        let mut event = Some(first);
        for _ in 0..BATCH {
            let Some(next) = event else { break };
            if let Some(next) = self.take(Event::Agent(next), now)? {
                return Ok(Some(next));
            }
            event = self.link.next().now_or_never();
        }
        Ok(None)
    }

    /// Takes one event and does what it leads to.
    fn take(&mut self, event: Event, now: Instant) -> io::Result<Option<Next>> {
        let mut next = None;
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
                Effect::ListPrompts => self.link.list_prompts(),
                Effect::Shell(command) => {
                    let (stop, stopped) = oneshot::channel();
                    self.shell = Some(stop);
                    let (shell, cwd) = (self.options.shell.clone(), self.options.cwd.clone());
                    self.link.later(shell::run(shell, command, cwd, stopped));
                }
                Effect::StopShell => self.shell = None,
                Effect::Edit(text) => next = Some(Next::Edit(text)),
                Effect::Fleet => next = Some(Next::Fleet),
                Effect::Copy(text) => {
                    let programs = self.options.clipboard.clone();
                    self.link.later(desk::copy(programs, text));
                }
                Effect::SendToTerminal(text) => {
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
                Effect::Repaint => self.presenter.repaint(),
                Effect::Suspend => self.suspend()?,
                Effect::Notify(_) if self.state.has_focus => {}
                Effect::Notify(_) => {
                    let mut out = io::stdout().lock();
                    out.write_all(b"\x07")?;
                    out.flush()?;
                }
                Effect::Quit => next = Some(Next::Quit),
            }
        }
        Ok(next)
    }

    fn draw(&mut self, now: Instant) -> io::Result<()> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.state.set_wall(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        self.presenter.draw(&mut self.state, now)?;
        self.state.drawn(Instant::now());
        Ok(())
    }

    /// Ctrl+Z: the shell has the terminal until it continues us.
    fn suspend(&mut self) -> io::Result<()> {
        self.give_terminal();
        let _not_stopped =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        self.take_terminal()
    }

    /// Somebody else has the terminal for a while; the agent works on. None when a signal ends all of it.
    async fn away_for(&mut self, next: Next, signals: &mut Signals) -> io::Result<Option<()>> {
        let now = Instant::now();
        match next {
            Next::Quit => {}
            Next::Edit(text) => {
                let Some(editor) = self.options.editor.clone() else {
                    let none = Err("there is no editor: set EDITOR".to_owned());
                    self.take(Event::Agent(AgentEvent::Edited(none)), now)?;
                    return Ok(Some(()));
                };
                self.give_terminal();
                let edited = tokio::select! {
                    edited = desk::edit(&editor, &text) => edited,
                    () = signals.end() => return Ok(None),
                };
                // Ctrl+C in the editor was meant for the editor. It may be told a moment after the editor's end.
                tokio::time::sleep(AFTER_EDITOR).await;
                signals.forget_interrupts();
                self.take_terminal()?;
                self.take(Event::Agent(AgentEvent::Edited(edited)), Instant::now())?;
            }
            Next::Fleet => {
                let Some(FleetView(show)) = &mut self.options.fleet else {
                    let told = "Ctrl+D leaves this agent; `caliban agents` shows all of them".to_owned();
                    self.take(Event::Agent(AgentEvent::Told(told)), now)?;
                    return Ok(Some(()));
                };
                let shown = show();
                self.give_terminal();
                let shown = shown.await;
                self.take_terminal()?;
                if let Err(why) = shown {
                    self.take(Event::Agent(AgentEvent::Told(why)), Instant::now())?;
                }
            }
        }
        Ok(Some(()))
    }

    /// The terminal is as it was before the screen.
    fn give_terminal(&mut self) {
        self.keys = None;
        self.presenter.give_way();
        self.modes.pause();
    }

    /// The screen has the terminal again.
    fn take_terminal(&mut self) -> io::Result<()> {
        self.modes.resume()?;
        self.keys = Some(Input::new()?);
        let size = crossterm::terminal::size()?;
        self.state.update(Event::Resize(size.0, size.1), Instant::now());
        self.state.returned(Instant::now());
        self.presenter.resized(size.1);
        self.presenter.repaint();
        Ok(())
    }

    /// The terminal is as it was, with the end of the conversation in its scrollback. Best effort: it may be gone.
    fn leave_terminal(&mut self) {
        self.presenter.give_way();
        let lines = self.presenter.rest(&mut self.state);
        self.modes.pause();
        let mut out = io::stdout().lock();
        for line in lines {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
    }
}
