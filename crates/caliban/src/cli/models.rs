//! `caliban models`: which providers can be used, and what is known of models.
//!
//! Asks no provider: what is listed is the catalogue of the program, with its date. Whether a local server runs is tried
//! with a connection.

use caliban_core::{
    message::Effort,
    models::{self, Thinking},
    price::{MicroUsd, Rates},
};
use caliban_providers::ProviderKind;
use clap::Args;
use serde::Serialize;

use super::{config::print_json, doctor::connect};
use crate::{
    Here,
    report::{Failure, Result},
    settings::{
        self, Loaded, Source,
        provider::{Choice, ProviderEndpoint},
    },
};

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban models
  caliban models claude                     # those whose name has this in it
  caliban models --json")]
pub(crate) struct ModelsArgs {
    /// Only models whose name or provider has this in it
    #[arg(value_name = "PART")]
    pub part: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Everything that is printed.
#[derive(Serialize)]
struct ModelsReport {
    compared: &'static str,
    sources: &'static [models::FactSource],
    providers: Vec<Provider>,
    models: Vec<Model>,
}

/// Whether a provider can be used.
#[derive(Serialize)]
struct Provider {
    name: &'static str,
    /// Whether a run would use it when no flag names another.
    is_default: bool,
    is_usable: bool,
    /// Why, in words.
    state: String,
    /// The model that a run would use.
    model: Option<String>,
}

/// What is known of a model.
#[derive(Serialize)]
struct Model {
    name: &'static str,
    provider: &'static str,
    context_window: u64,
    max_output: u32,
    /// The words that `--effort` takes for it; empty where it does not think.
    efforts: Vec<&'static str>,
    usd_per_million: Prices,
    long_prompts: Option<Long>,
}

#[derive(Serialize)]
struct Prices {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

/// Other prices for prompts above so many tokens.
#[derive(Serialize)]
struct Long {
    above: u64,
    usd_per_million: Prices,
}

/// Carries `caliban models` out.
pub(crate) fn models(args: &ModelsArgs, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    let loaded = settings::load(environment, cwd, settings::Layer::default())?;
    let part = args.part.as_deref().unwrap_or_default().to_lowercase();
    let models: Vec<Model> = models::all()
        .iter()
        .map(|model| known(&model.name, &model.price))
        .filter(|model| model.name.contains(&part) || model.provider.contains(&part))
        .collect();
    if models.is_empty() {
        return Err(Failure::new(format!("no known model has {part:?} in its name")).hint(
            "a model that is not listed can be used all the same: --model NAME; its price is not known then",
        ));
    }
    let report = ModelsReport {
        compared: models::compared(),
        sources: models::sources(),
        providers: ProviderKind::all().map(|kind| provider(&loaded, kind)).collect(),
        models,
    };
    if args.json {
        return print_json(out, &report);
    }
    if part.is_empty() {
        for provider in &report.providers {
            let mark = if provider.is_default { "*" } else { " " };
            let state = if provider.is_usable { "ready" } else { "-" };
            let model = provider.model.as_deref().unwrap_or_default();
            writeln!(out, "{mark} {:12} {state:6} {:28} {}", provider.name, model, provider.state)?;
        }
        writeln!(out)?;
    }
    let header = ["MODEL", "WINDOW", "INPUT", "OUTPUT", "CACHED", "EFFORT"];
    let [name, window, input, output, cached, effort] = header;
    writeln!(out, "{name:22} {window:>8} {input:>8} {output:>8} {cached:>8}  {effort}")?;
    for model in &report.models {
        let Prices { input, output, cache_read, .. } = &model.usd_per_million;
        let [input, output, cached] = [input, output, cache_read].map(|usd| format!("${usd:.2}"));
        let (name, window) = (model.name, model.context_window);
        let efforts = model.efforts.join(" ");
        writeln!(out, "{name:22} {window:>8} {input:>8} {output:>8} {cached:>8}  {efforts}")?;
    }
    writeln!(out, "\nUS dollars for a million tokens, as listed on {}.", report.compared)?;
    Ok(())
}

fn known(name: &'static str, price: &caliban_core::price::Price) -> Model {
    let family = models::family(name);
    let efforts = match family.thinking {
        Thinking::None => Vec::new(),
        Thinking::Budget => [Effort::None, Effort::Low, Effort::Medium, Effort::High, Effort::Max].to_vec(),
        Thinking::Effort => std::iter::once(Effort::None).chain(family.levels.iter().copied()).collect(),
    };
    Model {
        name,
        provider: &family.vendor,
        context_window: family.window,
        max_output: family.output,
        efforts: efforts.into_iter().map(Effort::word).collect(),
        usd_per_million: prices(price.rates),
        long_prompts: price.long.map(|(above, rates)| Long { above, usd_per_million: prices(rates) }),
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

fn provider(loaded: &Loaded, kind: ProviderKind) -> Provider {
    let chosen = match loaded.choose() {
        Ok(Choice::Use(target) | Choice::IfRunning(target)) => Some(target.provider.value),
        Err(_) => loaded.settings.provider,
    };
    let target = loaded.target(settings::layer::Sourced { value: kind, source: Source::Default });
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
    Provider { name: kind.name(), is_default, is_usable, state, model }
}

fn elsewhere(base_url: &settings::layer::Sourced<settings::values::BaseUrl>) -> String {
    match base_url.source {
        Source::Default => String::new(),
        _ => format!(", at {}", base_url.value.as_str()),
    }
}
