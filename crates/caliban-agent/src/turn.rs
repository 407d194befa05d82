//! The loop: ask the model, carry out its calls, until it has nothing more to ask for.
//!
//! Owns the order of things and the guards (turn limit, budget, no progress). How a call is judged and run
//! is in `calls.rs`, how room is made in `compaction.rs`. Every step is recorded before the next begins.

use std::{collections::BTreeSet, time::Duration};

use caliban_core::{
    message::{Block, Message, ToolSpec},
    mode::Mode,
    spec::AfterTurn,
};
use caliban_providers::{Calls, ModelReply, ProviderError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, AgentChange, PromptFate, TurnCount, TurnReport},
    answer_form::FORM_ROUNDS,
    budget::Estimated,
    event::{Author, Event, Outcome},
    final_reply::{self, FinalReply},
    prompt,
    request::{Audience, Failed, RequestParts},
    transcript::{Durability, TranscriptError},
    wait_for_jobs::Jobs,
};

/// An answer that was cut off is continued this many times in a row.
const CONTINUATIONS: u32 = 3;
/// A server that pauses is asked to go on this many times in a row.
const PAUSES: u32 = 10;
/// An answer that cannot be used is asked for again this many times in a row.
const ASKED_AGAIN: u32 = 2;
/// A stop hook can send the agent back to work this many times in a row.
const STOP_HOOK_ROUNDS: u32 = 5;
/// How deep the arguments of a call may be nested.
const ARGUMENT_DEPTH: usize = 64;
const LAST_WORD: &str = "[This is the last answer that you can give in this run: the limit of turns is reached, and no more \
tools can be called. Answer now with what you have: what is done, what you found, and what is left to do.]";
const GO_ON: &str = "Your answer was cut off by the output limit. Go on exactly where it stopped.";

/// Why the loop ends before the model is done.
#[derive(Debug)]
pub(crate) enum Halt {
    /// As an outcome of the turn.
    Outcome(Outcome),
    /// The transcript cannot be written: nothing more may happen.
    Storage(TranscriptError),
}

/// How often something has happened since the model last called a tool.
#[derive(Debug, Default)]
struct Rounds {
    continued: u32,
    paused: u32,
    asked_again: u32,
    /// By the stop hook; since the turn began.
    sent_back: u32,
    /// For the form of the answer; since the turn began.
    reformed: u32,
    /// That background commands still run.
    has_heard_of_jobs: bool,
}

fn half_an_answer(error: String, hint: &str) -> Halt {
    Halt::Outcome(Outcome::Failed { error, hint: Some(hint.to_owned()) })
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
        let result = match self.hear(message, author, None).await {
            Ok(PromptFate::Taken) => self.work(cancel).await,
            Ok(PromptFate::Blocked(reason)) => Err(Halt::Outcome(Outcome::failed(reason))),
            Err(error) => Err(error.into()),
        };
        self.end_turn(begun, result).await
    }

    /// Goes on with a turn that a crash or a kill cut short: after the last recorded step.
    pub async fn go_on(&mut self, cancel: &CancellationToken) -> TurnReport {
        let begun = self.begin_turn();
        let result = self.work(cancel).await;
        self.end_turn(begun, result).await
    }

    async fn work(&mut self, cancel: &CancellationToken) -> Result<(), Halt> {
        let mut rounds = Rounds::default();
        loop {
            let calls: Vec<_> = self.conversation.open_calls().cloned().collect();
            if !calls.is_empty() {
                let stands = self.how_the_repo_stands().await;
                self.run_calls(calls, cancel).await?;
                if let Some(stands) = stands {
                    self.tell(stands).await?;
                }
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
            if self.kit.wanted.after_turn == AfterTurn::Stay
                && let Some(news) = self.news_of_jobs()
            {
                // A run that ends with its turn waits for them, and hears of them then.
                self.say(news, Author::Caliban).await?;
            }
            self.tell_mode().await?;
            let is_last = self.is_last_turn();
            let reply = self.ask_model(is_last, cancel).await?;
            self.is_continued |= !reply.message.text().is_empty();
            let has_called = reply.message.tool_uses().next().is_some();
            if is_last && (has_called || final_reply::of(&reply) == FinalReply::Whole) {
                return Err(Halt::Outcome(Outcome::TurnLimit { limit: self.kit.shared.limits.max_turns }));
            }
            if has_called {
                rounds =
                    Rounds { sent_back: rounds.sent_back, reformed: rounds.reformed, ..Rounds::default() };
                self.begun_answer.clear();
                continue;
            }
            match final_reply::of(&reply) {
                FinalReply::Whole => {
                    if self.steering_waits() {
                        continue;
                    }
                    if self.is_over(&mut rounds, cancel).await? {
                        return Ok(());
                    }
                    // What comes now is another answer.
                    self.begun_answer.clear();
                }
                FinalReply::CutByLimit if rounds.continued < CONTINUATIONS => {
                    rounds.continued += 1;
                    self.go_on_with(&reply, GO_ON).await?;
                }
                FinalReply::CutByWindow if rounds.continued < CONTINUATIONS => {
                    rounds.continued += 1;
                    self.go_on_with(&reply, GO_ON).await?;
                    self.compact_now(cancel).await?;
                }
                FinalReply::Paused if rounds.paused < PAUSES => {
                    rounds.paused += 1;
                    self.go_on_with(&reply, "Go on.").await?;
                }
                FinalReply::Unusable(why) if rounds.asked_again < ASKED_AGAIN => {
                    rounds.asked_again += 1;
                    let text = format!(
                        "[Your last answer could not be used: {why}. Answer again: go on with the work, or say what came \
                         of it.]"
                    );
                    self.say(text, Author::Caliban).await?;
                }
                FinalReply::Declined(reason) => {
                    let error = format!("the model declined to answer: {reason}");
                    return Err(Halt::Outcome(Outcome::failed(error)));
                }
                FinalReply::CutByLimit => {
                    return Err(half_an_answer(
                        format!(
                            "the answer is not whole: the output limit cut it off {} times",
                            CONTINUATIONS + 1
                        ),
                        "raise max_output_tokens in settings, or ask for less at once",
                    ));
                }
                FinalReply::CutByWindow => {
                    return Err(half_an_answer(
                        "the answer is not whole: the model's window is full".to_owned(),
                        "begin a new session, or use a model with a larger window",
                    ));
                }
                FinalReply::Paused => {
                    return Err(half_an_answer(
                        format!("the answer is not whole: the model paused {} times", PAUSES + 1),
                        "go on with `caliban --continue -p \"go on\"`",
                    ));
                }
                FinalReply::Unusable(why) => {
                    return Err(half_an_answer(
                        format!("the model gave no answer, {} times in a row: {why}", ASKED_AGAIN + 1),
                        "try again, or use another model",
                    ));
                }
            }
        }
    }

    /// What the model is told of the repository beside the results of its first calls.
    async fn how_the_repo_stands(&self) -> Option<String> {
        let state = self.kit.repo_state.as_ref().filter(|_| self.conversation.replies() == 1)?;
        state.for_model().await
    }

    /// Keeps what has come of an answer and has it continued.
    async fn go_on_with(&mut self, reply: &ModelReply, text: &str) -> Result<(), Halt> {
        self.begun_answer.push_str(&reply.message.text());
        self.is_continued = false;
        self.say(text.to_owned(), Author::Caliban).await
    }

    /// Whether the run may end with the answer that was just given: background commands are waited for, and the stop hook
    /// is asked.
    async fn is_over(&mut self, rounds: &mut Rounds, cancel: &CancellationToken) -> Result<bool, Halt> {
        match self.wait_for_jobs(rounds.has_heard_of_jobs, cancel).await? {
            Jobs::News { text, are_running } => {
                rounds.has_heard_of_jobs |= are_running;
                self.say(text, Author::Caliban).await?;
                return Ok(false);
            }
            Jobs::Interrupted => return Ok(false),
            Jobs::Over => {}
        }
        if !self.has_form(rounds).await? {
            return Ok(false);
        }
        match self.ask_stop_hook(rounds.sent_back > 0, cancel).await? {
            Some(reason) if rounds.sent_back < STOP_HOOK_ROUNDS => {
                rounds.sent_back += 1;
                let author = Author::Hook(self.kit.stop_event().name().to_owned());
                self.say(reason, author).await?;
                return Ok(false);
            }
            Some(reason) => {
                let hook = self.kit.stop_event().name();
                let note = format!(
                    "the {hook} hook blocked the end {STOP_HOOK_ROUNDS} times and was overruled; it says: {reason}"
                );
                self.add_note(note).await?;
            }
            None => {}
        }
        for note in self.about_commands() {
            self.add_note(note).await?;
        }
        Ok(true)
    }

    /// Whether the answer has the form that it must have; the model hears what is wrong with it.
    async fn has_form(&mut self, rounds: &mut Rounds) -> Result<bool, Halt> {
        let Some(form) = self.kit.wanted.form.clone() else { return Ok(true) };
        match (form.check)(&self.last_text()) {
            Ok(value) => {
                self.structured = Some(value);
                Ok(true)
            }
            Err(why) if rounds.reformed < FORM_ROUNDS => {
                rounds.reformed += 1;
                let text = format!(
                    "[Your answer does not have the form that it must have: {why}. Answer again with the JSON alone.]"
                );
                self.say(text, Author::Caliban).await?;
                Ok(false)
            }
            Err(why) => Err(half_an_answer(
                format!("the answer does not fit the schema, {} times in a row: {why}", FORM_ROUNDS + 1),
                "look at the schema, or use another model",
            )),
        }
    }

    /// Tells the model when a person has changed what it may do, as far as that changes its work.
    async fn tell_mode(&mut self) -> Result<(), Halt> {
        let (now, told) = (self.kit.mode(), self.told_mode);
        self.told_mode = now;
        match (told, now) {
            (told, Mode::Plan) if told != Mode::Plan => {
                self.say(prompt::PLAN.to_owned(), Author::Caliban).await
            }
            (Mode::Plan, now) if now != Mode::Plan => {
                let text = format!("[Permission mode {}: the plan can be carried out now.]", now.name());
                self.say(text, Author::Caliban).await
            }
            _ => Ok(()),
        }
    }

    /// Whether the next reply is the last one that the limit of turns allows, after others: it has to be an answer.
    fn is_last_turn(&self) -> bool {
        let before = self.turns_so_far();
        before > 0 && before.saturating_add(1) == self.kit.shared.limits.max_turns
    }

    fn turns_so_far(&self) -> u32 {
        match self.kit.wanted.turn_count {
            TurnCount::Prompt => self.turns,
            TurnCount::Conversation => self.conversation.replies(),
        }
    }

    /// One model request: limits, room, reservation, the request, settlement, the record.
    async fn ask_model(&mut self, is_last: bool, cancel: &CancellationToken) -> Result<ModelReply, Halt> {
        if self.turns_so_far() >= self.kit.shared.limits.max_turns {
            return Err(Halt::Outcome(Outcome::TurnLimit { limit: self.kit.shared.limits.max_turns }));
        }
        let calls = if is_last { Calls::Forbidden } else { Calls::Allowed };
        if is_last {
            self.say(LAST_WORD.to_owned(), Author::Caliban).await?;
        }
        self.learn_window().await;
        if self.is_window_filling() {
            self.make_room(cancel).await?;
        }
        let mut reply = self.request_once(calls, cancel).await;
        if let Err(Failed::Model(error)) = &reply
            && error.may_another_model_answer()
            && let Some(fallback) =
                self.kit.fallback.take().filter(|fallback| fallback.model != self.kit.model)
        {
            let note = format!("{error}; going on with {}", fallback.model);
            self.kit.provider = fallback.provider;
            self.configure(&AgentChange { model: Some(fallback.model), effort: None }).await?;
            self.add_note(note).await?;
            reply = self.request_once(calls, cancel).await;
        }
        if is_too_long(&reply) {
            // It takes less than we thought: from now on at most what was just too much.
            self.kit.window = Some(self.window().min(self.conversation.estimated_tokens().max(1)));
            self.make_room(cancel).await?;
            reply = self.request_once(calls, cancel).await;
        }
        if is_too_long(&reply) && self.clear_down_to(0, 0).await? {
            reply = self.request_once(calls, cancel).await;
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

    async fn request_once(
        &mut self,
        calls: Calls,
        cancel: &CancellationToken,
    ) -> Result<(ModelReply, u64), Failed> {
        let specs = self.kit.offered();
        let question = RequestParts {
            messages: None,
            tools: &specs,
            calls,
            max_output: self.kit.shared.max_output,
            effort: self.kit.effort,
            audience: Audience::Everybody,
        };
        self.request(question, cancel).await
    }

    /// What the next request will take, about: everything that is sent, and a usual answer.
    pub(crate) fn estimate(&self) -> Estimated {
        let fixed = if self.conversation.replies() == 0 { self.fixed_characters() as u64 / 4 } else { 0 };
        let prompt = self.conversation.estimated_tokens().saturating_add(fixed);
        Estimated::usual(prompt, self.kit.shared.max_output.map(u64::from))
            .with_cached(self.conversation.cached_tokens(&self.kit.model))
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

    pub(crate) async fn say(&mut self, text: String, author: Author) -> Result<(), Halt> {
        self.add_prompt(text, author, 0).await
    }

    /// Tells the model what no person has to see.
    async fn tell(&mut self, context: String) -> Result<(), Halt> {
        self.add_prompt(context, Author::Caliban, 1).await
    }

    async fn add_prompt(&mut self, text: String, author: Author, context: usize) -> Result<(), Halt> {
        let message = Message::user(text);
        self.record(Event::Prompt { message, author, context, queued: None }, Durability::Written).await?;
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
