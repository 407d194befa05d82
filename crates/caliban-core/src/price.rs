//! What a request costs: a dated table of list prices, and money as whole micro-dollars.
//!
//! Owns the prices and their date. Refuses to guess: a model that is not in the table has no price, and a cost
//! that is not known is `None`, never zero. Models that run on the user's own machine cost nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::inert;
use crate::usage::Usage;

/// The day on which the table was last compared with what the providers publish.
///
/// Compared with stored copies of their pages, not with the live ones: Anthropic's pricing page and model overviews
/// (`platform.claude.com/docs/en/about-claude/pricing`, `/docs/en/models/…/overview`; October 2026), OpenAI's model list
/// (`developers.openai.com/api/docs/models`) and the announcements of GPT-6 Sol, Luna and GPT-6.1 Terra (September and
/// October 2026), Google's price list as it was read on 2026-10-07 (`ai.google.dev/gemini-api/docs/pricing`). Where
/// copies disagree the higher price stands, so that a budget in dollars is not passed: for the cache reads of Sonnet 5.5
/// Anthropic's page of September has $0.20, a transcript of October $0.10.
pub const TABLE_DATE: &str = "2026-11-16";

/// Money, in millionths of a US dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

/// Prices of one model, each in micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Fresh input.
    pub input: MicroUsd,
    /// Output, reasoning included.
    pub output: MicroUsd,
    /// Input read from the cache.
    pub cache_read: MicroUsd,
    /// Input written to the cache, for the shortest time that the provider offers.
    pub cache_write: MicroUsd,
}

/// A model's price: its usual rates, and those of long prompts where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// The usual rates.
    pub rates: Rates,
    /// Above this many prompt tokens in one request, these rates.
    pub long: Option<(u64, Rates)>,
}

/// Where a model runs, as far as money is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// By its provider's list price.
    Listed,
    /// On the user's own machine, or from a script: free.
    Local,
}

/// The price of a model, if it is known.
///
/// Takes a model with or without its date (`claude-haiku-4-5-20251001`, `gpt-5-2025-08-07`), with `-latest` or
/// `-preview`, and behind a vendor's prefix (`anthropic/claude-opus-5.5`).
pub fn of(model: &str, billing: Billing) -> Option<Price> {
    if billing == Billing::Local {
        return Some(Price::FREE);
    }
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let name = name.strip_prefix("anthropic.").unwrap_or(&name);
    // Routers write `claude-opus-4.5` for what the vendor calls `claude-opus-4-5`.
    let name = if name.starts_with("claude-") { name.replace('.', "-") } else { name.to_owned() };
    let name = without_suffix(&name);
    TABLE.iter().find(|(listed, _)| *listed == name).map(|(_, price)| *price)
}

impl Price {
    /// Nothing.
    pub const FREE: Self = Self {
        rates: Rates {
            input: MicroUsd(0),
            output: MicroUsd(0),
            cache_read: MicroUsd(0),
            cache_write: MicroUsd(0),
        },
        long: None,
    };

    /// What one request cost, rounded up to a micro-dollar. The usage must be of one request, because long
    /// prompts have rates of their own.
    pub fn cost(&self, usage: Usage) -> MicroUsd {
        let rates = match self.long {
            Some((above, rates)) if usage.prompt() > above => rates,
            Some(_) | None => self.rates,
        };
        let parts = [
            (usage.input, rates.input),
            (usage.output, rates.output),
            (usage.cache_read, rates.cache_read),
            (usage.cache_write, rates.cache_write),
        ];
        let total: u128 =
            parts.iter().map(|(tokens, rate)| u128::from(*tokens).saturating_mul(u128::from(rate.0))).sum();
        MicroUsd(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
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

/// Arguments in thousandths of a dollar: 2_500 is $2.50.
const fn rates(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Rates {
    Rates {
        input: MicroUsd(input * 1_000),
        output: MicroUsd(output * 1_000),
        cache_read: MicroUsd(cache_read * 1_000),
        cache_write: MicroUsd(cache_write * 1_000),
    }
}

const fn flat(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Price {
    Price { rates: rates(input, output, cache_read, cache_write), long: None }
}

/// OpenAI's rule for its models with a long context: above 272,000 tokens twice the input, 1.5 times the output.
const fn openai_long(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Price {
    Price {
        rates: rates(input, output, cache_read, cache_write),
        long: Some((272_000, rates(input * 2, output * 3 / 2, cache_read * 2, cache_write * 2))),
    }
}

/// Thousandths of a dollar for a million tokens: input, output, cache read, cache write.
///
/// OpenAI before GPT-5.6 and Gemini bill a cache write as fresh input.
const TABLE: &[(&str, Price)] = &[
    // Anthropic
    ("claude-fable-5-1", flat(10_000, 50_000, 250, 12_500)),
    ("claude-fable-5", flat(10_000, 50_000, 1_000, 12_500)),
    ("claude-opus-5-5", flat(4_000, 20_000, 200, 5_000)),
    ("claude-opus-5", flat(5_000, 25_000, 500, 6_250)),
    ("claude-opus-4-8", flat(5_000, 25_000, 500, 6_250)),
    ("claude-opus-4-7", flat(5_000, 25_000, 500, 6_250)),
    ("claude-opus-4-6", flat(5_000, 25_000, 500, 6_250)),
    ("claude-opus-4-5", flat(5_000, 25_000, 500, 6_250)),
    ("claude-opus-4-1", flat(15_000, 75_000, 1_500, 18_750)),
    ("claude-opus-4", flat(15_000, 75_000, 1_500, 18_750)),
    ("claude-sonnet-5-5", flat(2_000, 10_000, 200, 2_500)),
    ("claude-sonnet-5", flat(2_000, 10_000, 200, 2_500)),
    ("claude-sonnet-4-6", flat(3_000, 15_000, 300, 3_750)),
    ("claude-sonnet-4-5", flat(3_000, 15_000, 300, 3_750)),
    ("claude-sonnet-4", flat(3_000, 15_000, 300, 3_750)),
    (
        "claude-haiku-5-5",
        Price { rates: rates(100, 500, 10, 125), long: Some((100_000, rates(500, 2_500, 50, 625))) },
    ),
    ("claude-haiku-4-5", flat(1_000, 5_000, 100, 1_250)),
    ("claude-3-5-haiku", flat(800, 4_000, 80, 1_000)),
    // OpenAI
    ("gpt-6-astra", openai_long(10_000, 50_000, 1_000, 12_500)),
    ("gpt-6.1-sol", openai_long(2_000, 10_000, 100, 2_500)),
    ("gpt-6.1-terra", openai_long(1_000, 5_000, 50, 1_250)),
    ("gpt-6-sol", openai_long(2_000, 10_000, 200, 2_500)),
    ("gpt-6-luna", openai_long(100, 500, 10, 125)),
    // The bare name leads to Sol.
    ("gpt-5.6", openai_long(4_000, 20_000, 400, 5_000)),
    ("gpt-5.6-sol", openai_long(4_000, 20_000, 400, 5_000)),
    ("gpt-5.6-terra", openai_long(2_000, 12_000, 200, 2_500)),
    ("gpt-5.6-luna", openai_long(200, 1_200, 20, 250)),
    ("gpt-5.5", openai_long(5_000, 30_000, 500, 5_000)),
    ("gpt-5.4", openai_long(2_500, 15_000, 250, 2_500)),
    ("gpt-5.4-mini", flat(750, 4_500, 75, 750)),
    ("gpt-5.4-nano", flat(200, 1_250, 20, 200)),
    ("gpt-5.2", flat(1_750, 14_000, 175, 1_750)),
    ("gpt-5.3-codex", flat(1_750, 14_000, 175, 1_750)),
    ("gpt-5.1", flat(1_250, 10_000, 125, 1_250)),
    ("gpt-5", flat(1_250, 10_000, 125, 1_250)),
    ("gpt-5-mini", flat(250, 2_000, 25, 250)),
    ("gpt-5-nano", flat(50, 400, 5, 50)),
    ("gpt-4.1", flat(2_000, 8_000, 500, 2_000)),
    ("gpt-4.1-mini", flat(400, 1_600, 100, 400)),
    ("gpt-4o", flat(2_500, 10_000, 1_250, 2_500)),
    ("gpt-4o-mini", flat(150, 600, 75, 150)),
    ("o4-mini", flat(1_100, 4_400, 275, 1_100)),
    // Google. 3.6 to 3.8 Flash are at the rate that Google announced until the end of 2026.
    ("gemini-3.8-flash", flat(750, 3_750, 75, 750)),
    ("gemini-3.7-flash", flat(750, 3_750, 75, 750)),
    ("gemini-3.6-flash", flat(750, 3_750, 75, 750)),
    ("gemini-3.5-flash", flat(1_500, 9_000, 150, 1_500)),
    (
        "gemini-3.1-pro",
        Price {
            rates: rates(2_000, 12_000, 200, 2_000),
            long: Some((200_000, rates(4_000, 18_000, 400, 4_000))),
        },
    ),
    ("gemini-3.1-flash-lite", flat(250, 1_500, 25, 250)),
    (
        "gemini-2.5-pro",
        Price {
            rates: rates(1_250, 10_000, 125, 1_250),
            long: Some((200_000, rates(2_500, 15_000, 250, 2_500))),
        },
    ),
    ("gemini-2.5-flash", flat(300, 2_500, 30, 300)),
    ("gemini-2.5-flash-lite", flat(100, 400, 10, 100)),
];

impl fmt::Display for MicroUsd {
    /// `$0.0042`, `$1.25`: four digits below a dollar, two above.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded up: what was spent is never shown as nothing.
        let text = if self.0 < 1_000_000 {
            let parts = self.0.div_ceil(100);
            format!("${}.{:04}", parts / 10_000, parts % 10_000)
        } else {
            let cents = self.0.div_ceil(10_000);
            format!("${}.{:02}", cents / 100, cents % 100)
        };
        f.pad(&text)
    }
}

/// A text that is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not an amount in dollars like 2, 2.50 or $0.005", inert::quoted(.0))]
pub struct NotMoney(String);

impl FromStr for MicroUsd {
    type Err = NotMoney;

    /// `2`, `2.50`, `$0.005`; at most six digits after the point, no sign.
    fn from_str(text: &str) -> Result<Self, NotMoney> {
        let money = || {
            let bare = text.strip_prefix('$').unwrap_or(text);
            let (whole, part) = bare.split_once('.').unwrap_or((bare, "0"));
            let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            if !is_number(whole) || !is_number(part) || part.len() > 6 {
                return None;
            }
            let whole: u64 = whole.parse().ok()?;
            let micro: u64 = format!("{part:0<6}").parse().ok()?;
            whole.checked_mul(1_000_000)?.checked_add(micro).map(Self)
        };
        money().ok_or_else(|| NotMoney(text.to_owned()))
    }
}
