//! What goes into the state, and what it wants done.

use std::path::PathBuf;

use caliban_acp::v1::{SessionInfo, SessionModeState, SessionUpdate};
use crossterm::event::KeyEvent;

use crate::{asks::AskedQuestion, theme::Ground};

use caliban_core::ask::Answer;
pub use caliban_core::background::{BackgroundRow, BackgroundStatus};

/// Something happened.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "short-lived, one at a time")]
pub enum ScreenEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The wheel was turned, by so many notches towards the end.
    Wheel(i16),
    /// A button of the mouse, at a column and a row of the screen.
    Mouse(MouseAction, u16, u16),
    /// The terminal has another size.
    Resize(u16, u16),
    /// The terminal has the focus, or has lost it.
    Focus(bool),
    /// The terminal says what its letters stand on.
    Ground(Ground),
    /// Time has passed.
    Tick,
    /// The agent said something.
    Agent(AgentEvent),
}

/// What the left button of the mouse does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MouseAction {
    /// It is pressed.
    Down,
    /// The pointer moves while it is pressed.
    Drag,
    /// It is released.
    Up,
}

/// Something that comes from the agent's side.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and nearly all of them are updates")]
pub enum AgentEvent {
    /// A session is open.
    Opened {
        /// Its permission modes.
        modes: Option<SessionModeState>,
        /// Whether a turn runs in it.
        is_running: bool,
        /// Its model.
        model: Option<String>,
    },
    /// No session could be opened.
    NotOpened(FailureEvent),
    /// Something happened in the session.
    Update(SessionUpdate),
    /// The list of background agents of the session.
    Background(Vec<BackgroundRow>),
    /// The agent asks.
    Asked(AskedQuestion),
    /// A question is moot.
    Withdrawn(u64),
    /// An answer of ours could not be given.
    NotAnswered(u64),
    /// A turn that somebody else began has ended.
    TurnEnded {
        /// Why, when it did not end well.
        failure: Option<String>,
    },
    /// A prompt of ours is answered: its turn has ended.
    PromptEnded(Result<PromptDone, FailureEvent>),
    /// The background agents are in the fleet, or some of them are not.
    AgentsKept(Result<(), FailureEvent>),
    /// The session that was looked for, or that there is none.
    FoundSession(Result<String, String>),
    /// A prompt of ours was not taken. With its text.
    NotSent(String, FailureEvent),
    /// A request failed.
    Failed(FailureEvent),
    /// The files below the working directory.
    Files(Vec<String>),
    /// The sessions that can be loaded.
    Sessions(Vec<SessionInfo>),
    /// The prompts that one can go back to, in order.
    Prompts(Vec<String>),
    /// The next of the things that were said, in their order, is on the disk.
    Heard,
    /// A command of the person's has ended.
    ShellEnded {
        /// What it wrote, stdout and stderr together; cut in the middle when it is long.
        output: String,
        /// How it ended, in words: `exit 0`.
        ending: String,
        /// Whether that is a success.
        is_ok: bool,
    },
    /// What came of an editor.
    Edited(Result<String, String>),
    /// Something to keep in the conversation.
    Noted(String),
    /// Something to say for a moment.
    Told(String),
    /// No program of this machine took this for the clipboard.
    NotCopied(String),
    /// What was in the clipboard, or why nothing is pasted.
    Clipboard(Result<Clip, String>),
    /// The connection has ended.
    HungUp(String),
}

/// What was in the clipboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clip {
    /// A text.
    Text(String),
    /// A picture, which is in this file now.
    Picture(PathBuf),
}

/// How the turn of a prompt ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptDone {
    /// Whether it was cancelled.
    pub is_cancelled: bool,
}

/// Something failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureEvent {
    /// In words.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Something that the state wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenEffect {
    /// Say this to the agent.
    Prompt(String),
    /// Hand all background agents that are at work to the fleet.
    KeepAgents,
    /// Interrupt the turn.
    Cancel,
    /// Change the permission mode.
    SetMode(String),
    /// Answer a question.
    Answer(u64, Answer),
    /// Begin another session.
    New,
    /// Go on with another session.
    Load(String),
    /// Look for a session, by its id or the beginning of it.
    FindSession(String),
    /// List the files below the working directory.
    ListFiles,
    /// List the sessions.
    ListSessions,
    /// List the prompts that one can go back to.
    ListPrompts,
    /// Run this command of the person's.
    Shell(String),
    /// End the command of the person's that runs.
    StopShell,
    /// Show the agents of the fleet, then come back.
    Fleet,
    /// Edit this text in the person's editor.
    Edit(String),
    /// Show this text in the person's editor.
    View(String),
    /// Print this text into the terminal's own scrollback.
    Print(String),
    /// Look what is in the clipboard.
    ReadClipboard,
    /// Put this into the clipboard.
    Copy(String),
    /// Let the terminal put this into its clipboard.
    SendToTerminal(String),
    /// Write this into a file.
    Export(PathBuf, String),
    /// Remember what was written.
    Remember(String),
    /// Report the wheel, or leave the mouse to the terminal.
    Mouse(bool),
    /// Draw everything anew.
    Repaint,
    /// Stop the process until the shell continues it.
    Suspend,
    /// Ring, when nobody looks.
    Notify(String),
    /// Ring, whether somebody looks or not: nothing goes on before the person does.
    Ring(String),
    /// Leave.
    Quit,
}
