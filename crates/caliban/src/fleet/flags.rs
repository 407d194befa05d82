//! The agent's flags inside a spec, there and back: what a person gave with `--bg` is what the worker is set up with.
//!
//! Flags that the spec has a field for are in it; the others are kept beside its fields.

use std::path::{Path, PathBuf};

use caliban_agent::hooks::CommandHook;
use caliban_core::spec::SpawnSpec;
use serde_json::{Value, json};

use crate::{cli::AgentFlags, settings::values::Usd};

const EFFORT: &str = "effort";
const SCRIPT: &str = "script";
const ADD_DIRS: &str = "add_dirs";
const NO_SUB_AGENT: &str = "no_sub_agent";
const APPEND: &str = "system_prompt_append";
const HOOKS: &str = "hooks";

/// Writes the flags into a spec; paths are taken from the caller's directory. What the spec says already stays.
pub(crate) fn put(flags: &AgentFlags, append: Option<&str>, cwd: &Path, spec: &mut SpawnSpec) {
    let path = |path: &Path| json!(cwd.join(path).to_string_lossy());
    spec.model = spec.model.take().or_else(|| flags.model.clone());
    spec.provider = spec.provider.take().or_else(|| flags.provider.clone());
    spec.max_turns = spec.max_turns.or(flags.max_turns.map(|turns| turns.get().into()));
    spec.budget.tokens = spec.budget.tokens.or(flags.budget_tokens.map(Into::into));
    spec.budget.usd = spec.budget.usd.or(flags.budget_usd.map(Usd::micro));
    spec.permission_mode = spec.permission_mode.or_else(|| flags.permission_mode.as_deref()?.parse().ok());
    spec.allow.extend(flags.allow.iter().cloned());
    spec.deny.extend(flags.deny.iter().cloned());
    let mut extra = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.extra.entry(name).or_insert(value);
        }
    };
    extra(EFFORT, flags.effort.as_ref().map(|effort| json!(effort)));
    extra(SCRIPT, flags.script.as_deref().map(path));
    let add_dirs: Vec<Value> = flags.add_dir.iter().map(|dir| path(dir)).collect();
    extra(ADD_DIRS, Some(add_dirs).filter(|dirs| !dirs.is_empty()).map(Value::from));
    extra(NO_SUB_AGENT, flags.no_sub_agent.then_some(json!(true)));
    extra(APPEND, append.map(|text| json!(text)));
}

/// The flags that a worker of this spec is set up with.
pub(crate) fn of(spec: &SpawnSpec) -> AgentFlags {
    let text = |name: &str| spec.extra.get(name)?.as_str().map(str::to_owned);
    let add_dir = spec.extra.get(ADD_DIRS).and_then(Value::as_array).into_iter().flatten();
    let turns = spec.max_turns.map(|turns| u32::try_from(turns).unwrap_or(u32::MAX));
    AgentFlags {
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        effort: text(EFFORT),
        script: text(SCRIPT).map(PathBuf::from),
        max_turns: turns.and_then(|turns| turns.try_into().ok()),
        budget_tokens: spec.budget.tokens.and_then(|tokens| tokens.try_into().ok()),
        budget_usd: spec.budget.usd.and_then(|usd| Usd::of_micro(usd)),
        permission_mode: spec.permission_mode.map(|mode| mode.to_string()),
        allow: spec.allow.clone(),
        deny: spec.deny.clone(),
        add_dir: add_dir.filter_map(|dir| Some(PathBuf::from(dir.as_str()?))).collect(),
        no_sub_agent: spec.extra.get(NO_SUB_AGENT) == Some(&json!(true)),
    }
}

/// The text that is appended to its system prompt.
pub(crate) fn append_of(spec: &SpawnSpec) -> Option<String> {
    spec.extra.get(APPEND)?.as_str().map(str::to_owned)
}

/// Writes down which hooks an agent that another one started has.
pub(crate) fn put_hooks(hooks: &[CommandHook], spec: &mut SpawnSpec) {
    if let Ok(hooks) = serde_json::to_value(hooks) {
        spec.extra.insert(HOOKS.to_owned(), hooks);
    }
}

/// The hooks that were handed over; none when the settings' hooks are meant.
pub(crate) fn hooks_of(spec: &SpawnSpec) -> Option<Vec<CommandHook>> {
    serde_json::from_value(spec.extra.get(HOOKS)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_comes_back_and_survives_the_disk() {
        let flags = AgentFlags {
            provider: Some("scripted".into()),
            model: Some("m".into()),
            effort: Some("high".into()),
            script: Some("/work/x.json".into()),
            max_turns: 7.try_into().ok(),
            budget_tokens: 900.try_into().ok(),
            budget_usd: Usd::new(1.25),
            permission_mode: Some("accept-edits".into()),
            allow: vec!["Read".into()],
            deny: vec!["Bash(rm *)".into()],
            add_dir: vec!["/srv".into()],
            no_sub_agent: true,
        };
        let given = AgentFlags { script: Some("x.json".into()), ..flags.clone() };
        let mut spec = SpawnSpec::new("task", "/work");
        put(&given, Some("be brief"), Path::new("/work"), &mut spec);
        put_hooks(&[], &mut spec);
        let spec = SpawnSpec::from_json(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(format!("{:?}", of(&spec)), format!("{flags:?}"));
        assert_eq!((append_of(&spec).as_deref(), hooks_of(&spec)), (Some("be brief"), Some(vec![])));
        let bare = SpawnSpec::new("task", "/work");
        assert_eq!(format!("{:?}", of(&bare)), format!("{:?}", AgentFlags::default()));
        assert_eq!((append_of(&bare), hooks_of(&bare)), (None, None));
    }
}
