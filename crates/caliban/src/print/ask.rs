//! Asks a person at the terminal, in plain lines. The terminal UI will do this better.
//!
//! The agent goes on while somebody thinks: questions wait in a line of their own, one at a time.

use std::{
    io::{BufRead as _, Write as _},
    sync::mpsc,
};

use caliban_agent::{
    event::{Answer, Ask, Event},
    feed::Entry,
    handle::Handle,
};
use caliban_core::inert;

use crate::consent::Consent;

/// Puts questions to the person, in the order in which they come.
pub(super) struct Asker {
    questions: mpsc::Sender<Ask>,
}

impl Asker {
    /// Reading a terminal blocks and cannot be called off: that is a thread's work, which the program's end leaves
    /// behind.
    pub(super) fn start(handle: Handle) -> Self {
        let (questions, asked) = mpsc::channel::<Ask>();
        std::thread::spawn(move || {
            for ask in asked {
                // It may have gone meanwhile: cancelled, or allowed by an earlier "always".
                if handle.asks().open().contains(&ask) {
                    handle.asks().answer_exactly(&ask, question(&ask));
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

fn question(ask: &Ask) -> Answer {
    let whole = caliban_agent::whole_call(&ask.name, &ask.input);
    let excerpt = caliban_agent::excerpt(&whole);
    let mut shown = excerpt.text;
    loop {
        match put(ask, &shown, excerpt.hidden) {
            None => return Answer::No(None),
            Some(Consent::Once) => return Answer::Once,
            Some(Consent::Always) => return Answer::Always,
            Some(Consent::No) => return Answer::No(None),
            Some(Consent::Instead(reason)) => return Answer::No(Some(reason)),
            Some(Consent::View) => shown.clone_from(&whole),
            Some(Consent::NoAlways) => "there is no rule for that: y allows it once".clone_into(&mut shown),
        }
    }
}

/// Puts the question once; none when nobody can be asked.
fn put(ask: &Ask, shown: &str, hidden: usize) -> Option<Consent> {
    let mut out = anstream::stderr();
    let who =
        ask.agent.as_deref().map(|agent| format!("  (for {})\n", inert::line(agent))).unwrap_or_default();
    let rules = ask.suggestions.join(", ");
    let always =
        if rules.is_empty() { String::new() } else { format!(", a = always allow {}", inert::line(&rules)) };
    let view = if hidden > 0 { ", v = view all of it" } else { "" };
    let why = inert::line(&ask.why);
    write!(out, "\n{shown}\n{who}  {why}\n  y = yes{always}, n = no{view}, or say what to do instead: ")
        .and_then(|()| out.flush())
        .ok()?;
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Some(Consent::of(&line, !rules.is_empty())),
        Ok(0) | Err(_) => None,
    }
}
