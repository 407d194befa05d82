//! Claude Code's `settings.json` as a layer: permissions, hooks and variables. What is not understood is named, in one
//! line; a file of another program never stops ours.

use std::path::Path;

use caliban_permissions::Rule;
use serde_json::{Map, Value};
use toml::Table;

use super::{
    file,
    layer::{Layer, Source},
};
use crate::tool_names;

/// Events of hooks that both programs have.
const EVENTS: [&str; 7] =
    ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "Notification"];

/// A file in our terms.
#[derive(Debug, Default)]
pub(crate) struct Understood {
    /// What it sets.
    pub layer: Layer,
    /// What is to be said about it.
    pub note: Option<String>,
}

/// Everything of a file that we understand.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Understood {
    let mut reader = ClaudeSettingsReader::new(path);
    match object(path, bytes) {
        Ok(settings) => {
            for (key, value) in &settings {
                match key.as_str() {
                    "permissions" => reader.permissions(value, &["allow", "ask", "deny"]),
                    "hooks" => reader.hooks(value),
                    "env" => reader.variables(value),
                    "$schema" => {}
                    other => reader.leave(other.to_owned()),
                }
            }
            reader.understood()
        }
        Err(note) => Understood { note: Some(note), ..Understood::default() },
    }
}

/// The denials of a file, and nothing else: they only narrow, so they hold without trust.
pub(crate) fn denials(path: &Path, bytes: &[u8]) -> Understood {
    let mut reader = ClaudeSettingsReader::new(path);
    let settings = match object(path, bytes) {
        Ok(settings) => settings,
        // A denial that does nothing is worse than none.
        Err(note) => {
            return Understood {
                note: Some(format!("{note}; its deny rules do not hold")),
                ..Understood::default()
            };
        }
    };
    if let Some(permissions) = settings.get("permissions") {
        reader.permissions(permissions, &["deny"]);
    }
    let holds = match reader.rules {
        0 => None,
        1 => Some("its 1 deny rule holds without trust, too".to_owned()),
        count => Some(format!("its {count} deny rules hold without trust, too")),
    };
    let left = (!reader.left.is_empty())
        .then(|| format!("not understood, so nothing is denied by: {}", reader.left.join(", ")));
    let parts: Vec<String> = holds.into_iter().chain(left).collect();
    let note = (!parts.is_empty()).then(|| format!("{}: {}", path.display(), parts.join("; ")));
    Understood { layer: reader.layer, note }
}

fn object(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let not_read = |why: String| format!("{} is not used: {why}", path.display());
    let text = file::text(path, bytes).map_err(|error| not_read(error.message))?;
    match serde_json::from_str(text) {
        Ok(Value::Object(settings)) => Ok(settings),
        Ok(_) => Err(not_read("expected a JSON object".to_owned())),
        Err(error) => Err(not_read(error.to_string())),
    }
}

struct ClaudeSettingsReader<'a> {
    path: &'a Path,
    layer: Layer,
    rules: usize,
    left: Vec<String>,
}

impl<'a> ClaudeSettingsReader<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, layer: Layer::default(), rules: 0, left: Vec::new() }
    }

    fn source(&self) -> Source {
        Source::File { path: self.path.to_owned(), line: 0 }
    }

    fn leave(&mut self, what: String) {
        self.left.push(what);
    }

    fn understood(self) -> Understood {
        let note = (!self.left.is_empty()).then(|| {
            format!("{}: not understood and left out: {}", self.path.display(), self.left.join(", "))
        });
        Understood { layer: self.layer, note }
    }

    fn permissions(&mut self, value: &Value, effects: &[&str]) {
        let Value::Object(permissions) = value else { return self.leave("permissions".to_owned()) };
        let is_all = effects.len() > 1;
        for (key, value) in permissions {
            match (key.as_str(), value) {
                ("allow" | "ask" | "deny", Value::Array(rules)) => {
                    if effects.contains(&key.as_str()) {
                        for rule in rules {
                            self.rule(key, rule);
                        }
                    }
                }
                _ if !is_all => {}
                ("additionalDirectories", Value::Array(directories)) => {
                    for directory in directories.iter().filter_map(Value::as_str) {
                        self.layer.push(&["permissions", "add_dirs"], directory, self.source());
                    }
                }
                ("defaultMode", Value::String(mode)) => match mode.as_str() {
                    "default" => self.layer.set(&["permissions", "mode"], "default", self.source()),
                    "acceptEdits" => self.layer.set(&["permissions", "mode"], "accept-edits", self.source()),
                    "plan" => self.layer.set(&["permissions", "mode"], "plan", self.source()),
                    // Whoever wants that here says so here.
                    other => self.leave(format!("the mode `{other}`")),
                },
                (other, _) => self.leave(format!("permissions.{other}")),
            }
        }
    }

    fn rule(&mut self, effect: &str, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        match translated(text) {
            Some(rule) => {
                self.rules += 1;
                self.layer.push(&["permissions", effect], rule, self.source());
            }
            None => self.leave(format!("the {effect} rule `{}`", caliban_core::inert::line(text))),
        }
    }

    fn hooks(&mut self, value: &Value) {
        let Value::Object(events) = value else { return self.leave("hooks".to_owned()) };
        for (event, groups) in events {
            if !EVENTS.contains(&event.as_str()) {
                self.leave(format!("hooks.{event}"));
                continue;
            }
            for group in groups.as_array().into_iter().flatten() {
                let matcher = group.get("matcher").and_then(Value::as_str).filter(|text| !text.is_empty());
                for hook in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
                    self.hook(event, matcher, hook);
                }
            }
        }
    }

    fn hook(&mut self, event: &str, matcher: Option<&str>, hook: &Value) {
        let kind = hook.get("type").and_then(Value::as_str).unwrap_or("command");
        let command = hook.get("command").and_then(Value::as_str).filter(|_| kind == "command");
        let Some(command) = command else {
            return self.leave(format!("a hook of {event} of type `{}`", caliban_core::inert::line(kind)));
        };
        let mut table = Table::new();
        table.insert("command".into(), command.into());
        if let Some(matcher) = matcher {
            table.insert("matcher".into(), matcher.into());
        }
        if let Some(timeout) = hook.get("timeout").and_then(Value::as_f64).filter(|seconds| *seconds >= 1.0) {
            // Whole seconds; more than a day is as good as a day.
            let seconds = timeout.ceil().min(86_400.0) as i64;
            table.insert("timeout".into(), seconds.into());
        }
        self.layer.push(&["hooks", event], table, self.source());
    }

    fn variables(&mut self, value: &Value) {
        let Value::Object(variables) = value else { return self.leave("env".to_owned()) };
        for (name, value) in variables {
            match value {
                Value::String(text) if !name.is_empty() && !name.contains('=') => {
                    self.layer.set(&["bash", "env", name], text.as_str(), self.source());
                }
                _ => self.leave(format!("env.{name}")),
            }
        }
    }
}

/// A rule in our words; none when there is no such tool here or the pattern means nothing to us.
fn translated(text: &str) -> Option<String> {
    let text = text.trim();
    let (name, inner) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')')?)),
        None => (text, None),
    };
    let name = match name {
        "Glob" | "Grep" if inner.is_some() => "Read",
        other => tool_names::ours(other).unwrap_or(other),
    };
    if !tool_names::is_known(name) {
        return None;
    }
    let rule = match (name, inner) {
        (_, None) => name.to_owned(),
        ("Read" | "Edit" | "Write", Some(path)) => format!("{name}({})", path_pattern(path)),
        (_, Some(inner)) => format!("{name}({inner})"),
    };
    rule.parse::<Rule>().ok().map(|_| rule)
}

/// There, `//` begins an absolute path and `/` one below the project.
fn path_pattern(path: &str) -> String {
    match (path.strip_prefix("//"), path.strip_prefix('/')) {
        (Some(absolute), _) => format!("/{absolute}"),
        (None, Some(below)) => format!("./{below}"),
        (None, None) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> (String, Option<String>) {
        let understood = parse(Path::new("/w/.claude/settings.json"), json.as_bytes());
        (toml::to_string(&understood.layer.table).unwrap(), understood.note)
    }

    #[test]
    fn what_both_programs_have_is_taken_over() {
        let (table, note) = text(
            r#"{"$schema": "x", "permissions": {"allow": ["Bash(npm run test:*)", "Read(//etc/hosts)", "Task"],
                "deny": ["Read(/secrets/**)", "MultiEdit"], "additionalDirectories": ["../docs"],
                "defaultMode": "acceptEdits"},
                "env": {"FOO": "bar"},
                "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
                    {"type": "command", "command": "check", "timeout": 5}]}], "Stop": [{"hooks": [{"command": "bell"}]}]}}"#,
        );
        assert_eq!(note, None);
        let expected: Table = toml::from_str(
            r#"[permissions]
            allow = ["Bash(npm run test:*)", "Read(/etc/hosts)", "AgentTool"]
            deny = ["Read(./secrets/**)", "Edit"]
            add_dirs = ["../docs"]
            mode = "accept-edits"
            [bash.env]
            FOO = "bar"
            [[hooks.PreToolUse]]
            command = "check"
            matcher = "Bash"
            timeout = 5
            [[hooks.Stop]]
            command = "bell""#,
        )
        .unwrap();
        assert_eq!(toml::from_str::<Table>(&table).unwrap(), expected);
    }

    #[test]
    fn what_is_not_understood_is_named_in_one_line() {
        let (table, note) = text(
            r#"{"model": "opus", "permissions": {"allow": ["Frobnicate", "Bash(a | b)"], "defaultMode": "bypassPermissions"},
                "hooks": {"PreCompact": [], "Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}, "env": {"A": 1}}"#,
        );
        assert_eq!(table, "");
        let left = "not understood and left out: model, the allow rule `Frobnicate`, the allow rule `Bash(a | b)`, the mode \
                    `bypassPermissions`, hooks.PreCompact, a hook of Stop of type `prompt`, env.A";
        assert_eq!(note.unwrap(), format!("/w/.claude/settings.json: {left}"));
        let (_, note) = text("{oops");
        assert!(note.unwrap().starts_with("/w/.claude/settings.json is not used: "));
    }

    #[test]
    fn without_trust_only_denials_hold() {
        let json =
            br#"{"permissions": {"allow": ["Bash"], "deny": ["Read(.env)", "Nope"]}, "env": {"A": "b"}}"#;
        let understood = denials(Path::new("/w/s.json"), json);
        assert_eq!(
            toml::to_string(&understood.layer.table).unwrap(),
            "[permissions]\ndeny = [\"Read(.env)\"]\n"
        );
        assert_eq!(
            understood.note.unwrap(),
            "/w/s.json: its 1 deny rule holds without trust, too; not understood, so nothing is denied by: the deny rule \
             `Nope`"
        );
        let broken = denials(Path::new("/w/s.json"), b"{").note.unwrap_or_default();
        assert!(broken.ends_with("its deny rules do not hold"), "{broken}");
    }
}
