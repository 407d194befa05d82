//! The loop: ask the model, carry out its calls, until it has nothing more to ask for.
//!
//! Owns the order of things and the guards (turn limit, budget, no progress). How a call is judged and run
//! is in `calls.rs`, how room is made in `compaction.rs`. Every step is recorded before the next begins.

use std::{collections::BTreeSet, time::Duration};

use caliban_core::message::{Block, Message, StopReason, ToolSpec};
use caliban_providers::{ModelReply, ProviderError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, Heard, TurnCount, TurnReport},
    budget::Estimated,
    event::{Author, Event, Outcome},
    request::{Audience, Failed, Question},
    transcript::{Durability, TranscriptError},
};

/// An answer that the output limit cut off is continued this many times in a row.
const CONTINUATIONS: u32 = 3;
/// A stop hook can send the agent back to work this many times in a row.
const STOP_HOOK_ROUNDS: u32 = 5;
/// Tokens of a usual answer, for the reservation.
const USUAL_OUTPUT: u64 = 1_000;
/// How deep the arguments of a call may be nested.
const ARGUMENT_DEPTH: usize = 64;
const GO_ON: &str = "Your answer was cut off by the output limit. Go on exactly where it stopped.";

/// Why the loop ends before the model is done.
#[derive(Debug)]
pub(crate) enum Halt {
    /// As an outcome of the turn.
    Outcome(Outcome),
    /// The transcript cannot be written: nothing more may happen.
    Storage(TranscriptError),
}

impl From<TranscriptError> for Halt {
    fn from(error: TranscriptError) -> Self {
        Self::Storage(error)
    }
}

impl Agent {
    /// Says something to the agent and drives it until it is done, stopped or at a limit.
    pub async fn prompt(
        &mut self,
        message: Message,
        author: Author,
        cancel: &CancellationToken,
    ) -> TurnReport {
        let begun = self.begin_turn();
        let result = match self.take_prompt(message, author).await {
            Ok(()) => self.work(cancel).await,
            Err(halt) => Err(halt),
        };
        self.end_turn(begun, result).await
    }

    /// Goes on with a turn that a crash or a kill cut short: after the last recorded step.
    pub async fn go_on(&mut self, cancel: &CancellationToken) -> TurnReport {
        let begun = self.begin_turn();
        let result = self.work(cancel).await;
        self.end_turn(begun, result).await
    }

    async fn take_prompt(&mut self, message: Message, author: Author) -> Result<(), Halt> {
        match self.hear(message, author, None).await? {
            Heard::Taken => Ok(()),
            Heard::Blocked(reason) => Err(Halt::Outcome(Outcome::failed(reason))),
        }
    }

    async fn work(&mut self, cancel: &CancellationToken) -> Result<(), Halt> {
        let (mut continued, mut sent_back) = (0, 0);
        loop {
            let calls: Vec<_> = self.conversation.open_calls().cloned().collect();
            if !calls.is_empty() {
                self.run_calls(calls, cancel).await?;
            }
            let blocked = self.take_steering().await?;
            if cancel.is_cancelled() {
                return Err(Halt::Outcome(Outcome::Cancelled));
            }
            if !self.conversation.awaits_model() {
                // Nothing was said but what a hook has blocked.
                return blocked.map_or(Ok(()), |reason| Err(Halt::Outcome(Outcome::failed(reason))));
            }
            if let Some(text) = self.lost_place.take() {
                self.say(text, Author::Caliban).await?;
            }
            let reply = self.ask_model(cancel).await?;
            let (called, stop) = (reply.message.tool_uses().next().is_some(), reply.stop.clone());
            if called {
                continued = 0;
                continue;
            }
            match stop {
                StopReason::MaxTokens if continued < CONTINUATIONS => {
                    continued += 1;
                    self.say(GO_ON.to_owned(), Author::Caliban).await?;
                }
                StopReason::Refusal(reason) => {
                    let error = format!("the model declined to answer: {reason}");
                    return Err(Halt::Outcome(Outcome::failed(error)));
                }
                StopReason::EndTurn | StopReason::ToolUse | StopReason::MaxTokens | StopReason::Other(_) => {
                    if self.steering_waits() {
                        continue;
                    }
                    match self.ask_stop_hook(sent_back > 0, cancel).await? {
                        Some(reason) if sent_back < STOP_HOOK_ROUNDS => {
                            sent_back += 1;
                            let author = Author::Hook(self.kit.stop_event().name().to_owned());
                            self.say(reason, author).await?;
                        }
                        _ => return Ok(()),
                    }
                }
            }
        }
    }

    /// One model request: limits, room, reservation, the request, settlement, the record.
    async fn ask_model(&mut self, cancel: &CancellationToken) -> Result<ModelReply, Halt> {
        let turns = match self.kit.turn_count {
            TurnCount::Prompt => self.turns,
            TurnCount::Conversation => self.conversation.replies(),
        };
        if turns >= self.kit.limits.max_turns {
            return Err(Halt::Outcome(Outcome::TurnLimit { limit: self.kit.limits.max_turns }));
        }
        self.learn_window().await;
        if self.is_window_filling() {
            self.make_room(cancel).await?;
        }
        let mut reply = self.request_once(cancel).await;
        if is_too_long(&reply) {
            // It takes less than we thought: from now on at most what was just too much.
            self.kit.window = Some(self.window().min(self.conversation.estimated_tokens().max(1)));
            self.make_room(cancel).await?;
            reply = self.request_once(cancel).await;
        }
        if is_too_long(&reply) && self.clear_results(0).await? {
            reply = self.request_once(cancel).await;
        }
        let (mut reply, ms) = reply.map_err(Failed::into_halt)?;
        flatten_deep_arguments(&mut reply.message);
        make_ids_unique(&mut reply.message, self.conversation.call_ids());
        self.turns += 1;
        let event = Event::Reply {
            message: reply.message.clone(),
            usage: reply.usage,
            stop: reply.stop.clone(),
            model: reply.model.clone(),
            ms,
        };
        self.record(event, Durability::Written).await?;
        Ok(reply)
    }

    async fn request_once(&mut self, cancel: &CancellationToken) -> Result<(ModelReply, u64), Failed> {
        let specs = self.kit.specs.clone();
        let question = Question {
            messages: None,
            tools: &specs,
            max_output: self.kit.max_output,
            effort: self.kit.effort,
            audience: Audience::Everybody,
        };
        self.request(question, cancel).await
    }

    /// What the next request will take, about: everything that is sent, and a usual answer.
    pub(crate) fn estimate(&self) -> Estimated {
        let fixed = if self.conversation.replies() == 0 { self.fixed_characters() as u64 / 4 } else { 0 };
        let output = self.kit.max_output.map_or(USUAL_OUTPUT, |limit| USUAL_OUTPUT.min(u64::from(limit)));
        Estimated { prompt: self.conversation.estimated_tokens().saturating_add(fixed), output }
    }

    /// The system prompt and the tools; part of every request.
    fn fixed_characters(&self) -> usize {
        let tool =
            |spec: &ToolSpec| spec.name.len() + spec.description.len() + spec.input_schema.to_string().len();
        self.kit.system.len() + self.kit.specs.iter().map(tool).sum::<usize>()
    }

    async fn ask_stop_hook(
        &mut self,
        again: bool,
        cancel: &CancellationToken,
    ) -> Result<Option<String>, Halt> {
        let details = json!({"stop_hook_active": again});
        let answer = self.kit.hooks.ask(self.kit.stop_event(), None, details, cancel).await;
        self.note_all(answer.warnings).await?;
        // A hook that wants the end of everything beats one that wants more work.
        Ok(answer.block.filter(|_| answer.stop.is_none()))
    }

    async fn say(&mut self, text: String, author: Author) -> Result<(), Halt> {
        let message = Message::user(text);
        self.record(Event::Prompt { message, author, context: 0, queued: None }, Durability::Written).await?;
        Ok(())
    }
}

fn is_too_long<T>(reply: &Result<T, Failed>) -> bool {
    matches!(reply, Err(Failed::Model(ProviderError::ContextTooLong { .. })))
}

/// Arguments nested deeper than anybody means become text, as arguments that are no JSON are: a record of them could
/// not be read again, nor the request that sends them back.
fn flatten_deep_arguments(message: &mut Message) {
    for block in &mut message.blocks {
        if let Block::ToolUse { input, .. } = block
            && is_deeper(input, ARGUMENT_DEPTH)
        {
            *input = Value::String(input.to_string());
        }
    }
}

/// Gives a call another id when it has none, or one that another call of the conversation has or had: some servers count
/// anew in each answer. What has begun, its answers and its questions are known by that id.
fn make_ids_unique(message: &mut Message, earlier: &BTreeSet<String>) {
    let mut ours = BTreeSet::new();
    for block in &mut message.blocks {
        let Block::ToolUse { id, .. } = block else { continue };
        let is_taken = |id: &String| earlier.contains(id) || ours.contains(id);
        if id.is_empty() || is_taken(id) {
            let base = if id.is_empty() { "call" } else { id.as_str() };
            let free = (2_u64..).map(|number| format!("{base}_{number}")).find(|new| !is_taken(new));
            *id = free.unwrap_or_default();
        }
        ours.insert(id.clone());
    }
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, below)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
