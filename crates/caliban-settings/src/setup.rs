//! An agent's setup as the strongest layer of settings: each value keeps the flag that it is known by as its source.

use std::path::Path;

use caliban_core::setup::AgentSetup;
use caliban_providers::ProviderKind;

use super::{
    layer::{Layer, Source},
    values::Usd,
};

impl From<&AgentSetup> for Layer {
    fn from(setup: &AgentSetup) -> Self {
        let mut layer = Self::default();
        let mut set = |path: &[&str], value: Option<toml::Value>, flag: &str| {
            if let Some(value) = value {
                layer.set(path, value, Source::Flag(flag.to_owned()));
            }
        };
        let text = |value: &Option<String>| value.clone().map(toml::Value::String);
        let number = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX).into());
        if setup.script.is_some() && setup.provider.is_none() {
            set(&["provider"], Some(ProviderKind::Scripted.name().into()), "--script");
        }
        set(&["provider"], text(&setup.provider), "--provider");
        set(&["model"], text(&setup.model), "--model");
        set(&["fallback_model"], text(&setup.fallback_model), "--fallback-model");
        let effort = setup.effort.and_then(|effort| toml::Value::try_from(effort).ok());
        set(&["effort"], effort, "--effort");
        set(&["providers", "scripted", "script"], setup.script.as_deref().map(path_value), "--script");
        set(&["limits", "max_turns"], number(setup.max_turns), "--max-turns");
        set(&["limits", "budget_tokens"], number(setup.budget.tokens), "--budget-tokens");
        let usd = setup.budget.usd.and_then(Usd::of_micro).map(|usd| usd.dollars().into());
        set(&["limits", "budget_usd"], usd, "--budget-usd");
        let mode = setup.permission_mode.map(|mode| mode.name().into());
        set(&["permissions", "mode"], mode, "--permission-mode");
        set(&["sub_agents"], setup.no_sub_agent.then_some(false.into()), "--no-sub-agent");
        for (flag, key, values) in [("--allow", "allow", &setup.allow), ("--deny", "deny", &setup.deny)] {
            for value in values {
                layer.push(&["permissions", key], value.as_str(), Source::Flag(flag.to_owned()));
            }
        }
        for dir in &setup.add_dirs {
            layer.push(&["permissions", "add_dirs"], path_value(dir), Source::Flag("--add-dir".to_owned()));
        }
        layer
    }
}

fn path_value(path: &Path) -> toml::Value {
    toml::Value::String(path.to_string_lossy().into_owned())
}
