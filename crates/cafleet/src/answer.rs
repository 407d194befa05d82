//! What a command says: data on standard output, talk on standard error, an exit code.
//!
//! Owns the only two places that print. Text and JSON of an answer come from the same verb.
//! A reader that has gone away is no failure of the command.

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
    /// It was all said before.
    Said,
    /// For people, lines without a final line end; and for programs.
    Small { text: String, json: Value },
    /// Written when it is known for whom.
    Large(Box<dyn FnOnce(Style) -> String>),
}

impl VerbAnswer {
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Self { data: Data::Small { text: text.into(), json }, notes: Vec::new(), exit: 0 }
    }

    /// Nothing more: what there was to say was said.
    pub(crate) fn said() -> Self {
        Self { data: Data::Said, notes: Vec::new(), exit: 0 }
    }

    /// An answer that is worth making only in the style that is printed.
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
        // One write, so that an answer is never seen by halves.
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

/// Says a line of data before the answer: what a command that stays has to tell at once. Best effort: a reader that has gone
/// away keeps nobody from serving.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Reports a failure and gives its exit code.
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

/// Best effort: there is nobody left to tell when standard error is closed.
pub(crate) fn talk(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
