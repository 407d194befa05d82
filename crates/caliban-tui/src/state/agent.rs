//! What comes from the agent, into cells and status.

use std::time::Instant;

use caliban_acp::extension::field;
use caliban_acp::v1::{
    AvailableCommandInput, ContentBlock, ContentChunk, Meta, NoticeSeverity, PlanEntryStatus, SessionUpdate,
    ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdateFields, ToolKind,
};
use serde_json::Value;

use super::{Destination, Focus, ModeChoice, OfferedCommand, ScreenState, TurnPhase};
use crate::{
    cells::{
        AskCell, Assistant, CellKind, Failed, NoticeCell, Thinking, Todo, TodoStep, Tool, ToolStatus, User,
        Weight,
    },
    conversation::Conversation,
    events::{AgentEvent, Clip, FailureEvent, PromptDone, ScreenEffect},
    sanitise,
};

impl ScreenState {
    pub(super) fn agent(&mut self, event: AgentEvent, now: Instant) -> Vec<ScreenEffect> {
        match event {
            AgentEvent::Opened { modes, is_running, model } => {
                if let Some(why) = self.facts.no_say.take() {
                    let text = "you can look and write, and decide nothing";
                    self.notice(Weight::Warning, text, &why);
                    self.only_watches = true;
                }
                if let Some(text) = self.told_when_open.take() {
                    self.notice(Weight::Info, "the conversation was taken back", &text);
                }
                self.is_open = true;
                self.was_open = true;
                self.is_gone = false;
                self.model = model.or(self.model.take());
                if let Some(modes) = modes {
                    self.mode = Some(modes.current_mode_id.to_string());
                    self.modes = modes
                        .available_modes
                        .into_iter()
                        .map(|mode| ModeChoice {
                            id: mode.id.to_string(),
                            about: sanitise::line(&mode.description.unwrap_or(mode.name)),
                        })
                        .collect();
                }
                if is_running {
                    self.turn.found(now);
                }
                let mut effects = self.send_queue(now);
                effects.extend(self.submit_early(now));
                return effects;
            }
            AgentEvent::NotOpened(failure) if self.was_open => {
                self.fail(&failure);
                self.is_without = true;
                self.say("there is no session: /new begins one, /resume goes on with another", now);
            }
            // Nothing can be done here: the shell is the place to read why.
            AgentEvent::NotOpened(failure) => {
                self.failure = Some(failure);
                return vec![ScreenEffect::Quit];
            }
            AgentEvent::Update(update) if is_farewell(&update) => {
                if let SessionUpdate::AgentMessageChunk(chunk) = &update {
                    self.farewell = Some(text_of(&chunk.content));
                }
                return vec![ScreenEffect::Quit];
            }
            AgentEvent::Update(update) => match other_session(&update) {
                Some((session, draft, text)) => {
                    if self.agents_at_work() > 0 {
                        // The other session is there, also for who stays.
                        self.notice(Weight::Info, &text, &format!("/resume {session} goes there"));
                    }
                    return self.leave_for(Destination::Other { session, draft, text }, now);
                }
                None => {
                    self.session_update(update, now);
                    return self.submit_early(now);
                }
            },
            AgentEvent::Heard => drop(self.unheard.pop_front()),
            AgentEvent::Prompts(prompts) => self.show_prompts(&prompts, now),
            AgentEvent::ShellEnded { output, ending, is_ok } => self.shell_ended(&output, &ending, is_ok),
            AgentEvent::Background(rows) => {
                self.background = rows;
                return self.go_on_leaving(false, now);
            }
            AgentEvent::FoundSession(Ok(session)) => {
                return self.leave_for(Destination::Load(session), now);
            }
            AgentEvent::FoundSession(Err(why)) => self.say(why, now),
            AgentEvent::Asked(asked) => {
                let text =
                    format!("{} asks: {}", asked.agent.as_deref().unwrap_or("the agent"), asked.title());
                self.asks.push(asked);
                self.asked_at = Some(now);
                return vec![ScreenEffect::Ring(text)];
            }
            AgentEvent::Withdrawn(number) => {
                if let Some(open) = self.asks.withdraw(number) {
                    // The next question comes up under the hand that was about to answer this one.
                    self.typed = Some(now);
                    let text = format!("answered elsewhere, or no longer needed: {}", open.asked.title());
                    self.push(CellKind::Ask(AskCell::new(&text, false)));
                    // A refusal that was being written is not lost.
                    if let Some(reason) = open.reason.filter(|reason| !reason.trim().is_empty()) {
                        self.composer.insert(&reason);
                    }
                    if self.asks.is_empty() {
                        self.focus = Focus::Composer;
                    }
                }
            }
            AgentEvent::NotAnswered(number) => {
                self.say(format!("the answer to question {number} did not arrive"), now);
            }
            AgentEvent::TurnEnded { failure } => {
                self.turn.ended();
                if let Some(message) = failure {
                    self.fail(&FailureEvent { message, hint: None });
                }
                return self.turn_over(now);
            }
            AgentEvent::PromptEnded(result) => {
                self.turn.answered();
                match result {
                    Ok(PromptDone { is_cancelled }) => {
                        if is_cancelled && !self.turn.is_running() {
                            self.notice(Weight::Info, "interrupted", "");
                        }
                    }
                    Err(failure) => self.fail(&failure),
                }
                return self.turn_over(now);
            }
            AgentEvent::AgentsKept(result) => {
                if let Err(failure) = result {
                    self.fail(&failure);
                }
                return self.go_on_leaving(true, now);
            }
            AgentEvent::NotSent(text, failure) => {
                self.turn.answered();
                self.fail(&failure);
                self.not_sent(&text);
            }
            AgentEvent::Failed(failure) => self.fail(&failure),
            AgentEvent::Files(files) => {
                self.files = files;
                return self.refresh_popup();
            }
            AgentEvent::Sessions(sessions) => self.show_sessions(&sessions, now),
            AgentEvent::Edited(Ok(text)) => self.composer.set(crate::composer::Draft::of(text.trim_end())),
            AgentEvent::Edited(Err(why)) => self.say(why, now),
            AgentEvent::Noted(text) => self.notice(Weight::Warning, &text, ""),
            AgentEvent::Told(text) => self.say(text, now),
            AgentEvent::Clipboard(Ok(Clip::Text(text))) => return self.paste(&text, now),
            AgentEvent::Clipboard(Ok(Clip::Picture(path))) => {
                return self.paste(&format!("@{} ", path.display()), now);
            }
            AgentEvent::Clipboard(Err(why)) => self.say(why, now),
            AgentEvent::NotCopied(text) => return vec![ScreenEffect::SendToTerminal(text)],
            AgentEvent::HungUp(why) => {
                self.is_gone = true;
                self.turn.reset();
                self.asks.clear();
                self.focus = Focus::Composer;
                self.push(CellKind::Failed(Failed::new(
                    &why,
                    Some("Ctrl+D leaves; what you typed stays here"),
                )));
            }
        }
        Vec::new()
    }

    /// The turn may be over: what waits for the next one is sent.
    fn turn_over(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if self.turn.is_running() {
            return Vec::new();
        }
        let mut effects = vec![ScreenEffect::Notify("the agent is done".to_owned())];
        effects.extend(self.send_queue(now));
        effects
    }

    pub(super) fn push(&mut self, kind: CellKind) {
        self.conversation.push(kind);
    }

    pub(super) fn notice(&mut self, weight: Weight, title: &str, details: &str) {
        self.push(CellKind::Notice(NoticeCell::new(weight, title, details)));
    }

    fn fail(&mut self, failure: &FailureEvent) {
        self.push(CellKind::Failed(Failed::new(&failure.message, failure.hint.as_deref())));
    }

    /// Another session takes the place of this one.
    pub(super) fn start_over(&mut self) {
        self.take_queue_back();
        self.conversation = Conversation::default();
        self.turn.reset();
        self.asks.clear();
        self.focus = Focus::Composer;
        self.todo = Todo::default();
        self.background.clear();
        self.window = None;
        self.tokens = 0;
        self.cost = None;
        self.title = None;
        self.is_open = false;
        self.is_without = false;
        self.unheard.clear();
    }

    fn session_update(&mut self, update: SessionUpdate, now: Instant) {
        let phase = match &update {
            SessionUpdate::AgentMessageChunk(chunk) if !is_ours(chunk.meta.as_ref()) => {
                Some(TurnPhase::Writing)
            }
            SessionUpdate::AgentThoughtChunk(_) => Some(TurnPhase::Thinking),
            SessionUpdate::UserMessageChunk(_) | SessionUpdate::ToolCall(_) => Some(TurnPhase::Model),
            _ => None,
        };
        // What comes before the session is open is history.
        if let Some(phase) = phase.filter(|_| self.is_open) {
            self.turn.seen(phase, now);
        }
        match update {
            SessionUpdate::UserMessageChunk(chunk) => self.user(&chunk),
            SessionUpdate::AgentMessageChunk(chunk) => self.assistant(&chunk),
            SessionUpdate::AgentThoughtChunk(chunk) => {
                let text = text_of(&chunk.content);
                if let Some(CellKind::Thinking(cell)) = self.conversation.last_kind_mut() {
                    cell.push(&text);
                } else {
                    let mut cell = Thinking::default();
                    cell.push(&text);
                    self.push(CellKind::Thinking(cell));
                }
            }
            SessionUpdate::ToolCall(call) => self.call(call),
            SessionUpdate::ToolCallUpdate(update) => {
                self.call_update(&update.tool_call_id.to_string(), update.fields);
            }
            SessionUpdate::Plan(plan) => {
                self.todo = Todo::new(plan.entries.into_iter().map(|entry| {
                    let step = match entry.status {
                        PlanEntryStatus::Completed => TodoStep::Done,
                        PlanEntryStatus::InProgress => TodoStep::Doing,
                        _ => TodoStep::Pending,
                    };
                    (step, entry.content)
                }));
                self.push(CellKind::Todo(self.todo.clone()));
            }
            SessionUpdate::Notice(notice) => {
                let details = notice.description.unwrap_or_default();
                if let Some(wait) = waiting(notice.meta.as_ref(), &notice.title)
                    && self.is_open
                {
                    self.turn.seen(TurnPhase::Waiting(sanitise::line(&wait)), now);
                }
                let weight = match notice.severity {
                    NoticeSeverity::Info => Weight::Info,
                    _ => Weight::Warning,
                };
                self.notice(weight, &notice.title, &details);
            }
            SessionUpdate::AvailableCommandsUpdate(known) => {
                self.commands = known
                    .available_commands
                    .into_iter()
                    .map(|command| OfferedCommand {
                        name: sanitise::line(&command.name),
                        about: sanitise::line(&command.description),
                        hint: command.input.and_then(|input| match input {
                            AvailableCommandInput::Unstructured(input) => Some(sanitise::line(&input.hint)),
                            _ => None,
                        }),
                    })
                    .collect();
            }
            SessionUpdate::CurrentModeUpdate(mode) => self.mode = Some(mode.current_mode_id.to_string()),
            SessionUpdate::SessionInfoUpdate(info) => {
                let word = |name: &str| field(info.meta.as_ref(), name)?.as_str().map(sanitise::line);
                self.model = word("model").or(self.model.take());
                self.effort = word("effort").or(self.effort.take());
                self.title = info.title.take().map(|title| sanitise::line(&title)).or(self.title.take());
            }
            SessionUpdate::UsageUpdate(usage) => {
                self.window = Some((usage.used, usage.size));
                // Sums of the whole session, its helpers and background agents included: they never go down.
                let tokens = field(usage.meta.as_ref(), "tokens").and_then(Value::as_u64);
                self.tokens = self.tokens.max(tokens.unwrap_or_default());
                self.cost =
                    usage.cost.map(|cost| cost.amount.max(self.cost.unwrap_or_default())).or(self.cost);
            }
            _ => {}
        }
    }

    fn user(&mut self, chunk: &ContentChunk) {
        let author =
            field(chunk.meta.as_ref(), "author").and_then(|author| author.as_str().map(str::to_owned));
        self.push(CellKind::User(User::new(&text_of(&chunk.content), author.as_deref())));
    }

    fn assistant(&mut self, chunk: &ContentChunk) {
        let text = text_of(&chunk.content);
        let meta = chunk.meta.as_ref();
        if ["restart", "budget", "turn_limit", "failed"].iter().any(|name| field(meta, name).is_some()) {
            return self.notice(Weight::Warning, text.trim(), "");
        }
        let id = chunk.message_id.as_ref().map(|id| id.0.to_string());
        let open =
            if field(meta, "command").is_some() { None } else { self.conversation.answer_mut(id.as_deref()) };
        match open {
            Some(cell) => cell.push(&text),
            None => {
                // What a command says has lines, not paragraphs.
                let is_command = field(meta, "command").is_some();
                let text = if is_command { text.replace('\n', "  \n") } else { text };
                let mut cell =
                    if is_command { Assistant::of_command() } else { Assistant::new(id.as_deref()) };
                cell.push(&text);
                self.push(CellKind::Assistant(cell));
            }
        }
    }

    fn call(&mut self, call: ToolCall) {
        let id = call.tool_call_id.to_string();
        if self.conversation.tool_mut(&id).is_none() {
            self.push(CellKind::Tool(Box::new(Tool::new(&id, &call.title))));
        }
        let fields = ToolCallUpdateFields::new()
            .kind(call.kind)
            .title(call.title)
            .status(call.status)
            .content(call.content)
            .raw_output(call.raw_output);
        self.call_update(&id, fields);
    }

    fn call_update(&mut self, id: &str, fields: ToolCallUpdateFields) {
        let Some(cell) = self.conversation.tool_mut(id) else { return };
        if let Some(kind) = fields.kind {
            cell.shows_output = kind == ToolKind::Execute;
        }
        if let Some(title) = &fields.title {
            cell.set_title(title);
        }
        match fields.status {
            Some(ToolCallStatus::InProgress) => cell.status = ToolStatus::Running,
            Some(ToolCallStatus::Completed) => cell.status = ToolStatus::Done,
            Some(ToolCallStatus::Failed) => cell.status = ToolStatus::Failed,
            _ => {}
        }
        if let Some(content) = fields.content {
            let mut output = String::new();
            for block in content {
                match block {
                    ToolCallContent::Content(content) => {
                        if !output.is_empty() {
                            output.push('\n');
                        }
                        output.push_str(caliban_acp::code_fence::unfenced(&text_of(&content.content)));
                    }
                    ToolCallContent::Diff(diff) => cell.set_change(diff.old_text.as_deref(), &diff.new_text),
                    _ => {}
                }
            }
            if !output.is_empty() {
                cell.set_output(&output);
            }
        }
        if let Some(raw) = fields.raw_output {
            cell.set_summary(raw.get("summary").and_then(Value::as_str).unwrap_or_default());
        }
        let (title, status) = (cell.title().to_owned(), cell.status);
        if self.is_open {
            self.turn.call(id, &title, status);
        }
    }
}

impl Conversation {
    fn last_kind_mut(&mut self) -> Option<&mut CellKind> {
        self.last_mut().map(crate::cells::Cell::kind_mut)
    }

    /// The answer that a chunk goes on with. A message or a notice may have come in between.
    fn answer_mut(&mut self, id: Option<&str>) -> Option<&mut Assistant> {
        let cell = self.newest_first_mut().find(|cell| match cell.kind() {
            CellKind::User(_) | CellKind::Notice(_) | CellKind::Ask(_) => id.is_none(),
            _ => true,
        })?;
        match cell.kind() {
            CellKind::Assistant(answer) if answer.is(id) => match cell.kind_mut() {
                CellKind::Assistant(answer) => Some(answer),
                _ => None,
            },
            _ => None,
        }
    }

    /// The call with this id.
    pub(super) fn tool_mut(&mut self, id: &str) -> Option<&mut Tool> {
        let cell = self
            .newest_first_mut()
            .find(|cell| matches!(cell.kind(), CellKind::Tool(tool) if tool.id() == id))?;
        match cell.kind_mut() {
            CellKind::Tool(tool) => Some(tool),
            _ => None,
        }
    }
}

/// What a notice says is waited for; none when it is about something else.
fn waiting(meta: Option<&Meta>, title: &str) -> Option<String> {
    let is_wait =
        field(meta, "wait").is_some() || title.starts_with("waiting ") || title.contains("disk full");
    is_wait.then(|| title.to_owned())
}

/// The session that the client shall go on with, what to write there, and what is said about it.
fn other_session(update: &SessionUpdate) -> Option<(String, String, String)> {
    let SessionUpdate::AgentMessageChunk(chunk) = update else { return None };
    let load = field(chunk.meta.as_ref(), caliban_acp::extension::LOAD)?;
    let field = |name: &str| load.get(name)?.as_str().map(str::to_owned);
    Some((field("session")?, field("draft").unwrap_or_default(), text_of(&chunk.content)))
}

/// Whether the session goes on elsewhere.
fn is_farewell(update: &SessionUpdate) -> bool {
    let SessionUpdate::AgentMessageChunk(chunk) = update else { return false };
    field(chunk.meta.as_ref(), caliban_acp::extension::LEAVE).is_some()
}

/// Whether a chunk is the program's word, not the model's.
fn is_ours(meta: Option<&Meta>) -> bool {
    meta.is_some_and(|meta| meta.contains_key("caliban"))
}

fn text_of(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "[picture]".to_owned(),
        ContentBlock::ResourceLink(link) => format!("[{}]", link.uri),
        _ => "[something that a terminal cannot show]".to_owned(),
    }
}
