//! The agent view: all agents of a repo, or of all repos, on one screen; those who need a person come first. Pure, like
//! the rest of the state: the caller says what the rows are and carries out the effects.
//!
//! The selection is an agent and not a place on the screen, so no key ever acts on a row that has just moved there.
//! Letters are commands only in the list; while something is typed they are text.

mod keys;
mod list;
mod pages;
mod questions;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use caliban_core::{
    ask::Answer,
    status_word::{StatusGroup, StatusWord},
};
use crossterm::event::{KeyEvent, KeyEventKind};
use serde_json::Value;

use self::{pages::ScrolledText, questions::Asking};
use crate::{
    composer::{Composer, Draft},
    theme::{Ground, Theme},
};

/// How long a message is shown at least, and how long each of its characters.
const TOAST: Duration = Duration::from_secs(5);
const TOAST_CHARACTER: Duration = Duration::from_millis(60);

/// Which agent: ids are unique within a repo.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentKey {
    /// The repo whose daemon keeps it.
    pub repo: PathBuf,
    /// Its id.
    pub id: String,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRow {
    /// Which.
    pub key: AgentKey,
    /// Its label, or else the beginning of its task.
    pub label: Option<String>,
    /// How it stands.
    pub status: StatusWord,
    /// Its state in a word.
    pub state: String,
    /// What it asks, does, or has said last.
    pub doing: String,
    /// How long it has been waiting for a person, in words.
    pub waiting: Option<String>,
    /// Turns and cost, in a few words.
    pub spent: String,
    /// The questions that it asks, by their ids.
    pub asks: Vec<String>,
    /// Changes with everything that the agent does.
    pub revision: u64,
}

impl FleetRow {
    /// Whether a person has to look at it: it asks, or it has failed.
    pub(crate) fn needs_you(&self) -> bool {
        self.status.needs_you()
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.key.id)
    }

    pub(crate) fn group(&self) -> StatusGroup {
        self.status.group()
    }
}

/// A question of an agent, with the whole call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetAsk {
    /// Who asks.
    pub key: AgentKey,
    /// The question's id.
    pub id: String,
    /// Stands for the exact call: the answer is to the call with this digest only.
    pub digest: String,
    /// The tool.
    pub tool: String,
    /// Who asks, in words.
    pub who: String,
    /// The arguments, all of them.
    pub input: Value,
    /// What it would change, in lines with their numbers.
    pub preview: Option<String>,
    /// Why it asks.
    pub why: String,
    /// The rules that "always" would add.
    pub rules: Vec<String>,
    /// The rules that "always, outside the fence" would add.
    pub outside: Vec<String>,
}

/// What landing an agent's work would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Whose work.
    pub key: AgentKey,
    /// In words, line by line.
    pub lines: Vec<String>,
    /// Whether it can land as it is.
    pub can_land: bool,
    /// The message that is suggested for it.
    pub message: String,
}

/// Which agents are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FleetScope {
    /// Those of this repo.
    #[default]
    Repo,
    /// Those of all repos.
    All,
}

/// Something happened.
#[derive(Debug)]
pub enum FleetEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// Something was pasted.
    Paste(String),
    /// The terminal has another size.
    Resize(u16, u16),
    /// All agents, in the order in which they were spawned.
    Rows(Vec<FleetRow>),
    /// Something to say.
    Told(String),
    /// The last lines of what an agent did.
    Peeked(AgentKey, Vec<String>),
    /// What the agents ask that were asked about.
    Asked(Vec<FleetAsk>),
    /// What an agent changed, as a patch.
    Diffed(AgentKey, String),
    /// What landing an agent's work would do.
    Foretold(Forecast),
    /// A new agent was started, or not and why.
    Dispatched(Result<String, String>),
    /// A reply did not reach the agent: the text, and why.
    NotSent(AgentKey, String, String),
    /// The terminal says what its letters stand on.
    Ground(Ground),
    /// Time has passed.
    Tick,
}

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetEffect {
    /// Open the conversation of this agent.
    Attach(AgentKey),
    /// Say the last lines of what this agent did.
    Peek(AgentKey),
    /// Say this to the agent; one that has ended goes on with it.
    Reply(AgentKey, String),
    /// Say what these agents ask.
    Ask(Vec<AgentKey>),
    /// Answer a question: the ask's id and the digest of the call.
    Answer(AgentKey, String, String, Answer),
    /// Show what this agent changed.
    Diff(AgentKey),
    /// Say what landing this agent's work would do.
    Foretell(AgentKey),
    /// Land this agent's work, with this message in place of the suggested one.
    Merge(AgentKey, Option<String>),
    /// End these agents.
    Stop(Vec<AgentKey>),
    /// Let these agents go on.
    Resume(Vec<AgentKey>),
    /// Start these agents anew from their requests.
    Respawn(Vec<AgentKey>),
    /// Start an agent: options and the task, as they were typed.
    Dispatch(String),
    /// Show other agents.
    Show(FleetScope),
    /// Ring: this is asked.
    Ring(String),
    /// Draw everything anew.
    Repaint,
    /// Leave.
    Quit,
}

/// What has the keys.
#[derive(Debug, Default)]
enum Focus {
    #[default]
    List,
    Filter,
    /// The line that starts a new agent.
    Dispatch,
    /// What is done to several agents after a yes, and what is asked before.
    Confirm(FleetEffect, String),
    /// The last lines of the chosen agent, and a reply to it.
    Peek(Peek),
    /// Questions of agents.
    Asking(Asking),
    /// A text to read: a diff, what a merge would do, the keys.
    Page(ScrolledText),
}

#[derive(Debug)]
struct Peek {
    lines: Vec<String>,
    /// Lines that are below the screen's last one.
    scroll: usize,
    reply: Composer,
    /// What was known of the agent when its lines were asked for.
    revision: u64,
}

/// Everything that the screen shows.
#[derive(Debug, Default)]
pub struct FleetState {
    pub(crate) size: (u16, u16),
    theme: Theme,
    place: String,
    scope: FleetScope,
    rows: Vec<FleetRow>,
    /// Whether the daemon has said which agents there are.
    is_ready: bool,
    /// The agent that keys are about.
    chosen: Option<AgentKey>,
    /// The first line of the list that is on the screen.
    top: usize,
    marked: BTreeSet<AgentKey>,
    filter: String,
    focus: Focus,
    dispatch: Composer,
    /// The text of the dispatch line that is being carried out.
    dispatched: Option<Draft>,
    /// Replies that were written and not sent.
    drafts: BTreeMap<AgentKey, Draft>,
    /// When something was typed last.
    typed: Option<Instant>,
    toast: Option<(String, Instant)>,
}

impl FleetState {
    /// A screen of this size, before the agents are known.
    pub fn new(size: (u16, u16), theme: Theme, place: String) -> Self {
        Self { size, theme, place, ..Self::default() }
    }

    /// Says something when the screen is shown next.
    pub fn tell(&mut self, text: &str) {
        self.say(text, Instant::now());
    }

    /// The agents that are shown.
    pub fn scope(&self) -> FleetScope {
        self.scope
    }

    /// What was written and not sent, with the agent that it was for.
    pub fn unsent(&self) -> Vec<String> {
        let mut unsent: Vec<String> = self
            .drafts
            .iter()
            .map(|(key, draft)| format!("to {}: {}", self.name_of(key), draft.whole()))
            .collect();
        if !self.dispatch.is_blank() {
            unsent.push(self.dispatch.draft().whole());
        }
        unsent
    }

    /// When something changes on the screen by itself.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let ready = match &self.focus {
            Focus::Asking(asking) => asking.ready_at(self.typed).filter(|ready| *ready > now),
            _ => None,
        };
        let toast = self.toast.as_ref().map(|(_, until)| *until);
        [ready, toast].into_iter().flatten().min()
    }

    /// The frame is on the screen.
    pub fn drawn(&mut self, now: Instant) {
        let (area, theme) = (view::areas(self).panel, self.theme);
        if let Focus::Asking(asking) = &mut self.focus {
            asking.drawn(area, theme, now);
        }
    }

    /// Takes what happened; what is to be done.
    pub fn update(&mut self, event: FleetEvent, now: Instant) -> Vec<FleetEffect> {
        let mut effects = Vec::new();
        match event {
            FleetEvent::Key(key) if key.kind == KeyEventKind::Release => {}
            FleetEvent::Key(key) => {
                let before = self.toast.clone();
                effects = self.key(key, now);
                // What was said before does not stay under what is done now.
                if !effects.is_empty() && self.toast == before {
                    self.toast = None;
                }
            }
            FleetEvent::Paste(text) => self.paste(&text, now),
            FleetEvent::Resize(columns, rows) => self.size = (columns, rows),
            FleetEvent::Rows(rows) => effects = self.take_rows(rows, now),
            other => self.answered(other, now),
        }
        self.keep_in_sight();
        effects
    }

    /// What came of an effect.
    fn answered(&mut self, event: FleetEvent, now: Instant) {
        match event {
            FleetEvent::Told(text) => self.say(text, now),
            FleetEvent::Peeked(key, lines) => {
                if let Focus::Peek(peek) = &mut self.focus
                    && self.chosen.as_ref() == Some(&key)
                {
                    peek.lines = lines;
                }
            }
            FleetEvent::Asked(asks) => self.take_asks(asks, now),
            FleetEvent::Diffed(key, patch) => {
                if self.is_in_list() {
                    self.focus = Focus::Page(ScrolledText::diff(&self.name_of(&key), &patch));
                }
            }
            FleetEvent::Foretold(forecast) => {
                // It took a while: whoever looks at another agent meanwhile must not land this one by a key.
                if self.is_in_list() && self.chosen.as_ref() == Some(&forecast.key) {
                    self.focus =
                        Focus::Page(ScrolledText::merge(&self.name_of(&forecast.key), forecast, now));
                } else {
                    let name = self.name_of(&forecast.key);
                    self.say(format!("what would land of {name} is known: m shows it"), now);
                }
            }
            FleetEvent::Dispatched(Ok(told)) => {
                self.dispatched = None;
                self.say(told, now);
            }
            FleetEvent::Dispatched(Err(why)) => {
                // What was typed comes back, before what was typed since.
                if let Some(draft) = self.dispatched.take() {
                    self.dispatch.put_before(draft);
                }
                self.say(why, now);
            }
            FleetEvent::NotSent(key, text, why) => {
                self.give_back(key, &text);
                self.say(why, now);
            }
            FleetEvent::Ground(ground) => self.theme.ground = ground,
            FleetEvent::Tick => {
                self.toast.take_if(|(_, until)| now >= *until);
            }
            FleetEvent::Key(_) | FleetEvent::Paste(_) | FleetEvent::Resize(..) | FleetEvent::Rows(_) => {}
        }
    }

    /// A reply that was not sent is the agent's draft again.
    fn give_back(&mut self, key: AgentKey, text: &str) {
        match &mut self.focus {
            Focus::Peek(peek) if self.chosen.as_ref() == Some(&key) => peek.reply.put_before(Draft::of(text)),
            _ => {
                self.drafts.insert(key, Draft::of(text));
            }
        }
    }

    fn say(&mut self, text: impl Into<String>, now: Instant) {
        let text = text.into();
        let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        self.toast = Some((text, now + TOAST.max(TOAST_CHARACTER.saturating_mul(length))));
    }

    /// What an agent is called.
    fn name_of(&self, key: &AgentKey) -> String {
        let row = self.rows.iter().find(|row| row.key == *key);
        crate::sanitise::line(row.map_or(key.id.as_str(), FleetRow::name))
    }

    fn is_in_list(&self) -> bool {
        matches!(self.focus, Focus::List)
    }
}
