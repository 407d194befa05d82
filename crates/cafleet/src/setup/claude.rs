//! Claude Code: its settings files in their order of precedence, and the rules in them.
//!
//! A rule that denies takes precedence over one that asks, and that over one that allows, whatever file it is in.
//! Refuses: writing any file but the user's own settings, and that one if it is not plain JSON.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::pattern::{fits, means};
use super::{
    FileState, Obstacle, Places, RuleEffect, SAMPLES, SetupClient, SetupDone, SetupItem, SetupReport, file,
};

/// Literal calls are allowed.
const ALLOW: [&str; 3] =
    ["Bash(cafleet --session-id:*)", "Bash(cafleet doctor:*)", "Bash(cafleet session list:*)"];
/// The user must allow a command for another agent's shell.
const ASK: [&str; 1] = ["Bash(cafleet --session-id * member exec *)"];
/// Runs outside Claude Code's sandbox, if there is one: inside, the caller cannot be identified, and the database
/// cannot be written.
const OUTSIDE: &str = "cafleet *";

/// The user's own settings.
pub(super) fn settings_file(places: &Places) -> PathBuf {
    places.claude.join("settings.json")
}

/// Adds missing entries to the user's settings. Everything else in them stays.
pub(super) fn permit(places: &Places) -> SetupDone {
    let file = settings_file(places);
    let mut settings = match load(&file) {
        Ok(found) => found.unwrap_or_default(),
        Err(why) => return SetupDone::Failed(why),
    };
    if missing(&settings).is_empty() {
        return SetupDone::Nothing;
    }
    if let Err(why) = add(&mut settings) {
        return SetupDone::Failed(why);
    }
    let copy = match file.exists().then(|| file::keep_copy(&file)).transpose() {
        Ok(copy) => copy,
        Err(error) => return SetupDone::Failed(error.to_string()),
    };
    match file::replace(&file, format!("{:#}\n", Value::Object(settings)).as_bytes()) {
        Ok(()) => copy.map_or(SetupDone::Installed, SetupDone::Replaced),
        Err(error) => SetupDone::Failed(error.to_string()),
    }
}

/// Checks the permissions that we add, and the rules of every file.
pub(super) fn look(places: &Places, report: &mut SetupReport) {
    let user = settings_file(places);
    let state = match load(&user) {
        Ok(found) => {
            let lacks = missing(&found.clone().unwrap_or_default());
            match (lacks.is_empty(), found.is_some_and(|found| mentions_us(&found))) {
                (true, _) => FileState::Current,
                (false, true) => FileState::Old,
                (false, false) => FileState::Missing,
            }
        }
        Err(why) => FileState::Unreadable(why),
    };
    report.items.push(SetupItem {
        client: SetupClient::Claude,
        what: "permissions",
        file: user.clone(),
        state,
        done: None,
    });

    let managed = managed(places);
    let own = [
        user,
        places.project.join(".claude/settings.json"),
        places.project.join(".claude/settings.local.json"),
    ];
    let read = |files: &[PathBuf]| -> Vec<(PathBuf, Map<String, Value>)> {
        files.iter().filter_map(|file| Some((file.clone(), load(file).ok()??))).collect()
    };
    let (managed, own) = (read(&managed), read(&own));
    let only = managed
        .iter()
        .find(|(_, settings)| settings.get("allowManagedPermissionRulesOnly") == Some(&Value::Bool(true)));
    let counts: Vec<_> = match only {
        Some(_) => managed.iter().collect(),
        None => managed.iter().chain(&own).collect(),
    };
    for (list, effect) in [("deny", RuleEffect::Denies), ("ask", RuleEffect::Asks)] {
        for (file, settings) in &counts {
            for rule in rules(settings, list).filter(|rule| SAMPLES.iter().any(|sample| means(rule, sample)))
            {
                let why = format!("permissions.{list} has a rule that means calls of cafleet");
                report.obstacle(effect, file, rule, why);
            }
        }
    }
    let allows = |(_, settings): &&(PathBuf, Map<String, Value>)| {
        SAMPLES.iter().all(|sample| rules(settings, "allow").any(|rule| means(rule, sample)))
    };
    if !counts.iter().copied().any(|file| allows(&file)) {
        match only {
            Some((file, _)) => {
                let why = "only the rules of this file count, and none of them allows cafleet".to_owned();
                report.obstacle(RuleEffect::Asks, file, "allowManagedPermissionRulesOnly", why);
            }
            None => {
                let why = "no rule in permissions.allow means calls of cafleet".to_owned();
                report.obstacle(RuleEffect::Asks, &settings_file(places), ALLOW[0], why);
            }
        }
    }
    let sandbox = |settings: &Map<String, Value>, key: &str| {
        settings.get("sandbox").and_then(|it| it.get(key)).cloned()
    };
    let excluded = managed.iter().chain(&own).any(|(_, settings)| is_outside(settings));
    for (file, settings) in managed.iter().chain(&own) {
        if sandbox(settings, "enabled") == Some(Value::Bool(true)) && !excluded {
            let why = format!(
                "cafleet would run in the sandbox: no database there, and no Director; sandbox.excludedCommands lacks \"{OUTSIDE}\""
            );
            report.obstacle(RuleEffect::Denies, file, "sandbox.enabled", why);
        }
    }
    trust(places, report);
}

/// Checks whether the project is trusted. Without the state file Claude Code has never run, and asks anyway.
fn trust(places: &Places, report: &mut SetupReport) {
    let Ok(Some(state)) = load(&places.claude_state) else { return };
    let project = places.project.to_string_lossy();
    let accepted = state
        .get("projects")
        .and_then(|all| all.get(&*project))
        .and_then(|it| it.get("hasTrustDialogAccepted"));
    if accepted != Some(&Value::Bool(true)) {
        let rule = format!("projects[\"{project}\"].hasTrustDialogAccepted");
        let why = "claude asks whether this directory is trusted when it starts in it".to_owned();
        report.obstacle(RuleEffect::Asks, &places.claude_state, &rule, why);
    }
}

impl SetupReport {
    fn obstacle(&mut self, effect: RuleEffect, file: &Path, rule: &str, why: String) {
        let (file, rule) = (file.to_owned(), rule.to_owned());
        self.obstacles.push(Obstacle { client: SetupClient::Claude, effect, file, rule, why });
    }
}

fn managed(places: &Places) -> Vec<PathBuf> {
    let dir = places.etc.join("claude-code");
    let mut parts: Vec<PathBuf> = std::fs::read_dir(dir.join("managed-settings.d"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    parts.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    parts.sort();
    parts.insert(0, dir.join("managed-settings.json"));
    parts
}

/// Reads a settings file; `None` if it does not exist.
fn load(path: &Path) -> Result<Option<Map<String, Value>>, String> {
    let Some(text) = file::read(path).map_err(|error| error.to_string())? else { return Ok(None) };
    if text.trim().is_empty() {
        return Ok(Some(Map::new()));
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(settings)) => Ok(Some(settings)),
        Ok(_) => Err("it is no JSON object".to_owned()),
        Err(error) => Err(format!("it is not plain JSON: {error}")),
    }
}

fn rules<'a>(settings: &'a Map<String, Value>, list: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let list = settings.get("permissions").and_then(|it| it.get(list)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn is_outside(settings: &Map<String, Value>) -> bool {
    let list = settings.get("sandbox").and_then(|it| it.get("excludedCommands")).and_then(Value::as_array);
    let means = |pattern: &str| pattern == "cafleet" || pattern == "cafleet:*" || fits(pattern, SAMPLES[0]);
    list.into_iter().flatten().filter_map(Value::as_str).any(means)
}

/// The entries that a settings file lacks: the list, and the entry.
fn missing(settings: &Map<String, Value>) -> Vec<([&'static str; 2], &'static str)> {
    let has = |list: &str, entry: &str| rules(settings, list).any(|rule| rule == entry);
    let allow =
        ALLOW.iter().filter(|entry| !has("allow", entry)).map(|entry| (["permissions", "allow"], *entry));
    let ask = ASK.iter().filter(|entry| !has("ask", entry)).map(|entry| (["permissions", "ask"], *entry));
    let sandboxed = settings.get("sandbox").and_then(|it| it.get("enabled")) == Some(&Value::Bool(true));
    let outside = (sandboxed && !is_outside(settings)).then_some((["sandbox", "excludedCommands"], OUTSIDE));
    allow.chain(ask).chain(outside).collect()
}

fn mentions_us(settings: &Map<String, Value>) -> bool {
    ["allow", "ask"]
        .into_iter()
        .any(|list| rules(settings, list).any(|rule| rule.starts_with("Bash(cafleet")))
}

fn add(settings: &mut Map<String, Value>) -> Result<(), String> {
    for ([part, list], entry) in missing(settings) {
        let part = settings.entry(part).or_insert_with(|| json!({}));
        let part = part.as_object_mut().ok_or("\"permissions\" or \"sandbox\" is no JSON object")?;
        let list = part.entry(list).or_insert_with(|| json!([]));
        list.as_array_mut().ok_or("a list of rules is no JSON list")?.push(json!(entry));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_machines_administrator_are_found_with_file_and_rule() {
        let dir = tempfile::tempdir().expect("dir");
        let places = Places {
            claude: dir.path().join("claude"),
            claude_state: dir.path().join("claude.json"),
            codex: dir.path().join("codex"),
            etc: dir.path().join("etc"),
            project: dir.path().join("project"),
            database: dir.path().join("registry.db"),
        };
        assert!(matches!(permit(&places), SetupDone::Installed));
        let look = || {
            let mut report = SetupReport { items: Vec::new(), obstacles: Vec::new() };
            look(&places, &mut report);
            report.obstacles.into_iter().map(|it| (it.effect, it.rule)).collect::<Vec<_>>()
        };
        assert_eq!(look(), []);
        let managed = places.etc.join("claude-code/managed-settings.json");
        file::replace(&managed, br#"{"permissions":{"deny":["Bash(cafleet * send *)"]}}"#).expect("write");
        assert_eq!(look(), [(RuleEffect::Denies, "Bash(cafleet * send *)".to_owned())]);
        file::replace(&managed, br#"{"allowManagedPermissionRulesOnly":true}"#).expect("write");
        assert_eq!(look(), [(RuleEffect::Asks, "allowManagedPermissionRulesOnly".to_owned())]);
        let part = places.etc.join("claude-code/managed-settings.d/10-team.json");
        file::replace(&part, br#"{"permissions":{"allow":["Bash(cafleet:*)"]}}"#).expect("write");
        assert_eq!(look(), []);
    }
}
