//! What is known of models by name: their sizes, how they think, what they cost.
//!
//! The facts are in `models.json`, with the day on which they were compared and the pages that they are from. A family
//! is known by the beginning of its names, so that a new version of it needs no new line; a model that no line knows
//! gets careful defaults, and no price.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::{
    message::Effort,
    price::{MicroUsd, Price, Rates},
};

/// How a model is told to think.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// It does not, or cannot be told.
    #[default]
    None,
    /// By a number of tokens.
    Budget,
    /// By a word for the effort.
    Effort,
}

/// What is known of a family of models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// How the names of its models begin.
    pub begins: String,
    /// The provider whose models these are, by the name that `--provider` takes.
    #[serde(default)]
    pub vendor: String,
    /// The most tokens of prompt and answer together.
    pub window: u64,
    /// The most tokens of an answer, its thinking included.
    pub output: u32,
    /// How it is told to think.
    #[serde(default)]
    pub thinking: Thinking,
    /// The words for efforts that it takes, the least first.
    #[serde(default)]
    pub levels: Vec<Effort>,
    /// What asks for the least thinking; nothing is sent when absent.
    #[serde(default)]
    pub off: Option<String>,
    /// Whether it thinks between tool calls only when a header asks for it.
    #[serde(default)]
    pub interleaved: bool,
    /// Whether the text of its thinking comes only when it is asked for.
    #[serde(default)]
    pub summarized: bool,
    /// Whether it reads its own thinking of earlier only as long as nothing before that has changed.
    #[serde(default)]
    pub bound: bool,
}

impl Family {
    /// The effort that comes nearest to a wanted one: that one, else the next lower, else the least that there is.
    /// Without levels, nothing is known and the wanted one stands.
    pub fn nearest(&self, wanted: Effort) -> Effort {
        let lower = self.levels.iter().rev().find(|level| **level <= wanted);
        lower.or(self.levels.first()).copied().unwrap_or(wanted)
    }
}

/// A model that has a line of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it costs.
    pub price: Price,
}

/// A page that facts are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactSource {
    /// What it says.
    pub what: String,
    /// Where it is.
    pub page: String,
    /// When it was so.
    pub as_of: String,
}

/// What is assumed of a model that no family knows: most local ones are served with less than their makers' numbers.
pub const UNKNOWN_WINDOW: u64 = 128_000;
const UNKNOWN_OUTPUT: u32 = 8_192;

/// The family of a model. A vendor's prefix (`anthropic/…`) does not matter, nor do capitals, nor that routers write
/// `claude-opus-4.5` for what its vendor calls `claude-opus-4-5`.
pub fn family(model: &str) -> &'static Family {
    let name = bare(model);
    // The first version of a family goes by two names: `claude-opus-4` and `claude-opus-4-0`.
    let is_of = |family: &&Family| {
        name.starts_with(&family.begins) || family.begins.strip_suffix("-0") == Some(name.as_str())
    };
    CATALOGUE.families.iter().find(is_of).unwrap_or(&CATALOGUE.unknown)
}

/// Whether a family knows the model.
pub fn is_known(model: &str) -> bool {
    !family(model).begins.is_empty()
}

/// The models that have a line of their own.
pub fn all() -> &'static [Model] {
    &CATALOGUE.models
}

/// The list price of a model with a line of its own.
///
/// Takes a model with or without its date (`claude-haiku-4-5-20251001`, `gpt-5-2025-08-07`), with `-latest` or
/// `-preview`, and behind a vendor's prefix (`anthropic/claude-opus-5.5`).
pub fn price(model: &str) -> Option<Price> {
    let name = bare(model);
    let name = without_suffix(&name);
    CATALOGUE.models.iter().find(|model| model.name == name).map(|model| model.price)
}

/// The day on which the facts were last compared with what the vendors publish.
pub fn compared() -> &'static str {
    &CATALOGUE.compared
}

/// The pages that the facts are from.
pub fn sources() -> &'static [FactSource] {
    &CATALOGUE.sources
}

struct Catalogue {
    compared: String,
    sources: Vec<FactSource>,
    families: Vec<Family>,
    models: Vec<Model>,
    unknown: Family,
}

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    compared: String,
    #[serde(rename = "notes")]
    _notes: Vec<String>,
    sources: Vec<FactSource>,
    families: Vec<Family>,
    models: Vec<CatalogLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogLine {
    name: String,
    price: [u64; 4],
    long: Option<Long>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Long {
    above: u64,
    price: [u64; 4],
}

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let unknown = Family { window: UNKNOWN_WINDOW, output: UNKNOWN_OUTPUT, ..Family::default() };
    // The file is part of the program, and a test reads it: it cannot be wrong here.
    let file: File = serde_json::from_str(include_str!("models.json")).unwrap_or_default();
    let File { compared, sources, families, models, .. } = file;
    let models = models.into_iter().map(|line| Model {
        price: Price {
            rates: rates(line.price),
            long: line.long.map(|long| (long.above, rates(long.price))),
        },
        name: line.name,
    });
    Catalogue { compared, sources, families, models: models.collect(), unknown }
});

/// From thousandths of a dollar: 2_500 is $2.50.
fn rates([input, output, cache_read, cache_write]: [u64; 4]) -> Rates {
    let micro = |thousandths: u64| MicroUsd(thousandths.saturating_mul(1_000));
    Rates {
        input: micro(input),
        output: micro(output),
        cache_read: micro(cache_read),
        cache_write: micro(cache_write),
    }
}

/// A name as the vendor writes it.
fn bare(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let name = name.strip_prefix("anthropic.").unwrap_or(&name);
    if name.starts_with("claude-") { name.replace('.', "-") } else { name.to_owned() }
}

/// The model's name without date, `-latest` and `-preview`.
fn without_suffix(name: &str) -> &str {
    let name = name.strip_suffix("-latest").or_else(|| name.strip_suffix("-preview")).unwrap_or(name);
    let digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    // `-20251001`
    if let Some((base, date)) = name.rsplit_once('-')
        && digits(date, 8)
    {
        return base;
    }
    // `-2025-08-07`
    let mut parts = name.rsplitn(4, '-');
    if let (Some(day), Some(month), Some(year), Some(base)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
        && digits(day, 2)
        && digits(month, 2)
        && digits(year, 4)
    {
        return base;
    }
    name
}
