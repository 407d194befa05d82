//! Which providers can be used with these settings, and what is known of models.
//!
//! Asks no provider: what is listed is the catalogue of the program, with its date. Whether a local server runs is tried
//! with a connection.

use std::{
    net::{TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use caliban_core::{
    message::Effort,
    models::{self, Thinking},
    price::{MicroUsd, Rates},
};
use caliban_providers::ProviderKind;
use serde::Serialize;

use crate::{
    Loaded, Source, file,
    layer::Sourced,
    provider::{Choice, ProviderEndpoint},
    values::BaseUrl,
};

/// How long a provider may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Everything that is printed.
#[derive(Serialize)]
pub struct ModelsReport {
    /// When the facts were compared.
    pub compared: &'static str,
    /// Where they are from.
    pub sources: &'static [models::FactSource],
    /// Which providers can be used.
    pub providers: Vec<ProviderFacts>,
    /// The models.
    pub models: Vec<ModelFacts>,
}

/// Whether a provider can be used.
#[derive(Serialize)]
pub struct ProviderFacts {
    /// Its name.
    pub name: &'static str,
    /// Whether a run would use it when no flag names another.
    pub is_default: bool,
    /// Whether it can be used.
    pub is_usable: bool,
    /// Why, in words.
    pub state: String,
    /// The model that a run would use.
    pub model: Option<String>,
}

/// What is known of a model.
#[derive(Serialize)]
pub struct ModelFacts {
    /// Its name.
    pub name: &'static str,
    /// Who has it.
    pub provider: &'static str,
    /// How many tokens it holds.
    pub context_window: u64,
    /// The most tokens of one answer.
    pub max_output: u32,
    /// The words that `--effort` takes for it; empty where it does not think.
    pub efforts: Vec<&'static str>,
    /// What a million tokens cost.
    pub usd_per_million: Prices,
    /// Other prices for long prompts.
    pub long_prompts: Option<LongPrompts>,
}

/// Prices of a million tokens, in dollars.
#[derive(Serialize)]
pub struct Prices {
    /// Of the prompt.
    pub input: f64,
    /// Of the answer.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Written to the cache.
    pub cache_write: f64,
}

/// Other prices for prompts above so many tokens.
#[derive(Serialize)]
pub struct LongPrompts {
    /// Above so many tokens.
    pub above: u64,
    /// What a million tokens cost.
    pub usd_per_million: Prices,
}

impl ModelsReport {
    /// With the models that have this part, in small letters, in their name or that of their provider.
    #[must_use]
    pub fn of(loaded: &Loaded, part: &str) -> Self {
        let models = models::all()
            .iter()
            .map(|model| known(&model.name, &model.price))
            .filter(|model| model.name.contains(part) || model.provider.contains(part))
            .collect();
        Self {
            compared: models::compared(),
            sources: models::sources(),
            providers: ProviderKind::all().map(|kind| provider(loaded, kind)).collect(),
            models,
        }
    }
}

fn known(name: &'static str, price: &caliban_core::price::Price) -> ModelFacts {
    let family = models::family(name);
    let efforts = match family.thinking {
        Thinking::None => Vec::new(),
        Thinking::Budget => [Effort::None, Effort::Low, Effort::Medium, Effort::High, Effort::Max].to_vec(),
        Thinking::Effort => std::iter::once(Effort::None).chain(family.levels.iter().copied()).collect(),
    };
    ModelFacts {
        name,
        provider: &family.vendor,
        context_window: family.window,
        max_output: family.output,
        efforts: efforts.into_iter().map(Effort::word).collect(),
        usd_per_million: prices(price.rates),
        long_prompts: price.long.map(|(above, rates)| LongPrompts { above, usd_per_million: prices(rates) }),
    }
}

fn prices(Rates { input, output, cache_read, cache_write }: Rates) -> Prices {
    #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 micro-dollars")]
    let usd = |MicroUsd(micro): MicroUsd| micro as f64 / 1_000_000.0;
    Prices {
        input: usd(input),
        output: usd(output),
        cache_read: usd(cache_read),
        cache_write: usd(cache_write),
    }
}

fn provider(loaded: &Loaded, kind: ProviderKind) -> ProviderFacts {
    let chosen = match loaded.choose() {
        Ok(Choice::Use(target) | Choice::IfRunning(target)) => Some(target.provider.value),
        Err(_) => loaded.settings.provider,
    };
    let target = loaded.target(Sourced { value: kind, source: Source::Default });
    let (is_usable, state, model) = match target {
        Err(error) => (false, error.to_string(), kind.default_model().map(str::to_owned)),
        Ok(target) => {
            let (is_usable, state) = match &target.endpoint {
                ProviderEndpoint::Script(_) => (true, "answers come from a script".to_owned()),
                ProviderEndpoint::Http { base_url, key: Some(key) } => {
                    (true, format!("key from {}{}", key.source, elsewhere(base_url)))
                }
                ProviderEndpoint::Http { base_url, key: None } => match connect(base_url.value.as_str()) {
                    Ok(()) => (true, format!("runs at {}", base_url.value.as_str())),
                    Err(reason) => (false, reason),
                },
            };
            (is_usable, state, target.model.map(|model| model.value))
        }
    };
    // Where nothing is set, a local server is used only when it runs.
    let is_default = chosen == Some(kind) && (is_usable || loaded.settings.provider.is_some());
    ProviderFacts { name: kind.name(), is_default, is_usable, state, model }
}

fn elsewhere(base_url: &Sourced<BaseUrl>) -> String {
    match base_url.source {
        Source::Default => String::new(),
        _ => format!(", at {}", base_url.value.as_str()),
    }
}

/// Whether somebody listens at an address.
pub fn connect(url: &str) -> Result<(), String> {
    let url = url::Url::parse(url).map_err(|error| error.to_string())?;
    let host = url.host_str().ok_or("it names no host")?.trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().ok_or("it names no port")?;
    let addresses = (host.as_str(), port).to_socket_addrs().map_err(|_| format!("{host} is not known"))?;
    let mut reason = format!("{host} has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                reason = format!("nobody listens at {address}");
            }
            Err(error) => reason = file::words(&error),
        }
    }
    Err(reason)
}
