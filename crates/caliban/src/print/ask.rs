//! Asks a person at the terminal, in plain lines.
//!
//! The agent goes on while somebody thinks: questions are asked one at a time, in the order in which they come. A line
//! that was begun before its question was shown is never an answer to it.

use std::{io::Write as _, sync::mpsc};

use caliban_agent::{
    event::{Answer, Ask, Event},
    feed::Entry,
    handle::Handle,
};
use caliban_core::inert;

use crate::{
    consent::Consent,
    keyboard::{Keyboard, Line},
};

/// Puts questions to the person, in the order in which they come.
pub(super) struct Asker {
    questions: mpsc::Sender<Ask>,
}

impl Asker {
    /// Starts the thread that asks: reading a terminal blocks and cannot be cancelled. The thread ends with the program.
    pub(super) fn start(handle: Handle) -> Self {
        let (questions, asked) = mpsc::channel::<Ask>();
        std::thread::spawn(move || {
            // Opened at the first question: until then nobody reads what is typed.
            let mut keyboard = None;
            for ask in asked {
                // It may have gone meanwhile: cancelled, or allowed by an earlier "always".
                if handle.asks().open().contains(&ask) {
                    if keyboard.is_none() {
                        keyboard = Keyboard::open().ok().flatten();
                    }
                    handle.asks().answer_exactly(&ask, question(&ask, &mut keyboard));
                }
            }
        });
        Self { questions }
    }

    /// Takes the question of this entry, if it is one.
    pub(super) fn entry(&self, entry: &Entry) {
        let ask = match entry {
            Entry::SubAsked(ask) => ask,
            Entry::Record(record) => match &record.event {
                Event::AskOpened(ask) => ask,
                _ => return,
            },
            _ => return,
        };
        // The thread lives as long as this does.
        let _gone = self.questions.send(ask.clone());
    }
}

fn question(ask: &Ask, keyboard: &mut Option<Keyboard>) -> Answer {
    let whole = caliban_agent::whole_call(&ask.name, &ask.input);
    let excerpt = caliban_agent::excerpt(&whole);
    let offers_always = !ask.suggestions.is_empty();
    let mut shown = excerpt.text;
    loop {
        let line = show(ask, &shown, excerpt.hidden).ok().and(keyboard.as_mut()).and_then(answer);
        // Without a terminal, or at its end, nobody can be asked.
        let Some(line) = line else { return Answer::No(None) };
        match Consent::of(&line, offers_always) {
            Consent::Once => return Answer::Once,
            Consent::Always => return Answer::Always,
            Consent::No => return Answer::No(None),
            Consent::Instead(reason) => return Answer::No(Some(reason)),
            Consent::View => shown.clone_from(&whole),
            Consent::NoAlways => "there is no rule for that: y allows it once".clone_into(&mut shown),
        }
    }
}

/// The first whole line that was begun after the question was shown; none at the end of input.
fn answer(keyboard: &mut Keyboard) -> Option<String> {
    let (shown, _) = keyboard.look();
    loop {
        let Line { text, looks, is_whole, .. } = keyboard.blocking_next()?;
        if !is_whole {
            return None;
        }
        if looks >= shown {
            return Some(text);
        }
        let mut out = anstream::stderr();
        let early = inert::line(text.trim_end());
        write!(out, "\n  typed before the question was shown, and no answer to it: {early}\n  y or n: ")
            .and_then(|()| out.flush())
            .ok()?;
    }
}

/// Shows the question.
fn show(ask: &Ask, shown: &str, hidden: usize) -> std::io::Result<()> {
    let mut out = anstream::stderr();
    let who =
        ask.agent.as_deref().map(|agent| format!("  (for {})\n", inert::line(agent))).unwrap_or_default();
    let rules = ask.suggestions.join(", ");
    let always =
        if rules.is_empty() { String::new() } else { format!(", a = always allow {}", inert::line(&rules)) };
    let view = if hidden > 0 { ", v = view all of it" } else { "" };
    let why = inert::line(&ask.why);
    write!(out, "\n{shown}\n{who}  {why}\n  y = yes{always}, n = no{view}, or say what to do instead: ")?;
    out.flush()
}
