//! Hooks: code of the user's that is asked at fixed points of a conversation.
//!
//! Two kinds: commands from the settings, with the event names, JSON and exit codes that people know from
//! Claude Code, and closures of the embedding program. Owns the contract; `command.rs` runs a command.

mod command;
mod matcher;

use std::{path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

pub use caliban_core::hook::{CommandHook, HookEvent};
pub use matcher::{check, fits};

/// A hook of the embedding program. It cannot cross a process boundary.
pub type ClosureHook = Arc<dyn Fn(HookEvent, &Value) -> HookAnswer + Send + Sync>;

/// All hooks of an agent.
#[derive(Clone, Default)]
pub struct Hooks {
    /// From the settings, in their order.
    pub commands: Vec<CommandHook>,
    /// From the embedding program; asked before the commands.
    pub closures: Vec<ClosureHook>,
    /// Where commands run.
    pub place: HookPlace,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("commands", &self.commands)
            .field("closures", &self.closures.len())
            .finish_non_exhaustive()
    }
}

/// Where hook commands run, and what every hook is told.
#[derive(Debug, Clone, Default)]
pub struct HookPlace {
    /// The session's id.
    pub session: String,
    /// The transcript.
    pub transcript: PathBuf,
    /// The project's own root: the commands' working directory, also when the agent works in a worktree.
    pub root: PathBuf,
    /// Where the agent works.
    pub works_in: PathBuf,
    /// The program whose hidden mode keeps the commands.
    pub helper: PathBuf,
    /// The environment of the commands, whole.
    pub env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The fence of the commands; none when they run as the user.
    pub fence: Option<caliban_fence::ProgramFence>,
    /// What each may take of the machine without a fence.
    pub limits: caliban_contract::tree_limits::TreeLimits,
}

/// What a hook said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookAnswer {
    /// The step must not happen, and why.
    pub block: Option<String>,
    /// For `PreToolUse`: the hook's own verdict.
    pub permission: Option<HookPermission>,
    /// More for the model to know.
    pub context: Vec<String>,
    /// For `PreToolUse`: other arguments.
    pub input: Option<Value>,
    /// The whole turn must end, and why.
    pub stop: Option<String>,
    /// What went wrong with a hook, for people.
    pub warnings: Vec<String>,
}

/// A `PreToolUse` hook's verdict. `Deny` is a [`HookAnswer::block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPermission {
    /// No need to ask a person. Deny rules still hold.
    Allow,
    /// A person must be asked.
    Ask,
}

impl HookAnswer {
    /// Takes another hook's answer in: the first block and stop win, the stricter permission holds.
    fn merge(&mut self, other: Self) {
        self.block = self.block.take().or(other.block);
        self.stop = self.stop.take().or(other.stop);
        self.permission = match (self.permission, other.permission) {
            (Some(HookPermission::Ask), _) | (_, Some(HookPermission::Ask)) => Some(HookPermission::Ask),
            (one, another) => one.or(another),
        };
        self.input = other.input.or(self.input.take());
        self.context.extend(other.context);
        self.warnings.extend(other.warnings);
    }
}

impl Hooks {
    /// What stays when a model wants a sub-agent without them: what can refuse a call, unless the user says that it is
    /// optional. Otherwise a model could do through a sub-agent what the user's hooks keep it from doing itself.
    pub(crate) fn binding(&self) -> Self {
        let binds = |hook: &&CommandHook| hook.event == HookEvent::PreToolUse && !hook.optional;
        let only_calls = |closure: &ClosureHook| -> ClosureHook {
            let closure = Arc::clone(closure);
            Arc::new(move |event, input| match event {
                HookEvent::PreToolUse => closure(event, input),
                _ => HookAnswer::default(),
            })
        };
        Self {
            commands: self.commands.iter().filter(binds).cloned().collect(),
            closures: self.closures.iter().map(only_calls).collect(),
            place: self.place.clone(),
        }
    }

    /// Asks every hook of the event whose matcher fits `tool`, closures first, in order; stops at the
    /// first block.
    pub async fn ask(
        &self,
        event: HookEvent,
        tool: Option<&str>,
        details: Value,
        cancel: &CancellationToken,
    ) -> HookAnswer {
        let mut answer = HookAnswer::default();
        if self.closures.is_empty() && !self.commands.iter().any(|hook| hook.event == event) {
            return answer;
        }
        let mut input = self.input(event, details);
        for closure in &self.closures {
            answer.merge(closure(event, &input));
            rewrite(&mut input, &answer);
        }
        for hook in self.fitting(event, tool) {
            if answer.block.is_some() || cancel.is_cancelled() {
                break;
            }
            answer.merge(command::run(hook, &self.place, &input, cancel).await);
            rewrite(&mut input, &answer);
        }
        answer
    }

    /// Whether any hook would be asked about this tool.
    pub(crate) fn has(&self, event: HookEvent, tool: &str) -> bool {
        !self.closures.is_empty() || self.fitting(event, Some(tool)).next().is_some()
    }

    fn fitting<'a>(
        &'a self,
        event: HookEvent,
        tool: Option<&'a str>,
    ) -> impl Iterator<Item = &'a CommandHook> {
        self.commands.iter().filter(move |hook| {
            hook.event == event && tool.is_none_or(|tool| matcher::fits(hook.matcher.as_deref(), tool))
        })
    }

    fn input(&self, event: HookEvent, details: Value) -> Value {
        let mut input = Map::from_iter([
            ("session_id".to_owned(), json!(self.place.session)),
            ("transcript_path".to_owned(), json!(self.place.transcript)),
            ("cwd".to_owned(), json!(self.place.works_in)),
            ("hook_event_name".to_owned(), json!(event.name())),
        ]);
        if let Value::Object(details) = details {
            input.extend(details);
        }
        Value::Object(input)
    }
}

/// The next hook judges what would run now, not what the model asked for first.
fn rewrite(input: &mut Value, answer: &HookAnswer) {
    if let (Some(given), Some(field)) = (&answer.input, input.get_mut("tool_input")) {
        field.clone_from(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_answer_wins() {
        let mut answer = HookAnswer { permission: Some(HookPermission::Ask), ..HookAnswer::default() };
        answer.merge(HookAnswer {
            permission: Some(HookPermission::Allow),
            block: Some("no".into()),
            ..HookAnswer::default()
        });
        answer.merge(HookAnswer { block: Some("later".into()), ..HookAnswer::default() });
        assert_eq!(answer.permission, Some(HookPermission::Ask));
        assert_eq!(answer.block.as_deref(), Some("no"));
    }
}
