//! Asks a person at the terminal, in plain lines.
//!
//! The agent goes on while somebody thinks: questions are asked one at a time, in the order in which they come. A line
//! that was begun before its question was shown is never an answer to it.

use std::{
    io::Write as _,
    sync::mpsc,
    time::{Duration, Instant},
};

use caliban_agent::{
    event::{Answer, Ask, Event},
    feed::FeedEntry,
    handle::Handle,
};
use caliban_core::inert;

use crate::{
    consent::{Consent, OfferedRules},
    fleet::questions::READING_TIME,
    keyboard::{Keyboard, TypedLine},
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
    pub(super) fn entry(&self, entry: &FeedEntry) {
        let ask = match entry {
            FeedEntry::SubAsked(ask) => ask,
            FeedEntry::Record(record) => match &record.event {
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
    let whole = ask.call();
    let excerpt = caliban_agent::excerpt(&whole);
    let offered = OfferedRules { always: &ask.suggestions, outside: &ask.outside };
    let (mut shown, mut is_hidden) = (excerpt.text, excerpt.hidden > 0);
    // When there was last something new to read.
    let mut since = Instant::now();
    loop {
        let line = show(ask, &shown, is_hidden).ok().and(keyboard.as_mut()).and_then(answer);
        // Without a terminal, or at its end, nobody can be asked.
        let Some(line) = line else { return Answer::No(None) };
        match taken(Consent::of(&line.text, offered), is_hidden, line.at.saturating_duration_since(since)) {
            AskLine::Answer(answer) => return answer,
            AskLine::View => {
                shown.clone_from(&whole);
                (is_hidden, since) = (false, Instant::now());
            }
            AskLine::Not(why) => shown = why,
        }
    }
}

/// What a line is taken for.
#[derive(Debug, PartialEq, Eq)]
enum AskLine {
    Answer(Answer),
    View,
    /// No answer, for this reason.
    Not(String),
}

/// What is meant by a line that came so long after there was last something new to read. Only what was shown whole, and can
/// have been read, is allowed.
fn taken(consent: Consent, is_hidden: bool, age: Duration) -> AskLine {
    match consent {
        Consent::Once | Consent::Keep(_) if is_hidden => {
            AskLine::Not("a part of the call is not shown: v shows all of it, then y allows it".to_owned())
        }
        Consent::Once | Consent::Keep(_) if age < READING_TIME => {
            AskLine::Not("typed too soon to have read the question, and no answer to it".to_owned())
        }
        Consent::Once => AskLine::Answer(Answer::Once),
        Consent::Keep(kept) => AskLine::Answer(Answer::Keep(kept)),
        Consent::No => AskLine::Answer(Answer::No(None)),
        Consent::Instead(reason) => AskLine::Answer(Answer::No(Some(reason))),
        Consent::View => AskLine::View,
        Consent::NoAlways => AskLine::Not("there is no rule for that: y allows it once".to_owned()),
        Consent::NoRule(why) => AskLine::Not(why),
    }
}

/// The first whole line that was begun after the question was shown; none at the end of input.
fn answer(keyboard: &mut Keyboard) -> Option<TypedLine> {
    let (shown, _) = keyboard.look();
    loop {
        let line = keyboard.blocking_next()?;
        if !line.is_whole {
            return None;
        }
        if line.looks >= shown {
            return Some(line);
        }
        let mut out = anstream::stderr();
        let early = inert::line(line.text.trim_end());
        write!(out, "\n  typed before the question was shown, and no answer to it: {early}\n  y or n: ")
            .and_then(|()| out.flush())
            .ok()?;
    }
}

/// Shows the question.
fn show(ask: &Ask, shown: &str, is_hidden: bool) -> std::io::Result<()> {
    let mut out = anstream::stderr();
    let who =
        ask.agent.as_deref().map(|agent| format!("  (for {})\n", inert::line(agent))).unwrap_or_default();
    let offered = OfferedRules { always: &ask.suggestions, outside: &ask.outside };
    let always = offered.words();
    let how_long =
        offered.how_long().filter(|_| !is_hidden).map(|it| format!("  {it}\n")).unwrap_or_default();
    let yes = if is_hidden { String::new() } else { format!("y = yes{always}, ") };
    let view = if is_hidden { ", v = view all of it first" } else { "" };
    let why = caliban_agent::event::why_in_words(ask);
    let why = inert::line(&why);
    write!(out, "\n{shown}\n{who}  {why}\n{how_long}  {yes}n = no{view}, or say what to do instead: ")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a16_only_what_was_shown_whole_and_can_have_been_read_is_allowed() {
        let soon = READING_TIME / 2;
        let is_allowed = |is_hidden, age| {
            let kept = caliban_core::kept_rules::KeptRules::default();
            let both =
                [Consent::Once, Consent::Keep(kept.clone())].map(|consent| taken(consent, is_hidden, age));
            both == [AskLine::Answer(Answer::Once), AskLine::Answer(Answer::Keep(kept))]
        };
        assert!(is_allowed(false, READING_TIME));
        assert!(!is_allowed(false, soon) && !is_allowed(true, READING_TIME));
        // A refusal harms nobody.
        assert_eq!(taken(Consent::No, true, soon), AskLine::Answer(Answer::No(None)));
        let instead = Consent::Instead("make".into());
        assert_eq!(taken(instead, true, soon), AskLine::Answer(Answer::No(Some("make".into()))));
        assert_eq!(taken(Consent::View, true, soon), AskLine::View);
    }
}
