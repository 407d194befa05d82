//! What one attempt at a request counts, by what is known of it so far. Pure; whoever sends the attempt tells it what the
//! stream says.

use caliban_core::usage::Usage;

use super::Estimated;

/// Characters of an answer that are taken for one token.
const CHARS_PER_TOKEN: u64 = 4;
/// How much more a provider has to count before that is written down again: this part of what was written.
const COUNT_STEP: u64 = 10;
/// What an answer takes that nobody has seen yet, unless it may only be shorter.
const USUAL_OUTPUT: u64 = 1_000;

impl Estimated {
    /// A prompt of so many tokens, and a usual answer, which may have at most `limit`.
    pub fn usual(prompt: u64, limit: Option<u64>) -> Self {
        Self { prompt, cached: 0, output: limit.map_or(USUAL_OUTPUT, |limit| USUAL_OUTPUT.min(limit)) }
    }

    /// A prompt of so many characters.
    pub fn of_characters(characters: u64, limit: Option<u64>) -> Self {
        Self::usual(characters.div_ceil(CHARS_PER_TOKEN), limit)
    }

    /// The same, with so many tokens of the prompt in the provider's cache.
    pub fn with_cached(self, tokens: u64) -> Self {
        Self { cached: tokens.min(self.prompt), ..self }
    }

    /// The same as usage.
    pub fn usage(self) -> Usage {
        let input = self.prompt.saturating_sub(self.cached);
        Usage { input, output: self.output, cache_read: self.cached, cache_write: 0 }
    }

    /// The same for a provider that has lost its cache: the dearest that it can be.
    pub(super) fn uncached(self) -> Usage {
        Self { cached: 0, ..self }.usage()
    }
}

/// An attempt that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetAttempt {
    estimate: Estimated,
    /// What it has used, by the server's count.
    counted: Option<Usage>,
    /// Characters of the answer that have come.
    said: u64,
    /// The count that was written down last.
    written: u64,
}

impl BudgetAttempt {
    /// One that is about to be sent.
    pub fn new(estimate: Estimated) -> Self {
        Self { estimate, counted: None, said: 0, written: 0 }
    }

    /// So many characters of the answer have come, all in all.
    pub fn said(&mut self, characters: u64) {
        self.said = characters;
    }

    /// So many more.
    pub fn says(&mut self, characters: u64) {
        self.said = self.said.saturating_add(characters);
    }

    /// The server has counted. Whether that is to be written down: it is more than counts already if this process is killed
    /// now. A provider may say it with every chunk; what is a little more is not written down again.
    pub fn counted(&mut self, usage: Usage) -> bool {
        let unknown = self.unknown();
        let is_more = usage.at_least(unknown) != unknown;
        self.counted = Some(usage);
        let is_news = is_more && usage.total() >= self.written.saturating_add(self.written / COUNT_STEP);
        if is_news {
            self.written = usage.total();
        }
        is_news
    }

    /// What the stream has said so far; nothing when it has said nothing.
    pub fn so_far(&self) -> Option<Usage> {
        let said = self.said.div_ceil(CHARS_PER_TOKEN);
        let counted = self.counted.or((said > 0).then(|| Usage { output: 0, ..self.estimate.usage() }))?;
        Some(Usage { output: counted.output.max(said), ..counted })
    }

    /// What it counts when its end is not known: what the stream has said, at least what was reserved.
    pub fn unknown(&self) -> Usage {
        let estimated = self.estimate.usage();
        self.so_far().map_or(estimated, |so_far| so_far.at_least(estimated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn usage(input: u64, output: u64) -> Usage {
        Usage { input, output, cache_read: 0, cache_write: 0 }
    }

    #[test]
    fn r20_an_attempt_without_an_end_counts_what_was_said_at_least_what_was_reserved() {
        let mut attempt = BudgetAttempt::new(Estimated::of_characters(397, Some(50)));
        assert_eq!((attempt.so_far(), attempt.unknown()), (None, usage(100, 50)));
        attempt.says(9);
        assert_eq!((attempt.so_far(), attempt.unknown()), (Some(usage(100, 3)), usage(100, 50)));
        assert!(attempt.counted(usage(5_000, 1)));
        assert_eq!(attempt.unknown(), usage(5_000, 3));
        assert!(!attempt.counted(usage(5_000, 200)), "a little more");
        assert!(attempt.counted(usage(5_000, 501)));
        assert!(!attempt.counted(usage(10, 1)), "less");
        assert_eq!(attempt.unknown(), usage(100, 50));
    }

    #[test]
    fn r20_a_cache_that_was_lost_counts_as_soon_as_the_server_says_so() {
        let mut attempt = BudgetAttempt::new(Estimated::usual(1_000, Some(50)).with_cached(900));
        assert_eq!((attempt.unknown().fresh(), attempt.unknown().total()), (150, 1_050));
        assert!(attempt.counted(usage(1_000, 1)), "all of it is new");
        assert_eq!((attempt.unknown().fresh(), attempt.unknown().total()), (1_001, 1_050));
        assert_eq!(Estimated::usual(10, None).with_cached(90).usage().fresh(), 1_000);
    }

    #[test]
    fn an_answer_is_taken_for_a_usual_one_unless_it_must_be_shorter() {
        let output = |limit| Estimated::usual(1, limit).output;
        assert_eq!([output(None), output(Some(64_000)), output(Some(7))], [1_000, 1_000, 7]);
    }
}
