//! The permission rules of the settings, parsed, and the policy that they make.

use caliban_permissions::{Effect, Policy, Rule, SourcedRule};

use crate::tool_names;

use super::{Loaded, Settings, error::SettingsError, layer::Source};

/// Parses every rule; one that cannot be understood is an error where it was written.
pub(super) fn rules(
    settings: &Settings,
    source_of: impl Fn(&[&str]) -> Source,
) -> Result<Vec<SourcedRule>, SettingsError> {
    let permissions = &settings.permissions;
    let mut parsed = Vec::new();
    for (effect, key, texts) in [
        (Effect::Allow, "allow", &permissions.allow),
        (Effect::Ask, "ask", &permissions.ask),
        (Effect::Deny, "deny", &permissions.deny),
    ] {
        for (index, text) in texts.iter().enumerate() {
            let source = source_of(&["permissions", key, &index.to_string()]);
            let rule = parse_rule(text).map_err(|(wrong, hint)| SettingsError {
                hint,
                ..SettingsError::new(source.clone().into(), wrong)
            })?;
            if effect != Effect::Allow && rule.is_outside() {
                let wrong = format!("rule `{text}`: only a rule that allows can be `outside`");
                return Err(SettingsError::new(source.into(), wrong));
            }
            parsed.push(SourcedRule { effect, rule, source: source.to_string(), given_at: None });
        }
    }
    Ok(parsed)
}

/// A rule as somebody wrote it; the error has a hint where there is one. A rule about a tool that there is not would never
/// apply, and a denial that never applies protects nothing.
pub fn parse_rule(text: &str) -> Result<Rule, (String, Option<String>)> {
    if let Some(name) = tool(text).filter(|name| !tool_names::is_known(name)) {
        return Err((format!("rule `{text}`: there is no tool `{name}`"), Some(tool_names::hint(name))));
    }
    text.parse().map_err(|error: caliban_permissions::RuleError| (error.to_string(), None))
}

/// The tool that a rule names; none where the rule has no name that a tool could have.
fn tool(rule: &str) -> Option<&str> {
    let name = rule.trim().split('(').next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    is_name.then_some(name)
}

impl Loaded {
    /// The policy for an agent that works in the project's root.
    pub fn policy(&self) -> Policy {
        // Without a home nothing is below it: a path that cannot exist matches nothing.
        let home = self.paths.home.clone().unwrap_or_else(|| "/nonexistent".into());
        let mut policy = Policy::new(self.root.clone(), home);
        policy.rules.clone_from(&self.rules);
        policy.mode = self.settings.permissions.mode;
        policy.extra_dirs.clone_from(&self.settings.permissions.add_dirs);
        policy
    }
}
