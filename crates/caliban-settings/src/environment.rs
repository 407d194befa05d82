//! The environment: the only place that reads it, and the names that Caliban knows.
//!
//! Everything else gets an [`Environment`] value, so tests pass their own.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use caliban_contract::{HandedOver, variables::HANDED_SECRETS};
use caliban_permissions::Mode;
use caliban_providers::ProviderKind;

use super::{
    error::{SettingPlace, SettingsError},
    layer::{Layer, Source},
    values::{BaseUrl, close_match, provider_names},
};
use crate::trust::DefinitionKind;

/// Where Ollama listens when `OLLAMA_HOST` names no port.
const OLLAMA_PORT: u16 = 11434;

/// Every variable, as it was when the program started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    vars: BTreeMap<OsString, OsString>,
    /// What the caller of an agent has handed over beside them: in the agent's own process.
    handover: HandedOver,
}

impl Environment {
    /// What this process was started with.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The same with what the agent was handed. Its variables are those of the process; a daemon of an earlier build hands the
    /// rest over in variables, too.
    pub fn handed(mut self, handover: HandedOver) -> Self {
        let names = HANDED_SECRETS.map(|name| (name, self.vars.remove(OsStr::new(name))));
        let old =
            names.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into_string().ok()?)));
        let old = HandedOver::from(old.collect::<BTreeMap<_, _>>());
        self.handover = if old.is_empty() { handover } else { old };
        self
    }

    /// The same with variables that were taken out of the process before.
    #[must_use]
    pub fn with(mut self, taken: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.vars.extend(taken);
        self
    }

    /// The value of a variable that is meant for this process alone: nobody finds it here again. What names secrets is no secret
    /// itself, whatever its own name sounds like.
    pub fn take(&mut self, name: &str) -> Option<OsString> {
        self.vars.remove(OsStr::new(name))
    }

    /// What the agent of this process was handed.
    pub fn handover(&self) -> &HandedOver {
        &self.handover
    }

    /// The raw value; an empty one counts as not set.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The value as text; an empty one counts as not set.
    pub fn text(&self, name: &str) -> Result<Option<&str>, SettingsError> {
        self.raw(name)
            .map(|value| value.to_str().ok_or_else(|| wrong(name, "its value is not UTF-8".to_owned())))
            .transpose()
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Where programs are looked for.
    pub fn search_path(&self) -> Vec<PathBuf> {
        self.raw("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default()
    }

    /// The program of this name on `PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        self.search_path()
            .into_iter()
            .map(|dir| dir.join(name))
            .find(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file())
    }

    /// The directories for Caliban's own files.
    pub fn paths(&self) -> Result<Paths, SettingsError> {
        let home = self.absolute("HOME");
        let below = |variable: &'static str, usual: &str| {
            self.absolute(variable)
                .or_else(|| home.as_ref().map(|home| home.join(usual)))
                .map(|base| base.join("caliban"))
                .ok_or_else(|| {
                    SettingsError::new(
                        SettingPlace::Nowhere,
                        format!(
                            "neither HOME nor {variable} is set, so there is no place for Caliban's files"
                        ),
                    )
                    .hint("set HOME, or both XDG_CONFIG_HOME and XDG_DATA_HOME, to absolute paths")
                })
        };
        let config = below("XDG_CONFIG_HOME", ".config")?;
        let data = below("XDG_DATA_HOME", ".local/share")?;
        let temporary = self.absolute("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        Ok(Paths { home, config, data, temporary })
    }

    /// The proxies, in capitals or not, as curl and others read them.
    pub fn proxy(&self) -> caliban_http::ProxySettings {
        let either = |upper: &str, lower: &str| {
            self.raw(lower).or_else(|| self.raw(upper)).and_then(OsStr::to_str).map(str::to_owned)
        };
        let all = either("ALL_PROXY", "all_proxy");
        caliban_http::ProxySettings {
            https: either("HTTPS_PROXY", "https_proxy").or_else(|| all.clone()),
            http: either("HTTP_PROXY", "http_proxy").or(all),
            no_proxy: either("NO_PROXY", "no_proxy"),
        }
    }

    /// The settings that the environment makes. `files` is what the files say: it decides whether the
    /// usual `OPENAI_…` variables are meant for `openai-chat` too.
    pub fn layer(&self, files: &super::Settings) -> Result<Layer, SettingsError> {
        let mut layer = Layer::default();
        for (variable, path) in [
            ("CALIBAN_MODEL", &["model"][..]),
            ("ANTHROPIC_API_KEY", &["providers", "anthropic", "api_key"]),
            ("OPENAI_API_KEY", &["providers", "openai", "api_key"]),
            ("GOOGLE_API_KEY", &["providers", "gemini", "api_key"]),
            ("GEMINI_API_KEY", &["providers", "gemini", "api_key"]),
            ("OPENROUTER_API_KEY", &["providers", "openrouter", "api_key"]),
        ] {
            if let Some(value) = self.text(variable)? {
                layer.set(path, value, Source::Environment(variable.to_owned()));
            }
        }
        for (variable, path) in [
            ("ANTHROPIC_BASE_URL", ["providers", "anthropic", "base_url"]),
            ("OPENAI_BASE_URL", ["providers", "openai", "base_url"]),
            ("GOOGLE_GEMINI_BASE_URL", ["providers", "gemini", "base_url"]),
        ] {
            if let Some(value) = self.text(variable)? {
                let url = BaseUrl::parse(value).map_err(|message| wrong(variable, message))?;
                layer.set(&path, url.as_str(), Source::Environment(variable.to_owned()));
            }
        }
        // A `openai-chat` with an address of its own must never be sent the key of api.openai.com.
        if files.providers.openai_chat.base_url.is_none() {
            for (variable, key) in [("OPENAI_API_KEY", "api_key"), ("OPENAI_BASE_URL", "base_url")] {
                if let Some(value) = self.text(variable)? {
                    let value = value.trim_end_matches('/');
                    layer.set(
                        &["providers", "openai-chat", key],
                        value,
                        Source::Environment(variable.to_owned()),
                    );
                }
            }
        }
        if let Some(host) = self.text("OLLAMA_HOST")? {
            let url = ollama_url(host).map_err(|message| wrong("OLLAMA_HOST", message))?;
            layer.set(
                &["providers", "ollama", "base_url"],
                url,
                Source::Environment("OLLAMA_HOST".to_owned()),
            );
        }
        self.named_keys(files, &mut layer)?;
        self.choices(&mut layer)?;
        Ok(layer)
    }

    /// The keys whose variable a file names with `api_key_env`; they win over the usual variable.
    fn named_keys(&self, files: &super::Settings, layer: &mut Layer) -> Result<(), SettingsError> {
        for provider in ProviderKind::all() {
            let Some(variable) = files.providers.api(provider).and_then(|api| api.api_key_env.as_deref())
            else {
                continue;
            };
            let path = ["providers", provider.name(), "api_key"];
            layer.unset(&path);
            if let Some(value) = self.text(variable)? {
                layer.set(&path, value, Source::Environment(variable.to_owned()));
            }
        }
        Ok(())
    }

    /// The variables whose value is one of a few words.
    fn choices(&self, layer: &mut Layer) -> Result<(), SettingsError> {
        if let Some(value) = self.text("CALIBAN_PROVIDER")? {
            one_of("CALIBAN_PROVIDER", value, &provider_names())?;
            layer.set(&["provider"], value, Source::Environment("CALIBAN_PROVIDER".to_owned()));
        }
        if let Some(value) = self.text("CALIBAN_PERMISSION_MODE")? {
            one_of("CALIBAN_PERMISSION_MODE", value, &Mode::NAMES)?;
            let source = Source::Environment("CALIBAN_PERMISSION_MODE".to_owned());
            layer.set(&["permissions", "mode"], value, source);
        }
        for (variable, path, when_on) in [
            ("CALIBAN_NO_SUB_AGENT", &["sub_agents"][..], false),
            ("CALIBAN_KEEP_WORKTREES", &["worktrees", "keep"], true),
        ] {
            if self.switch(variable)? {
                layer.set(path, when_on, Source::Environment(variable.to_owned()));
            }
        }
        Ok(())
    }

    fn switch(&self, variable: &str) -> Result<bool, SettingsError> {
        match self.text(variable)?.map(str::to_ascii_lowercase).as_deref() {
            None | Some("0" | "false" | "no" | "off") => Ok(false),
            Some("1" | "true" | "yes" | "on") => Ok(true),
            Some(other) => Err(wrong(variable, format!("found `{other}`, expected 1 or 0"))),
        }
    }

    /// A variable that holds an absolute path; the XDG rules say that others are ignored.
    pub fn absolute(&self, variable: &str) -> Option<PathBuf> {
        self.raw(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(vars: I) -> Self {
        Self { vars: vars.into_iter().collect(), handover: HandedOver::default() }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(vars: I) -> Self {
        vars.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }
}

/// The directories for Caliban's own files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The user's home, where there is one.
    pub home: Option<PathBuf>,
    /// `…/caliban` for settings.
    pub config: PathBuf,
    /// `…/caliban` for sessions and what Caliban remembers.
    pub data: PathBuf,
    /// For temporary files.
    pub temporary: PathBuf,
}

impl Paths {
    /// The user's settings file.
    pub fn user_settings(&self) -> PathBuf {
        self.config.join("settings.toml")
    }

    /// The user's own settings for the project at this root.
    pub fn repo_settings(&self, root: &Path) -> PathBuf {
        self.config.join("repos").join(caliban_contract::repo_hash(root)).join("settings.toml")
    }

    /// Where the user's own definitions of a kind are, the strongest first.
    pub fn own_directories(&self, kind: DefinitionKind) -> Vec<PathBuf> {
        let claude = self.home.as_ref().map(|home| home.join(".claude").join(kind.directory()));
        [self.config.join(kind.directory())].into_iter().chain(claude).collect()
    }

    /// The user's settings of Claude Code.
    pub fn claude_settings(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(".claude/settings.json"))
    }

    /// The directory for everything about one repo: `<data>/repos/<hash>`.
    pub fn repo(&self, root: &Path) -> PathBuf {
        self.data.join("repos").join(caliban_contract::repo_hash(root))
    }
}

fn wrong(variable: &str, message: String) -> SettingsError {
    SettingsError::new(SettingPlace::Variable(variable.to_owned()), message)
}

fn one_of(variable: &str, value: &str, words: &[&str]) -> Result<(), SettingsError> {
    if words.contains(&value) {
        return Ok(());
    }
    let error = wrong(variable, format!("found `{value}`, expected one of {}", words.join(", ")));
    Err(match close_match(value, words.iter().copied()) {
        Some(close) => error.hint(format!("did you mean `{close}`?")),
        None => error,
    })
}

/// Ollama's own rule for `OLLAMA_HOST` (`host`, `host:port`, `:port` or an address), as the address of
/// its OpenAI-compatible half.
fn ollama_url(host: &str) -> Result<String, String> {
    let host = host.trim();
    let with_scheme = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
    let with_host = with_scheme.replacen("://:", "://127.0.0.1:", 1);
    let mut url = url::Url::parse(&with_host)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| format!("found `{host}`, expected `host:port` or an address"))?;
    // The address a server listens on everywhere with is none to connect to.
    if url.host_str() == Some("0.0.0.0") {
        url.set_host(Some("127.0.0.1")).map_err(|error| error.to_string())?;
    }
    let names_port = with_host.rsplit(']').next().is_some_and(|rest| {
        rest.split("://")
            .last()
            .and_then(|rest| rest.split('/').next())
            .is_some_and(|rest| rest.contains(':'))
    });
    if !names_port && url.scheme() == "http" {
        url.set_port(Some(OLLAMA_PORT)).map_err(|()| format!("found `{host}`, expected `host:port`"))?;
    }
    let base = url.as_str().trim_end_matches('/');
    Ok(if base.ends_with("/v1") { base.to_owned() } else { format!("{base}/v1") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_follows_ollamas_rule() {
        let cases = [
            ("127.0.0.1", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:1234", "http://127.0.0.1:1234/v1"),
            (":1234", "http://127.0.0.1:1234/v1"),
            ("box.local:80", "http://box.local/v1"),
            ("http://box:9000/", "http://box:9000/v1"),
            ("https://ollama.example.org", "https://ollama.example.org/v1"),
            ("[::1]:1234", "http://[::1]:1234/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
        ];
        for (given, url) in cases {
            assert_eq!(ollama_url(given).unwrap(), url, "{given}");
        }
        assert!(ollama_url("http://").unwrap_err().contains("expected"));
    }

    #[test]
    fn without_home_and_xdg_the_error_says_what_to_set() {
        let error = Environment::default().paths().unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.hint.as_deref()),
            (
                "neither HOME nor XDG_CONFIG_HOME is set, so there is no place for Caliban's files",
                Some("set HOME, or both XDG_CONFIG_HOME and XDG_DATA_HOME, to absolute paths"),
            )
        );
    }

    #[test]
    fn relative_xdg_directories_are_ignored() {
        let environment: Environment =
            [("HOME", "/h"), ("XDG_CONFIG_HOME", "rel"), ("XDG_DATA_HOME", "/d")].into_iter().collect();
        let paths = environment.paths().unwrap();
        assert_eq!((paths.config, paths.data), ("/h/.config/caliban".into(), "/d/caliban".into()));
    }

    #[test]
    fn f05_hash_is_sixteen_hex_of_the_path() {
        // printf %s /tmp/repo | sha256sum
        assert_eq!(caliban_contract::repo_hash(Path::new("/tmp/repo")), "b6fe87a9b936bea6".to_owned());
    }
}
