//! What tools get to see of the environment (a12), and what must never reach disk.
//!
//! An allow list: a variable that nobody thought of does not pass. Where commands run without a question anyway (an
//! unattended agent), or in a repo that is trusted, everything passes that is no secret. What looks like a secret does not
//! pass in either case, unless the settings name it exactly. What is left out is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
};

use caliban_contract::variables::{HIDDEN, is_ordinary};
use caliban_core::mode::Mode;
use caliban_core::redact::{header_secrets, is_secret_name, literal_secrets, secret_parts};
use caliban_providers::ProviderKind;

use super::{Loaded, Settings, environment::Environment, values::Secret};
use crate::trust::Trust;

/// Never passed on by themselves: what lets a process act in somebody's name, or changes what every shell and git does.
const HELD: &str = "
    SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DOCKER_HOST TMUX TMUX_PANE
    BASH_ENV ENV PROMPT_COMMAND LD_PRELOAD LD_AUDIT";

/// Beginnings of names of the same kind, and of our own.
const HELD_PREFIXES: &[&str] = &["GIT_", "CALIBAN", "CAFLEET", "BASH_FUNC_", "DYLD_", "SUDO_"];

/// What nobody misses.
const NOT_WORTH_TELLING: &[&str] =
    &["_", "SHLVL", "OLDPWD", "LS_COLORS", "LESSOPEN", "LESSCLOSE", "LESS", "PS1"];

/// Names that are told one by one.
const TOLD: usize = 12;

/// How much passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// What the list names.
    Listed,
    /// All that is no secret.
    AllButSecrets,
}

impl Breadth {
    /// What fits an agent with these settings.
    pub fn of(loaded: &Loaded) -> Self {
        let is_unattended = loaded.settings.permissions.mode == Mode::Unattended;
        match &loaded.trust {
            Trust::Trusted(_) => Self::AllButSecrets,
            _ if is_unattended => Self::AllButSecrets,
            Trust::NoFiles | Trust::Untrusted(_) | Trust::Changed(_) => Self::Listed,
        }
    }
}

/// The environment for commands, hooks and servers. `bash.env_allow` has further names, or prefixes that end
/// in `*`. An exact name passes even if it looks like a secret, because somebody asked for it.
pub fn tool_environment(
    environment: &Environment,
    settings: &Settings,
    breadth: Breadth,
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr, value: &OsStr| {
        name.to_str().is_some_and(|name| passes(name, value.to_str().unwrap_or_default(), settings, breadth))
    };
    let mut passed: Vec<(OsString, OsString)> = environment
        .iter()
        .filter(|(name, value)| passes(name, value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    if breadth == Breadth::AllButSecrets {
        // Commands may do anything here: a bare repository of the user's is not kept from them.
        let setting = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.bareRepository"),
            ("GIT_CONFIG_VALUE_0", "all"),
        ];
        passed.extend(setting.map(|(name, value)| (name.into(), value.into())));
    }
    passed
}

/// The variables that commands do not get, in words; empty when there are none.
pub fn left_out(environment: &Environment, settings: &Settings, breadth: Breadth) -> String {
    let names: Vec<&str> = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str().unwrap_or_default())))
        .filter(|(name, value)| !passes(name, value, settings, breadth))
        .map(|(name, _)| name)
        .filter(|name| !NOT_WORTH_TELLING.contains(name) && !name.starts_with("CALIBAN"))
        .collect();
    let shown: String = names.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(TOLD) {
        _ if names.is_empty() => String::new(),
        None | Some(0) => format!("{shown} (the setting bash.env_allow passes one on)"),
        Some(rest) => format!("{shown} and {rest} more (the setting bash.env_allow passes one on)"),
    }
}

/// The environment of commands with what the settings set for them (`bash.env`).
pub fn with_set(
    mut env: Vec<(OsString, OsString)>,
    set: &BTreeMap<String, Secret>,
) -> Vec<(OsString, OsString)> {
    env.retain(|(name, _)| name.to_str().is_none_or(|name| !set.contains_key(name)));
    env.extend(set.iter().map(|(name, value)| (name.into(), value.reveal().into())));
    env
}

/// Every value that must not be written to disk, with the name to put in its place: keys of the settings and
/// of the environment, also those inside variables with innocent names, and what MCP servers are given. For
/// `caliban_core::redact::Redactor::new`, which leaves out values that are too short or too ordinary to look for.
pub fn secrets(environment: &Environment, settings: &Settings) -> Vec<(String, String)> {
    let mut found = spoken_secrets(environment);
    // Those of the caller of a background agent, which does not get them.
    found.extend(environment.handover().hidden.iter().cloned());
    for provider in ProviderKind::all() {
        if let Some(key) = settings.providers.api(provider).and_then(|api| api.api_key.as_ref()) {
            found.push((format!("{provider} key"), key.reveal().to_owned()));
        }
    }
    for (name, value) in &settings.bash.env {
        found.extend(secret_parts(name, value.reveal()).into_iter().map(|part| (name.clone(), part)));
    }
    let headers = settings.web.search_headers.iter();
    let headers = headers.flat_map(|(name, value)| header_secrets(name, value.reveal()));
    found.extend(headers.map(|value| ("header of the search".to_owned(), value)));
    for (server, settings) in &settings.mcp.servers {
        for (name, value) in &settings.env {
            found.extend(literal_secrets(name, value.reveal()).into_iter().map(|part| (name.clone(), part)));
        }
        let headers = settings.headers.iter().flat_map(|(name, value)| header_secrets(name, value.reveal()));
        found.extend(headers.map(|value| (format!("header of {server}"), value)));
    }
    let mut seen = BTreeSet::new();
    found.retain(|(_, value)| !value.is_empty() && seen.insert(value.clone()));
    found
}

/// The secrets of an environment, also those under innocent names: what whoever has it may say without thinking of it.
pub fn spoken_secrets(environment: &Environment) -> Vec<(String, String)> {
    let named = environment.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    named
        .flat_map(|(name, value)| secret_parts(name, value).into_iter().map(|part| (name.to_owned(), part)))
        .collect()
}

fn passes(name: &str, value: &str, settings: &Settings, breadth: Breadth) -> bool {
    let more = &settings.bash.env_allow;
    if more.iter().any(|allowed| allowed == name) {
        return true;
    }
    let is_one_of = |names: &str| names.split_whitespace().any(|one| one == name);
    let listed = is_ordinary(name)
        || more
            .iter()
            .any(|allowed| allowed.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix)));
    let is_held =
        || is_one_of(HELD) || HELD_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name == HIDDEN;
    let is_broad = breadth == Breadth::AllButSecrets && !is_held() && secret_parts(name, value).is_empty();
    let is_key = || settings.providers.key_variables().any(|key| key == name);
    (listed || is_broad) && !is_secret_name(name) && !is_key()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(environment: &[(&str, &str)], more: &[&str]) -> Vec<String> {
        let environment: Environment = environment.iter().copied().collect();
        let more: Vec<String> = more.iter().map(|name| (*name).to_owned()).collect();
        let mut settings = Settings::default();
        settings.bash.env_allow = more;
        let passed = tool_environment(&environment, &settings, Breadth::Listed);
        passed.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a12_only_listed_names_pass_and_no_secrets() {
        let environment = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("CARGO_HOME", "/c"),
            ("CARGO_REGISTRY_TOKEN", "canary"),
            ("NPM_CONFIG__AUTH_TOKEN", "canary"),
            ("ANTHROPIC_API_KEY", "canary"),
            ("AWS_SECRET_ACCESS_KEY", "canary"),
            ("SSH_AUTH_SOCK", "/s"),
            ("DOCKER_HOST", "unix:///d"),
            ("GIT_DIR", "/elsewhere"),
            ("MY_APP_MODE", "dev"),
            ("MY_APP_TOKEN", "canary"),
        ];
        assert_eq!(names(&environment, &[]), ["CARGO_HOME", "LC_ALL", "PATH"]);
        assert_eq!(names(&environment, &["MY_APP_*"]), ["CARGO_HOME", "LC_ALL", "MY_APP_MODE", "PATH"]);
        assert_eq!(names(&environment, &["MY_APP_TOKEN"]), ["CARGO_HOME", "LC_ALL", "MY_APP_TOKEN", "PATH"]);
    }

    #[test]
    fn a12_where_everything_is_allowed_all_but_secrets_passes_and_the_rest_is_told() {
        let environment: Environment = [
            ("PATH", "/bin"),
            ("HF_HOME", "/models"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("DATABASE_URL", "postgres://postgres:postgres@localhost"),
            ("OTHER_DATABASE", "postgres://me:x8Kq-Zw9p-secret@db.example.org"),
            ("GITHUB_TOKEN", "canary"),
            ("SSH_AUTH_SOCK", "/s"),
            ("GIT_DIR", "/elsewhere"),
            ("SHLVL", "1"),
        ]
        .into_iter()
        .collect();
        let mut settings = Settings::default();
        let passed = tool_environment(&environment, &settings, Breadth::AllButSecrets);
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        let git = ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"];
        assert_eq!(names[names.len() - 3..], git);
        assert_eq!(
            names[..names.len() - 3],
            ["CUDA_VISIBLE_DEVICES", "DATABASE_URL", "HF_HOME", "PATH", "SHLVL"]
        );
        assert_eq!(
            left_out(&environment, &settings, Breadth::AllButSecrets),
            "GITHUB_TOKEN, GIT_DIR, OTHER_DATABASE, SSH_AUTH_SOCK (the setting bash.env_allow passes one on)"
        );
        // A key under a harmless name, which the settings name.
        settings.providers.anthropic.api_key_env = Some("CUDA_VISIBLE_DEVICES".to_owned());
        let passed = tool_environment(&environment, &settings, Breadth::AllButSecrets);
        assert!(passed.iter().all(|(name, _)| name != "CUDA_VISIBLE_DEVICES"));
        settings.bash.env_allow = vec!["HF_HOME".to_owned()];
        let listed = left_out(&environment, &settings, Breadth::Listed);
        assert!(listed.starts_with("CUDA_VISIBLE_DEVICES, DATABASE_URL, GITHUB_TOKEN, "), "{listed}");
    }

    #[test]
    fn a12_secrets_are_collected_from_everywhere() {
        let environment: Environment = [
            ("GITHUB_TOKEN", "from-environment"),
            ("HTTPS_PROXY", "http://me:proxy-Password@proxy:3128"),
            ("DATABASE_URL", "postgres://postgres:postgres@localhost"),
            ("UV_INDEX_URL", "https://a1b2c3d4e5f6g7h8@h/simple"),
            ("PATH", "/usr/bin:/bin"),
        ]
        .into_iter()
        .collect();
        let settings: Settings = toml::from_str(
            "providers.anthropic.api_key = 'from-settings'\n\
             [mcp.servers.a]\ncommand = 'x'\nenv = { API_KEY = 'from-server-env', MODE = 'development', DB = 'pg://me:from-Address@h' }\n\
             [mcp.servers.b]\nurl = 'https://x'\nheaders = { Authorization = 'Bearer from-header', Accept = 'application/json' }\n",
        )
        .unwrap();
        assert_eq!(
            secrets(&environment, &settings),
            [
                ("GITHUB_TOKEN", "from-environment"),
                ("HTTPS_PROXY", "proxy-Password"),
                ("UV_INDEX_URL", "a1b2c3d4e5f6g7h8"),
                ("anthropic key", "from-settings"),
                ("API_KEY", "from-server-env"),
                ("DB", "from-Address"),
                ("header of b", "Bearer from-header"),
                ("header of b", "from-header"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
