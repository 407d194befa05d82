//! From settings to a provider. Reads no environment: whoever calls has done that.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use caliban_http::{ClientOptions, HttpClient, Method, ProxySettings, Url};
use serde_json::Value;

use crate::{
    Governor, Provider, ProviderError,
    chat::Dialect,
    error::clean,
    http::HttpProvider,
    kind::ProviderKind,
    refused_parts::Concessions,
    retry::RetryPolicy,
    script::Script,
    scripted::{self, Scripted},
    wire::Wire,
};

/// A script may not be larger than this.
pub const MAX_SCRIPT_BYTES: u64 = 16 * 1024 * 1024;
/// How long the question whether Ollama runs may take.
const OLLAMA_TIME: Duration = Duration::from_millis(300);
/// How much of Ollama's list is read.
const OLLAMA_LIST_BYTES: usize = 1024 * 1024;

/// Everything that makes a provider.
#[derive(Clone)]
pub struct Config {
    /// Which one.
    pub provider: ProviderKind,
    /// Where it is; the provider's usual place when `None`.
    pub base_url: Option<String>,
    /// The key.
    pub api_key: Option<String>,
    /// Headers that are sent beside the usual ones.
    pub headers: Vec<(String, String)>,
    /// What the scripted provider follows.
    pub script: ScriptSource,
    /// Proxies.
    pub proxy: ProxySettings,
    /// Certificates (PEM) that are trusted beside the system's.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// How failures are met.
    pub retry: RetryPolicy,
    /// Who lets the requests of all who use the same key through.
    pub governor: Option<Arc<dyn Governor>>,
}

/// Where a script comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ScriptSource {
    /// The built-in demo.
    #[default]
    Demo,
    /// A JSON file.
    File(PathBuf),
    /// This one.
    Given(Script),
}

impl Config {
    /// The usual settings of a provider.
    pub fn new(provider: ProviderKind) -> Self {
        let mut retry = RetryPolicy::default();
        if provider.how_to_start().is_some() {
            retry.stall = LOCAL_STALL;
        }
        Self {
            provider,
            base_url: None,
            api_key: None,
            headers: Vec::new(),
            script: ScriptSource::default(),
            proxy: ProxySettings::default(),
            extra_roots_pem: None,
            retry,
            governor: None,
        }
    }
}

/// How long a local server may say nothing: it may have to load the model first, and reads a long prompt slowly.
const LOCAL_STALL: Duration = Duration::from_secs(600);

impl std::fmt::Debug for Config {
    /// Without the key, or a login in the URL.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("provider", &self.provider)
            .field("base_url", &self.base_url.as_deref().map(without_login))
            .field("api_key", &self.api_key.as_ref().map(|_| "…"))
            .field("script", &self.script)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Makes a provider. Opens no connection; a script file is read here.
pub fn build(config: Config) -> Result<Arc<dyn Provider>, ProviderError> {
    if config.provider == ProviderKind::Scripted {
        let script = load(config.script)?;
        return Ok(Arc::new(Scripted::new(script, config.retry)));
    }
    Ok(Arc::new(over_http(config)?))
}

/// Makes a provider that is reached over HTTP. Opens no connection.
pub(crate) fn over_http(config: Config) -> Result<HttpProvider, ProviderError> {
    let kind = config.provider;
    let wire = match kind {
        ProviderKind::Scripted => {
            let reason = "the scripted provider is not reached over HTTP".to_owned();
            return Err(ProviderError::Settings { reason });
        }
        ProviderKind::Anthropic => Wire::Anthropic,
        ProviderKind::OpenAi => Wire::Responses,
        ProviderKind::Gemini => Wire::Gemini,
        ProviderKind::OpenRouter => Wire::Chat(Dialect::OpenRouter),
        ProviderKind::OpenAiChat
        | ProviderKind::Ollama
        | ProviderKind::LmStudio
        | ProviderKind::LlamaCpp
        | ProviderKind::Vllm => Wire::Chat(Dialect::Plain),
    };
    let base = base(kind, config.base_url.as_deref())?;
    let wire = match wire {
        Wire::Chat(Dialect::Plain) if base == ProviderKind::OpenAi.default_base_url() => {
            Wire::Chat(Dialect::OpenAi)
        }
        wire => wire,
    };
    let key = config.api_key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    // A server of one's own may need no key; the provider's own does.
    if key.is_none() && kind.key_variable().is_some() && base == kind.default_base_url() {
        return Err(ProviderError::NoKey { provider: kind });
    }
    let client = HttpClient::new(ClientOptions {
        proxy: config.proxy,
        extra_roots_pem: config.extra_roots_pem,
        ..ClientOptions::default()
    });
    let (headers, policy) = (config.headers, config.retry);
    let shown_base = without_login(&base);
    Ok(HttpProvider {
        kind,
        wire,
        base,
        shown_base,
        key,
        headers,
        client,
        policy,
        conceded: Concessions::default(),
        governor: config.governor,
    })
}

/// Whether an Ollama answers at this URL (with or without `/v1`). Takes at most 300 ms.
pub async fn ollama_running(base_url: &str) -> bool {
    ollama_models(base_url).await.is_some()
}

/// The models of the Ollama at this URL, the newest first; nothing if none answers within 300 ms.
pub async fn ollama_models(base_url: &str) -> Option<Vec<String>> {
    let root = base_url.trim_end_matches('/').trim_end_matches("/v1");
    let client = HttpClient::new(ClientOptions { connect_timeout: OLLAMA_TIME, ..ClientOptions::default() });
    let asked = async {
        let url = format!("{root}/api/tags");
        let mut response = client.send(Method::GET, &url, &[], Bytes::new()).await.ok()?;
        let body = response.bytes_up_to(OLLAMA_LIST_BYTES).await.ok()?;
        let value: Value = serde_json::from_slice(&body.bytes).ok()?;
        let models = value.get("models")?.as_array()?;
        Some(models.iter().filter_map(|model| model["name"].as_str()).map(clean).collect())
    };
    tokio::time::timeout(OLLAMA_TIME, asked).await.ok()?
}

/// A URL for people: without a user and password.
fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }
}

/// The base URL: with the version that the provider's own has, if only a host was given.
fn base(kind: ProviderKind, given: Option<&str>) -> Result<String, ProviderError> {
    let usual = kind.default_base_url();
    let Some(given) = given.map(str::trim).filter(|given| !given.is_empty()) else {
        return Ok(usual.to_owned());
    };
    let wrong = |reason: &str| ProviderError::Settings {
        reason: format!("base_url {} of {kind} cannot be used: {reason}", clean(&without_login(given))),
    };
    let url = Url::parse(given).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it must begin with http:// or https://"));
    }
    let given = given.trim_end_matches('/');
    if url.path() != "/" {
        // Anthropic's own variable has no version in it, also behind a gateway's path.
        let needs_version = kind == ProviderKind::Anthropic && !given.ends_with("/v1");
        return Ok(if needs_version { format!("{given}/v1") } else { given.to_owned() });
    }
    let version = usual.rsplit('/').next().unwrap_or("v1");
    Ok(format!("{given}/{version}"))
}

fn load(source: ScriptSource) -> Result<Script, ProviderError> {
    let path = match source {
        ScriptSource::Demo => return Ok(scripted::demo()),
        ScriptSource::Given(script) => return Ok(script),
        ScriptSource::File(path) => path,
    };
    let wrong = |reason: String| ProviderError::ScriptFile { path: path.display().to_string(), reason };
    let size = std::fs::metadata(&path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MAX_SCRIPT_BYTES {
        return Err(wrong(format!("it is larger than {MAX_SCRIPT_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    Script::parse(&text).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_get_the_version_that_is_missing() {
        let cases = [
            (ProviderKind::Anthropic, None, "https://api.anthropic.com/v1"),
            (ProviderKind::Anthropic, Some("https://api.anthropic.com"), "https://api.anthropic.com/v1"),
            (ProviderKind::Anthropic, Some("https://gate/anthropic/"), "https://gate/anthropic/v1"),
            (ProviderKind::Anthropic, Some("http://127.0.0.1:9/v1"), "http://127.0.0.1:9/v1"),
            (ProviderKind::OpenAi, Some("http://127.0.0.1:9"), "http://127.0.0.1:9/v1"),
            (
                ProviderKind::OpenAiChat,
                Some("https://api.groq.com/openai/v1"),
                "https://api.groq.com/openai/v1",
            ),
            (ProviderKind::Ollama, Some("http://localhost:11434/"), "http://localhost:11434/v1"),
            (ProviderKind::Gemini, Some("http://localhost:1"), "http://localhost:1/v1beta"),
        ];
        for (kind, given, expected) in cases {
            assert_eq!(base(kind, given).as_deref(), Ok(expected));
        }
        let error = base(ProviderKind::OpenAi, Some("localhost:1")).unwrap_err().to_string();
        assert_eq!(
            error,
            "base_url localhost:1 of openai cannot be used: it must begin with http:// or https://"
        );
    }

    #[test]
    fn a_missing_key_is_said_before_anything_is_sent() {
        let failed = |config: Config| build(config).err();
        let provider = ProviderKind::Anthropic;
        let no_key = Some(ProviderError::NoKey { provider });
        assert_eq!(failed(Config::new(provider)), no_key);
        assert_eq!(failed(Config { api_key: Some(" \n".into()), ..Config::new(provider) }), no_key);
        assert_eq!(failed(Config { base_url: Some("http://x".into()), ..Config::new(provider) }), None);
        assert_eq!(failed(Config::new(ProviderKind::Ollama)), None);
    }

    #[test]
    fn the_key_is_not_shown() {
        let config = Config {
            api_key: Some("secret".into()),
            base_url: Some("https://me:secret@gate/v1".into()),
            ..Config::new(ProviderKind::OpenAi)
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("https://gate/v1") && !shown.contains("secret"), "{shown}");
    }
}
