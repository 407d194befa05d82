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
    let mut out = anstream::stderr();
    let who = ask.agent.as_deref().map(|agent| format!(" ({})", inert::line(agent))).unwrap_or_default();
    let what = caliban_agent::describe(&ask.input);
    let rules = ask.suggestions.join(", ");
    let always =
        if rules.is_empty() { String::new() } else { format!(", a = always allow {}", inert::line(&rules)) };
    let asked = write!(
        out,
        "\n{} {what}{who}\n  {}\n  y = yes{always}, n = no, or say what to do instead: ",
        inert::line(&ask.name),
        inert::line(&ask.why)
    )
    .and_then(|()| out.flush());
    let mut line = String::new();
    if asked.is_err() || std::io::stdin().lock().read_line(&mut line).is_err() {
        return Answer::No(None);
    }
    match line.trim() {
        "y" | "Y" | "yes" => Answer::Once,
        "a" | "A" | "always" if !rules.is_empty() => Answer::Always,
        "" | "n" | "N" | "no" => Answer::No(None),
        reason => Answer::No(Some(reason.to_owned())),
    }
}
