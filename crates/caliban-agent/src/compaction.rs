//! Makes room before the model's window is full.
//!
//! Where old tool results are enough, the oldest go, and no more of them than needed. The next time, or where they are not
//! enough, a summary takes the place of the
//! older messages: the model writes it from the conversation as it stands, before anything is taken away, so that nothing
//! is missing from it and the provider has its beginning in the cache. The task, the todo list and the last messages stay,
//! and in any case what the model has not answered yet. Only what the model is sent changes: the transcript keeps
//! everything.

use caliban_core::{
    message::{Block, Effort, Message, ResultPart, Role},
    usage::Usage,
    wait::Wait,
};
use caliban_providers::{Calls, ProviderError};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::Agent,
    conversation::{CLEARED, Conversation, OpenCall, characters, has_results, part_characters},
    event::{Event, Outcome},
    feed::FeedEntry,
    request::{Audience, Failed, RequestParts},
    session_file,
    transcript::Durability,
    turn::Halt,
};

/// Room is made when this much of the window is used, in percent.
const FULL_PERCENT: u64 = 80;
/// Results are cleared until the use is at most this, in percent.
const ROOMY_PERCENT: u64 = 60;
/// The newest messages whose tool results are never cleared.
const FRESH_MESSAGES: usize = 6;
/// A shorter result is not worth clearing.
const SMALL_RESULT: usize = 400;
/// The kept tail may take this much of the window, in percent.
const TAIL_PERCENT: u64 = 20;
/// The most tokens of a summary, where the window has room for them.
const SUMMARY_TOKENS: u64 = 12_000;
/// A summary may take this much of the window, in percent.
const SUMMARY_PERCENT: u64 = 15;
/// A summary that comes empty is asked for so often.
const SUMMARY_ATTEMPTS: u32 = 3;

const INSTRUCTION: &str = "The conversation is about to be shortened. Write a summary that lets you go on \
without the older part. Do not call tools. State: what the user wants, in their words where they matter; what is \
done and what was decided, with the reasons; every file that was read or changed and what matters in it; commands \
that worked and how; errors and how they were solved; what is left to do and the very next step.";

impl Agent {
    /// Whether the next request would come close to the window.
    pub(crate) fn is_window_filling(&self) -> bool {
        self.uses_more_than(FULL_PERCENT)
    }

    /// How many tokens the model can hold: by the settings, by the server where it could be asked, by the catalogue.
    pub fn window(&self) -> u64 {
        self.kit
            .window
            .or(self.told_window.flatten())
            .unwrap_or_else(|| caliban_core::models::family(&self.kit.model).window)
    }

    /// Asks the server for the window, once, when it has loaded the model: local ones often run with a small one.
    pub(crate) async fn learn_window(&mut self) {
        if self.kit.window.is_none() && self.told_window.is_none() && self.conversation.replies() > 0 {
            self.told_window = Some(self.kit.provider.context_window(&self.kit.model).await);
        }
    }

    fn uses_more_than(&self, percent: u64) -> bool {
        self.conversation.estimated_tokens() > self.share_of_window(percent)
    }

    fn share_of_window(&self, percent: u64) -> u64 {
        // Divided first: a server may claim any size.
        self.window().div_ceil(100).saturating_mul(percent)
    }

    /// Makes room now, whatever the use is: what `/compact` and `caliban sessions compact` do.
    pub async fn compact(&mut self, cancel: &CancellationToken) -> Result<(), Outcome> {
        let at_work = self.kit.purse.work();
        let result = self.compact_now(cancel).await;
        // The agent rests again: its time does not count.
        drop(at_work);
        let result = result.and_then(|()| Ok(session_file::write(&self.kit.wanted.directory)?));
        result.map_err(|halt| match halt {
            Halt::Outcome(outcome) => outcome,
            Halt::Storage(error) => Outcome::failed(error.to_string()),
        })
    }

    pub(crate) async fn compact_now(&mut self, cancel: &CancellationToken) -> Result<(), Halt> {
        // Calls that a crash left open: no request shows a call without its result.
        let open: Vec<Event> = self.conversation.open_calls().map(OpenCall::given_up).collect();
        for event in open {
            self.record(event, Durability::Written).await?;
        }
        if !self.summarise(cancel).await? {
            self.clear_down_to(0, FRESH_MESSAGES).await?;
        }
        Ok(())
    }

    pub(crate) async fn make_room(&mut self, cancel: &CancellationToken) -> Result<(), Halt> {
        let roomy = self.share_of_window(ROOMY_PERCENT);
        let (enough, reaches) = clearable(&self.conversation, FRESH_MESSAGES, roomy);
        if reaches && !self.conversation.has_cleared_results() {
            self.record(Event::ResultsCleared { ids: enough }, Durability::Written).await?;
            return Ok(());
        }
        self.summarise(cancel).await?;
        self.clear_down_to(roomy, FRESH_MESSAGES).await?;
        if self.conversation.estimated_tokens() >= self.window() {
            // Even what came last is too much: better called again for less than a session that cannot go on.
            self.clear_down_to(0, 0).await?;
        }
        if self.conversation.estimated_tokens() > self.window() {
            let (have, window) = (self.conversation.estimated_tokens(), self.window());
            return Err(Halt::Outcome(Outcome::Failed {
                error: format!(
                    "about {have} tokens are too many for {}, which takes {window}",
                    self.kit.model
                ),
                hint: Some("put long material into files that the agent can read in parts".to_owned()),
            }));
        }
        Ok(())
    }

    /// Drops the oldest results before the last so many messages, until no more than so many tokens are left; whether there
    /// was anything to drop.
    pub(crate) async fn clear_down_to(&mut self, tokens: u64, fresh: usize) -> Result<bool, Halt> {
        let (ids, _) = clearable(&self.conversation, fresh, tokens);
        if ids.is_empty() {
            return Ok(false);
        }
        self.record(Event::ResultsCleared { ids }, Durability::Written).await?;
        Ok(true)
    }

    /// Whether a summary has taken the place of older messages.
    async fn summarise(&mut self, cancel: &CancellationToken) -> Result<bool, Halt> {
        let keep_tail = tail(self.conversation.messages(), self.share_of_window(TAIL_PERCENT));
        if self.conversation.messages().len() <= keep_tail + 1 {
            return Ok(false);
        }
        let Some((summary, usage)) = self.ask_for_summary(cancel).await? else { return Ok(false) };
        self.record(Event::Summarised { summary, keep_tail, usage }, Durability::Synced).await?;
        self.kit.instructions.forget_touched(self.kit.workspace.root());
        Ok(true)
    }

    /// A summary and what it took; nothing when none came.
    async fn ask_for_summary(&mut self, cancel: &CancellationToken) -> Result<Option<(String, Usage)>, Halt> {
        let mut messages = self.conversation.messages().to_vec();
        let feed = self.transcript.feed();
        feed.push(FeedEntry::Waiting(Wait::Summary));
        // A server that takes too much without a word forgets the beginning. What came last is shortened first: it stays as it
        // is beside the summary, and the provider does not have it in its cache yet.
        let room = self.window().saturating_sub(self.summary_room());
        let mut over = self.conversation.estimated_tokens().saturating_sub(room);
        for message in messages.iter_mut().rev() {
            if over == 0 {
                break;
            }
            let before = characters(message);
            shorten_results(message);
            over = over.saturating_sub((before.saturating_sub(characters(message)) / 4) as u64);
        }
        let mut used = Usage::default();
        for attempt in 1..=SUMMARY_ATTEMPTS {
            let answer = match self.request_summary(&messages, attempt, cancel).await {
                // What is to be summed up is too much itself: then from the beginnings of the results.
                Err(Failed::Model(ProviderError::ContextTooLong { .. })) => {
                    messages.iter_mut().for_each(shorten_results);
                    self.request_summary(&messages, attempt, cancel).await
                }
                other => other,
            };
            let (summary, usage) = answer.map_err(Failed::into_halt)?;
            used += usage;
            if !summary.trim().is_empty() {
                return Ok(Some((summary, used)));
            }
        }
        let note = format!("the model gave no summary, {SUMMARY_ATTEMPTS} times in a row");
        self.record(Event::Note { text: note }, Durability::Written).await?;
        Ok(None)
    }

    fn summary_room(&self) -> u64 {
        self.share_of_window(SUMMARY_PERCENT).clamp(1, SUMMARY_TOKENS)
    }

    async fn request_summary(
        &mut self,
        messages: &[Message],
        attempt: u32,
        cancel: &CancellationToken,
    ) -> Result<(String, Usage), Failed> {
        let mut messages = messages.to_vec();
        match messages.last_mut() {
            Some(last) if last.role == Role::User => {
                last.blocks.push(Block::Text { text: INSTRUCTION.to_owned() });
            }
            _ => messages.push(Message::user(INSTRUCTION)),
        }
        let specs = self.kit.offered();
        let question = RequestParts {
            messages: Some(&messages),
            tools: &specs,
            // The first time everything is as in every other request, which is what the provider has in its cache.
            calls: if attempt == 1 { Calls::Allowed } else { Calls::Forbidden },
            max_output: u32::try_from(self.summary_room()).ok(),
            effort: if attempt == 1 { self.kit.provider.aside(self.kit.effort) } else { Effort::None },
            audience: Audience::Nobody,
        };
        let (reply, ms) = self.request(question, cancel).await?;
        tracing::debug!(ms, "summarised");
        Ok((reply.message.text(), reply.usage))
    }
}

/// Leaves the beginning of each result.
fn shorten_results(message: &mut Message) {
    for block in &mut message.blocks {
        let Block::ToolResult { content, .. } = block else { continue };
        for part in content {
            match part {
                ResultPart::Text { text } if text.len() > SMALL_RESULT => {
                    *text = text.chars().take(SMALL_RESULT).chain("\n[cut]".chars()).collect();
                }
                ResultPart::Text { .. } => {}
                ResultPart::Image { .. } => *part = ResultPart::Text { text: CLEARED.to_owned() },
            }
        }
    }
}

/// The calls whose results go, the oldest first, until no more than so many tokens are left; and whether that is enough.
/// Only results that are old and large enough to matter.
fn clearable(conversation: &Conversation, fresh: usize, tokens: u64) -> (Vec<String>, bool) {
    let messages = conversation.messages();
    let old = messages.len().saturating_sub(fresh);
    let (mut ids, mut left) = (Vec::new(), conversation.estimated_tokens());
    for block in messages.iter().take(old).flat_map(|message| &message.blocks) {
        if left <= tokens {
            break;
        }
        if let Block::ToolResult { id, content, .. } = block
            && is_large(content)
        {
            let freed = content.iter().map(part_characters).sum::<usize>().saturating_sub(CLEARED.len());
            left = left.saturating_sub((freed / 4) as u64);
            ids.push(id.clone());
        }
    }
    (ids, left <= tokens)
}

fn is_large(content: &[ResultPart]) -> bool {
    content.iter().any(|part| match part {
        ResultPart::Text { text } => text.len() > SMALL_RESULT && text != CLEARED,
        ResultPart::Image { .. } => true,
    })
}

/// How many messages at the end stay: as many as fit, beginning with one of the model's, so that no result
/// stands without its call; and whatever the room, what nobody has answered yet.
fn tail(messages: &[Message], tokens: u64) -> usize {
    let room = usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    let (mut used, mut kept) = (0_usize, newest(messages));
    for (back, message) in messages.iter().rev().enumerate() {
        used = used.saturating_add(characters(message));
        if used > room {
            break;
        }
        if message.role == Role::Assistant {
            kept = kept.max(back + 1);
        }
    }
    // The first message is the task: it stays in any case, with the summary behind it.
    kept.min(messages.len().saturating_sub(1))
}

/// How many messages at the end nobody has answered: a prompt; results, which need the calls before them; or the
/// model's own last words, without which it would seem that it owes an answer.
fn newest(messages: &[Message]) -> usize {
    match messages.last() {
        Some(last) if has_results(last) => 2,
        Some(_) => 1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tail_is_what_fits_and_begins_with_the_models_words() {
        let says = |role, text: &str| Message { role, blocks: vec![Block::Text { text: text.into() }] };
        let call =
            Block::ToolUse { id: "a".into(), name: "T".into(), input: json!("x".repeat(400)), extra: None };
        let content = vec![ResultPart::Text { text: "r".repeat(40) }];
        let result = Block::ToolResult { id: "a".into(), content, is_error: false };
        let messages = [
            says(Role::User, "task"),
            Message { role: Role::Assistant, blocks: vec![call] },
            Message { role: Role::User, blocks: vec![result] },
            says(Role::Assistant, &"w".repeat(40)),
            says(Role::User, &"p".repeat(40)),
        ];
        // Nothing fits but what must stay; the last words; not the result without its call; everything.
        for (tokens, kept) in [(0, 1), (19, 1), (20, 2), (30, 2), (131, 4), (10_000, 4)] {
            assert_eq!(tail(&messages, tokens), kept, "{tokens} tokens");
        }
        assert_eq!(tail(&messages[..4], 0), 1, "the model's last words");
        assert_eq!(tail(&messages[..3], 0), 2, "results and their calls");
        assert_eq!((tail(&messages[..1], 0), tail(&[], 0)), (0, 0), "nothing but the task");
    }
}
