//! The output of a command: data on standard output, remarks on standard error, an exit code.
//!
//! Owns the only two places that print. Text and JSON of an answer come from the same verb. A closed pipe is not a
//! failure of the command.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::render::json::{self, Style};

/// The result of a verb.
pub(crate) struct VerbAnswer {
    data: Data,
    /// Remarks for people, on standard error.
    notes: Vec<String>,
    /// The exit code, where success has several.
    exit: u8,
}

enum Data {
    /// Everything was printed before.
    Said,
    /// Text for people, without a final line end, and JSON for programs.
    Small { text: String, json: Value },
    /// Rendered once the style is known.
    Large(Box<dyn FnOnce(Style) -> String>),
}

impl VerbAnswer {
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Self { data: Data::Small { text: text.into(), json }, notes: Vec::new(), exit: 0 }
    }

    /// No further output: everything was printed before.
    pub(crate) fn said() -> Self {
        Self { data: Data::Said, notes: Vec::new(), exit: 0 }
    }

    /// An answer that is rendered only in the style that is printed.
    pub(crate) fn large(write: impl FnOnce(Style) -> String + 'static) -> Self {
        Self { data: Data::Large(Box::new(write)), notes: Vec::new(), exit: 0 }
    }

    /// The same with a further field in its JSON object.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        if let Data::Small { json: Value::Object(fields), .. } = &mut self.data {
            fields.insert(name.to_owned(), value);
        }
        self
    }

    pub(crate) fn note(mut self, note: Option<String>) -> Self {
        self.notes.extend(note);
        self
    }

    pub(crate) fn exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn print(self, style: Style) -> ExitCode {
        let mut data = match (self.data, style) {
            (Data::Said, _) => return ExitCode::from(self.exit),
            (Data::Small { text, .. }, Style::Text) => text,
            (Data::Small { json, .. }, style) => json::write(&json, style),
            (Data::Large(write), style) => write(style),
        };
        data.push('\n');
        let mut out = io::stdout().lock();
        // One write, so that a reader never sees half an answer.
        if let Err(error) = out.write_all(data.as_bytes()).and_then(|()| out.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return report(&Failure::internal(format!("cannot write the answer: {error}")), style);
        }
        for note in &self.notes {
            talk(&format!("note: {note}\n"));
        }
        ExitCode::from(self.exit)
    }
}

/// Prints a line of data before the answer, for a command that keeps running. Best effort: a closed pipe does not stop
/// the server.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Reports a failure and returns its exit code.
pub(crate) fn report(failure: &Failure, style: Style) -> ExitCode {
    match style {
        Style::Text => {
            let banner = failure.banner.as_deref().unwrap_or_default();
            let hint = failure.advice().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
            talk(&format!("{banner}Error: {}\n{hint}", failure.message));
        }
        style => {
            let mut value = json!({"error": {"code": failure.code, "message": failure.message}});
            if let Some(hint) = failure.advice() {
                value["error"]["hint"] = hint.into();
            }
            talk(&format!("{}\n", json::write(&value, style)));
        }
    }
    ExitCode::from(failure.exit)
}

/// Best effort: if standard error is closed, nobody can be told.
pub(crate) fn talk(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
