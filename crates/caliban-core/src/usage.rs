//! What was spent: tokens, with cache reads and writes counted apart.

use serde::{Deserialize, Serialize};

/// Tokens of one or more requests. The four counts are disjoint: `input` excludes what was read from
/// or written to the provider's prompt cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Fresh input tokens.
    pub input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Input tokens served from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

impl Usage {
    /// Every token, cache reads and writes included: what a token budget counts unless it says otherwise.
    pub fn total(self) -> u64 {
        self.input
            .saturating_add(self.output)
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// Tokens that are new: everything but what was read from the cache.
    pub fn fresh(self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.cache_write)
    }

    /// The same, and no less than `other` in new tokens and in all.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        let (fresh, total) = (self.fresh().max(other.fresh()), self.total().max(other.total()));
        if (fresh, total) == (other.fresh(), other.total()) {
            return other;
        }
        // The kind of the missing tokens is not known; input is new.
        let input = self.input.saturating_add(fresh.saturating_sub(self.fresh()));
        Self { input, cache_read: total.saturating_sub(fresh), ..self }
    }

    /// All four counts, as every place says them.
    pub fn words(self) -> String {
        let Self { input, output, cache_read, cache_write } = self;
        format!("{input} tokens in, {output} out, {cache_read} from cache, {cache_write} to cache")
    }

    /// Everything that was sent: fresh, read from and written to the cache.
    pub fn prompt(self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Usage {
    /// What this is more than `other`.
    pub fn less(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cache_read: self.cache_read.saturating_sub(other.cache_read),
            cache_write: self.cache_write.saturating_sub(other.cache_write),
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), std::ops::Add::add)
    }
}
