//! How failures leave the program: `error: …` and `hint: …` on stderr, and the exit code.

use std::{
    fmt,
    process::ExitCode,
    sync::{Mutex, PoisonError},
};

use anstyle::{AnsiColor, Style};
use caliban_core::redact::Redactor;
use tokio::sync::mpsc::UnboundedSender;

use crate::settings::{SettingPlace, SettingsError};

/// The exit codes, as `--help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Done,
    Failed,
    /// The command line was wrong.
    Usage,
    /// Done, but calls were refused.
    Refused,
    /// A budget or the turn limit was reached.
    Limit,
    /// The time that was given is up.
    Timeout,
    Interrupted,
    /// That of a program that was run for the user.
    OfProgram(u8),
}

impl Code {
    /// The number that the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Limit => 4,
            Self::Timeout => 124,
            Self::Interrupted => 130,
            Self::OfProgram(code) => code,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// What a command, or a part of one, comes to.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed, worded for the person who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What went wrong.
    pub message: String,
    /// What to do about it; may have several lines.
    pub hint: Option<String>,
    /// The exit code.
    pub code: Code,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, code: Code::Failed }
    }

    /// A command line that makes no sense: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: Code::Usage, ..Self::new(message) }
    }

    /// A failure with exit code 1 and perhaps a hint.
    pub(crate) fn hinted(message: impl Into<String>, hint: Option<impl Into<String>>) -> Self {
        Self { hint: hint.map(Into::into), ..Self::new(message) }
    }

    /// The same failure with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Keeps it as the last of several; the one before is shown.
    pub(crate) fn keep_in(self, last: &mut Option<Self>) {
        if let Some(earlier) = last.replace(self) {
            earlier.show();
        }
    }

    /// Shows it on stderr. A stderr that is gone cannot be told about it.
    pub(crate) fn show(&self) {
        if self.code == Code::Done {
            return;
        }
        let mut err = anstream::stderr().lock();
        let _gone = say(&mut err, "error", AnsiColor::Red, &self.message);
        if let Some(hint) = &self.hint {
            let _gone = say(&mut err, "hint", AnsiColor::Cyan, hint);
        }
    }
}

/// Where talk goes while a screen has the terminal: what is written to stderr then would be drawn over it.
static SCREEN: Mutex<Option<UnboundedSender<String>>> = Mutex::new(None);

/// While this lives, talk goes to the screen.
pub(crate) struct Diverted(());

/// Sends talk to a screen instead of stderr.
pub(crate) fn divert(screen: UnboundedSender<String>) -> Diverted {
    *SCREEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(screen);
    Diverted(())
}

impl Drop for Diverted {
    fn drop(&mut self) {
        *SCREEN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether a screen has taken the text.
pub(crate) fn is_shown_by_screen(text: &str) -> bool {
    let screen = SCREEN.lock().unwrap_or_else(PoisonError::into_inner);
    screen.as_ref().is_some_and(|screen| screen.send(text.to_owned()).is_ok())
}

/// Shows a line that is worth knowing on stderr.
pub(crate) fn note(text: &str) {
    if is_shown_by_screen(text) {
        return;
    }
    let _gone = say(&mut anstream::stderr().lock(), "note", AnsiColor::Yellow, text);
}

/// From now on a panic is told without secrets: what it says may quote anything. On stderr, whoever has the terminal: the
/// screen has given it back by then.
pub(crate) fn tell_panics(redactor: impl Fn() -> Redactor + Send + Sync + 'static, hint: &'static str) {
    std::panic::set_hook(Box::new(move |panic| panic_report(&panic.to_string(), &redactor(), hint).show()));
}

fn panic_report(panic: &str, redactor: &Redactor, hint: &str) -> Failure {
    let text = format!("caliban has a fault, please report it: {}", redactor.redact(panic));
    Failure::new(text).hint(hint)
}

/// `label: text`; further lines stand below the first.
fn say(out: &mut dyn std::io::Write, label: &str, color: AnsiColor, text: &str) -> std::io::Result<()> {
    let style = Style::new().bold().fg_color(Some(color.into()));
    let indent = format!("\n{}", " ".repeat(label.len() + 2));
    // Errors quote paths, settings and what others said: none of it may reach the terminal as it is.
    let text = caliban_core::inert::block(text.trim_end());
    writeln!(out, "{style}{label}:{style:#} {}", text.replace('\n', &indent))
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let code = if matches!(error.place, SettingPlace::Flag(_)) { Code::Usage } else { Code::Failed };
        Self { message: error.to_string(), hint: error.hint, code }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // Whoever read our output has seen enough (`caliban … | head`): nothing to complain about.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { message: String::new(), hint: None, code: Code::Done };
        }
        Self::new(error.to_string())
    }
}

/// Ends the program at once: the person has asked a second time. What runs in tools ends with us, because their
/// keepers see our end of the pipe close.
#[expect(clippy::exit, reason = "a second interrupt must not wait for anything")]
pub(crate) fn give_up() -> ! {
    std::process::exit(i32::from(Code::Interrupted.number()))
}

/// `--debug`: everything that our own crates have to say goes to stderr.
pub(crate) fn log_to_stderr() {
    // Only the first subscriber counts; there is no other.
    let _set =
        tracing_subscriber::fmt().with_env_filter(log_filter()).with_writer(std::io::stderr).try_init();
}

/// The same into a file: a screen has the terminal.
pub(crate) fn log_to_file(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let log = tracing_subscriber::fmt().with_env_filter(log_filter()).with_ansi(false);
    let _set = log.with_writer(std::sync::Mutex::new(file)).try_init();
    Ok(())
}

fn log_filter() -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::new(
        "caliban=debug,caliban_agent=debug,caliban_providers=debug,caliban_tools=debug",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_without_secrets_and_says_how_to_go_on() {
        let redactor = Redactor::new([("API_KEY".to_owned(), "sk-very-secret-value".to_owned())]);
        let panic = "panicked at src/x.rs:1:2:\nthe key is sk-very-secret-value";
        let report = panic_report(panic, &redactor, "`caliban --continue` goes on");
        assert!(
            report.message.contains("src/x.rs:1:2") && !report.message.contains("very-secret"),
            "{report}"
        );
        assert_eq!(report.hint.as_deref(), Some("`caliban --continue` goes on"));
    }
}
