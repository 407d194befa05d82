//! Questions of agents in the agent view. The rules of the session's question hold: a key answers only what was shown
//! whole and could be read (`asks.rs`).

use std::{collections::BTreeMap, time::Instant};

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::Rect;

use super::{AgentKey, FleetAsk, FleetEffect, FleetState, Focus, view};
use crate::{
    asks::{AskArea, AskedQuestion, Asks, Pressed},
    theme::Theme,
    view::dialog,
};

/// The questions that are shown one after the other.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) asks: Asks,
    /// To whom an answer goes, by the number of the question: the agent, the ask's id and the digest of its call.
    from: BTreeMap<u64, (AgentKey, String, String)>,
}

impl Asking {
    pub(super) fn is_loading(&self) -> bool {
        self.asks.is_empty()
    }

    pub(super) fn ready_at(&self, typed: Option<Instant>) -> Option<Instant> {
        self.asks.first()?.ready_at(typed)
    }

    pub(super) fn drawn(&mut self, area: Rect, theme: Theme, now: Instant) {
        if let Some(open) = self.asks.first_mut() {
            let rows = open.rows(area.width.into(), theme).len();
            open.drawn(rows, dialog::call_height(area), now);
        }
    }
}

impl FleetState {
    /// Shows what the marked agents ask, or the chosen one.
    pub(super) fn ask(&mut self, now: Instant) -> Vec<FleetEffect> {
        let targets = self.targets();
        let asks = |key: &AgentKey| self.rows.iter().any(|row| row.key == *key && !row.asks.is_empty());
        let asking: Vec<AgentKey> = targets.into_iter().filter(asks).collect();
        if asking.is_empty() {
            self.say("it asks nothing; n finds who needs you", now);
            return Vec::new();
        }
        // The hand is on the key: what follows at once is no answer.
        self.typed = Some(now);
        self.focus = Focus::Asking(Asking::default());
        vec![FleetEffect::Ask(asking)]
    }

    /// The questions that were asked for.
    pub(super) fn take_asks(&mut self, asks: Vec<FleetAsk>, now: Instant) {
        let Focus::Asking(asking) = &mut self.focus else { return };
        if !asking.is_loading() {
            return;
        }
        for (number, ask) in (0..).zip(asks) {
            let FleetAsk { key, id, digest, tool, who, input, preview, why, rules, outside } = ask;
            asking.from.insert(number, (key, id, digest));
            asking.asks.push(AskedQuestion {
                number,
                tool,
                agent: Some(who),
                input,
                preview,
                why,
                rules,
                outside,
            });
        }
        if asking.is_loading() {
            self.focus = Focus::List;
            self.say("it is not asked any more", now);
        }
    }

    /// Questions that were answered elsewhere close.
    pub(super) fn withdraw_asks(&mut self, now: Instant) {
        let Focus::Asking(asking) = &mut self.focus else { return };
        if asking.is_loading() {
            return;
        }
        let is_open = |key: &AgentKey, id: &String| {
            self.rows.iter().any(|row| row.key == *key && row.asks.contains(id))
        };
        let gone: Vec<u64> = asking
            .from
            .iter()
            .filter(|(_, (key, id, _))| !is_open(key, id))
            .map(|(number, _)| *number)
            .collect();
        for number in &gone {
            asking.from.remove(number);
            asking.asks.withdraw(*number);
        }
        let is_over = asking.asks.is_empty();
        if !gone.is_empty() {
            self.say("answered elsewhere, or not asked any more", now);
        }
        if is_over {
            self.focus = Focus::List;
        }
    }

    pub(super) fn ask_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        let area = view::areas(self).panel;
        let page = AskArea { columns: area.width.into(), rows: dialog::call_height(area).max(1) };
        let Focus::Asking(asking) = &mut self.focus else { return Vec::new() };
        if asking.is_loading() {
            self.typed = Some(now);
            if key.code == KeyCode::Esc {
                self.focus = Focus::List;
            }
            return Vec::new();
        }
        match asking.asks.key(key, (self.typed, now), page, self.theme) {
            Pressed::Answer(reply) => {
                // The next question is read from its beginning, by a person who has just pressed a key.
                self.typed = Some(now);
                let answered = asking.asks.take().and_then(|open| asking.from.remove(&open.asked.number));
                if asking.asks.is_empty() {
                    self.focus = Focus::List;
                }
                let answer = answered.map(|(key, id, digest)| FleetEffect::Answer(key, id, digest, reply));
                return answer.into_iter().collect();
            }
            Pressed::Back => self.focus = Focus::List,
            Pressed::Moved => {}
            Pressed::Typed => self.typed = Some(now),
            Pressed::Refused(why, waits) => {
                self.typed = if waits { Some(now) } else { self.typed };
                self.say(&why, now);
            }
        }
        Vec::new()
    }
}
