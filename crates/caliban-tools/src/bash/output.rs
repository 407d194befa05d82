//! BashOutput: what a background job has said since the last time, and how it is.

use std::{sync::Arc, time::Duration};

use caliban_core::{access::Access, message::ToolSpec};
use caliban_process::Patience;
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{SearcherBuilder, sinks::Lossy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{capture::NewOutput, job::RunningCommand, jobs::JobState, left_notes, memory_note, outcome_note};
use crate::{BuiltinTool, CallContext, ToolOutput, Workspace, input};

/// The longest wait for a command's end in one call.
const WAIT_MAX_MS: u64 = 600_000;

pub(crate) struct BashOutput(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct OutputInput {
    bash_id: String,
    #[serde(default, deserialize_with = "input::text")]
    filter: Option<String>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "input::number")]
    wait_ms: Option<u64>,
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

impl BuiltinTool for BashOutput {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "BashOutput".into(),
            description: "New output of a background command, and whether it still runs.".into(),
            input_schema: json!({"type": "object", "properties": {
                "bash_id": {"type": "string"},
                "filter": {"type": "string", "description": "only lines that match this regular expression"},
                "wait_ms": {"type": "integer", "description": format!("waits so long for its end, at most {WAIT_MAX_MS}")}
            }, "required": ["bash_id"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let _: OutputInput = input::parse("BashOutput", input)?;
        Ok(vec![Access::Nothing])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input: OutputInput = input::parse("BashOutput", input)?;
        let job = self.0.jobs.find(&input.bash_id)?;
        let build = |filter: &String| RegexMatcherBuilder::new().line_terminator(Some(b'\n')).build(filter);
        let matcher = input.filter.as_ref().map(build).transpose();
        let matcher =
            matcher.map_err(|error| format!("BashOutput: not a valid regular expression: {error}"))?;
        if let Some(wait_ms) = input.wait_ms {
            let mut state = job.state.clone();
            let mut patience = Patience::new(Duration::from_millis(wait_ms.min(WAIT_MAX_MS)));
            tokio::select! {
                _ended = state.wait_for(JobState::is_ended) => {}
                () = patience.over() => {}
                () = call.cancel.cancelled() => {}
            }
        }
        Ok(report(&self.0, &input.bash_id, &job, matcher.as_ref()))
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
