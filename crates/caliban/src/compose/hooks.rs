//! The hooks of the settings, and those that can never be asked.

use std::time::Duration;

use caliban_agent::hooks::{CommandHook, HookEvent, HookPlace, Hooks};
use caliban_core::setup::AgentSetup;

use crate::{settings::schema::Settings, tool_names};

/// Hooks that can never be asked, in words: one that shall keep something from happening would keep nothing.
pub(super) fn hook_problems(settings: &Settings) -> Vec<String> {
    let names = tool_names::all();
    let mut problems = Vec::new();
    for (event, hooks) in settings.hooks.by_event() {
        if !matches!(event, "PreToolUse" | "PostToolUse") {
            continue;
        }
        for hook in hooks {
            let Some(matcher) = &hook.matcher else { continue };
            if let Err(why) = caliban_agent::hooks::check(matcher, &names) {
                let command = caliban_core::inert::line(&hook.command);
                problems.push(format!("the hook {event} `{command}` never runs: {why}"));
            }
        }
    }
    problems
}

pub(super) fn hooks(settings: &Settings, setup: &AgentSetup, place: HookPlace) -> Hooks {
    if let Some(commands) = setup.hooks.clone() {
        return Hooks { commands, place, ..Hooks::default() };
    }
    let events = [
        HookEvent::SessionStart,
        HookEvent::UserPromptSubmit,
        HookEvent::PreToolUse,
        HookEvent::PostToolUse,
        HookEvent::Stop,
        HookEvent::SubagentStop,
        HookEvent::Notification,
    ];
    let mut commands = Vec::new();
    for (name, hooks) in settings.hooks.by_event() {
        let Some(event) = events.into_iter().find(|event| event.name() == name) else { continue };
        commands.extend(hooks.iter().map(|hook| CommandHook {
            event,
            matcher: hook.matcher.clone(),
            command: hook.command.clone(),
            timeout: Duration::from_secs(hook.timeout.get().into()),
            optional: hook.optional,
        }));
    }
    Hooks { commands, closures: Vec::new(), place }
}
