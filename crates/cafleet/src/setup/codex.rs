//! Codex: our rules file, and settings in its configuration that keep a call from being allowed without asking.
//!
//! A rule that allows a command also runs it outside the sandbox. Without a rule, codex runs `cafleet` in its sandbox,
//! where the database's directory must be writable. Of several rules the strictest wins. Refuses: writing
//! `config.toml`, which is the user's.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{FileState, Obstacle, Places, RuleEffect, SetupClient, SetupReport, file};

/// Literal calls are allowed, outside the sandbox. A rule matches a prefix, so `member exec` cannot be excluded.
const RULES: &str = r#"# Lets codex run literal calls of cafleet unasked, outside its sandbox.
prefix_rule(
    pattern = ["cafleet", "--session-id"],
    decision = "allow",
    justification = "messages between agents; cafleet itself checks who calls",
    match = ["cafleet --session-id 0a1b message poll --agent-id 1"],
    not_match = ["cafleet session delete 0a1b"],
)
prefix_rule(pattern = ["cafleet", "doctor"], decision = "allow")
prefix_rule(pattern = ["cafleet", "session", "list"], decision = "allow")
"#;
/// The name of this file in reports.
const WHAT: &str = "rules";

/// Our rules file.
pub(super) fn rules(places: &Places) -> file::Ours {
    let path = places.codex.join("rules/cafleet.rules");
    file::Ours::script(SetupClient::Codex, WHAT, path, RULES.to_owned())
}

/// Checks every file that has an effect.
pub(super) fn look(places: &Places, report: &mut SetupReport) {
    let config_file = places.codex.join("config.toml");
    let config = load(&config_file, report).unwrap_or_default();
    let mut directories = vec![places.codex.join("rules"), places.etc.join("codex/rules")];
    if is_trusted(&config, &places.project) {
        directories.push(places.project.join(".codex/rules"));
    }
    for file in directories.iter().flat_map(|dir| with_extension(dir, "rules")) {
        let text = file::read(&file).ok().flatten().unwrap_or_default();
        for (decision, rule) in strict_rules(&text) {
            report.codex(decision, &file, &rule, "a rule means calls of cafleet".to_owned());
        }
    }
    requirements(&places.etc.join("codex/requirements.toml"), report);
    let is_ours = |item: &&super::SetupItem| {
        item.client == SetupClient::Codex && item.what == WHAT && item.state != FileState::Missing
    };
    if !report.items.iter().any(|item| is_ours(&item)) {
        sandbox(places, &config_file, &config, report);
    }
    if !is_trusted(&config, &places.project) {
        let rule = format!("[projects.\"{}\"] trust_level", places.project.display());
        let why = "codex asks whether this directory is trusted when it starts in it".to_owned();
        report.codex(RuleEffect::Asks, &config_file, &rule, why);
    }
}

/// Checks what happens to a call that no rule allows.
fn sandbox(places: &Places, file: &Path, config: &Table, report: &mut SetupReport) {
    let mode = config.get("sandbox_mode").and_then(Value::as_str).unwrap_or("workspace-write");
    if mode == "danger-full-access" {
        return;
    }
    if mode == "read-only" {
        let why =
            "no rule allows cafleet, and its database cannot be written in a read-only sandbox".to_owned();
        report.codex(RuleEffect::Denies, file, &format!("sandbox_mode = \"{mode}\""), why);
        return;
    }
    let part = config.get("sandbox_workspace_write").and_then(Value::as_table);
    let roots = part.and_then(|part| part.get("writable_roots")).and_then(Value::as_array);
    let directory = places.database.parent().unwrap_or(Path::new("/"));
    let is_writable =
        roots.into_iter().flatten().filter_map(Value::as_str).any(|root| directory.starts_with(root));
    if !is_writable {
        let why =
            format!("no rule allows cafleet, and {} is no writable root of the sandbox", directory.display());
        report.codex(RuleEffect::Denies, file, "sandbox_workspace_write.writable_roots", why);
    }
    if part.and_then(|part| part.get("network_access")).and_then(Value::as_bool) != Some(true) {
        let why =
            "no rule allows cafleet, and the sandbox may keep it from tmux, whose socket counts as network"
                .to_owned();
        report.codex(RuleEffect::Denies, file, "sandbox_workspace_write.network_access", why);
    }
}

/// Checks the requirements of the machine's administrator. Members start with `--ask-for-approval never --sandbox
/// workspace-write`.
fn requirements(file: &Path, report: &mut SetupReport) {
    let Some(required) = load(file, report) else { return };
    for (key, needed) in
        [("allowed_approval_policies", "never"), ("allowed_sandbox_modes", "workspace-write")]
    {
        let Some(list) = required.get(key).and_then(Value::as_array) else { continue };
        if !list.iter().any(|one| one.as_str() == Some(needed)) {
            let why = format!("members start with \"{needed}\", which the list does not have");
            report.codex(RuleEffect::Denies, file, key, why);
        }
    }
    let rules = required.get("rules").and_then(|part| part.get("prefix_rules")).and_then(Value::as_array);
    for rule in rules.into_iter().flatten() {
        let first = rule.get("pattern").and_then(Value::as_array).and_then(|pattern| pattern.first());
        let is_ours = first.is_some_and(|word| {
            let any_of = word.get("any_of").and_then(Value::as_array);
            word.get("token").and_then(Value::as_str) == Some("cafleet")
                || any_of.into_iter().flatten().any(|word| word.as_str() == Some("cafleet"))
        });
        let effect = rule.get("decision").and_then(Value::as_str).and_then(effect);
        if let (true, Some(effect)) = (is_ours, effect) {
            let why = "the machine's administrator has a rule that means calls of cafleet".to_owned();
            report.codex(effect, file, "rules.prefix_rules", why);
        }
    }
}

impl SetupReport {
    fn codex(&mut self, effect: RuleEffect, file: &Path, rule: &str, why: String) {
        let (file, rule) = (file.to_owned(), rule.to_owned());
        self.obstacles.push(Obstacle { client: SetupClient::Codex, effect, file, rule, why });
    }
}

fn is_trusted(config: &Table, project: &Path) -> bool {
    let project = config.get("projects").and_then(|all| all.get(&*project.to_string_lossy()));
    project.and_then(|it| it.get("trust_level")).and_then(Value::as_str) == Some("trusted")
}

/// Reads a configuration file; `None` if it does not exist. An unreadable one is reported.
fn load(path: &Path, report: &mut SetupReport) -> Option<Table> {
    let text = file::read(path).map_err(|error| error.to_string());
    let parsed = text.and_then(|text| match text {
        Some(text) => text.parse::<Table>().map(Some).map_err(|error| error.message().to_owned()),
        None => Ok(None),
    });
    parsed.unwrap_or_else(|why| {
        report.codex(RuleEffect::Asks, path, "(the file)", format!("it cannot be read: {why}"));
        None
    })
}

fn with_extension(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    files.sort();
    files
}

fn effect(decision: &str) -> Option<RuleEffect> {
    match decision {
        "forbidden" => Some(RuleEffect::Denies),
        "prompt" => Some(RuleEffect::Asks),
        _ => None,
    }
}

/// The rules of a file that keep calls of cafleet from being allowed, each on one line. The files are programs; only
/// the plain form that the documentation shows is understood.
fn strict_rules(text: &str) -> Vec<(RuleEffect, String)> {
    let text: String =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join(" ");
    let blocks = text.split("prefix_rule(").skip(1);
    let strict = blocks.filter_map(|block| {
        let list =
            block.split_once("pattern")?.1.trim_start().strip_prefix('=')?.trim_start().strip_prefix('[')?;
        let first = list.split([',', ']']).next()?;
        let is_ours = quoted(first) == Some("cafleet")
            || first.trim_start().starts_with('[') && list.split(']').next()?.contains("\"cafleet\"");
        let decision = block.split_once("decision").and_then(|(_, rest)| quoted(rest)).unwrap_or("allow");
        let list = list.split_once(']').map_or(list, |(list, _)| list);
        let effect = effect(decision).filter(|_| is_ours)?;
        Some((effect, format!("prefix_rule(pattern = [{list}], decision = \"{decision}\")")))
    });
    strict.collect()
}

/// The text between the first two quotation marks.
fn quoted(text: &str) -> Option<&str> {
    let mut parts = text.split('"');
    parts.next()?;
    parts.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_rules_are_found_and_others_are_not() {
        assert_eq!(strict_rules(RULES), []);
        let text = "# prefix_rule(pattern = [\"cafleet\"], decision = \"forbidden\")\n\
                    prefix_rule(\n    pattern = [\"cafleet\", \"session\"],\n    decision = \"prompt\",\n)\n\
                    prefix_rule(pattern=[\"git\"], decision=\"forbidden\")\n\
                    prefix_rule(pattern=[[\"rm\", \"cafleet\"]], decision=\"forbidden\")";
        let found = strict_rules(text);
        assert_eq!(
            found.iter().map(|(effect, _)| *effect).collect::<Vec<_>>(),
            [RuleEffect::Asks, RuleEffect::Denies]
        );
        assert_eq!(found[0].1, "prefix_rule(pattern = [\"cafleet\", \"session\"], decision = \"prompt\")");
    }

    #[test]
    fn what_the_machines_administrator_requires_is_found() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("requirements.toml");
        let found = |text: &str| {
            std::fs::write(&file, text).expect("write");
            let mut report = SetupReport { items: Vec::new(), obstacles: Vec::new() };
            requirements(&file, &mut report);
            report.obstacles.into_iter().map(|it| (it.effect, it.rule)).collect::<Vec<_>>()
        };
        assert_eq!(found("allowed_approval_policies = [\"never\", \"on-request\"]"), []);
        assert_eq!(
            found("allowed_sandbox_modes = [\"read-only\"]"),
            [(RuleEffect::Denies, "allowed_sandbox_modes".to_owned())]
        );
        let rules =
            "[rules]\nprefix_rules = [{ pattern = [{ token = \"cafleet\" }], decision = \"prompt\" }]";
        assert_eq!(found(rules), [(RuleEffect::Asks, "rules.prefix_rules".to_owned())]);
        assert_eq!(found("= broken").len(), 1);
    }
}
