//! `caliban sessions replay`: the conversation as it ran.

use std::{collections::BTreeMap, io::Write, time::Duration};

use caliban_agent::event::{Answer, Author, Event, Outcome};
use caliban_core::{inert, message::ResultPart};

use crate::{report::Result, session_places::FoundSession};

/// Of a tool's output, so many lines are shown.
const OUTPUT_LINES: usize = 12;
/// A pause between two records is never waited for longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(super) fn replay(found: &FoundSession, speed: Option<f64>, out: &mut dyn Write) -> Result<()> {
    let (mut before, mut reader) = (None, ReplayReader::default());
    for record in super::records(found)? {
        if let (Some(speed), Some(before)) = (speed, before.replace(record.at)) {
            let pause: Duration = record.at.duration_since(before).unsigned_abs();
            std::thread::sleep(at_speed(pause, speed));
        }
        reader.event(&record.event, out)?;
        out.flush()?;
    }
    Ok(reader.finish(out)?)
}

/// The pause at that speed. A factor may be so small or so large that no duration holds what comes of it.
fn at_speed(pause: Duration, speed: f64) -> Duration {
    let wanted = Duration::try_from_secs_f64(pause.as_secs_f64() / speed);
    wanted.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}

/// Reads a conversation aloud, one event after the other.
#[derive(Debug, Default)]
pub(crate) struct ReplayReader {
    /// The calls that have begun and not ended, in words.
    calls: BTreeMap<String, String>,
    /// The call that was shown last: output below it is taken for its own.
    last: Option<String>,
    length: Length,
    /// Messages that were queued and are not heard yet, by their numbers.
    queued: BTreeMap<u64, String>,
}

/// How much of calls and their outputs is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Length {
    /// A line of the call, some lines of what came of it.
    #[default]
    Short,
    /// All that the transcript has.
    Whole,
}

impl ReplayReader {
    pub(crate) fn new(length: Length) -> Self {
        Self { length, ..Self::default() }
    }

    /// One event as people read it.
    pub(crate) fn event(&mut self, event: &Event, out: &mut dyn Write) -> std::io::Result<()> {
        match event {
            Event::CallStarted { id, name, input, .. } => {
                let call = format!("{} {}", inert::line(name), caliban_agent::describe(input));
                match self.length {
                    Length::Short => writeln!(out, "\n• {call}")?,
                    Length::Whole => writeln!(out, "\n• {}", caliban_agent::whole_call(name, input))?,
                }
                self.calls.insert(id.clone(), call);
                self.last = Some(id.clone());
                Ok(())
            }
            Event::CallEnded { id, content, summary, .. } => {
                let call = self.calls.remove(id);
                // Another began or ended meanwhile: it is said whose end this is.
                if let (Some(call), false) = (call, self.last.as_ref() == Some(id)) {
                    writeln!(out, "\n↳ {call}")?;
                }
                self.last = Some(id.clone());
                for part in content {
                    match part {
                        ResultPart::Text { text } => lines(text, self.length, out)?,
                        ResultPart::Image { media_type, .. } => {
                            writeln!(out, "  [{}]", inert::line(media_type))?;
                        }
                    }
                }
                if summary.is_empty() { Ok(()) } else { writeln!(out, "  ({})", inert::line(summary)) }
            }
            // Shown when it is heard, or at the end: it stands once.
            Event::Queued { number, text, .. } => {
                self.queued.insert(*number, text.clone());
                Ok(())
            }
            Event::Prompt { queued, .. } => {
                let text = queued.and_then(|number| self.queued.remove(&number));
                match text.filter(|_| event.typed().unwrap_or_default().trim().is_empty()) {
                    // A hook has kept it from the agent.
                    Some(text) => unheard(&text, out),
                    None => line(event, out),
                }
            }
            _ => line(event, out),
        }
    }

    /// The end of what there is to read: messages that the agent has not heard.
    pub(crate) fn finish(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        std::mem::take(&mut self.queued).values().try_for_each(|text| unheard(text, out))
    }
}

fn unheard(text: &str, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "\nuser (queued, not heard)> {}", inert::block(text.trim_end()))
}

/// An event that stands for itself.
fn line(event: &Event, out: &mut dyn Write) -> std::io::Result<()> {
    match event {
        Event::Started(header) => {
            writeln!(
                out,
                "session {} with {} in {}",
                header.session,
                inert::line(&header.model),
                inert::line(&header.cwd.display().to_string())
            )
        }
        Event::Resumed { model, .. } => writeln!(out, "\n-- taken up again with {} --", inert::line(model)),
        Event::Prompt { author, .. } => {
            let who = match author {
                Author::User => "user".to_owned(),
                Author::Parent => "parent agent".to_owned(),
                Author::Hook(name) => format!("hook {name}"),
                Author::Caliban => "caliban".to_owned(),
            };
            let Some(typed) = event.typed() else { return Ok(()) };
            writeln!(out, "\n{who}> {}", inert::block(typed.trim_end()))
        }
        Event::Queued { text, .. } => unheard(text, out),
        Event::Reply { message, .. } => {
            let text = message.text();
            if text.is_empty() { Ok(()) } else { writeln!(out, "\n{}", inert::block(text.trim_end())) }
        }
        Event::CallRefused { name, decision, .. } => {
            writeln!(out, "\n• {} not carried out: {}", inert::line(name), inert::line(&decision.why))
        }
        Event::AskOpened(ask) => writeln!(out, "\n? {}: {}", inert::line(&ask.name), inert::line(&ask.why)),
        Event::AskAnswered { given, .. } => writeln!(
            out,
            "  answered: {}",
            match &given.answer {
                Answer::Once => "yes".to_owned(),
                Answer::Always => "always".to_owned(),
                Answer::AlwaysOutside => "always, outside the fence".to_owned(),
                Answer::Keep(kept) => format!("always: {}", kept.words()),
                Answer::No(None) => "no".to_owned(),
                Answer::No(Some(reason)) => format!("no, {}", inert::quoted(reason)),
            }
        ),
        Event::Unanswered { usage } if usage.total() > 0 => {
            writeln!(out, "\n-- the model's answer broke off; the request counts {} tokens --", usage.total())
        }
        Event::Asked { .. } | Event::Counted { .. } | Event::Unanswered { .. } => Ok(()),
        Event::ResultsCleared { ids } => {
            writeln!(out, "\n-- {} old tool results dropped to make room --", ids.len())
        }
        Event::Summarised { summary, .. } => {
            writeln!(out, "\n-- the older part was summarised --\n{}", inert::block(summary))
        }
        Event::Background { text, .. } => writeln!(out, "{}", inert::line(text)),
        Event::Note { text } => writeln!(out, "note: {}", inert::line(text)),
        Event::TurnEnded { outcome, usage, turns, .. } => {
            let how = inert::line(&outcome_in_words(outcome)).into_owned();
            let turns = crate::fleet::turns((*turns).into());
            writeln!(out, "\n-- {how}; {turns}, {} tokens in all --", usage.total())
        }
        // Told by the reader, which knows what else runs.
        Event::CallStarted { .. } | Event::CallEnded { .. } => Ok(()),
    }
}

/// How a turn ended.
pub(crate) fn outcome_in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed { error, .. } => format!("failed: {error}"),
        Outcome::TurnLimit { limit } => {
            format!("stopped at the limit of {}", crate::fleet::turns((*limit).into()))
        }
        Outcome::Budget { limit } => format!("stopped: {limit}"),
        Outcome::Cancelled => "interrupted".to_owned(),
    }
}

fn lines(text: &str, length: Length, out: &mut dyn Write) -> std::io::Result<()> {
    let text = inert::block(text);
    let most = if length == Length::Whole { usize::MAX } else { OUTPUT_LINES };
    for line in text.lines().take(most) {
        writeln!(out, "  {line}")?;
    }
    match text.lines().count().saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "  … {more} more lines"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_speed_is_too_slow_or_too_fast() {
        let second = Duration::from_secs(1);
        for (speed, expected) in [
            (1.0, second),
            (2.0, Duration::from_millis(500)),
            (1e300, Duration::ZERO),
            (1e-300, LONGEST_PAUSE),
            (f64::MIN_POSITIVE, LONGEST_PAUSE),
        ] {
            assert_eq!(at_speed(second, speed), expected, "{speed}");
        }
        assert_eq!(at_speed(Duration::ZERO, 1e-300), Duration::ZERO);
        assert_eq!(at_speed(Duration::MAX, 1.0), LONGEST_PAUSE);
    }
}
