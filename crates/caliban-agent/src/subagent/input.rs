//! The arguments of `AgentTool`.

use caliban_core::{
    message::ToolSpec,
    spec::{Isolation as SpecIsolation, WorktreeSpec},
};
use serde::Deserialize;
use serde_json::{Value, json};

use caliban_core::definition::Definition;

/// The descriptions of agent types in the tool's own description are cut to this.
const TYPE_DESCRIPTION_CHARS: usize = 120;

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SubagentInput {
    pub(super) prompt: String,
    pub(super) tool_allowlist: Option<Vec<String>>,
    pub(super) model: Option<String>,
    pub(super) place: SubagentPlace,
    pub(super) background: bool,
    pub(super) inherit_hooks: bool,
    pub(super) label: Option<String>,
    pub(super) agent: Option<String>,
}

/// Where the sub-agent works.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SubagentPlace {
    /// In the parent's directory.
    Shared,
    /// In a worktree of its own.
    Worktree(WorktreeSpec),
}

impl SubagentPlace {
    pub(super) fn into_spec(self) -> SpecIsolation {
        match self {
            Self::Shared => SpecIsolation::None,
            Self::Worktree(spec) => SpecIsolation::Worktree(spec),
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    prompt: String,
    tool_allowlist: Option<Vec<String>>,
    model: Option<String>,
    isolation: Option<RawIsolation>,
    worktree: Option<WorktreeSpec>,
    #[serde(default)]
    background: bool,
    #[serde(default = "yes")]
    inherit_hooks: bool,
    label: Option<String>,
    agent: Option<String>,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawIsolation {
    None,
    Worktree,
}

fn yes() -> bool {
    true
}

impl SubagentInput {
    pub(super) fn parse(input: &Value) -> Result<Self, String> {
        let mut input = input.clone();
        // Some models send a list as a text of JSON.
        if let Some(list) = input.get_mut("tool_allowlist")
            && let Some(parsed @ Value::Array(_)) =
                list.as_str().and_then(|text| serde_json::from_str(text).ok())
        {
            *list = parsed;
        }
        let raw: Raw = serde_json::from_value(input).map_err(|error| format!("AgentTool: {error}"))?;
        if raw.prompt.trim().is_empty() {
            return Err("AgentTool: `prompt` is empty; say what the sub-agent shall do".to_owned());
        }
        let place = match (raw.isolation, raw.worktree) {
            (Some(RawIsolation::Worktree), worktree) => SubagentPlace::Worktree(worktree.unwrap_or_default()),
            (_, None) => SubagentPlace::Shared,
            (_, Some(_)) => {
                return Err("AgentTool: `worktree` needs `isolation`: \"worktree\"".to_owned());
            }
        };
        let label = raw.label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        Ok(Self {
            prompt: raw.prompt,
            tool_allowlist: raw.tool_allowlist,
            model: raw.model.filter(|model| !model.is_empty()),
            place,
            background: raw.background,
            inherit_hooks: raw.inherit_hooks,
            label,
            agent: raw.agent.filter(|agent| !agent.is_empty()),
        })
    }

    /// The agent type that the call names.
    pub(super) fn definition<'a>(
        &self,
        definitions: &'a [Definition],
    ) -> Result<Option<&'a Definition>, String> {
        let Some(name) = &self.agent else { return Ok(None) };
        let found = definitions.iter().find(|definition| definition.name == *name);
        found.map(Some).ok_or_else(|| {
            let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("there is no agent type {name:?}; the types are: {names}")
        })
    }
}

/// What the model is told. Agent types are named where there are any.
pub(super) fn spec(definitions: &[Definition]) -> ToolSpec {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let mut properties = json!({
        "prompt": {"type": "string", "description": "The task, self-contained"},
        "label": {"type": "string", "description": "Short name"},
        "tool_allowlist": {"type": "array", "items": {"type": "string"}, "description": "Only these tools; default all"},
        "model": {"type": "string"},
        "isolation": {"type": "string", "enum": ["none", "worktree"], "description": "worktree: works on a branch of its own"},
        "worktree": {"type": "object", "properties": {
            "base_ref": {"type": "string", "description": "head (default), fresh, or a revision"},
            "sparse_paths": strings,
            "symlink_directories": strings,
        }},
        "background": {"type": "boolean", "description": "Return at once with an id; outlives this session"},
        "inherit_hooks": {"type": "boolean"},
    });
    let mut description = "Runs a fresh agent on one task and returns its final answer.".to_owned();
    if !definitions.is_empty() {
        description.push_str(" Agent types:");
        for definition in definitions {
            let about: String = definition.description.chars().take(TYPE_DESCRIPTION_CHARS).collect();
            description.push_str(&format!("\n- {}: {about}", definition.name));
        }
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("agent".to_owned(), json!({"type": "string", "description": "An agent type"}));
        }
    }
    ToolSpec {
        name: super::NAME.to_owned(),
        description,
        input_schema: json!({"type": "object", "properties": properties, "required": ["prompt"]}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_may_be_a_text_of_json() {
        for list in [json!(["Read", "Grep"]), json!("[\"Read\", \"Grep\"]")] {
            let input = SubagentInput::parse(&json!({"prompt": "look", "tool_allowlist": list})).unwrap();
            assert_eq!(input.tool_allowlist.unwrap(), ["Read", "Grep"]);
        }
        assert!(SubagentInput::parse(&json!({"prompt": "look", "tool_allowlist": "Read"})).is_err());
    }
}
