//! BashOutput: what a background job has said since the last time, and how it is.

use std::sync::Arc;

use caliban_core::{access::Access, message::ToolSpec};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{SearcherBuilder, sinks::Lossy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{capture::Taken, left_notes, memory_note, outcome_note};
use crate::{BoxFuture, Call, Tool, ToolOutput, Workspace, input};

/// The BashOutput tool.
pub(crate) struct BashOutput {
    workspace: Arc<Workspace>,
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Input {
    bash_id: String,
    #[serde(default, deserialize_with = "input::text")]
    filter: Option<String>,
}

impl BashOutput {
    pub(crate) fn new(workspace: &Arc<Workspace>) -> Self {
        let spec = ToolSpec {
            name: "BashOutput".into(),
            description: "New output of a background command, and whether it still runs.".into(),
            input_schema: json!({"type": "object", "properties": {
                "bash_id": {"type": "string"},
                "filter": {"type": "string", "description": "only lines that match this regular expression"}
            }, "required": ["bash_id"]}),
        };
        Self { workspace: workspace.clone(), spec }
    }

    fn read(&self, input: &Value) -> Result<ToolOutput, String> {
        let input: Input = input::parse("BashOutput", input)?;
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
        // The ending first: output that comes between the two is then shown, not lost.
        let ending = job.ending();
        let mut taken = job.take();
        if let Some(matcher) = matcher {
            taken = filtered(&matcher, &taken);
        }
        let mut notes = Vec::new();
        let mut exit_code = None;
        let state = match &ending {
            None => "running".to_owned(),
            Some(ending) => {
                if ending.timed_out {
                    notes.push("[timed out]".to_owned());
                }
                match &ending.report {
                    Some(report) => {
                        exit_code = super::exit_code(&report.outcome);
                        notes.extend(memory_note(report));
                        notes.extend(left_notes(report));
                        outcome_note(&report.outcome)
                            .map_or("exit code 0".to_owned(), |note| note.trim_matches(['[', ']']).to_owned())
                    }
                    None => "lost: its keeper was killed".to_owned(),
                }
            }
        };
        let said = if taken.is_empty() { "no new output" } else { "new output above" };
        notes.push(format!("[{}: {state}; {said}]", input.bash_id));
        let output = job.output(&self.workspace, "bash", &taken, &notes.join("\n"));
        Ok(ToolOutput { summary: format!("{}: {state}", input.bash_id), exit_code, ..output })
    }
}

impl Tool for BashOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let _: Input = input::parse("BashOutput", input)?;
        Ok(vec![Access::Nothing])
    }

    fn call<'a>(&'a self, input: Value, _call: Call<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.read(&input).unwrap_or_else(ToolOutput::error) })
    }
}

fn filtered(matcher: &grep_regex::RegexMatcher, taken: &Taken) -> Taken {
    let mut text = String::new();
    let sink = Lossy(|_, line| {
        text.push_str(line);
        Ok(true)
    });
    // A slice cannot fail to be read.
    let _ =
        SearcherBuilder::new().line_number(true).build().search_slice(matcher, taken.text.as_bytes(), sink);
    Taken { text, left_out: taken.left_out }
}
