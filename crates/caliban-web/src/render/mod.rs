//! Renders untrusted text as data: Markdown becomes blocks, code and terminal output become runs, changes become rows.
//! A page turns these into text nodes only. All text is made inert first; no markup survives.

mod ansi;
mod code;
mod diff;
mod markdown;

pub(crate) use ansi::Terminal;
pub(crate) use code::{Highlighter, language_of};
pub(crate) use diff::{PatchPage, change, patch_rows};
pub(crate) use markdown::blocks;

use serde::Serialize;

/// A piece of text with its classes; with an address it is a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) class: String,
    pub(crate) text: String,
    pub(crate) href: Option<String>,
}

impl Run {
    pub(crate) fn new(class: impl Into<String>, text: impl Into<String>) -> Self {
        Self { class: class.into(), text: text.into(), href: None }
    }

    /// Appends a run; joined with the last one if class and link are the same.
    pub(crate) fn put(runs: &mut Vec<Self>, run: Self) {
        match runs.last_mut() {
            _ if run.text.is_empty() => {}
            Some(last) if last.class == run.class && last.href == run.href => last.text.push_str(&run.text),
            _ => runs.push(run),
        }
    }
}

impl Serialize for Run {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.href {
            Some(href) => (&self.class, &self.text, href).serialize(serializer),
            None => (&self.class, &self.text).serialize(serializer),
        }
    }
}
