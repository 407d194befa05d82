//! Leaving a session whose background agents are at work: they would end with it, so a person is asked once.

use std::time::Instant;

use super::{Popup, PopupKind, ScreenState};
use crate::composer::Draft;
use crate::events::{BackgroundStatus, ScreenEffect};

/// What the question about background agents is answered with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLeave {
    /// The person is asked.
    #[default]
    Ask,
    /// They go on in the fleet.
    Keep,
    /// They end.
    End,
}

/// Where one goes from a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A new session.
    New,
    /// This session.
    Load(String),
    /// A session that was made of this one.
    Other {
        /// It.
        session: String,
        /// What stands in the composer there.
        draft: String,
        /// What is said there.
        text: String,
    },
    /// Out of the screen.
    Quit,
}

const KEEP: &str = "keep";
const END: &str = "end";
const STAY: &str = "stay";

impl ScreenState {
    /// Leaves the session, or asks first what becomes of its background agents.
    pub(super) fn leave_for(&mut self, destination: Destination, now: Instant) -> Vec<ScreenEffect> {
        let at_work = self.agents_at_work();
        if at_work == 0 || self.is_gone {
            return self.go(destination);
        }
        match self.look.on_leave {
            OnLeave::End => self.go(destination),
            OnLeave::Keep => self.keep_agents(destination, now),
            OnLeave::Ask => {
                let who = match at_work {
                    1 => "a background agent is at work".to_owned(),
                    many => format!("{many} background agents are at work"),
                };
                self.popup = Some(Popup {
                    title: format!("{who}, and would end with this session"),
                    items: [
                        (KEEP, "k  keep them: they go on in the fleet, and you leave"),
                        (END, "e  end them, and leave"),
                        (STAY, "s  stay here"),
                    ]
                    .map(|(value, text)| (value.to_owned(), text.to_owned()))
                    .to_vec(),
                    kind: PopupKind::Leave(destination),
                    chosen: 0,
                });
                Vec::new()
            }
        }
    }

    /// A choice in the question, by its first letter.
    pub(super) fn leave_choice(letter: char) -> Option<&'static str> {
        [KEEP, END, STAY].into_iter().find(|choice| choice.starts_with(letter))
    }

    /// The question is answered.
    pub(super) fn answer_leave(
        &mut self,
        choice: &str,
        destination: Destination,
        now: Instant,
    ) -> Vec<ScreenEffect> {
        match choice {
            KEEP => self.keep_agents(destination, now),
            END => self.go(destination),
            _ => Vec::new(),
        }
    }

    fn keep_agents(&mut self, destination: Destination, now: Instant) -> Vec<ScreenEffect> {
        self.keeping_for = Some(destination);
        self.say("handing them to the fleet …", now);
        vec![ScreenEffect::KeepAgents]
    }

    /// Something has changed among the background agents, or the fleet has answered: whether one can leave now. Whoever
    /// was not taken stays, and the question comes again.
    pub(super) fn go_on_leaving(&mut self, is_answered: bool, now: Instant) -> Vec<ScreenEffect> {
        let asked = match &self.popup {
            Some(Popup { kind: PopupKind::Leave(destination), .. }) => Some(destination.clone()),
            _ => None,
        };
        let is_empty = self.agents_at_work() == 0;
        match (self.keeping_for.clone(), asked) {
            (Some(destination), _) | (None, Some(destination)) if is_empty => {
                self.popup = None;
                self.go(destination)
            }
            (Some(destination), _) if is_answered => {
                self.keeping_for = None;
                let asks = self.look.on_leave;
                self.look.on_leave = OnLeave::Ask;
                let effects = self.leave_for(destination, now);
                self.look.on_leave = asks;
                effects
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn agents_at_work(&self) -> usize {
        if self.facts.attached.is_some() {
            return 0;
        }
        self.background.iter().filter(|row| row.status == BackgroundStatus::Running).count()
    }

    fn go(&mut self, destination: Destination) -> Vec<ScreenEffect> {
        self.keeping_for = None;
        if destination == Destination::Quit {
            return vec![ScreenEffect::Quit];
        }
        self.start_over();
        vec![match destination {
            Destination::Load(session) => ScreenEffect::Load(session),
            Destination::Other { session, draft, text } => {
                self.told_when_open = Some(text);
                self.composer.put_before(Draft::of(&draft));
                ScreenEffect::Load(session)
            }
            Destination::New | Destination::Quit => ScreenEffect::New,
        }]
    }
}
