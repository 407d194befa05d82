//! The tools that an agent works with.
//!
//! Owns what a tool is, the built-in ones, and the [`Workspace`] that they share. Refuses to judge
//! whether a call is allowed (it only says what the call would touch) and never reads the
//! environment: the workspace is given everything.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make their trees by path"))]

use std::{path::PathBuf, sync::Arc};

pub use caliban_core::BoxFuture;
use caliban_core::{
    access::Access,
    message::{ResultPart, ToolSpec},
};
use caliban_fence::Fenced;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

mod bash;
mod blocking;
mod edit;
mod editor_buffers;
mod error_text;
mod fetch;
mod file_change;
mod full_output;
mod glob;
mod grep;
mod input;
mod judged;
mod known_files;
pub mod limits;
mod line_ends;
mod locks;
mod patch;
pub mod picture;
mod read;
mod replace_file;
mod todo;
mod walk;
mod workspace;
mod write;

pub use crate::{
    bash::{
        JOB_MARK,
        jobs::{JobInfo, JobState},
    },
    editor_buffers::Buffers,
    full_output::Redact,
    limits::ToolLimits,
    patch::NAME as APPLY_PATCH,
    read::pdf::pdf_main,
    todo::{Todo, TodoStatus},
    workspace::{DetachPlace, OffLimits, SearchService, Workspace, WorkspaceError, WorkspaceOptions},
};

/// A tool the model can call.
pub trait Tool: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What this call would touch, for the permission rules. An input that cannot be understood is an
    /// error here already, worded for the model.
    fn access(&self, input: &Value) -> Result<Vec<Access>, String>;

    /// Whether all that it can do is to write files: then it is of no use to an agent that may only look.
    fn only_writes(&self) -> bool {
        false
    }

    /// What a call whose access was just judged would change, in lines, for the person who is asked about it: whole, or nothing.
    fn preview(&self, _input: &Value) -> Option<String> {
        None
    }

    /// Carries the call out. Never panics, never fails: what goes wrong is an output with `is_error`.
    /// Returns within 100 ms of `call.cancel`.
    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput>;
}

/// A tool of a workspace, without what is the same for all of them.
pub(crate) trait BuiltinTool: Send + Sync + 'static {
    fn spec(&self) -> ToolSpec;

    fn access(&self, input: &Value) -> Result<Vec<Access>, String>;

    fn only_writes(&self) -> bool {
        false
    }

    fn preview(&self, _input: &Value) -> Option<String> {
        None
    }

    /// Carries the call out; an error is worded for the model.
    fn run(
        &self,
        input: &Value,
        call: &CallContext<'_>,
    ) -> impl Future<Output = Result<ToolOutput, String>> + Send;
}

struct Builtin<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: BuiltinTool> Tool for Builtin<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        self.tool.access(input)
    }

    fn only_writes(&self) -> bool {
        self.tool.only_writes()
    }

    fn preview(&self, input: &Value) -> Option<String> {
        self.tool.preview(input)
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.tool.run(&input, &call).await.unwrap_or_else(ToolOutput::error) })
    }
}

fn tool(tool: impl BuiltinTool) -> Arc<dyn Tool> {
    Arc::new(Builtin { spec: tool.spec(), tool })
}

/// What goes with one call.
pub struct CallContext<'a> {
    /// The call's id.
    pub id: &'a str,
    /// Ends the call and everything that it started.
    pub cancel: &'a CancellationToken,
    /// Takes live output (a command's, a sub-agent's) for people who watch; the model does not see it.
    pub progress: &'a (dyn Fn(&str) + Send + Sync),
    /// The fence that a command must run in; none when it runs as the user.
    pub fence: Option<Fenced>,
}

/// What came of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model gets, already within the cap.
    pub content: Vec<ResultPart>,
    /// Whether it failed.
    pub is_error: bool,
    /// One line for people: `3 matches in 2 files`, `exit 1 after 2.3 s`.
    pub summary: String,
    /// A command's exit code.
    pub exit_code: Option<i32>,
    /// Where the whole output is, when `content` is a part of it.
    pub whole: Option<PathBuf>,
    /// That its fence is why it failed, when the output says so.
    pub stopped: Option<StoppedByFence>,
}

/// A command failed because of its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoppedByFence {
    /// The setting that would give it what it missed, as it is written in a settings file; none when only a rule can.
    pub setting: Option<String>,
}

impl ToolOutput {
    /// A success of one text.
    pub fn text(text: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            content: vec![ResultPart::Text { text: text.into() }],
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// A failure, worded for the model; its first line is what people see.
    pub fn error(text: impl Into<String>) -> Self {
        let text = text.into();
        let summary = text.lines().next().unwrap_or_default().to_owned();
        Self { content: vec![ResultPart::Text { text }], is_error: true, summary, ..Self::default() }
    }

    /// All text parts, one after the other.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| match part {
                ResultPart::Text { text } => Some(text.as_str()),
                ResultPart::Image { .. } => None,
            })
            .collect();
        texts.join("\n")
    }
}

/// The tool that models of the GPT family change files with, beside the built-in ones.
pub fn apply_patch(workspace: &Arc<Workspace>) -> Arc<dyn Tool> {
    tool(patch::ApplyPatch(workspace.clone()))
}

/// The built-in tools of one agent, in the order in which the model is told of them.
pub fn builtin(workspace: &Arc<Workspace>) -> Vec<Arc<dyn Tool>> {
    let own = || workspace.clone();
    let mut tools = vec![
        tool(read::Read(own())),
        tool(write::Write(own())),
        tool(edit::Edit(own())),
        tool(bash::Bash(own())),
        tool(bash::output::BashOutput(own())),
        tool(bash::bash_input::BashInput(own())),
        tool(bash::kill::KillShell(own())),
        tool(glob::Glob(own())),
        tool(grep::Grep(own())),
        tool(fetch::WebFetch(own())),
        tool(todo::TodoWrite(own())),
    ];
    let search = workspace.options.search.as_ref();
    tools.extend(search.map(|service| tool(fetch::search::WebSearch::new(workspace, service))));
    tools
}
