//! Which service answers, with which model, at which price, and behind which governor.

use std::{sync::Arc, time::Duration};

use caliban_agent::budget::MachineLedger;
use caliban_core::{model_alias, priority::Standing};
use caliban_providers::{Config, Provider, ProviderKind};
use tokio_util::sync::CancellationToken;

use crate::{
    report::{Failure, Result},
    settings::{
        Environment, Loaded,
        provider::{ModelTarget, OutagePatience},
    },
};

/// How long a model is waited for that limits the rate, when another one can answer.
pub(super) const FALLBACK_PATIENCE: Duration = Duration::from_secs(20);
pub(super) fn provider(
    loaded: &Loaded,
    target: &ModelTarget,
    environment: &Environment,
    patience: OutagePatience,
    limit: Option<Duration>,
    (ledger, standing): (&MachineLedger, Standing),
) -> Result<Arc<dyn Provider>> {
    let mut config = governed(loaded, target, environment, patience, (ledger, standing));
    if let Some(limit) = limit {
        config.retry.patience = config.retry.patience.min(limit);
    }
    caliban_providers::build(config).map_err(Failure::from)
}

/// How a provider is reached, behind the governor of all who use the same key.
pub(crate) fn governed(
    loaded: &Loaded,
    target: &ModelTarget,
    environment: &Environment,
    patience: OutagePatience,
    (ledger, standing): (&MachineLedger, Standing),
) -> Config {
    let mut config = target.config(&loaded.settings, environment, patience);
    let (base, key) = (config.base_url.as_deref(), config.api_key.as_deref());
    let governor =
        ledger.governor(config.provider.name(), base.unwrap_or_default(), key.unwrap_or_default(), standing);
    config.governor = Some(governor);
    config
}

/// How the names of Claude's models begin there.
pub(super) fn claude_names(target: &ModelTarget) -> &'static str {
    match target.provider.value {
        ProviderKind::Anthropic => "claude-",
        ProviderKind::OpenRouter => "anthropic/",
        _ => "",
    }
}

pub(super) async fn model(target: &ModelTarget, provider: &dyn Provider) -> Result<String> {
    if let Some(model) = &target.model {
        return Ok(model_alias::resolved(&model.value, claude_names(target)));
    }
    let models = provider.list_models(&CancellationToken::new()).await?;
    models.into_iter().next().ok_or_else(|| {
        Failure::new(format!("{} has no model", target.provider.value))
            .hint("name one with --model, or give it one first (for Ollama: `ollama pull qwen3`)")
    })
}

impl From<caliban_providers::ProviderError> for Failure {
    fn from(error: caliban_providers::ProviderError) -> Self {
        Self::hinted(error.to_string(), error.hint())
    }
}
