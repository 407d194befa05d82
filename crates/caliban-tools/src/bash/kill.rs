//! KillShell: ends a background job, and answers when nothing of it is left.

use std::sync::Arc;

use caliban_core::{access::Access, message::ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{detach, jobs::JobState};
use crate::{BuiltinTool, CallContext, ToolOutput, Workspace, input};

pub(crate) struct KillShell(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct KillInput {
    shell_id: String,
}

impl BuiltinTool for KillShell {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "KillShell".into(),
            description: "End a background command and everything it started.".into(),
            input_schema: json!({"type": "object", "properties": {"shell_id": {"type": "string"}},
                "required": ["shell_id"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let _: KillInput = input::parse("KillShell", input)?;
        Ok(vec![Access::Nothing])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let KillInput { shell_id } = input::parse("KillShell", input)?;
        let job = match self.0.jobs.find(&shell_id) {
            Ok(job) => job,
            Err(unknown) => {
                return detach::kill(&self.0, &shell_id).await.unwrap_or(Err(unknown));
            }
        };
        // Its end is the model's own wish.
        job.set_reported();
        if job.state.borrow().is_ended() {
            return Ok(ToolOutput::text(format!("{shell_id} had already ended"), "had already ended"));
        }
        job.stop.cancel();
        let mut state = job.state.clone();
        tokio::select! {
            biased;
            ended = state.wait_for(JobState::is_ended) => {
                ended.map_err(|_| "internal fault: the job was lost".to_owned())?;
            }
            () = call.cancel.cancelled() => {
                return Err(format!("interrupted: {shell_id} is still being ended"));
            }
        }
        let stuck = job.ending().and_then(|ending| ending.report).map_or(0, |report| report.stuck);
        if stuck > 0 {
            return Err(format!("{shell_id}: {stuck} of its processes could not be ended"));
        }
        let text = format!("ended {shell_id} and everything it started");
        Ok(ToolOutput::text(text, format!("ended {shell_id}")))
    }
}
