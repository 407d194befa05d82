//! `caliban models`: which providers can be used, and what is known of models.
//!
//! Asks no provider: what is listed is the catalogue of the program, with its date. Whether a local server runs is tried
//! with a connection.

use caliban_settings::known_models::{ModelsReport, Prices};
use clap::Args;

use super::config::print_json;
use crate::{
    Here,
    report::{Failure, Result},
    settings,
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

/// Carries `caliban models` out.
pub(crate) fn models(args: &ModelsArgs, Here { environment, cwd, out }: Here<'_>) -> Result<()> {
    let loaded = settings::load(environment, cwd, settings::Layer::default())?;
    let part = args.part.as_deref().unwrap_or_default().to_lowercase();
    let report = ModelsReport::of(&loaded, &part);
    if report.models.is_empty() {
        return Err(Failure::new(format!("no known model has {part:?} in its name")).hint(
            "a model that is not listed can be used all the same: --model NAME; its price is not known then",
        ));
    }
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
