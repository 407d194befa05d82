//! From the log of a conversation to the updates that a client gets.
//!
//! Pure: one entry in, updates out. A live watcher and one that replays walk the same log through the same code, so
//! they see the same. What streamed in is not repeated when its record follows; a transcript read from disk has only
//! records and is shown from those.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use caliban_acp::v1::{
    ContentBlock, ContentChunk, Cost, MessageId, Meta, Notice, NoticeSeverity, SessionInfoUpdate,
    SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    UsageUpdate,
};
use caliban_acp::{
    code_fence,
    extension::{self, meta},
};
use caliban_agent::{
    budget::Purse,
    event::{Author, Event, Outcome, Record},
    feed::FeedEntry,
};
use caliban_core::{
    background::BackgroundStatus,
    message::{Block, Message, StopReason},
    wait::Wait,
};
use serde_json::{Value, json};

use crate::{
    client_files::FileAbilities,
    content::{self, boundary},
    tools,
    turn_end::TurnEnded,
};

/// How much of a running command's output is shown while it runs: the end of it.
const LIVE_TAIL_BYTES: usize = 8 * 1024;
/// The longest title made from a prompt.
const TITLE_CHARS: usize = 80;

/// What goes to the client.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and nearly all of them are updates")]
pub(crate) enum ClientUpdate {
    Update(SessionUpdate),
    TurnEnded(TurnEnded),
}

/// Whether an entry is history for the client or happens now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryTime {
    Replay,
    Live,
}

/// What the client can show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) notices: bool,
    /// What its own files can be used for.
    pub(crate) files: FileAbilities,
}

/// Where one client stands in a conversation.
#[derive(Debug, Default)]
pub(crate) struct Renderer {
    abilities: Abilities,
    window: Arc<AtomicU64>,
    /// Knows what the session has spent, helpers and background agents included.
    purse: Option<Purse>,
    root: PathBuf,
    replies: u32,
    prompts: u32,
    titled: bool,
    attempt: ShownAttempt,
    /// The calls that have not ended, as they were last shown.
    calls: BTreeMap<String, RenderedCall>,
    live: BTreeMap<String, Tail>,
    used: u64,
    /// Why the model last stopped.
    stop: Option<StopReason>,
    /// Whether the client was told that the disk is full.
    disk_full: bool,
    /// What the entry at hand shows.
    out: Vec<ClientUpdate>,
}

/// What the answer that is coming in has shown so far.
#[derive(Debug, Default)]
struct ShownAttempt {
    number: u32,
    text: bool,
    thinking: bool,
    calls: BTreeSet<String>,
}

#[derive(Debug)]
struct RenderedCall {
    name: String,
    input: Value,
}

#[derive(Debug, Default)]
struct Tail {
    text: String,
    changed: bool,
}

impl Renderer {
    pub(crate) fn new(abilities: Abilities, window: Arc<AtomicU64>, purse: Option<Purse>) -> Self {
        Self { abilities, window, purse, ..Self::default() }
    }

    /// What the entry shows. `is_mine` tells whether it is what this client has said itself.
    pub(crate) fn take(&mut self, entry: &FeedEntry, when: EntryTime, is_mine: bool) -> Vec<ClientUpdate> {
        match entry {
            FeedEntry::Record(record) => {
                self.disk_full = false;
                self.record(record, is_mine);
            }
            FeedEntry::Text(text) => {
                self.attempt.text = true;
                self.say(text);
            }
            FeedEntry::Thinking(text) => {
                self.attempt.thinking = true;
                self.think(text);
            }
            FeedEntry::ToolUse { id, name } => self.tool_use(id, name),
            FeedEntry::ToolOutput { id, text } => self.live.entry(id.clone()).or_default().push(text),
            FeedEntry::Restart { reason } => self.restart(reason),
            FeedEntry::Waiting(wait) if when == EntryTime::Live => self.wait(wait),
            FeedEntry::Waiting(_)
            | FeedEntry::SubAsked(_)
            | FeedEntry::SubAnswered { .. }
            | FeedEntry::Broken { .. } => {}
        }
        std::mem::take(&mut self.out)
    }

    /// Whether there is live output that was not shown yet.
    pub(crate) fn has_live_output(&self) -> bool {
        self.live.values().any(|tail| tail.changed)
    }

    /// The live output since the last time.
    pub(crate) fn live_output(&mut self) -> Vec<SessionUpdate> {
        let changed = self.live.iter_mut().filter(|(_, tail)| tail.changed);
        changed
            .map(|(id, tail)| {
                tail.changed = false;
                let content: Vec<ToolCallContent> =
                    content::texts(&code_fence::fenced(&tail.text)).map(ToolCallContent::from).collect();
                update(id, ToolCallUpdateFields::new().content(content))
            })
            .collect()
    }

    /// Where the agent works.
    pub(crate) fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// Why the model last stopped.
    pub(crate) fn stop(&self) -> Option<&StopReason> {
        self.stop.as_ref()
    }

    fn wait(&mut self, wait: &Wait) {
        let (severity, text) = match wait {
            // The write is tried again every second; it is shown once.
            Wait::DiskFull { .. } | Wait::Ledger { .. } if std::mem::replace(&mut self.disk_full, true) => {
                return;
            }
            Wait::Ledger { .. } => (NoticeSeverity::Warning, wait.to_string()),
            Wait::DiskFull { path } => {
                (NoticeSeverity::Warning, format!("disk full: waiting for room ({})", path.display()))
            }
            Wait::RateLimit(pause) | Wait::Outage(pause) | Wait::Retry(pause) => {
                let seconds = pause.ms.div_ceil(1000);
                (NoticeSeverity::Info, format!("waiting {seconds} s: {}", pause.reason))
            }
            Wait::QuietHours(pause) => {
                let left = caliban_core::calendar::short(pause.ms.div_ceil(60_000) * 60_000);
                (NoticeSeverity::Info, format!("{}: goes on in {left}", pause.reason))
            }
            Wait::Jobs { .. } | Wait::Summary | Wait::Budget { .. } => {
                (NoticeSeverity::Info, wait.to_string())
            }
        };
        self.note_with(severity, &text, extension::wait_meta(wait));
    }

    fn record(&mut self, record: &Record, is_mine: bool) {
        match &record.event {
            Event::Started(header) => {
                self.root.clone_from(&header.cwd);
                if let Some(label) = &header.label {
                    self.title(label, record);
                }
            }
            Event::Resumed { cwd, .. } => self.root.clone_from(cwd),
            Event::Prompt { message, author, context, .. } => {
                self.prompt(message, author, *context, record, is_mine);
            }
            Event::Reply { message, usage, stop, .. } => {
                self.reply(message);
                self.stop = Some(stop.clone());
                self.used = usage.prompt().saturating_add(usage.output);
                let usage = self.usage(None);
                self.push(usage);
            }
            Event::CallStarted { id, name, input, .. } => self.call_started(id, name, input),
            Event::CallEnded { id, content, is_error, summary, exit_code, whole, ms } => {
                let details = json!({"summary": summary, "exitCode": exit_code, "whole": whole, "ms": ms});
                let call = self.calls.remove(id);
                self.live.remove(id);
                let status = if *is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
                let name = call.as_ref().map_or("", |call| call.name.as_str());
                let mut fields =
                    ToolCallUpdateFields::new().status(status).raw_output(without_nulls(details));
                let keeps_change = !*is_error
                    && call
                        .as_ref()
                        .is_some_and(|call| tools::change(name, &call.input, &self.root).is_some());
                if !keeps_change {
                    fields = fields.content(blocks(content::result(content, tools::gives_output(name))));
                }
                self.push(update(id, fields));
            }
            Event::CallRefused { id, message, .. } => {
                self.calls.remove(id);
                let fields = ToolCallUpdateFields::new()
                    .status(ToolCallStatus::Failed)
                    .content(blocks(content::texts(message).collect()));
                self.push(update(id, fields));
            }
            Event::Background { id, status, text } => {
                let severity = match status {
                    BackgroundStatus::Running | BackgroundStatus::Completed | BackgroundStatus::Killed => {
                        NoticeSeverity::Info
                    }
                    BackgroundStatus::Failed | BackgroundStatus::BudgetExceeded => NoticeSeverity::Warning,
                };
                let about = meta("background", json!({"id": id, "status": status}));
                self.note_with(severity, text, about);
            }
            Event::Note { text } => self.note(NoticeSeverity::Warning, text),
            Event::Summarised { .. } => {
                let text = "the older part of the conversation was summarised to make room";
                self.note(NoticeSeverity::Info, text);
            }
            Event::TurnEnded { outcome, usage, micro_usd, turns } => {
                self.void_attempt();
                match outcome {
                    Outcome::Budget { limit } => {
                        self.say_apart(&format!("[stopped: {limit}]"), "budget");
                    }
                    Outcome::TurnLimit { limit } => {
                        let requests = if *limit == 1 { "request" } else { "requests" };
                        let text = format!("[stopped: the limit of {limit} model {requests} is reached]");
                        self.say_apart(&text, "turn_limit");
                    }
                    Outcome::Done | Outcome::Failed { .. } | Outcome::Cancelled => {}
                }
                let cost = self.usage(*micro_usd);
                self.push(cost);
                self.out.push(ClientUpdate::TurnEnded(TurnEnded {
                    outcome: outcome.clone(),
                    stop: self.stop.clone(),
                    usage: *usage,
                    turns: *turns,
                }));
            }
            Event::AskOpened(_)
            | Event::AskAnswered { .. }
            | Event::Queued { .. }
            | Event::Asked { .. }
            | Event::Counted { .. }
            | Event::Unanswered { .. }
            | Event::ResultsCleared { .. } => {}
        }
    }

    fn prompt(&mut self, message: &Message, author: &Author, context: usize, record: &Record, is_mine: bool) {
        self.prompts += 1;
        // Calls that a crash left open: whoever speaks next finds them closed.
        for id in std::mem::take(&mut self.calls).into_keys() {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            self.push(update(&id, fields));
        }
        let typed = message.blocks.get(context..).unwrap_or_default();
        let who = match author {
            Author::User => None,
            Author::Parent => Some("parent".to_owned()),
            Author::Hook(event) => Some(format!("hook:{event}")),
            // "Go on where you stopped": nothing that a person said or needs to see.
            Author::Caliban => return,
        };
        if let Some(text) = record.event.typed().filter(|_| !matches!(author, Author::Hook(_))) {
            self.title(&text, record);
        }
        if *author == Author::User && is_mine {
            return;
        }
        for block in content::shown(typed) {
            let mut chunk = ContentChunk::new(block).message_id(MessageId::new(format!("u{}", self.prompts)));
            if let Some(who) = &who {
                chunk = chunk.meta(meta("author", json!(who)));
            }
            self.push(SessionUpdate::UserMessageChunk(chunk));
        }
    }

    fn reply(&mut self, message: &Message) {
        for block in &message.blocks {
            match block {
                Block::Text { text } if !self.attempt.text => self.say(text),
                Block::Thinking { text, .. } if !self.attempt.thinking => self.think(text),
                Block::ToolUse { id, name, input, .. } => {
                    let call = tools::call(id, name, input, &self.root);
                    let update = match self.attempt.calls.remove(id) {
                        true => update(id, fields_of(call)),
                        false => SessionUpdate::ToolCall(call),
                    };
                    self.push(update);
                    self.calls.insert(id.clone(), RenderedCall { name: name.clone(), input: input.clone() });
                }
                Block::Text { .. }
                | Block::Thinking { .. }
                | Block::ToolResult { .. }
                | Block::Image { .. } => {}
            }
        }
        self.replies += 1;
        self.attempt = ShownAttempt::default();
    }

    fn tool_use(&mut self, id: &str, name: &str) {
        self.attempt.calls.insert(id.to_owned());
        let call =
            ToolCall::new(id.to_owned(), name.to_owned()).name(name.to_owned()).kind(tools::kind(name));
        self.push(SessionUpdate::ToolCall(call));
    }

    fn call_started(&mut self, id: &str, name: &str, input: &Value) {
        let mut fields = ToolCallUpdateFields::new();
        // A hook may have changed the arguments.
        if self.calls.get(id).is_none_or(|call| call.input != *input) {
            fields = fields_of(tools::call(id, name, input, &self.root));
            self.calls.insert(id.to_owned(), RenderedCall { name: name.to_owned(), input: input.clone() });
        }
        self.push(update(id, fields.status(ToolCallStatus::InProgress)));
        if let Some(plan) = tools::plan(name, input) {
            self.push(SessionUpdate::Plan(plan));
        }
    }

    /// What was shown cannot be taken back: the client is told that it starts again.
    fn restart(&mut self, reason: &str) {
        let number = self.attempt.number + 1;
        let was_shown = self.attempt.text || self.attempt.thinking;
        self.void_attempt();
        if was_shown {
            let text = format!("\n\n[cut off ({}); starting again]\n\n", caliban_core::inert::line(reason));
            self.say_apart(&text, "restart");
        }
        self.attempt = ShownAttempt { number, ..ShownAttempt::default() };
    }

    /// Calls that an attempt has announced and that will never be made.
    fn void_attempt(&mut self) {
        for id in std::mem::take(&mut self.attempt).calls {
            self.push(update(&id, ToolCallUpdateFields::new().status(ToolCallStatus::Failed)));
        }
    }

    fn push(&mut self, update: SessionUpdate) {
        self.out.push(ClientUpdate::Update(update));
    }

    fn say(&mut self, text: &str) {
        self.chunks(text, SessionUpdate::AgentMessageChunk);
    }

    fn think(&mut self, text: &str) {
        self.chunks(text, SessionUpdate::AgentThoughtChunk);
    }

    fn chunks(&mut self, text: &str, update: fn(ContentChunk) -> SessionUpdate) {
        let id = self.message_id();
        for block in content::texts(text) {
            self.push(update(ContentChunk::new(block).message_id(id.clone())));
        }
    }

    /// Text of ours in the place of the model's.
    fn say_apart(&mut self, text: &str, what: &str) {
        let chunk = ContentChunk::new(ContentBlock::from(text)).meta(meta(what, json!(true)));
        self.push(SessionUpdate::AgentMessageChunk(chunk));
    }

    fn note(&mut self, severity: NoticeSeverity, text: &str) {
        self.note_with(severity, text, meta("note", json!(true)));
    }

    fn note_with(&mut self, severity: NoticeSeverity, text: &str, meta: Meta) {
        let update = if self.abilities.notices {
            let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
            let rest = Some(rest.to_owned()).filter(|rest| !rest.is_empty());
            SessionUpdate::Notice(Notice::new(severity, title).description(rest).meta(meta))
        } else {
            let chunk = ContentChunk::new(ContentBlock::from(format!("[{text}]\n")));
            SessionUpdate::AgentThoughtChunk(chunk.meta(meta))
        };
        self.push(update);
    }

    fn title(&mut self, text: &str, record: &Record) {
        let line = text.trim().lines().next().unwrap_or_default();
        if std::mem::replace(&mut self.titled, true) || line.is_empty() {
            return;
        }
        let title: String = caliban_core::inert::line(line).chars().take(TITLE_CHARS).collect();
        let info = SessionInfoUpdate::new().title(title).updated_at(record.at.to_string());
        self.push(SessionUpdate::SessionInfoUpdate(info));
    }

    /// The window, and what the session has spent by the one sum that there is: the purse's.
    pub(crate) fn usage(&self, micro_usd: Option<u64>) -> SessionUpdate {
        let (tokens, micro_usd) = match &self.purse {
            Some(purse) => (Some(purse.spent().usage.total()), purse.micro_usd()),
            None => (None, micro_usd),
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "an amount for people; exact up to billions of dollars"
        )]
        let cost = micro_usd.map(|micro| Cost::new(micro as f64 / 1e6, "USD"));
        SessionUpdate::UsageUpdate(
            UsageUpdate::new(self.used, self.window.load(Ordering::Relaxed))
                .cost(cost)
                .meta(tokens.map(|tokens| meta("tokens", json!(tokens)))),
        )
    }

    fn message_id(&self) -> MessageId {
        match self.attempt.number {
            0 => MessageId::new(format!("m{}", self.replies)),
            again => MessageId::new(format!("m{}.{again}", self.replies)),
        }
    }
}

impl Tail {
    fn push(&mut self, more: &str) {
        self.text.push_str(more);
        self.changed = true;
        if self.text.len() > 2 * LIVE_TAIL_BYTES {
            let from = boundary(&self.text, self.text.len() - LIVE_TAIL_BYTES);
            self.text.drain(..from);
        }
    }
}

pub(crate) fn update(id: &str, fields: ToolCallUpdateFields) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields))
}

/// A whole call as an update of itself.
pub(crate) fn fields_of(call: ToolCall) -> ToolCallUpdateFields {
    ToolCallUpdateFields::new()
        .kind(call.kind)
        .title(call.title)
        .name(call.name)
        .content(call.content)
        .locations(call.locations)
        .raw_input(call.raw_input)
}

fn blocks(content: Vec<ContentBlock>) -> Vec<ToolCallContent> {
    content.into_iter().map(ToolCallContent::from).collect()
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
    }
    value
}
