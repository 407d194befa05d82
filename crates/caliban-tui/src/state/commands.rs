//! Slash commands: those of the screen, and those of the agent. Whatever else begins with a slash and one word is not sent.

use std::{path::PathBuf, time::Instant};

use super::{Destination, Popup, ScreenState};
use crate::{
    cells::CellKind,
    events::ScreenEffect,
    theme::{Ground, Theme},
};

/// Commands of the screen: name, what goes behind it, what it does.
pub(super) const OWN: [(&str, &str, &str); 17] = [
    ("help", "", "Keys and commands"),
    ("new", "", "Begin a new session"),
    ("clear", "", "The same as /new"),
    ("resume", "[id]", "Go on with another session of this repo"),
    ("sessions", "", "The same as /resume"),
    ("agents", "", "Show the agents of the fleet; Esc comes back"),
    ("mode", "[name]", "Show or change the permission mode"),
    ("todo", "", "Show or hide the todo list"),
    ("copy", "", "Copy the last answer"),
    ("export", "[file]", "Write the conversation into a file"),
    ("view", "", "Read the conversation in your editor"),
    ("print", "", "Print the conversation into the terminal's own scrollback"),
    ("theme", "light | dark", "Colours for a light or a dark ground"),
    ("mouse", "on | off", "Scroll with the wheel, or select with the mouse"),
    ("cost", "", "What this session has used"),
    ("detach", "", "Leave the agent running"),
    ("quit", "", "Leave"),
];

/// Commands of other tools, and what does the same here.
const FOREIGN: [(&str, &str); 3] = [("plan", "/mode plan"), ("exit", "/quit"), ("context", "/cost")];

impl ScreenState {
    /// The commands that there are now: name, what goes behind it, what it does.
    pub(super) fn known_commands(&self) -> Vec<(String, String, String)> {
        let own = OWN.iter().filter(|(name, ..)| self.is_own(name));
        let own =
            own.map(|(name, input, about)| ((*name).to_owned(), (*input).to_owned(), (*about).to_owned()));
        let theirs = self.commands.iter().filter(|command| !self.is_own(&command.name)).map(|command| {
            (command.name.clone(), command.hint.clone().unwrap_or_default(), command.about.clone())
        });
        own.chain(theirs).collect()
    }

    /// Whether the screen carries out this command. `/detach` leaves an agent that we are attached to; a session of ours is
    /// sent away by its agent.
    fn is_own(&self, name: &str) -> bool {
        let is_attached = self.facts.attached.is_some();
        OWN.iter().any(|(own, ..)| *own == name)
            && match name {
                "detach" => is_attached,
                "new" | "clear" | "resume" | "sessions" => !is_attached,
                _ => true,
            }
    }

    /// Carries out the command that the draft is; none when it is a message.
    pub(super) fn command(&mut self, now: Instant) -> Option<Vec<ScreenEffect>> {
        let text = self.composer.draft().whole();
        let (name, rest) = parsed(&text)?;
        let (name, rest) = (name.to_owned(), rest.to_owned());
        let known = self.known_commands();
        if !known.iter().any(|(known, ..)| *known == name) {
            // The agent names its own when the session opens.
            if self.commands.is_empty() && !self.is_gone && !self.is_without {
                self.early = Some(text);
                return Some(self.only_say("it is carried out as soon as the session is open", now));
            }
            // One slip in a short name, one for every three letters of a long one.
            let slips = (name.len() / 3).max(1);
            let foreign =
                FOREIGN.iter().find(|(foreign, _)| *foreign == name).map(|(_, own)| (*own).to_owned());
            let near = known
                .iter()
                .map(|(known, ..)| (strsim::damerau_levenshtein(known, &name), known))
                .filter(|(distance, _)| *distance <= slips)
                .min_by_key(|(distance, _)| *distance);
            let meant = foreign.or(near.map(|(_, near)| format!("/{near}")));
            let hint = meant.map_or("/help lists them.".to_owned(), |meant| format!("did you mean {meant}?"));
            let text = format!("there is no command /{name}; {hint} Nothing was sent.");
            return Some(self.only_say(text, now));
        }
        if !self.is_own(&name) {
            // The agent's own: sent like a message, with the name as it is.
            return None;
        }
        self.composer.discard();
        self.popup = None;
        Some(self.own_command(&name, &rest, now))
    }

    /// Whether this is a command that the agent carries out.
    pub(super) fn is_agents_command(&self, text: &str) -> bool {
        let name = parsed(text).map(|(name, _)| name);
        name.is_some_and(|name| self.commands.iter().any(|command| command.name == name))
    }

    fn own_command(&mut self, name: &str, rest: &str, now: Instant) -> Vec<ScreenEffect> {
        match name {
            "help" => self.open(Popup::help(&self.known_commands())),
            "new" | "clear" => self.leave_for(Destination::New, now),
            "resume" if !rest.is_empty() => vec![ScreenEffect::FindSession(rest.to_owned())],
            "resume" | "sessions" => vec![ScreenEffect::ListSessions],
            "agents" => vec![ScreenEffect::Fleet],
            "mode" if rest.is_empty() => {
                let modes: Vec<String> =
                    self.modes.iter().map(|mode| format!("{}: {}", mode.id, mode.about)).collect();
                self.open(Popup::text("Permission modes (Shift+Tab changes)", modes))
            }
            "mode" => match self.modes.iter().find(|mode| mode.id == rest) {
                Some(mode)
                    if mode.id == super::UNATTENDED && !std::mem::replace(&mut self.is_warned, true) =>
                {
                    let warning =
                        "/mode unattended again confirms it: commands then run with your rights, unfenced";
                    self.only_say(warning, now)
                }
                Some(mode) => vec![ScreenEffect::SetMode(mode.id.clone())],
                None => {
                    let modes: Vec<&str> = self.modes.iter().map(|mode| mode.id.as_str()).collect();
                    self.only_say(format!("there is no mode {rest}; there are {}", modes.join(", ")), now)
                }
            },
            "todo" => {
                self.toggle_todo(now);
                Vec::new()
            }
            "copy" => match self.last_answer() {
                Some(text) => vec![ScreenEffect::Copy(text)],
                None => self.only_say("there is no answer yet", now),
            },
            "export" => {
                let file = if rest.is_empty() { "conversation.md" } else { rest };
                vec![ScreenEffect::Export(PathBuf::from(file), self.exported())]
            }
            "view" => self.view(now),
            "print" => self.print(now),
            "theme" => {
                let ground = match rest {
                    "light" => Ground::Light,
                    "dark" => Ground::Dark,
                    _ => return self.only_say("/theme light or /theme dark", now),
                };
                self.theme = Theme { ground, ..self.theme };
                vec![ScreenEffect::Repaint]
            }
            "mouse" => match rest {
                "on" | "off" => {
                    let is_on = rest == "on";
                    let how =
                        if is_on { "the wheel scrolls; Shift+drag selects" } else { "PgUp and PgDn scroll" };
                    self.say(how, now);
                    vec![ScreenEffect::Mouse(is_on)]
                }
                _ => self.only_say("/mouse on or /mouse off", now),
            },
            "cost" => self.open(Popup::text("This session", crate::view::spent(self))),
            _ => self.leave_for(Destination::Quit, now),
        }
    }

    pub(super) fn open(&mut self, popup: Popup) -> Vec<ScreenEffect> {
        self.popup = Some(popup);
        Vec::new()
    }

    pub(super) fn toggle_todo(&mut self, now: Instant) {
        if self.todo.is_empty() {
            self.say("the agent has no todo list", now);
        }
        self.shows_todo = !self.shows_todo;
    }

    /// The conversation in the person's editor.
    pub(super) fn view(&mut self, now: Instant) -> Vec<ScreenEffect> {
        self.shown_elsewhere(ScreenEffect::View, now)
    }

    /// The conversation in the terminal's own scrollback, where it is anyway without the alternate screen.
    pub(super) fn print(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if !self.look.is_alternate {
            return self.only_say("it is in the scrollback already", now);
        }
        self.shown_elsewhere(ScreenEffect::Print, now)
    }

    fn shown_elsewhere(&mut self, shown: fn(String) -> ScreenEffect, now: Instant) -> Vec<ScreenEffect> {
        if self.conversation.is_empty() {
            return self.only_say("nothing was said yet", now);
        }
        vec![shown(self.exported())]
    }

    fn last_answer(&self) -> Option<String> {
        self.conversation.newest_first().find_map(|cell| match cell.kind() {
            CellKind::Assistant(cell) if !cell.is_of_command() => Some(cell.source().to_owned()),
            _ => None,
        })
    }

    /// The conversation as text.
    fn exported(&self) -> String {
        const COLUMNS: usize = 10_000;
        let mut cells: Vec<String> = self
            .conversation
            .newest_first()
            .map(|cell| match cell.kind() {
                CellKind::Assistant(cell) => cell.source().to_owned(),
                _ => {
                    let text = crate::text::logical(cell.rows(COLUMNS, self.theme).iter());
                    text.trim_matches('\n').to_owned()
                }
            })
            .collect();
        cells.reverse();
        cells.join("\n\n") + "\n"
    }
}

/// The name and the rest of a command; none for a message, a path (`/etc/hosts`) among them.
fn parsed(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim().strip_prefix('/')?;
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    is_name.then(|| (name, rest.trim()))
}
