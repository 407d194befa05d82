//! What a request costs, and money as whole micro-dollars.
//!
//! The list prices are in `models.json`. Refuses to guess: a model that is not there has no price, and a cost
//! that is not known is `None`, never zero. Models that run on the user's own machine cost nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::inert;
use crate::models;
use crate::usage::Usage;

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

/// The price of a model, if it is known: by the [list](models::price), or nothing.
pub fn of(model: &str, billing: Billing) -> Option<Price> {
    match billing {
        Billing::Local => Some(Price::FREE),
        Billing::Listed => models::price(model),
    }
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
