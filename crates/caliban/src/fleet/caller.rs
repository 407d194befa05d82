//! What an agent gets of its caller's environment: what it needs, and secrets apart from the rest.
//!
//! The part without secrets is kept in the agent's spec on disk; secrets are handed to the daemon, which keeps them
//! in the runtime directory only.

use std::collections::{BTreeMap, BTreeSet};

use caliban_core::redact::{Redactor, is_secret_name};
use caliban_providers::ProviderKind;

use crate::{
    settings::{
        Environment, Loaded,
        tool_environment::{secrets, tool_environment},
    },
    trust::{RepoFile, Trust},
};

/// Beginnings of names that settings and providers read, beside what tools get.
const PREFIXES: [&str; 8] =
    ["CAFLEET_", "CALIBAN_", "ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "OPENROUTER_", "OLLAMA_"];

/// Names that would be wrong in another process.
const DROPPED: [&str; 3] = ["PWD", "OLDPWD", caliban_supervisor::MARKER];

/// The largest settings file that is looked through for variables; larger ones are no settings.
const SETTINGS_CAP: usize = 1024 * 1024;

/// A caller's environment in two parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// What may be on disk.
    pub env: BTreeMap<String, String>,
    /// What may not.
    pub secrets: BTreeMap<String, String>,
}

/// Picks what an agent with these settings needs. Values that are no text cannot be handed over and are left out.
pub(super) fn caller(environment: &Environment, loaded: &Loaded) -> Caller {
    let tools: BTreeSet<_> = tool_environment(environment, &loaded.settings.bash.env_allow)
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let keys: BTreeSet<String> = ProviderKind::all()
        .filter_map(|kind| loaded.settings.providers.api(kind)?.api_key_env.clone())
        .collect();
    let named = named_in_settings(loaded);
    let redactor = Redactor::new(secrets(environment, &loaded.settings));
    let mut caller = Caller::default();
    for (name, value) in environment.iter() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let needed = tools.contains(name)
            || keys.contains(name)
            || named.contains(name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !needed || DROPPED.contains(&name) {
            continue;
        }
        // A proxy's address may hold a password under an innocent name.
        let is_secret = is_secret_name(name) || keys.contains(name) || redactor.redact(value) != value;
        let part = if is_secret { &mut caller.secrets } else { &mut caller.env };
        part.insert(name.to_owned(), value.to_owned());
    }
    caller
}

/// The variables that settings name as `${NAME}`, for MCP servers.
fn named_in_settings(loaded: &Loaded) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Ok(Some(bytes)) = crate::settings::file::read(&loaded.paths.user_settings()) {
        names.extend(variables(&bytes));
    }
    if let Trust::Trusted(files) = &loaded.trust {
        for kind in [RepoFile::McpJson, RepoFile::Settings, RepoFile::LocalSettings] {
            names.extend(files.get(kind).into_iter().flat_map(variables));
        }
    }
    names
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
    use crate::settings::Layer;

    fn loaded(environment: &Environment, settings: &str) -> (tempfile::TempDir, Loaded) {
        let dir = tempfile::tempdir().unwrap();
        let mut vars: Vec<_> = environment.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        for (name, below) in [("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")] {
            vars.push((name.into(), dir.path().join(below).into()));
        }
        std::fs::create_dir_all(dir.path().join("config/caliban")).unwrap();
        std::fs::write(dir.path().join("config/caliban/settings.toml"), settings).unwrap();
        let environment: Environment = vars.into_iter().collect();
        let loaded = crate::settings::load(&environment, dir.path(), Layer::default()).unwrap();
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
            ("ANTHROPIC_API_KEY", "canary-one"),
            ("AWS_SECRET_ACCESS_KEY", "canary-two"),
            ("HTTPS_PROXY", "http://me:canary-three@proxy:3128"),
            ("HTTP_PROXY", "http://proxy:3128"),
            ("ODDLY_NAMED", "canary-four"),
            ("JIRA_HOST", "jira.example.org"),
            ("JIRA_TOKEN", "canary-five"),
            ("SSH_AUTH_SOCK", "/s"),
            ("RANDOM_THING", "1"),
        ]
        .into_iter()
        .collect();
        let settings = "[providers.vllm]\napi_key_env = 'ODDLY_NAMED'\n\
                        [mcp.servers.jira]\ncommand = 'jira'\nargs = ['${JIRA_HOST}', '${NOT_SET:-x}']\n\
                        env = { T = '${JIRA_TOKEN}' }\n";
        let (_dir, loaded) = loaded(&environment, settings);
        let got = caller(&environment, &loaded);
        let names = |part: &BTreeMap<String, String>| part.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&got.env), ["CALIBAN_MODEL", "HOME", "HTTP_PROXY", "JIRA_HOST", "LC_ALL", "PATH"]);
        assert_eq!(names(&got.secrets), ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "JIRA_TOKEN", "ODDLY_NAMED"]);
    }
}
