//! A command that outlives the agent: started under a keeper of its own, listed and ended with `caliban jobs`.

use std::{path::Path, time::Duration};

use caliban_contract::detached::{DetachedRecord, running_of};
use caliban_core::cap::{self, Cap};
use caliban_keeper::{Detach, Launch, Streams, detached_gone_within, stop_detached};

use super::{Bash, BashCommandInput, script, strip_escapes::plain};
use crate::{ToolOutput, Workspace, error_text, full_output, workspace::DetachPlace};

/// How long a service is watched for a quick end.
const WATCHED: Duration = Duration::from_secs(1);
/// Bytes of its first output that are shown.
const FIRST_BYTES: u64 = 4 << 10;

impl Bash {
    pub(super) async fn detach(&self, input: BashCommandInput) -> Result<ToolOutput, String> {
        let place = place(&self.0)?;
        let (stand, note) = self.stand_somewhere(&input.command)?;
        let options = &self.0.options;
        let detach = Detach {
            helper: options.helper.clone(),
            jobs: place.jobs.clone(),
            launch: Launch {
                identity: stand.identity,
                limits: options.limits.taken.without_disk(),
                ..script::plain_launch(&input.command, stand.cwd, &options.env, Streams::Joined)
            },
            command: input.command,
            agent: place.agent.clone(),
        };
        let started = detach.start().await;
        let record = started
            .map_err(|error| format!("the command could not be detached: {}", error_text::reason(&error)))?;
        let is_over = detached_gone_within(&record, WATCHED).await.unwrap_or(false);
        let said = first_words(&record.output);
        let place = format!("its output goes to {}", record.output.display());
        let note = note.unwrap_or_default();
        if is_over {
            let text = format!("[{} ended at once; {place}]", record.id);
            let text = full_output::joined(&said, &full_output::joined(&text, &note));
            return Ok(ToolOutput { is_error: true, ..ToolOutput::text(text, "ended at once") });
        }
        let text = format!(
            "[detached as {}: it goes on when you have ended; {place}. KillShell ends it]",
            record.id
        );
        let text = full_output::joined(&said, &full_output::joined(&text, &note));
        Ok(ToolOutput::text(text, format!("detached {}", record.id)))
    }
}

/// Ends a detached command of this agent; none when there is no such.
pub(super) async fn kill(workspace: &Workspace, id: &str) -> Option<Result<ToolOutput, String>> {
    let place = workspace.options.detach.as_ref()?;
    let record = running(place).into_iter().find(|record| record.id == id)?;
    Some(match stop_detached(&place.jobs, &record).await {
        Ok(true) => {
            Ok(ToolOutput::text(format!("ended {id} and everything it started"), format!("ended {id}")))
        }
        Ok(false) => Err(format!("{id}: not all of its processes could be ended")),
        Err(error) => Err(format!("{id} could not be ended: {}", error_text::reason(&error))),
    })
}

/// The detached commands of an agent that run.
pub(crate) fn running(place: &DetachPlace) -> Vec<DetachedRecord> {
    running_of(&place.jobs, &place.agent)
}

fn place(workspace: &Workspace) -> Result<&DetachPlace, String> {
    workspace.options.detach.as_ref().ok_or_else(|| {
        "this agent cannot detach a command: it runs inside another agent. Use run_in_background".to_owned()
    })
}

fn first_words(output: &Path) -> String {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(output) {
        let _best_effort = file.take(FIRST_BYTES).read_to_end(&mut bytes);
    }
    cap::middle(&plain(&String::from_utf8_lossy(&bytes)), Cap::Chars(FIRST_BYTES as usize)).into_owned()
}
