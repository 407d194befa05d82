//! BashOutput: what a background job has said since the last time, and how it is.

use std::{sync::Arc, time::Duration};

use caliban_core::{access::Access, message::ToolSpec};
use caliban_process::Patience;
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{SearcherBuilder, sinks::Lossy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{capture::NewOutput, job::RunningCommand, jobs::JobState, left_notes, memory_note, outcome_note};
use crate::{BoxFuture, CallContext, Tool, ToolOutput, Workspace, input};

/// The longest wait for a command's end in one call.
const WAIT_MAX_MS: u64 = 600_000;

/// The BashOutput tool.
pub(crate) struct BashOutput {
    workspace: Arc<Workspace>,
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct OutputInput {
    bash_id: String,
    #[serde(default, deserialize_with = "input::text")]
    filter: Option<String>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "input::number")]
    wait_ms: Option<u64>,
}

impl BashOutput {
    pub(crate) fn new(workspace: &Arc<Workspace>) -> Self {
        let spec = ToolSpec {
            name: "BashOutput".into(),
            description: "New output of a background command, and whether it still runs.".into(),
            input_schema: json!({"type": "object", "properties": {
                "bash_id": {"type": "string"},
                "filter": {"type": "string", "description": "only lines that match this regular expression"},
                "wait_ms": {"type": "integer", "description": format!("waits so long for its end, at most {WAIT_MAX_MS}")}
            }, "required": ["bash_id"]}),
        };
        Self { workspace: workspace.clone(), spec }
    }

    async fn read(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input: OutputInput = input::parse("BashOutput", input)?;
        let job = self.workspace.jobs.find(&input.bash_id)?;
        let matcher = match &input.filter {
            Some(filter) => {
                let matcher = RegexMatcherBuilder::new().line_terminator(Some(b'\n')).build(filter);
                Some(
                    matcher
                        .map_err(|error| format!("BashOutput: not a valid regular expression: {error}"))?,
                )
            }
            None => None,
        };
        if let Some(wait_ms) = input.wait_ms {
            let mut state = job.state.clone();
            let mut patience = Patience::new(Duration::from_millis(wait_ms.min(WAIT_MAX_MS)));
            tokio::select! {
                _ended = state.wait_for(JobState::is_ended) => {}
                () = patience.over() => {}
                () = call.cancel.cancelled() => {}
            }
        }
        Ok(report(&self.workspace, &input.bash_id, &job, matcher.as_ref()))
    }
}

/// What a job has said since the last time, and how it is.
pub(crate) fn report(
    workspace: &Workspace,
    id: &str,
    job: &RunningCommand,
    matcher: Option<&grep_regex::RegexMatcher>,
) -> ToolOutput {
    report_within(workspace, id, job, matcher, workspace.options.limits.output_chars)
}

/// The same, cut to as many characters.
pub(crate) fn report_within(
    workspace: &Workspace,
    id: &str,
    job: &RunningCommand,
    matcher: Option<&grep_regex::RegexMatcher>,
    chars: usize,
) -> ToolOutput {
    // The ending first: output that comes between the two is then shown, not lost.
    let ending = job.ending();
    let mut taken = job.take();
    if let Some(matcher) = matcher {
        taken = filtered(matcher, &taken);
    }
    let mut notes = Vec::new();
    let mut exit_code = None;
    let state = match &ending {
        None => "running".to_owned(),
        Some(ending) => {
            job.set_reported();
            if ending.timed_out {
                notes.push("[timed out]".to_owned());
            }
            match &ending.report {
                Some(report) => {
                    exit_code = super::exit_code(&report.outcome);
                    notes.extend(memory_note(report));
                    notes.extend(left_notes(report));
                    notes.extend(ending.fence_notes(&taken.text, exit_code));
                    outcome_note(&report.outcome)
                        .map_or("exit code 0".to_owned(), |note| note.trim_matches(['[', ']']).to_owned())
                }
                None => "lost: its keeper was killed".to_owned(),
            }
        }
    };
    let said = if taken.is_empty() { "no new output" } else { "new output above" };
    notes.push(format!("[{id}: {state}; {said}]"));
    let output = job.output(workspace, &taken, &notes.join("\n"), chars);
    ToolOutput { summary: format!("{id}: {state}"), exit_code, ..output }
}

impl Tool for BashOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let _: OutputInput = input::parse("BashOutput", input)?;
        Ok(vec![Access::Nothing])
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.read(&input, &call).await.unwrap_or_else(ToolOutput::error) })
    }
}

fn filtered(matcher: &grep_regex::RegexMatcher, taken: &NewOutput) -> NewOutput {
    let mut text = String::new();
    let sink = Lossy(|_, line| {
        text.push_str(line);
        Ok(true)
    });
    // A slice cannot fail to be read.
    let _ =
        SearcherBuilder::new().line_number(true).build().search_slice(matcher, taken.text.as_bytes(), sink);
    NewOutput { text, left_out: taken.left_out }
}
