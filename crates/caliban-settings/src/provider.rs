//! Which model is asked, where, and with which key: the decision, without asking anybody.

use std::{path::PathBuf, time::Duration};

use caliban_core::price::Billing;
use caliban_providers::{Config, ProviderKind, ScriptSource};

use super::{
    Environment, Loaded, Settings,
    error::{SettingPlace, SettingsError},
    layer::{Source, Sourced},
    schema::ApiProvider,
    values::{BaseUrl, Secret},
};

/// Whose key decides when no provider is named, first come first served.
const BY_KEY: [ProviderKind; 4] =
    [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::Gemini, ProviderKind::OpenRouter];

/// Which provider to use.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// This one.
    Use(ModelTarget),
    /// Nothing names one: this local one if it runs, else [`nothing_set`] is the error.
    IfRunning(ModelTarget),
}

/// A provider, a model, and how to get there.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTarget {
    /// Which provider, and what chose it.
    pub provider: Sourced<ProviderKind>,
    /// The model; `None` where the first one that the user's own server has is to be used.
    pub model: Option<Sourced<String>>,
    /// How it is reached.
    pub endpoint: ProviderEndpoint,
}

/// How a provider is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderEndpoint {
    /// Over HTTP.
    Http {
        /// Its address.
        base_url: Sourced<BaseUrl>,
        /// Its key; `None` where none is needed.
        key: Option<Sourced<Secret>>,
    },
    /// Answers come from this script, or the built-in one.
    Script(Option<Sourced<PathBuf>>),
}

/// The three lines that say how to get going.
pub fn nothing_set() -> SettingsError {
    SettingsError::new(SettingPlace::Nowhere, "no model provider is set up").hint(
        "with a key: export ANTHROPIC_API_KEY=… (or OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY)\n\
         on this machine: start Ollama (https://ollama.com) and `ollama pull` a model; it is found by itself\n\
         just to look around: caliban --provider scripted -p hello",
    )
}

/// How long a server is waited for that cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutagePatience {
    /// The work has time: a background agent, a session on a screen.
    Long,
    /// A command that somebody waits for.
    Short,
}

impl ModelTarget {
    /// What `caliban_providers::build` needs. An address that nobody set is left to the provider.
    pub fn config(&self, settings: &Settings, environment: &Environment, patience: OutagePatience) -> Config {
        let mut config = Config::new(self.provider.value);
        match &self.endpoint {
            ProviderEndpoint::Http { base_url, key } => {
                let set = base_url.source != Source::Default;
                config.base_url = set.then(|| base_url.value.as_str().to_owned());
                config.api_key = key.as_ref().map(|key| key.value.reveal().to_owned());
            }
            ProviderEndpoint::Script(Some(script)) => {
                config.script = ScriptSource::File(script.value.clone())
            }
            ProviderEndpoint::Script(None) => config.script = ScriptSource::Demo,
        }
        config.proxy = environment.proxy();
        config.retry.attempts = settings.retry.attempts.get();
        config.retry.patience = Duration::from_secs(settings.retry.patience_seconds);
        config.retry.outage = Duration::from_secs(match patience {
            OutagePatience::Long => settings.retry.outage_seconds,
            OutagePatience::Short => settings.retry.print_outage_seconds,
        });
        if let Some(seconds) = settings.retry.stall_seconds {
            config.retry.stall = Duration::from_secs(seconds.get());
        }
        config
    }
}

impl ModelTarget {
    /// A model on the user's own machine costs nothing; neither does a script.
    #[must_use]
    pub fn billing(&self) -> Billing {
        let kind = self.provider.value;
        if kind == ProviderKind::Scripted || kind.how_to_start().is_some() {
            Billing::Local
        } else {
            Billing::Listed
        }
    }
}

impl Loaded {
    /// The same decision, and a look whether a local one runs.
    pub async fn decide(&self) -> Result<ModelTarget, SettingsError> {
        match self.choose()? {
            Choice::Use(target) => Ok(target),
            Choice::IfRunning(target) => match &target.endpoint {
                ProviderEndpoint::Http { base_url, .. }
                    if caliban_providers::ollama_running(base_url.value.as_str()).await =>
                {
                    Ok(target)
                }
                _ => Err(nothing_set()),
            },
        }
    }

    /// Whether the model that these settings choose costs nothing, as far as that can be told without asking anybody.
    #[must_use]
    pub fn is_free(&self) -> bool {
        match self.choose() {
            Ok(Choice::Use(target) | Choice::IfRunning(target)) => target.billing() == Billing::Local,
            Err(_) => false,
        }
    }

    /// Decides on the provider, the model, the address and the key.
    pub fn choose(&self) -> Result<Choice, SettingsError> {
        if let Some(provider) = self.settings.provider {
            let provider = Sourced { value: provider, source: self.source_of(&["provider"]) };
            return self.target(provider).map(Choice::Use);
        }
        for provider in BY_KEY {
            let Some(api) = self.settings.providers.api(provider) else { continue };
            if api.api_key.is_some() {
                let source = self.source_of(&["providers", provider.name(), "api_key"]);
                return self.target(Sourced { value: provider, source }).map(Choice::Use);
            }
        }
        self.target(Sourced { value: ProviderKind::Ollama, source: Source::Default }).map(Choice::IfRunning)
    }

    /// Whether what is missing is a key: of the provider that is named, or of any.
    pub fn lacks_key(&self) -> bool {
        let has_key = |kind: ProviderKind| {
            self.settings
                .providers
                .api(kind)
                .is_none_or(|api| api.api_key.is_some() || api.base_url.is_some())
        };
        match self.settings.provider {
            Some(kind) => kind.key_variable().is_some() && !has_key(kind),
            None => !BY_KEY.into_iter().any(has_key),
        }
    }

    /// The target for a provider that has been decided on.
    pub fn target(&self, provider: Sourced<ProviderKind>) -> Result<ModelTarget, SettingsError> {
        let kind = provider.value;
        let usual = kind.default_model().map(|model| default(model.to_owned()));
        let Some(api) = self.settings.providers.api(kind) else {
            let source = self.source_of(&["providers", "scripted", "script"]);
            let script = self.settings.providers.scripted.script.clone();
            let endpoint = ProviderEndpoint::Script(script.map(|value| Sourced { value, source }));
            return Ok(ModelTarget { provider, model: self.named_model().or(usual), endpoint });
        };
        let at = |key: &str| self.source_of(&["providers", kind.name(), key]);
        let (base_url, key) = self.reached(kind, api)?;
        let elsewhere = base_url.value.as_str() != kind.default_base_url();
        let model = self
            .named_model()
            .or_else(|| api.model.clone().map(|value| Sourced { value, source: at("model") }))
            // A compatible server serves other models than OpenAI's own.
            .or(usual.filter(|_| kind != ProviderKind::OpenAiChat || !elsewhere));
        // A server of one's own has the models that were put there; a market of hundreds has no first one.
        if model.is_none() && kind.key_variable().is_some() && !elsewhere {
            return Err(no_model(kind));
        }
        Ok(ModelTarget { provider, model, endpoint: ProviderEndpoint::Http { base_url, key } })
    }

    /// A provider that other programs use through us: which model is theirs to say.
    pub fn endpoint(&self, kind: ProviderKind) -> Result<ModelTarget, SettingsError> {
        let Some(api) = self.settings.providers.api(kind) else {
            let message = format!("the provider `{kind}` is not reached over HTTP");
            return Err(SettingsError::new(SettingPlace::Nowhere, message));
        };
        let (base_url, key) = self.reached(kind, api)?;
        Ok(ModelTarget {
            provider: default(kind),
            model: None,
            endpoint: ProviderEndpoint::Http { base_url, key },
        })
    }

    /// The address and the key of a provider.
    fn reached(
        &self,
        kind: ProviderKind,
        api: &ApiProvider,
    ) -> Result<(Sourced<BaseUrl>, Option<Sourced<Secret>>), SettingsError> {
        let at = |key: &str| self.source_of(&["providers", kind.name(), key]);
        let base_url = match &api.base_url {
            Some(url) => Sourced { value: url.clone(), source: at("base_url") },
            None => {
                let usual = BaseUrl::parse(kind.default_base_url());
                default(usual.map_err(|message| SettingsError::new(SettingPlace::Nowhere, message))?)
            }
        };
        let key = api.api_key.clone().map(|value| Sourced { value, source: at("api_key") });
        let elsewhere = base_url.value.as_str() != kind.default_base_url();
        if let (None, Some(variable), false) = (&key, kind.key_variable(), elsewhere) {
            return Err(self.no_key(kind, api.api_key_env.as_deref().unwrap_or(variable)));
        }
        Ok((base_url, key))
    }

    fn named_model(&self) -> Option<Sourced<String>> {
        let value = self.settings.model.clone()?;
        Some(Sourced { value, source: self.source_of(&["model"]) })
    }

    fn no_key(&self, provider: ProviderKind, variable: &str) -> SettingsError {
        SettingsError::new(SettingPlace::Nowhere, format!("there is no key for the provider `{provider}`"))
            .hint(format!(
                "export {variable}=…, or set api_key under [providers.{provider}] in {}",
                self.paths.user_settings().display()
            ))
    }
}

fn no_model(provider: ProviderKind) -> SettingsError {
    SettingsError::new(SettingPlace::Nowhere, format!("no model is named for the provider `{provider}`"))
        .hint(format!("name one with --model, or set model under [providers.{provider}]"))
}

fn default<T>(value: T) -> Sourced<T> {
    Sourced { value, source: Source::Default }
}
