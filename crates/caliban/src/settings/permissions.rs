//! The permission rules of the settings, parsed, and the policy that they make.

use caliban_permissions::{Effect, Policy, Rule, SourcedRule};

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
            let rule: Rule = text
                .parse()
                .map_err(|error| SettingsError::new(source.clone().into(), format!("{error}")))?;
            parsed.push(SourcedRule { effect, rule, source: source.to_string() });
        }
    }
    Ok(parsed)
}

impl Loaded {
    /// The policy for an agent that works in the project's root.
    pub(crate) fn policy(&self) -> Policy {
        // Without a home nothing is below it: a path that cannot exist matches nothing.
        let home = self.paths.home.clone().unwrap_or_else(|| "/nonexistent".into());
        let mut policy = Policy::new(self.root.clone(), home);
        policy.rules.clone_from(&self.rules);
        policy.mode = self.settings.permissions.mode;
        policy.extra_dirs.clone_from(&self.settings.permissions.add_dirs);
        policy
    }
}
