//! `spawn_background`: the model starts a background agent by itself.

use caliban_core::{access::Access, message::ToolSpec};
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Background, BackgroundOrder, Ground, Spawner, TOOL};

/// The tool of one session.
pub struct SpawnBackground {
    spec: ToolSpec,
    background: Background,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackgroundInput {
    task: String,
    model: Option<String>,
    isolation: Option<Ground>,
}

impl BackgroundInput {
    fn parse(input: &Value) -> Result<Self, String> {
        let input: Self =
            serde_json::from_value(input.clone()).map_err(|error| format!("{TOOL}: {error}"))?;
        if input.task.trim().is_empty() {
            return Err(format!("{TOOL}: `task` is empty; say what the agent shall do"));
        }
        Ok(Self { model: input.model.filter(|model| !model.is_empty()), ..input })
    }
}

impl SpawnBackground {
    /// The tool of the session whose background agents these are.
    pub fn new(background: Background) -> Self {
        let spec = ToolSpec {
            name: TOOL.to_owned(),
            description:
                "Starts an agent that works beside you on one task and returns its number at once. A message \
                          tells you when it ends, with its result."
                    .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "task": {"type": "string", "description": "The task, self-contained"},
                    "model": {"type": "string"},
                    "isolation": {"type": "string", "enum": ["none", "worktree"], "description": "worktree: works on a branch of its own, which you merge"},
                },
                "required": ["task"],
            }),
        };
        Self { spec, background }
    }
}

impl Tool for SpawnBackground {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input = BackgroundInput::parse(input)?;
        Ok(vec![match input.isolation.unwrap_or(self.background.usual_ground()) {
            Ground::Worktree => Access::AgentInWorktree,
            Ground::None => Access::Agent,
        }])
    }

    fn call<'a>(&'a self, input: Value, _call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let BackgroundInput { task, model, isolation } = match BackgroundInput::parse(&input) {
                Ok(input) => input,
                Err(problem) => return ToolOutput::error(problem),
            };
            let order = BackgroundOrder { task, model, ground: isolation };
            match self.background.start(order, Spawner::Model).await {
                Ok(id) => ToolOutput::text(
                    format!("Started background agent {id}. Go on with your own work; do not wait for it."),
                    format!("started background agent {id}"),
                ),
                Err(refusal) => ToolOutput::error(refusal.to_string()),
            }
        })
    }
}
