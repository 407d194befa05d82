//! `!command`: a command of the person's, run in the session's directory. What it wrote is shown, and the model is told of it
//! with the next message that the person sends.

use std::time::Instant;

use super::ScreenState;
use crate::{
    cells::{CellKind, Tool, ToolStatus},
    events::ScreenEffect,
};

/// Letters of an output that the model is told, from its beginning and from its end.
const TOLD_CHARS: usize = 8_000;

/// The person's commands.
#[derive(Debug, Default)]
pub(crate) struct Shell {
    /// The one that runs.
    pub(crate) running: Option<String>,
    count: usize,
    /// What the model has not been told yet.
    untold: Vec<String>,
}

impl ScreenState {
    /// Runs the command that the draft is; none when it is something else.
    pub(super) fn shell_command(&mut self, now: Instant) -> Option<Vec<ScreenEffect>> {
        let text = self.composer.draft().whole();
        let command = text.trim().strip_prefix('!')?.trim().to_owned();
        if command.is_empty() {
            return Some(self.only_say("a command goes behind the !: !git status", now));
        }
        if let Some(running) = &self.shell.running {
            let text = format!("!{running} is still running: Esc ends it");
            return Some(self.only_say(text, now));
        }
        self.composer.discard();
        self.popup = None;
        self.shell.count += 1;
        let mut cell = Tool::new(&self.shell.id(), &format!("! {command}"));
        cell.status = ToolStatus::Running;
        cell.shows_output = true;
        self.push(CellKind::Tool(Box::new(cell)));
        self.conversation.follow();
        self.shell.running = Some(command.clone());
        Some(vec![ScreenEffect::Remember(text), ScreenEffect::Shell(command)])
    }

    pub(super) fn shell_ended(&mut self, output: &str, ending: &str, is_ok: bool) {
        let Some(command) = self.shell.running.take() else { return };
        let told = cut_in_the_middle(output.trim_end(), TOLD_CHARS);
        self.shell.untold.push(format!("[the user ran a command]\n$ {command}\n{told}\n[{ending}]"));
        let id = self.shell.id();
        if let Some(cell) = self.conversation.tool_mut(&id) {
            cell.set_output(output);
            cell.set_summary(ending);
            cell.status = if is_ok { ToolStatus::Done } else { ToolStatus::Failed };
        }
    }

    /// A message with what the model has not been told of the person's commands.
    pub(super) fn with_untold(&mut self, text: String) -> String {
        let untold = std::mem::take(&mut self.shell.untold);
        untold.into_iter().chain([text]).collect::<Vec<_>>().join("\n\n")
    }
}

impl Shell {
    fn id(&self) -> String {
        format!("!{}", self.count)
    }
}

fn cut_in_the_middle(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= 2 * most {
        return text.to_owned();
    }
    let first: String = text.chars().take(most).collect();
    let last: String = text.chars().skip(count - most).collect();
    format!("{first}\n[… {} characters left out …]\n{last}", count - 2 * most)
}
