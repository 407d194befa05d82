//! Asks a person at the terminal, in plain lines. The terminal UI will do this better.

use std::io::{BufRead as _, Write as _};

use caliban_agent::{
    event::{Answer, Ask, Event},
    feed::Entry,
    handle::Handle,
};
use caliban_core::inert;

/// Puts the question of this entry, if it is one, and answers it.
pub(super) async fn answer(entry: &Entry, handle: &Handle) {
    let ask = match entry {
        Entry::SubAsked(ask) => ask,
        Entry::Record(record) => match &record.event {
            Event::AskOpened(ask) => ask,
            _ => return,
        },
        _ => return,
    };
    let shown = ask.clone();
    // Reading a terminal blocks: it has a thread of its own, which an interrupt leaves behind.
    let answer = tokio::task::spawn_blocking(move || question(&shown)).await;
    handle.asks().answer(&ask.id, answer.unwrap_or(Answer::No(None)));
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
        "\n{} {}{who}\n  {}\n  y = yes{always}, n = no, or say what to do instead: ",
        ask.name,
        what,
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
