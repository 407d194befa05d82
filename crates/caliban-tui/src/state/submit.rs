//! From the composer to the agent: send, steer, queue.

use std::time::Instant;

use caliban_core::ask::Answer;

use super::{Focus, ScreenState};
use crate::{
    cells::{AskCell, CellKind, User},
    composer::Draft,
    events::ScreenEffect,
};

impl ScreenState {
    /// Enter: begins a turn, or steers the one that runs.
    pub(super) fn submit(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if self.composer.is_blank() {
            return Vec::new();
        }
        if let Some(effects) = self.command(now).or_else(|| self.shell_command(now)) {
            return effects;
        }
        if self.is_gone {
            return self.only_say("the agent is gone: nothing was sent", now);
        }
        let draft = self.composer.take();
        if !self.is_open {
            self.queue.push(draft);
            return self.only_say("it is sent as soon as the session is open", now);
        }
        self.send(vec![draft], now)
    }

    /// The command that was entered too early, once the session is open and the agent has named its own.
    pub(super) fn submit_early(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if !self.is_open || self.commands.is_empty() {
            return Vec::new();
        }
        match self.early.take() {
            Some(text) if text == self.composer.draft().whole() => self.submit(now),
            Some(_) | None => Vec::new(),
        }
    }

    /// Tab: waits for the next turn.
    pub(super) fn enqueue(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if self.composer.is_blank() || !self.turn.is_running() {
            return Vec::new();
        }
        if let Some(effects) = self.command(now).or_else(|| self.shell_command(now)) {
            return effects;
        }
        let draft = self.composer.take();
        self.queue.push(draft);
        Vec::new()
    }

    /// Alt+↑: takes the last queued message back.
    pub(super) fn unqueue(&mut self) {
        if let Some(draft) = self.queue.pop() {
            self.composer.put_before(draft);
        }
    }

    /// Everything that is queued, as one message.
    pub(super) fn send_queue(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if self.queue.is_empty() || self.turn.is_running() || !self.is_open || self.is_gone {
            return Vec::new();
        }
        let queue = std::mem::take(&mut self.queue);
        self.send(queue, now)
    }

    fn send(&mut self, drafts: Vec<Draft>, now: Instant) -> Vec<ScreenEffect> {
        let texts: Vec<String> = drafts.iter().map(|draft| draft.whole().trim_end().to_owned()).collect();
        let text = texts.join("\n\n");
        let shown: Vec<String> = drafts.iter().map(|draft| draft.shown().trim_end().to_owned()).collect();
        let mut effects = Vec::new();
        for draft in drafts {
            effects.push(ScreenEffect::Remember(draft.whole()));
            self.composer.history.push(draft);
        }
        self.push(CellKind::User(User::new(&shown.join("\n\n"), None)));
        self.conversation.follow();
        self.turn.prompted(now);
        let text = if self.is_agents_command(&text) {
            text
        } else {
            let text = self.with_untold(text);
            self.unheard.push_back(text.clone());
            text
        };
        effects.push(ScreenEffect::Prompt(text));
        effects
    }

    /// The agent is gone, and did not answer this. What it has heard is in the conversation, and is not said again.
    pub(super) fn not_sent(&mut self, text: &str) {
        let unheard = self.unheard.iter().position(|unheard| unheard == text);
        if let Some(at) = unheard {
            self.unheard.remove(at);
        }
        if unheard.is_some() || self.is_agents_command(text) {
            self.composer.put_before(Draft::of(text));
        }
    }

    /// What waits for the next turn goes back into the composer: it was meant for this session.
    pub(super) fn take_queue_back(&mut self) {
        for draft in std::mem::take(&mut self.queue).into_iter().rev() {
            self.composer.put_before(draft);
        }
    }

    /// Answers the question that is shown.
    pub(super) fn answer(&mut self, reply: Answer, now: Instant) -> Vec<ScreenEffect> {
        let Some(open) = self.asks.take() else { return Vec::new() };
        let who = open.asked.agent.as_ref().map(|agent| format!("{agent}: ")).unwrap_or_default();
        let title = format!("{who}{}", open.asked.title());
        let (text, is_allowed) = match &reply {
            Answer::Once => (format!("allowed once: {title}"), true),
            Answer::Always | Answer::AlwaysOutside => (format!("always allowed: {title}"), true),
            Answer::Keep(kept) => (format!("always allowed: {}: {title}", kept.words()), true),
            Answer::No(None) => (format!("refused: {title}"), false),
            Answer::No(Some(reason)) => (format!("refused, because {reason}: {title}"), false),
        };
        self.push(CellKind::Ask(AskCell::new(&text, is_allowed)));
        // The key that answered one question must not answer the next.
        self.typed = Some(now);
        if self.asks.is_empty() {
            self.focus = Focus::Composer;
        }
        vec![ScreenEffect::Answer(open.asked.number, reply)]
    }
}
