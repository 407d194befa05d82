//! The kinds of agents that a call can name, with our names for their tools.

use caliban_core::definition::Definition;

use crate::{Loaded, definitions, tool_names, trust::DefinitionKind};

/// The agent types, and which files are none: the repo's when it is trusted, and the user's own.
pub fn known(loaded: &Loaded) -> (Vec<Definition>, Vec<String>) {
    let (mut definitions, mut problems) = definitions::parse_all(&loaded.definitions(DefinitionKind::Agents));
    for definition in &mut definitions {
        let path = definition.path.display().to_string();
        let Some(tools) = &mut definition.tools else { continue };
        // Names that Claude Code has for tools of ours.
        for tool in tools.iter_mut() {
            if let Some(ours) = tool_names::ours(tool) {
                *tool = ours.to_owned();
            }
        }
        tools.retain(|tool| {
            let is_known = tool_names::is_known(tool);
            if !is_known {
                let hint = tool_names::hint(tool);
                problems
                    .push(format!("{path}: there is no tool `{}`; {hint}", caliban_core::inert::line(tool)));
            }
            is_known
        });
    }
    (definitions, problems)
}
