//! The conversation as the model sees it, folded from transcript events.
//!
//! Owns the one way from events to messages: a running agent and a resumed one apply the same
//! events and so send the same bytes. Does no I/O and decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use caliban_core::{
    fence::Profile,
    message::{Block, Message, ResultPart, Role, StopReason},
    models,
    usage::Usage,
};
use serde_json::Value;

use crate::{
    event::{CallVerdict, Decision, Event, Header, QueuedMessage},
    past_spending::ByModel,
    secrets,
};

/// What the model is told about a call that began and whose end nobody saw.
pub const INTERRUPTED: &str = "[interrupted: the session ended while this ran; its outcome is unknown. \
     Check the state before you do it again.]";
/// What the model is told about a call that never began.
pub const NOT_RUN: &str = "[not run: the session ended before this began.]";
/// What stands for a tool result that was dropped to make room.
pub const CLEARED: &str = "[tool result dropped to save space; call the tool again if you need it, in smaller parts \
     if it was long]";

/// A conversation.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    header: Option<Header>,
    messages: Vec<Message>,
    /// The calls of the last reply, until all of them are answered.
    open: Vec<OpenCall>,
    /// What was spent, by the model that was asked.
    spent: ByModel,
    /// What the request counts that was sent and has no recorded end.
    in_flight: Option<Usage>,
    /// The model of the last request.
    asked_model: Option<String>,
    replies: u32,
    last_stop: Option<StopReason>,
    last_prompt_tokens: u64,
    /// The last prompt, when its provider said that it uses a cache: which model has it there, and its tokens.
    cached: Option<(String, u64)>,
    /// Characters added since the provider last counted.
    uncounted: usize,
    todos: Value,
    /// How many blocks of the first message are the task, once a summary stands behind them.
    task: Option<usize>,
    has_cleared_results: bool,
    /// The ids of all calls that there ever were, also of those that only the transcript still has.
    call_ids: BTreeSet<String>,
    queue: BTreeMap<u64, QueuedMessage>,
    senders: BTreeSet<String>,
    next_queued: u64,
    /// Something was said since a turn last ended.
    turn_open: bool,
    turns_ended: u32,
}

/// A call of the last reply.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as the model sent them.
    pub input: Value,
    /// Whether it has begun.
    pub started: bool,
    /// Whether the record of it, from which it is taken up again, leaves out a secret of its arguments.
    pub(crate) has_gaps: bool,
    answer: Option<(Vec<ResultPart>, bool)>,
}

impl OpenCall {
    /// Its end, when nobody will carry it out or has seen it end.
    pub(crate) fn given_up(&self) -> Event {
        let (id, name) = (self.id.clone(), self.name.clone());
        if self.started {
            let content = vec![ResultPart::Text { text: INTERRUPTED.to_owned() }];
            let (summary, is_error) = ("interrupted, outcome unknown".to_owned(), true);
            return Event::CallEnded { id, content, is_error, summary, exit_code: None, whole: None, ms: 0 };
        }
        let why = "the session ended before this began".to_owned();
        Event::CallRefused {
            id,
            name,
            input: self.input.clone(),
            decision: Decision { verdict: CallVerdict::Cancelled, rule: None, why, fence: Profile::None },
            message: NOT_RUN.to_owned(),
            suggestions: Vec::new(),
        }
    }
}

impl Conversation {
    /// Folds a whole transcript.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut conversation = Self::default();
        for event in events {
            conversation.apply(event);
        }
        for call in &mut conversation.open {
            call.has_gaps = secrets::has_gap(&call.input);
        }
        conversation
    }

    /// Takes one event in.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Started(header) => self.header = Some(header.clone()),
            Event::Resumed { provider, model, cwd } => {
                // At the price of the model that was asked.
                self.settle(None);
                if let Some(header) = &mut self.header {
                    header.provider.clone_from(provider);
                    header.model.clone_from(model);
                    header.cwd.clone_from(cwd);
                }
            }
            Event::Queued { number, text, sender, author } => {
                self.next_queued = self.next_queued.max(number.saturating_add(1));
                let message = QueuedMessage { text: text.clone(), author: author.clone() };
                self.queue.insert(*number, message);
                self.senders.extend(sender.clone());
            }
            Event::Prompt { message, queued, .. } => {
                if let Some(number) = queued {
                    self.queue.remove(number);
                }
                // A hook has kept it from the agent: it is out of the queue, and that is all.
                if message.blocks.is_empty() {
                    return;
                }
                self.close_open_calls();
                self.turn_open = true;
                self.push(message.clone());
            }
            Event::Asked { estimate, model } => {
                // The process of an earlier one was killed before its end.
                self.settle(None);
                self.asked_model.clone_from(model);
                self.in_flight = Some(*estimate);
            }
            Event::Counted { usage } => {
                self.in_flight = Some(self.in_flight.map_or(*usage, |known| usage.at_least(known)));
            }
            Event::Unanswered { usage } => self.settle(Some(*usage)),
            Event::Reply { message, usage, stop, .. } => {
                self.last_stop = Some(stop.clone());
                self.close_open_calls();
                self.settle(Some(*usage));
                self.replies += 1;
                self.call_ids.extend(message.tool_uses().map(|(id, ..)| id.to_owned()));
                self.open = message
                    .tool_uses()
                    .map(|(id, name, input)| OpenCall {
                        id: id.to_owned(),
                        name: name.to_owned(),
                        input: input.clone(),
                        started: false,
                        has_gaps: false,
                        answer: None,
                    })
                    .collect();
                self.turn_open = true;
                self.push(without_lost_reasoning(message));
                self.last_prompt_tokens = usage.prompt().saturating_add(usage.output);
                let uses_cache = usage.cache_read > 0 || usage.cache_write > 0;
                self.cached = uses_cache.then(|| (self.model(), usage.prompt()));
                self.uncounted = 0;
            }
            Event::CallStarted { id, name, input, .. } => {
                if name == "TodoWrite"
                    && let Some(todos) = input.get("todos")
                {
                    self.todos = todos.clone();
                }
                let is_next = |call: &&mut OpenCall| call.id == *id && !call.started && call.answer.is_none();
                if let Some(call) = self.open.iter_mut().find(is_next) {
                    call.started = true;
                }
            }
            Event::CallEnded { id, content, is_error, .. } => self.answer(id, content.clone(), *is_error),
            Event::CallRefused { id, message, .. } => {
                self.answer(id, vec![ResultPart::Text { text: message.clone() }], true);
            }
            Event::ResultsCleared { ids } => self.clear_results(ids),
            Event::Summarised { summary, keep_tail, usage } => {
                self.settle(Some(*usage));
                self.summarise(summary, *keep_tail);
            }
            Event::TurnEnded { .. } => {
                self.turn_open = false;
                self.turns_ended += 1;
            }
            Event::AskOpened(_)
            | Event::AskAnswered { .. }
            | Event::Background { .. }
            | Event::Note { .. } => {}
        }
    }

    /// What the first record said, kept up to date.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// The messages to send. Only complete when no call is open.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The calls of the last reply that have no answer yet, in order.
    pub fn open_calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.open.iter().filter(|call| call.answer.is_none())
    }

    /// The ids of all calls that there ever were.
    pub(crate) fn call_ids(&self) -> &BTreeSet<String> {
        &self.call_ids
    }

    /// What everything has cost, with a request whose end nobody has recorded.
    pub fn usage(&self) -> Usage {
        self.spent().into_values().sum()
    }

    /// The same by the model that was asked.
    pub(crate) fn spent(&self) -> ByModel {
        let mut spent = self.spent.clone();
        if let Some(usage) = self.in_flight {
            *spent.entry(self.model()).or_default() += usage;
        }
        spent
    }

    /// What the request counts that was sent and has no recorded end.
    pub fn in_flight(&self) -> Usage {
        self.in_flight.unwrap_or_default()
    }

    fn model(&self) -> String {
        let header = || self.header.as_ref().map(|header| header.model.clone());
        self.asked_model.clone().or_else(header).unwrap_or_default()
    }

    /// The open request, if there is one, is over and counts this; what is known of it when nobody says more.
    fn settle(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage.or(self.in_flight) {
            *self.spent.entry(self.model()).or_default() += usage;
        }
        self.in_flight = None;
    }

    pub(crate) fn last_stop(&self) -> Option<&StopReason> {
        self.last_stop.as_ref()
    }

    /// How many times the model has answered.
    pub fn replies(&self) -> u32 {
        self.replies
    }

    /// How many turns have ended.
    pub fn turns_ended(&self) -> u32 {
        self.turns_ended
    }

    /// The todo list as the model last wrote it; null when there is none.
    pub fn todos(&self) -> &Value {
        &self.todos
    }

    /// What was said to the agent and not yet heard by it, with its numbers.
    pub fn queue(&self) -> &BTreeMap<u64, QueuedMessage> {
        &self.queue
    }

    /// The ids that senders chose, for all that was ever queued.
    pub fn senders(&self) -> &BTreeSet<String> {
        &self.senders
    }

    /// The next number for the queue.
    pub fn next_queued(&self) -> u64 {
        self.next_queued
    }

    /// Whether the last thing said waits for the model.
    pub fn awaits_model(&self) -> bool {
        self.open.is_empty() && self.messages.last().is_some_and(|message| message.role == Role::User)
    }

    /// Whether the last turn was cut short: nobody recorded how it ended.
    pub fn is_turn_open(&self) -> bool {
        self.turn_open
    }

    /// How many tokens the next request will have, about: what the provider counted last, plus a
    /// quarter of the characters that came since.
    pub fn estimated_tokens(&self) -> u64 {
        self.last_prompt_tokens.saturating_add((self.uncounted / 4) as u64)
    }

    /// How many tokens of the next request this model's provider has in its cache, by what it said last. None when it said
    /// nothing of a cache, and after messages were changed.
    pub(crate) fn cached_tokens(&self, model: &str) -> u64 {
        self.cached.as_ref().filter(|(cached_by, _)| cached_by == model).map_or(0, |(_, tokens)| *tokens)
    }

    /// Answers what is still open: begun calls are "interrupted", others "not run".
    fn close_open_calls(&mut self) {
        let open: Vec<(String, bool)> =
            self.open_calls().map(|call| (call.id.clone(), call.started)).collect();
        for (id, started) in open {
            let text = if started { INTERRUPTED } else { NOT_RUN };
            self.answer(&id, vec![ResultPart::Text { text: text.to_owned() }], true);
        }
    }

    fn answer(&mut self, id: &str, content: Vec<ResultPart>, is_error: bool) {
        let Some(call) = self.open.iter_mut().find(|call| call.id == id && call.answer.is_none()) else {
            return;
        };
        call.answer = Some((content, is_error));
        if self.open.iter().any(|call| call.answer.is_none()) {
            return;
        }
        let blocks = std::mem::take(&mut self.open)
            .into_iter()
            .filter_map(|call| {
                let (content, is_error) = call.answer?;
                Some(Block::ToolResult { id: call.id, content, is_error })
            })
            .collect();
        self.push(Message { role: Role::User, blocks });
    }

    /// Adds a message; two of one role in a row become one, as the providers want it.
    fn push(&mut self, message: Message) {
        self.uncounted += characters(&message);
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => last.blocks.extend(message.blocks),
            _ => self.messages.push(message),
        }
    }

    pub(crate) fn has_cleared_results(&self) -> bool {
        self.has_cleared_results
    }

    fn clear_results(&mut self, ids: &[String]) {
        self.has_cleared_results = true;
        let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let before = self.characters();
        for block in self.messages.iter_mut().flat_map(|message| &mut message.blocks) {
            if let Block::ToolResult { id, content, .. } = block
                && ids.contains(id.as_str())
            {
                *content = vec![ResultPart::Text { text: CLEARED.to_owned() }];
            }
        }
        self.forget_bound_thinking();
        self.cached = None;
        let saved = (before.saturating_sub(self.characters()) / 4) as u64;
        // What the provider has not counted yet may be among it.
        let uncounted = saved.saturating_sub(self.last_prompt_tokens);
        self.last_prompt_tokens = self.last_prompt_tokens.saturating_sub(saved);
        let uncounted = usize::try_from(uncounted).unwrap_or(usize::MAX).saturating_mul(4);
        self.uncounted = self.uncounted.saturating_sub(uncounted);
    }

    fn summarise(&mut self, summary: &str, keep_tail: usize) {
        // An agent has recorded their ends before; a transcript of an earlier caliban may not have them.
        self.close_open_calls();
        let mut at = self.messages.len().saturating_sub(keep_tail);
        // No result stands without its call.
        while self.messages.get(at).is_some_and(has_results) {
            at -= 1;
        }
        let tail = self.messages.split_off(at.max(1).min(self.messages.len()));
        let mut first = std::mem::take(&mut self.messages)
            .into_iter()
            .next()
            .unwrap_or_else(|| Message { role: Role::User, blocks: Vec::new() });
        first.blocks.retain(|block| matches!(block, Block::Text { .. } | Block::Image { .. }));
        // The summary of the time before, and what was said right after it, are in this one.
        let task = *self.task.get_or_insert(first.blocks.len());
        first.blocks.truncate(task);
        let mut text = format!("<summary of the work so far>\n{}\n</summary>", summary.trim());
        if let Some(todos) = render_todos(&self.todos) {
            text.push_str("\n<todo list>\n");
            text.push_str(&todos);
            text.push_str("</todo list>");
        }
        first.blocks.push(Block::Text { text });
        let mut tail = tail;
        if models::family(&self.model()).bound {
            tail.iter_mut().for_each(without_thinking);
        }
        for message in [first].into_iter().chain(tail) {
            self.push(message);
        }
        self.has_cleared_results = false;
        self.last_prompt_tokens = 0;
        self.cached = None;
        self.uncounted = self.characters();
    }

    /// What a model thought is void for it when something before it has changed, and its provider refuses it then.
    fn forget_bound_thinking(&mut self) {
        if models::family(&self.model()).bound {
            self.messages.iter_mut().for_each(without_thinking);
        }
    }

    fn characters(&self) -> usize {
        self.messages.iter().map(characters).sum()
    }
}

pub(crate) fn has_results(message: &Message) -> bool {
    message.blocks.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

/// A message that can be sent again: reasoning that was not kept, because it quoted a secret, is left out.
fn without_lost_reasoning(message: &Message) -> Message {
    let is_lost = |block: &Block| matches!(block, Block::Thinking { raw: Value::Null, .. });
    let blocks = message.blocks.iter().filter(|block| !is_lost(block)).cloned().collect();
    Message { role: message.role, blocks }
}

fn without_thinking(message: &mut Message) {
    message.blocks.retain(|block| !matches!(block, Block::Thinking { .. }));
}

/// How many characters a message has, roughly as they count for a model.
pub fn characters(message: &Message) -> usize {
    message
        .blocks
        .iter()
        .map(|block| match block {
            Block::Text { text } => text.len(),
            Block::Thinking { raw, .. } => raw.to_string().len(),
            Block::ToolUse { name, input, .. } => name.len() + input.to_string().len(),
            Block::ToolResult { content, .. } => content.iter().map(part_characters).sum(),
            Block::Image { .. } => IMAGE_CHARACTERS,
        })
        .sum()
}

/// A picture costs about 1,500 tokens whatever its bytes.
const IMAGE_CHARACTERS: usize = 6_000;

/// The same of a part of a result.
pub(crate) fn part_characters(part: &ResultPart) -> usize {
    match part {
        ResultPart::Text { text } => text.len(),
        ResultPart::Image { .. } => IMAGE_CHARACTERS,
    }
}

fn render_todos(todos: &Value) -> Option<String> {
    let list = todos.as_array().filter(|list| !list.is_empty())?;
    let marks = BTreeMap::from([("completed", "x"), ("in_progress", "~")]);
    let mut text = String::new();
    for todo in list {
        let status = todo.get("status").and_then(Value::as_str).unwrap_or("pending");
        let content = todo.get("content").and_then(Value::as_str).unwrap_or_default();
        let mark = marks.get(status).unwrap_or(&" ");
        text.push_str(&format!("[{mark}] {content}\n"));
    }
    Some(text)
}
