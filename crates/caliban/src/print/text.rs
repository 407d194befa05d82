//! Text for people and pipes.

use std::io::{IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use caliban_agent::{
    TurnReport,
    event::{Event, Outcome},
    feed::FeedEntry,
};
use caliban_core::{inert, message::Message};

use super::Printer;
use crate::report::Failure;

/// Of a running call's last line, as much as fits on a usual terminal.
const LIVE_CHARS: usize = 76;
/// Tool lines and notes.
const DIM: Style = Style::new().dimmed();
const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Prints text.
pub(super) struct TextPrinter {
    /// stdout is a terminal: the text goes out as it comes.
    streams: bool,
    /// stderr gets a line for each call.
    talks: bool,
    /// stderr is a terminal: what a running call prints is shown in one line that goes again.
    is_live: bool,
    /// Whether such a line is there now.
    has_live_line: bool,
    /// Whether the cursor stands behind text.
    is_mid_line: bool,
    /// The text that is coming in.
    pieces: inert::Pieces,
}

impl TextPrinter {
    pub(super) fn new(is_verbose: bool) -> Self {
        Self {
            streams: std::io::stdout().is_terminal(),
            talks: is_verbose || std::io::stderr().is_terminal(),
            is_live: std::io::stderr().is_terminal(),
            has_live_line: false,
            is_mid_line: false,
            pieces: inert::Pieces::default(),
        }
    }

    /// Shows the last line of what a running call prints, in place of the one before.
    fn live(&mut self, text: &str) -> std::io::Result<()> {
        let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else { return Ok(()) };
        if self.streams {
            self.end_line()?;
        }
        let shown: String = inert::line(line.trim_end()).chars().take(LIVE_CHARS).collect();
        let mut error = anstream::stderr().lock();
        write!(error, "\r\x1b[K{DIM}  {shown}{DIM:#}")?;
        error.flush()?;
        self.has_live_line = true;
        Ok(())
    }

    /// Takes the live line away before anything else is shown.
    fn end_live(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.has_live_line) {
            let mut error = anstream::stderr().lock();
            write!(error, "\r\x1b[K")?;
            error.flush()?;
        }
        Ok(())
    }

    fn out(&mut self, text: &str) -> std::io::Result<()> {
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.is_mid_line = !text.ends_with('\n');
        Ok(())
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        let rest = self.pieces.finish();
        if !rest.is_empty() {
            self.out(&rest)?;
        }
        if self.is_mid_line { self.out("\n") } else { Ok(()) }
    }

    fn talk(&mut self, style: Style, line: &str) -> std::io::Result<()> {
        if self.streams {
            self.end_line()?;
        }
        writeln!(anstream::stderr().lock(), "{style}{}{style:#}", inert::line(line))
    }

    fn record(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Reply { message, .. } => self.reply(message),
            Event::CallStarted { name, input, .. } if self.talks => {
                self.talk(DIM, &format!("• {name} {}", caliban_agent::describe(input)))
            }
            Event::CallEnded { summary, is_error, .. } if self.talks && !summary.is_empty() => {
                self.talk(if *is_error { YELLOW } else { DIM }, &format!("  {summary}"))
            }
            Event::CallRefused { name, decision, .. } if self.talks => {
                self.talk(YELLOW, &format!("• {name} not carried out: {}", decision.why))
            }
            Event::Note { text } => self.talk(YELLOW, &format!("note: {text}")),
            Event::Summarised { .. } if self.talks => {
                self.talk(DIM, "• made room: the older part is summarised")
            }
            _ => Ok(()),
        }
    }

    /// A whole reply. On a terminal its text has been shown; into a pipe goes only the last one, by `end`.
    fn reply(&mut self, message: &Message) -> std::io::Result<()> {
        if self.streams && message.text().is_empty() {
            return Ok(());
        }
        if self.streams { self.end_line() } else { Ok(()) }
    }
}

impl Printer for TextPrinter {
    fn entry(&mut self, entry: &FeedEntry) -> std::io::Result<()> {
        if let FeedEntry::ToolOutput { text, .. } = entry {
            return if self.is_live { self.live(text) } else { Ok(()) };
        }
        self.end_live()?;
        match entry {
            FeedEntry::Text(text) if self.streams => {
                let text = self.pieces.block(text);
                if text.is_empty() { Ok(()) } else { self.out(&text) }
            }
            FeedEntry::Record(record) => self.record(&record.event),
            FeedEntry::Restart { reason } => self.talk(YELLOW, &format!("{reason}; trying again")),
            FeedEntry::Waiting(wait) => match wait.pause() {
                Some(pause) => {
                    self.talk(YELLOW, &format!("{wait}; waiting {:.1} s", pause.ms as f64 / 1000.0))
                }
                None => self.talk(DIM, &wait.to_string()),
            },
            _ => Ok(()),
        }
    }

    fn end(&mut self, report: &TurnReport) -> std::io::Result<()> {
        self.end_live()?;
        if self.streams {
            self.end_line()?;
        } else if matches!(report.outcome, Outcome::Done | Outcome::TurnLimit { .. })
            && !report.text.is_empty()
        {
            self.out(&inert::block(&report.text))?;
            self.end_line()?;
        }
        if let Outcome::Failed { error, hint } = &report.outcome {
            let hint = hint.as_ref().map(|hint| inert::block(hint).into_owned());
            Failure::hinted(inert::line(error), hint).show();
        }
        let mut error = anstream::stderr().lock();
        match &report.outcome {
            Outcome::Done | Outcome::Failed { .. } => {}
            Outcome::TurnLimit { limit } => {
                writeln!(error, "{YELLOW}stopped:{YELLOW:#} the limit of {limit} turns is reached")?;
                writeln!(error, "hint: go on with `caliban --continue -p \"go on\"`, or raise --max-turns")?;
            }
            Outcome::Budget { limit } => {
                writeln!(error, "{YELLOW}stopped:{YELLOW:#} {}", inert::line(limit))?;
            }
            Outcome::Cancelled => writeln!(error, "interrupted; `caliban --continue` goes on")?,
        }
        refused(&mut error, report)
    }
}

fn refused(error: &mut impl std::io::Write, report: &TurnReport) -> std::io::Result<()> {
    let Some(count) = Some(report.refused.len()).filter(|count| *count > 0) else { return Ok(()) };
    let calls = if count == 1 { "call was" } else { "calls were" };
    writeln!(error, "{YELLOW}{count} {calls} refused:{YELLOW:#}")?;
    let mut rules: Vec<&str> = Vec::new();
    for refused in &report.refused {
        writeln!(error, "  {} {}: {}", inert::line(&refused.tool), refused.what, inert::line(&refused.why))?;
        rules.extend(refused.suggestions.iter().map(String::as_str));
    }
    rules.sort_unstable();
    rules.dedup();
    if !rules.is_empty() {
        let flags: Vec<String> = rules
            .iter()
            .map(|rule| format!("--allow '{}'", inert::line(rule).replace('\'', r"'\''")))
            .collect();
        writeln!(error, "hint: allow them with {}", flags.join(" "))?;
    }
    Ok(())
}
