//! One meter: what is spent and what is held, and how it compares with limits.
//!
//! Owns the arithmetic, which saturates and never goes below zero. Knows nothing of agents.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ReserveRefused, Scope};
use crate::price::MicroUsd;
use crate::usage::Usage;

/// What may be spent; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Tokens, cache reads and writes included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Tokens that are new: input that was not read from the cache, and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh: Option<u64>,
    /// Money.
    #[serde(rename = "usd_micros", skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
    /// Turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// Running time in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

/// What a request will take, as far as that can be known before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Tokens: the prompt, as far as it is known what of it is read from the cache, and the answer.
    pub usage: Usage,
    /// Their price; `None` when the model's is not known.
    pub cost: Option<MicroUsd>,
    /// Turns: 1, or 0 for a request that is not one (a summary).
    pub turns: u64,
}

/// What was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// Money, as far as prices are known.
    #[serde(rename = "usd_micros")]
    pub usd: MicroUsd,
    /// Turns.
    pub turns: u64,
    /// Running time in milliseconds.
    pub wall_ms: u64,
    /// Requests without a known price: when there are any, `usd` is not the whole truth.
    pub unpriced: u64,
}

impl Spent {
    /// More was spent.
    pub fn add(&mut self, more: Self) {
        self.usage += more.usage;
        self.usd = MicroUsd(self.usd.0.saturating_add(more.usd.0));
        self.turns = self.turns.saturating_add(more.turns);
        self.wall_ms = self.wall_ms.saturating_add(more.wall_ms);
        self.unpriced = self.unpriced.saturating_add(more.unpriced);
    }

    /// What this is more than the other.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            usage: self.usage.less(other.usage),
            usd: MicroUsd(self.usd.0.saturating_sub(other.usd.0)),
            turns: self.turns.saturating_sub(other.turns),
            wall_ms: self.wall_ms.saturating_sub(other.wall_ms),
            unpriced: self.unpriced.saturating_sub(other.unpriced),
        }
    }
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Tokens.
    Tokens,
    /// Tokens that were not read from the cache.
    Fresh,
    /// Money.
    Usd,
    /// Turns.
    Turns,
    /// Running time.
    Wall,
}

/// A limit of which most is used, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearLimit {
    /// Whose it is: `its budget`, `today's budget`.
    pub whose: String,
    /// What it counts.
    pub kind: Kind,
    /// What is spent and held of it (tokens or micro-dollars).
    pub used: u64,
    /// The limit.
    pub limit: u64,
    /// How many percent that is.
    pub percent: u64,
}

impl NearLimit {
    /// Of a limit.
    #[must_use]
    pub fn new(whose: String, kind: Kind, used: u64, limit: u64) -> Self {
        let percent = u64::try_from(share(limit, used)).unwrap_or(u64::MAX);
        Self { whose, kind, used, limit, percent }
    }
}

/// "83 % of today's budget".
impl fmt::Display for NearLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % of {}", self.percent, self.whose)
    }
}

/// So many percent of a limit are used.
fn share(limit: u64, used: u64) -> u128 {
    u128::from(used) * 100 / u128::from(limit.max(1))
}

/// What a reservation holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Tokens.
    pub tokens: u64,
    /// Those of them that are new.
    #[serde(default)]
    pub fresh: u64,
    /// Money.
    #[serde(rename = "usd_micros")]
    pub usd: MicroUsd,
    /// Turns.
    pub turns: u64,
    /// Whether the money is known.
    pub priced: bool,
}

/// A limit in the way: which, the limit, spent, reserved, asked.
type InTheWay = (Kind, u64, u64, u64, u64);

/// What is spent, and what requests in flight hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    /// Spent.
    pub spent: Spent,
    /// Held.
    pub held: Held,
}

impl Meter {
    /// More is held.
    pub fn hold(&mut self, more: Held) {
        self.held.tokens = self.held.tokens.saturating_add(more.tokens);
        self.held.fresh = self.held.fresh.saturating_add(more.fresh);
        self.held.usd = MicroUsd(self.held.usd.0.saturating_add(more.usd.0));
        self.held.turns = self.held.turns.saturating_add(more.turns);
    }

    /// Less is held.
    fn drop_hold(&mut self, less: Held) {
        self.held.tokens = self.held.tokens.saturating_sub(less.tokens);
        self.held.fresh = self.held.fresh.saturating_sub(less.fresh);
        self.held.usd = MicroUsd(self.held.usd.0.saturating_sub(less.usd.0));
        self.held.turns = self.held.turns.saturating_sub(less.turns);
    }

    /// Puts what was spent in place of what was held for it.
    pub fn book(&mut self, held: Held, spent: Spent) {
        self.drop_hold(held);
        self.spent.add(spent);
    }

    /// Whether a request fits within the limits. A limit in dollars cannot be held without a price.
    ///
    /// # Errors
    /// The limit that is in the way.
    pub fn check<Id: fmt::Display + fmt::Debug>(
        &self,
        limits: Limits,
        estimate: Estimate,
        scope: Scope<Id>,
    ) -> Result<(), ReserveRefused<Id>> {
        if limits.usd.is_some() && estimate.cost.is_none() {
            return Err(ReserveRefused::NoPrice(scope));
        }
        match self.in_the_way(limits, estimate) {
            Some((kind, limit, spent, reserved, asked)) => {
                Err(ReserveRefused::Over { scope, kind, limit, spent, reserved, asked })
            }
            None => Ok(()),
        }
    }

    /// The kind of which at least this many percent are spent or held, the fullest; with its limit and what is used.
    #[must_use]
    pub fn is_near(&self, limits: Limits, percent: u64) -> Option<(Kind, u64, u64)> {
        let rows = [
            (Kind::Tokens, limits.tokens, self.spent.usage.total().saturating_add(self.held.tokens)),
            (Kind::Fresh, limits.fresh, self.spent.usage.fresh().saturating_add(self.held.fresh)),
            (Kind::Usd, limits.usd.map(|usd| usd.0), self.spent.usd.0.saturating_add(self.held.usd.0)),
            (Kind::Turns, limits.turns, self.spent.turns.saturating_add(self.held.turns)),
            (Kind::Wall, limits.wall_ms, self.spent.wall_ms),
        ];
        rows.into_iter()
            .filter_map(|(kind, limit, used)| Some((kind, limit?, used)))
            .filter(|(_, limit, used)| share(*limit, *used) >= u128::from(percent))
            .max_by_key(|(_, limit, used)| share(*limit, *used))
    }

    /// The first limit that the estimate would pass.
    fn in_the_way(&self, limits: Limits, estimate: Estimate) -> Option<InTheWay> {
        let (asked, asked_usd) = (estimate.usage, estimate.cost.unwrap_or_default().0);
        let usage = self.spent.usage;
        let rows = [
            (Kind::Tokens, limits.tokens, usage.total(), self.held.tokens, asked.total()),
            (Kind::Fresh, limits.fresh, usage.fresh(), self.held.fresh, asked.fresh()),
            (Kind::Usd, limits.usd.map(|usd| usd.0), self.spent.usd.0, self.held.usd.0, asked_usd),
            (Kind::Turns, limits.turns, self.spent.turns, self.held.turns, estimate.turns),
            // Nobody knows how long a request takes; at the limit none is started.
            (Kind::Wall, limits.wall_ms, self.spent.wall_ms, 0, 1),
        ];
        rows.into_iter().find_map(|(kind, limit, spent, held, asked)| {
            let limit = limit?;
            // A request that asks for nothing of a kind is not stopped by it (a summary at the turn limit).
            let over = asked > 0 && spent.saturating_add(held).saturating_add(asked) > limit;
            over.then_some((kind, limit, spent, held, asked))
        })
    }
}

impl Limits {
    /// No limit at all.
    pub const NONE: Self = Self { tokens: None, fresh: None, usd: None, turns: None, wall_ms: None };

    /// The limit of one kind.
    #[must_use]
    pub fn of(self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Tokens => self.tokens,
            Kind::Fresh => self.fresh,
            Kind::Usd => self.usd.map(|usd| usd.0),
            Kind::Turns => self.turns,
            Kind::Wall => self.wall_ms,
        }
    }

    /// The same with another limit of one kind.
    #[must_use]
    pub fn with(self, kind: Kind, limit: u64) -> Self {
        let limit = Some(limit);
        match kind {
            Kind::Tokens => Self { tokens: limit, ..self },
            Kind::Fresh => Self { fresh: limit, ..self },
            Kind::Usd => Self { usd: limit.map(MicroUsd), ..self },
            Kind::Turns => Self { turns: limit, ..self },
            Kind::Wall => Self { wall_ms: limit, ..self },
        }
    }

    /// The narrower of two, kind by kind.
    #[must_use]
    pub fn narrower(self, other: Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (Some(one), None) | (None, Some(one)) => Some(one),
                (None, None) => None,
            }
        }
        Self {
            tokens: least(self.tokens, other.tokens),
            fresh: least(self.fresh, other.fresh),
            usd: least(self.usd, other.usd),
            turns: least(self.turns, other.turns),
            wall_ms: least(self.wall_ms, other.wall_ms),
        }
    }
}

impl From<Estimate> for Held {
    fn from(estimate: Estimate) -> Self {
        Self {
            tokens: estimate.usage.total(),
            fresh: estimate.usage.fresh(),
            usd: estimate.cost.unwrap_or_default(),
            turns: estimate.turns,
            priced: estimate.cost.is_some(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens | Self::Fresh => "token",
            Self::Usd => "dollar",
            Self::Turns => "turn",
            Self::Wall => "time",
        })
    }
}

impl Kind {
    /// "$4.10 of $5.00", "900 of 1000 tokens".
    #[must_use]
    pub fn part_in_words(self, used: u64, limit: u64) -> String {
        match self {
            Self::Tokens => format!("{used} of {limit} tokens"),
            Self::Fresh => format!("{used} of {limit} new tokens"),
            Self::Usd => format!("{} of {}", MicroUsd(used), MicroUsd(limit)),
            Self::Turns => format!("{used} of {limit} turns"),
            Self::Wall => format!("{} of {} seconds", used / 1_000, limit / 1_000),
        }
    }

    /// "$4.10", "900 tokens".
    #[must_use]
    pub fn amount_in_words(self, amount: u64) -> String {
        match self {
            Self::Tokens => format!("{amount} tokens"),
            Self::Fresh => format!("{amount} new tokens"),
            Self::Usd => MicroUsd(amount).to_string(),
            Self::Turns => format!("{amount} turns"),
            Self::Wall => format!("{} seconds", amount / 1_000),
        }
    }

    /// "40 of 50 tokens spent, 0 in flight, 20 needed".
    pub(super) fn sum_in_words(self, limit: u64, spent: u64, reserved: u64, asked: u64) -> String {
        match self {
            Self::Tokens => format!(
                "{spent} of {limit} tokens spent, {reserved} in flight, the next request may need {asked}"
            ),
            Self::Fresh => format!(
                "{spent} of {limit} new tokens spent, {reserved} in flight, the next request may need {asked}"
            ),
            Self::Usd => format!(
                "{} of {} spent, {} in flight, the next request may need {}",
                MicroUsd(spent),
                MicroUsd(limit),
                MicroUsd(reserved),
                MicroUsd(asked)
            ),
            Self::Turns => format!("{spent} of {limit} turns taken"),
            Self::Wall => format!("{} of {} seconds", spent / 1_000, limit / 1_000),
        }
    }
}
