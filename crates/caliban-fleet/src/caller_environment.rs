//! What an agent gets of its caller's environment: what it needs, and secrets apart from the rest.
//!
//! The part without secrets is kept in the agent's spec on disk; secrets are handed to the daemon, which keeps them
//! in the runtime directory only.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use caliban_contract::{
    HandedOver,
    variables::{AGENT_ID, HANDED_SECRETS, JOB, SECRET_NAMES},
};
use caliban_core::redact::{Redactor, secret_parts};

use caliban_settings::{
    Environment, Files, Loaded,
    tool_environment::{Breadth, secrets, tool_environment},
    trust::{RepoFile, Trust},
};

/// Beginnings of names that settings and providers read, beside what tools get.
const PREFIXES: &str = "CAFLEET_ CALIBAN_ ANTHROPIC_ OPENAI_ GOOGLE_ GEMINI_ OPENROUTER_ OLLAMA_ OTEL_";

/// Names that would be wrong in another process.
const DROPPED: [&str; 5] = ["PWD", "OLDPWD", AGENT_ID, JOB, SECRET_NAMES];

/// The largest settings file that is looked through for variables; larger ones are no settings.
const SETTINGS_CAP: usize = 1024 * 1024;

/// A caller's environment in two parts.
#[derive(Debug, Clone, Default)]
pub struct CallerEnvironment {
    /// What may be on disk.
    pub env: BTreeMap<String, String>,
    /// What may not.
    pub handover: HandedOver,
    /// Knows all of the caller's secrets.
    redactor: Redactor,
}

/// Picks what an agent with these settings needs. Values that are no text cannot be handed over and are left out.
pub fn caller(environment: &Environment, loaded: &Loaded) -> CallerEnvironment {
    let tools: BTreeSet<_> = tool_environment(environment, &loaded.settings, Breadth::of(loaded))
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let keys: BTreeSet<&str> = loaded.settings.providers.key_variables().collect();
    let named = named_in_settings(loaded);
    let all = secrets(environment, &loaded.settings);
    let redactor = Redactor::new(all.clone());
    let mut caller = CallerEnvironment::default();
    for (name, value) in environment.iter() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let needed = tools.contains(name)
            || keys.contains(name)
            || named.contains(name)
            || PREFIXES.split_whitespace().any(|prefix| name.starts_with(prefix));
        if !needed || DROPPED.contains(&name) || HANDED_SECRETS.contains(&name) {
            continue;
        }
        // An address may hold a password under an innocent name, however short it is.
        let is_secret =
            keys.contains(name) || !secret_parts(name, value).is_empty() || redactor.redact(value) != value;
        let part = if is_secret { &mut caller.handover.variables } else { &mut caller.env };
        part.insert(name.to_owned(), value.to_owned());
    }
    // What it does not get it must not write down either: a secret that it reads in a file is still the caller's.
    // One that it gets as a part of something else is looked for by itself, too.
    let given = &caller.handover.variables;
    caller.handover.hidden = all.into_iter().filter(|(name, value)| given.get(name) != Some(value)).collect();
    caller.redactor = redactor;
    caller
}

impl CallerEnvironment {
    /// Takes the secrets out of the task, which will lie on the disk, and hands them over beside it.
    pub fn veil_task(&mut self, task: &mut String) {
        (*task, self.handover.task) = self.redactor.veil(task);
    }

    /// The same for a message of a resume.
    pub fn veil_message(&mut self, message: &mut String) {
        (*message, self.handover.resume) = self.redactor.veil(message);
    }

    /// Hands over the settings of this moment, with the secrets and so on no disk: a token may stand in any of their lines.
    /// No text, they are left out: then the agent takes the settings of its start.
    pub fn hand_settings(&mut self, loaded: &Loaded) {
        self.handover.settings = Files::copy(loaded);
    }

    /// Keeps what was taken out of the task of an agent that is started again. `socket` is the agent's: what it was handed
    /// lies beside it. All else that this shell does not have the daemon keeps.
    pub fn keep_task(&mut self, socket: &Path) {
        self.handover.task = handed_before(socket).task;
    }

    /// Keeps what an agent that is started again must not write down, from the shell before.
    pub fn keep_hidden(&mut self, socket: &Path) {
        for pair in handed_before(socket).hidden {
            if !self.handover.hidden.contains(&pair) {
                self.handover.hidden.push(pair);
            }
        }
    }
}

fn handed_before(socket: &Path) -> HandedOver {
    HandedOver::read(&caliban_contract::secrets_file(socket)).unwrap_or_default()
}

/// The variables that settings name as `${NAME}`, for MCP servers.
fn named_in_settings(loaded: &Loaded) -> BTreeSet<String> {
    loaded.user.iter().map(Vec::as_slice).chain(repo_files(loaded)).flat_map(variables).collect()
}

/// The settings files of a trusted repo.
fn repo_files(loaded: &Loaded) -> impl Iterator<Item = &[u8]> {
    let files = match &loaded.trust {
        Trust::Trusted(files) => Some(files),
        Trust::NoFiles | Trust::Untrusted(_) | Trust::Changed(_) => None,
    };
    let kinds = [RepoFile::McpJson, RepoFile::Settings, RepoFile::LocalSettings];
    files.into_iter().flat_map(move |files| kinds.into_iter().filter_map(|kind| files.get(kind)))
}

fn variables(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SETTINGS_CAP)]);
    let mut parts = text.split("${");
    parts.next();
    parts
        .filter_map(|part| Some(part.split_once('}')?.0))
        .map(|inside| inside.split_once(":-").map_or(inside, |(name, _)| name).to_owned())
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_settings::Layer;

    fn loaded(environment: &Environment, settings: &str) -> (tempfile::TempDir, Loaded) {
        let dir = tempfile::tempdir().unwrap();
        let mut vars: Vec<_> = environment.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        for (name, below) in [("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")] {
            vars.push((name.into(), dir.path().join(below).into()));
        }
        std::fs::create_dir_all(dir.path().join("config/caliban")).unwrap();
        std::fs::write(dir.path().join("config/caliban/settings.toml"), settings).unwrap();
        let environment: Environment = vars.into_iter().collect();
        let loaded = caliban_settings::load(&environment, dir.path(), Layer::default()).unwrap();
        (dir, loaded)
    }

    #[test]
    fn a12_secrets_never_stand_in_the_spec_and_what_is_not_needed_stays_here() {
        let environment: Environment = [
            ("HOME", "/h"),
            ("PATH", "/bin"),
            ("PWD", "/elsewhere"),
            ("LC_ALL", "C"),
            ("CALIBAN_MODEL", "m"),
            ("CALIBAN_AGENT_ID", "a3f8b2c1:nonce"),
            ("CALIBAN_JOB", "7-00ff"),
            ("ANTHROPIC_API_KEY", "canary-one"),
            ("AWS_SECRET_ACCESS_KEY", "canary-two"),
            ("HTTPS_PROXY", "http://me:canary-three@proxy:3128"),
            ("HTTP_PROXY", "http://proxy:3128"),
            ("ODDLY_NAMED", "canary-four"),
            ("JIRA_HOST", "jira.example.org"),
            ("JIRA_TOKEN", "canary-five"),
            ("SSH_AUTH_SOCK", "/s"),
            ("RANDOM_THING", "1"),
            ("npm_config__auth", "canary-six"),
            ("NIX_CONFIG", "access-tokens = github.com=canary-seven"),
            ("UV_INDEX_URL", "https://canary-eight-1a2b3c@h"),
            ("UV_DEFAULT_INDEX", "https://h/simple"),
            ("CARGO_HTTP_PROXY", "u:canary-nine-1A@h"),
            ("CARGO_REGISTRIES_X_INDEX", "sparse+https://u:canary-ten-1A2@h/"),
        ]
        .into_iter()
        .collect();
        let settings = "[providers.vllm]\napi_key_env = 'ODDLY_NAMED'\n\
                        [mcp.servers.jira]\ncommand = 'jira'\nargs = ['${JIRA_HOST}', '${NOT_SET:-x}']\n\
                        env = { T = '${JIRA_TOKEN}' }\n";
        let (_dir, loaded) = loaded(&environment, settings);
        let mut got = caller(&environment, &loaded);
        let names = |part: &BTreeMap<String, String>| part.keys().cloned().collect::<Vec<_>>();
        let plain =
            ["CALIBAN_MODEL", "HOME", "HTTP_PROXY", "JIRA_HOST", "LC_ALL", "PATH", "UV_DEFAULT_INDEX"];
        assert_eq!(names(&got.env), plain);
        let handed = [
            "ANTHROPIC_API_KEY",
            "CARGO_HTTP_PROXY",
            "CARGO_REGISTRIES_X_INDEX",
            "HTTPS_PROXY",
            "JIRA_TOKEN",
            "NIX_CONFIG",
            "ODDLY_NAMED",
            "UV_INDEX_URL",
        ];
        assert_eq!(names(&got.handover.variables), handed);
        // The copy of the settings is whole, and with the secrets.
        got.hand_settings(&loaded);
        // It does not get this one, and knows it all the same when it sees it.
        let there =
            got.handover.variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Environment>();
        let there = there.handed(got.handover.clone());
        assert_eq!(Files::handed(&there).unwrap().user, loaded.user);
        let known = Redactor::new(secrets(&there, &loaded.settings));
        for (value, name) in [
            ("canary-two", "AWS_SECRET_ACCESS_KEY"),
            ("canary-six", "npm_config__auth"),
            ("canary-seven", "NIX_CONFIG"),
            ("canary-eight-1a2b3c", "UV_INDEX_URL"),
            ("canary-nine-1A", "CARGO_HTTP_PROXY"),
            ("canary-ten-1A2", "CARGO_REGISTRIES_X_INDEX"),
        ] {
            assert_eq!(known.redact(value), format!("[redacted:{name}]"));
        }
    }
}
