//! An agent: its kit, its conversation, and what surrounds a turn.
//!
//! There is one way to make one, [`Agent::new`]: the foreground agent, a sub-agent, a background agent and a
//! fleet worker differ only in the [`Kit`] that they are given.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use caliban_core::{
    access::Access,
    background::BackgroundStatus,
    fence::Profile,
    message::{Block, Effort, Message, ToolSpec},
    mode::Mode,
    price::Price,
    usage::Usage,
};
use caliban_fence::Fenced;
use caliban_permissions::{Fencing, Policy, Verdict};
use caliban_providers::Provider;
use caliban_tools::{OffLimits, Tool, Workspace};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    asks::Asks,
    background::{self, Background},
    blueprint::{Blueprint, Parent, WantedAgent},
    budget::{AtWork, Purse},
    checkpoint::Checkpoints,
    conversation::Conversation,
    event::{
        Author, CallVerdict, Decision, Event, Header, Outcome, QueuedMessage, Record, TRANSCRIPT_VERSION,
    },
    feed::Feed,
    fence::{self, OwnPlaces},
    handle::Handle,
    hooks::{HookEvent, Hooks},
    last_writers::Writers,
    mentions,
    no_progress::Guard,
    past_spending::SessionSpending,
    pictures,
    prompt::{self, Instructions},
    repo_state::RepoState,
    session_file,
    transcript::{self, Durability, Transcript, TranscriptError, TranscriptPosition},
    turn::Halt,
};

/// What the model is told when the end of the record was taken away.
const CUT: &str = "[The record of this session was changed from outside: its end is missing. Steps may have been carried out \
     that you do not see here; their outcome is unknown. Check the state before you do anything again.]";

/// Everything that an agent is made of: what it shares with others, what it was wanted as, and what is its own or changes while it
/// works.
#[derive(Clone)]
pub struct Kit {
    /// What all agents of the setup have in common. Its model, policy, hooks and so on are those at the start: those of
    /// now are here.
    pub shared: Arc<Blueprint>,
    /// As which agent it was wanted; its workspace is ready.
    pub wanted: WantedAgent,
    /// The models.
    pub provider: Arc<dyn Provider>,
    /// The model.
    pub model: String,
    /// How hard it thinks.
    pub effort: Effort,
    /// How many tokens the model can hold, when the settings say so or a server has.
    pub window: Option<u64>,
    /// The system prompt.
    pub system: String,
    /// Context for the first prompt: project files, facts about the place.
    pub context: Vec<String>,
    /// What the model is told of the repository once it calls a tool.
    pub repo_state: Option<RepoState>,
    /// Who answers when the model cannot; nobody any more once it does.
    pub fallback: Option<Fallback>,
    /// The project's instruction files, as far as they were read.
    pub instructions: Arc<Instructions>,
    /// Whether a file must not be shown.
    pub off_limits: OffLimits,
    /// The tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What the model is told of them.
    pub specs: Vec<ToolSpec>,
    /// What it may do. Grows when a person says "always".
    pub policy: Arc<RwLock<Policy>>,
    /// The user's hooks.
    pub hooks: Hooks,
    /// What it may spend.
    pub purse: Purse,
    /// Where it works.
    pub workspace: Arc<Workspace>,
    /// The live log.
    pub feed: Feed,
    /// The calls that wait for a person; a sub-agent's wait at its parent's.
    pub asks: Asks,
    /// The session's background agents, where it can have any.
    pub background: Option<Background>,
    /// Keeps what files were before a tool changes them; a helper's are its parent's.
    pub checkpoints: Arc<Checkpoints>,
    /// Knows which agent of the session wrote a file last.
    pub writers: Arc<Writers>,
}

/// Another model, for when the usual one does not answer.
#[derive(Clone)]
pub struct Fallback {
    /// How it is reached.
    pub provider: Arc<dyn Provider>,
    /// Its name.
    pub model: String,
}

/// How far an agent may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// Model requests, counted as [`TurnCount`] says.
    pub max_turns: u32,
}

/// What the limit of turns is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnCount {
    /// Each prompt: a person who says more gives it as many again.
    Prompt,
    /// The whole conversation, earlier processes included.
    Conversation,
}

/// Whether "always" answers of an earlier process of the conversation still hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlierAnswers {
    /// A person who takes up a conversation again is asked anew.
    Forgotten,
    /// A background agent that was stopped and resumed goes on with what it was allowed.
    Kept,
}

/// What a person changes about an agent between two turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentChange {
    /// Another model of the same provider.
    pub model: Option<String>,
    /// How hard it thinks.
    pub effort: Option<Effort>,
}

/// Whether there is somebody who can answer an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendance {
    /// Nobody: what would be asked is refused, in words.
    Nobody,
    /// Somebody, now or later: the call waits until an answer comes.
    Somebody,
}

impl Kit {
    /// What it has of the agent that started it; nothing when a person did.
    pub(crate) fn parent(&self) -> Option<&Parent> {
        self.wanted.kin.parent()
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        caliban_core::price::of(model, self.shared.billing)
    }

    /// Whether a call may go ahead, by the rules as they stand now.
    pub(crate) fn decide(&self, tool: &str, accesses: &[Access]) -> Verdict {
        let mode = self.mode();
        let runs = accesses.iter().any(|access| matches!(access, Access::Command { .. }));
        // Only a command needs a fence, and trying one takes a moment.
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let fencing = if runs { self.shared.fences.fencing(&policy) } else { Fencing::Holds };
        let hides_objects = runs && fencing.holds() && self.shared.fences.hides_objects(&policy);
        let is_written_meanwhile = runs && self.workspace.is_written_by_a_command();
        if mode == policy.mode && fencing == policy.fencing && !hides_objects && !is_written_meanwhile {
            policy.decide(tool, accesses)
        } else {
            Policy { mode, fencing, hides_objects, is_written_meanwhile, ..policy.clone() }
                .decide(tool, accesses)
        }
    }

    /// The fence of a call that touches this; none when it runs as the user.
    pub(crate) fn fence(&self, profile: Profile, accesses: &[Access]) -> Result<Option<Fenced>, String> {
        let cwd = accesses.iter().find_map(|access| match access {
            Access::Command { cwd, .. } => Some(cwd.as_path()),
            _ => None,
        });
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let cwd = cwd.unwrap_or(self.workspace.root());
        let (tmp, outputs) = (
            self.wanted.directory.join(caliban_contract::records::PRIVATE_TMP),
            self.workspace.output_dir().to_owned(),
        );
        let judge = {
            let (fences, policy, cwd) = (self.shared.fences.clone(), policy.clone(), cwd.to_owned());
            move || {
                let own = OwnPlaces { tmp: Some(&tmp), outputs: Some(&outputs) };
                fences.fence(profile, &policy, &cwd, &own)
            }
        };
        let Some(fenced) = judge()? else { return Ok(None) };
        fence::remember_roots(&policy, &self.shared.fences, &self.wanted.directory)?;
        let again = move || judge().and_then(|fenced| fenced.ok_or_else(|| "no fence".to_owned()));
        Ok(Some(Fenced { again: Some(Arc::new(again)), ..fenced }))
    }

    pub(crate) fn stop_event(&self) -> HookEvent {
        if self.parent().is_some() { HookEvent::SubagentStop } else { HookEvent::Stop }
    }
}

/// An agent with a conversation.
pub struct Agent {
    pub(crate) kit: Kit,
    pub(crate) conversation: Conversation,
    pub(crate) transcript: Transcript,
    pub(crate) handle: Handle,
    pub(crate) guard: Guard,
    /// What goes to the model with the next prompt.
    pub(crate) opening_context: Vec<String>,
    /// Model requests in this turn.
    pub(crate) turns: u32,
    pub(crate) refused: Vec<RefusedCall>,
    /// Commands that their fences have stopped, and what would have helped; each once.
    pub(crate) stopped: BTreeSet<String>,
    /// What people have to know beside the answer of this turn.
    pub(crate) notes: Vec<String>,
    /// The beginning of an answer that is being continued.
    pub(crate) begun_answer: String,
    /// Whether the model has said something since that beginning.
    pub(crate) is_continued: bool,
    /// What the server says about its window: `None` until it was asked.
    pub(crate) told_window: Option<Option<u64>>,
    /// The answer as a value, once it has the form that it must have.
    pub(crate) structured: Option<Value>,
    /// The mode that the model knows of.
    pub(crate) told_mode: Mode,
    /// What the model must be told of its working directory before it is asked again.
    pub(crate) lost_place: Option<String>,
    /// Stops the background agents, also when the agent is dropped without being closed.
    _stops_background: Option<DropGuard>,
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RefusedCall {
    /// The tool.
    pub tool: String,
    /// What it was about, in one line.
    pub what: String,
    /// Why.
    pub why: String,
    /// The rules that would allow it.
    pub suggestions: Vec<String>,
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The last text of the model.
    pub text: String,
    /// What this turn cost.
    pub usage: Usage,
    /// The same in micro-dollars, where the prices are known.
    pub micro_usd: Option<u64>,
    /// Model requests.
    pub turns: u32,
    /// Calls that were refused.
    pub refused: Vec<RefusedCall>,
    /// The answer as a value, where it had to have a form.
    pub structured: Option<Value>,
    /// What else has to be known about the answer: a hook that was overruled, commands that were ended.
    pub notes: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

pub(crate) enum PromptFate {
    Taken,
    /// By a hook; why, in words.
    Blocked(String),
}

pub(crate) struct BegunTurn {
    at: Instant,
    /// The turn is work, but for what of it rests.
    at_work: AtWork,
    usage: Usage,
    micro_usd: u64,
}

impl Kit {
    /// What may be done without a question, now.
    pub(crate) fn mode(&self) -> Mode {
        let read = |policy: &Arc<RwLock<Policy>>| policy.read().unwrap_or_else(PoisonError::into_inner).mode;
        let own = read(&self.policy);
        self.parent().map_or(own, |parent| own.narrower(read(&parent.policy)))
    }

    /// Notes in the policy which programs the user left for it: those of this time. A sub-agent has its parent's time.
    #[expect(clippy::disallowed_methods, reason = "places of Caliban's own, where no agent makes links")]
    fn begin(&self, at: Timestamp) {
        let path = self.shared.fences.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        policy.path = path.map(std::env::split_paths).into_iter().flatten().collect();
        let (data, own) = (&self.shared.fences.hidden, [&self.wanted.directory]);
        policy.agents_places = data
            .iter()
            .chain(own)
            .flat_map(|place| [Some(place.clone()), place.canonicalize().ok()])
            .flatten()
            .collect();
        let at = u64::try_from(at.as_millisecond()).unwrap_or_default();
        policy.began_at.get_or_insert(at);
    }

    /// The tools that the model is offered now: in plan mode none that only writes.
    pub(crate) fn offered(&self) -> Vec<ToolSpec> {
        let is_plan = self.mode() == Mode::Plan;
        let tools = self.tools.iter().filter(|tool| !is_plan || !tool.only_writes());
        tools.map(|tool| tool.spec().clone()).collect()
    }
}

impl Agent {
    /// A new conversation. Nothing is on disk before its directory is.
    pub async fn new(kit: Kit) -> Result<Self, TranscriptError> {
        let transcript =
            Transcript::create(&kit.wanted.directory, kit.shared.redactor.clone(), kit.feed.clone())?;
        let transcript = transcript.timed(kit.purse.clone()).standing_in(&kit.workspace);
        kit.begin(Timestamp::now());
        let mut agent = Self::with(kit, transcript, Conversation::default());
        let header = Header {
            version: TRANSCRIPT_VERSION,
            session: agent.kit.wanted.session.clone(),
            cwd: agent.kit.workspace.root().to_owned(),
            provider: agent.kit.provider.name().to_owned(),
            model: agent.kit.model.clone(),
            label: agent.kit.wanted.label.clone(),
            parent: agent.kit.parent().map(|parent| parent.session.clone()),
        };
        agent.record(Event::Started(header), Durability::Written).await?;
        agent.opening_context = agent.kit.context.clone();
        agent.told_mode = agent.kit.mode();
        if agent.told_mode == Mode::Plan {
            agent.opening_context.push(prompt::PLAN.to_owned());
        }
        agent.greet("startup").await?;
        Ok(agent)
    }

    /// Takes up the conversation in the kit's directory again, in a new process.
    pub async fn resume(kit: Kit) -> Result<Self, TranscriptError> {
        Self::resumed(kit, Booked::No).await
    }

    /// The same in the process that it ended in: its account has what it spent.
    pub(crate) async fn resume_here(kit: Kit) -> Result<Self, TranscriptError> {
        Self::resumed(kit, Booked::Yes).await
    }

    async fn resumed(kit: Kit, booked: Booked) -> Result<Self, TranscriptError> {
        let (transcript, records) =
            Transcript::resume(&kit.wanted.directory, kit.shared.redactor.clone(), kit.feed.clone())?;
        let transcript = transcript.timed(kit.purse.clone()).standing_in(&kit.workspace);
        {
            let policy = kit.policy.read().unwrap_or_else(PoisonError::into_inner);
            fence::recall_roots(&policy, Some(&kit.shared.fences), &kit.wanted.directory);
        }
        let conversation = Conversation::replay(records.iter().map(|record: &Record| &record.event));
        if booked == Booked::No {
            book_the_past(&kit, &conversation, &records);
        }
        kit.begin(records.first().map_or_else(Timestamp::now, |first| first.at));
        if kit.wanted.earlier_answers == EarlierAnswers::Kept {
            kit.remember_always(&records);
        }
        kit.asks.remember(records.iter().map(|record| &record.event));
        let lost_place = stand_where_it_stood(&kit.workspace, transcript::standing(&records));
        if let Ok(todos) = serde_json::from_value(conversation.todos().clone()) {
            kit.workspace.set_todos(todos);
        }
        let mut agent = Self::with(kit, transcript, conversation);
        agent.lost_place = lost_place;
        if agent.conversation.header().is_none() {
            // Killed between making the file and its first record: begin here.
            agent.opening_context = agent.kit.context.clone();
        }
        let event = Event::Resumed {
            provider: agent.kit.provider.name().to_owned(),
            model: agent.kit.model.clone(),
            cwd: agent.kit.workspace.root().to_owned(),
        };
        agent.record(event, Durability::Written).await?;
        if agent.transcript.was_cut() {
            agent.doubt_the_end().await?;
        }
        for id in background::unfinished(&records) {
            let text = format!("background agent {id} was stopped when the session ended");
            let event = Event::Background { id, status: BackgroundStatus::Killed, text: text.clone() };
            agent.record(event, Durability::Written).await?;
            agent.handle.queue(format!("[{text}]"), Author::Caliban, None).await?;
        }
        agent.greet("resume").await?;
        Ok(agent)
    }

    /// The end of the record was taken away from outside: nobody knows what was carried out. Calls that have no beginning
    /// in it may have begun, and the model is told to look before it repeats anything.
    async fn doubt_the_end(&mut self) -> Result<(), TranscriptError> {
        let open: Vec<_> = self.conversation.open_calls().filter(|call| !call.started).cloned().collect();
        for call in open {
            let why = "the record of the session was cut: it may have begun".to_owned();
            let decision = Decision { verdict: CallVerdict::Allowed, rule: None, why, fence: Profile::None };
            let event = Event::CallStarted { id: call.id, name: call.name, input: call.input, decision };
            self.record(event, Durability::Synced).await?;
        }
        self.handle.queue(CUT.to_owned(), Author::Caliban, None).await.map(drop)
    }

    fn with(mut kit: Kit, transcript: Transcript, conversation: Conversation) -> Self {
        kit.hooks.place.session.clone_from(&kit.wanted.session);
        kit.hooks.place.transcript = transcript.path().to_owned();
        kit.hooks.place.works_in = kit.workspace.root().to_owned();
        kit.hooks.place.helper = kit.workspace.helper().to_owned();
        kit.asks.settle(&transcript);
        let handle = Handle::new(transcript.clone(), kit.asks.clone(), &conversation);
        kit.writers.join(
            &kit.wanted.session,
            kit.parent().and(kit.wanted.label.as_deref().or(Some(&kit.wanted.session))),
            handle.clone(),
        );
        let stop = kit.background.as_ref().map(|all| all.settle(handle.clone(), transcript.clone()));
        Self {
            kit,
            conversation,
            transcript,
            handle,
            guard: Guard::default(),
            opening_context: Vec::new(),
            turns: 0,
            refused: Vec::new(),
            stopped: BTreeSet::new(),
            notes: Vec::new(),
            begun_answer: String::new(),
            is_continued: false,
            told_window: None,
            told_mode: Mode::Default,
            structured: None,
            lost_place: None,
            _stops_background: stop.map(CancellationToken::drop_guard),
        }
    }

    async fn greet(&mut self, source: &str) -> Result<(), TranscriptError> {
        let cancel = CancellationToken::new();
        let details = serde_json::json!({"source": source});
        let answer = self.kit.hooks.ask(HookEvent::SessionStart, None, details, &cancel).await;
        self.note_all(answer.warnings).await?;
        self.opening_context.extend(answer.context);
        Ok(())
    }

    /// A handle for those who watch, steer and answer.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The kit.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// The conversation so far.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// From now on another model answers, or thinks as hard as this. Its price counts from the next request on.
    pub async fn configure(&mut self, change: &AgentChange) -> Result<(), TranscriptError> {
        if let Some(model) = &change.model {
            self.kit.model.clone_from(model);
            self.kit.purse = self.kit.purse.priced(self.kit.price_of(model));
            self.told_window = None;
        }
        self.kit.effort = change.effort.unwrap_or(self.kit.effort);
        let effort = self.kit.effort.word();
        let text = format!("from now on: model {}, effort {effort}", self.kit.model);
        self.record(Event::Note { text }, Durability::Written).await
    }

    /// Whether a turn was cut short and can be gone on with.
    pub fn has_unfinished_turn(&self) -> bool {
        self.conversation.is_turn_open()
            || self.conversation.open_calls().next().is_some()
            || self.conversation.awaits_model()
            || self.steering_waits()
    }

    /// Ends everything that the agent has started, the transcript and the feed.
    pub async fn close(self) {
        if let Some(background) = &self.kit.background {
            background.close().await;
        }
        self.kit.workspace.shutdown().await;
        for line in self.kit.shared.fences.nested.settle().await {
            tracing::warn!("{line}");
        }
        self.kit.writers.leave(&self.kit.wanted.session);
        self.transcript.close().await;
        self.transcript.feed().close();
    }

    /// Writes an event down, then takes it into the conversation.
    pub(crate) async fn record(
        &mut self,
        event: Event,
        durability: Durability,
    ) -> Result<(), TranscriptError> {
        self.transcript.append(event.clone(), durability).await?;
        self.conversation.apply(&event);
        Ok(())
    }

    pub(crate) async fn note_all(&mut self, notes: Vec<String>) -> Result<(), TranscriptError> {
        for text in notes {
            self.record(Event::Note { text }, Durability::Written).await?;
        }
        Ok(())
    }

    /// What was said while the agent was at work; why a hook kept some of it from the agent.
    pub(crate) async fn take_steering(&mut self) -> Result<Option<String>, TranscriptError> {
        let mut blocked = None;
        for (number, QueuedMessage { text, author }) in self.handle.take_queue() {
            if author == Author::Caliban {
                // Nobody has typed it: the user's hooks are not asked.
                let (message, queued) = (Message::user(text), Some(number));
                self.record(Event::Prompt { message, author, context: 0, queued }, Durability::Written)
                    .await?;
                continue;
            }
            if let PromptFate::Blocked(reason) = self.hear(Message::user(text), author, Some(number)).await? {
                self.record(Event::Note { text: reason.clone() }, Durability::Written).await?;
                blocked = Some(reason);
            }
        }
        Ok(blocked)
    }

    /// Takes a prompt down, if the user's hooks let it.
    pub(crate) async fn hear(
        &mut self,
        mut message: Message,
        author: Author,
        queued: Option<u64>,
    ) -> Result<PromptFate, TranscriptError> {
        let details = serde_json::json!({"prompt": message.text()});
        // Asked to the end, also when the turn is being cancelled: what was said then is heard in the next one.
        let uncancelled = CancellationToken::new();
        let answer = self.kit.hooks.ask(HookEvent::UserPromptSubmit, None, details, &uncancelled).await;
        self.note_all(answer.warnings).await?;
        if let Some(reason) = answer.block.or(answer.stop) {
            if queued.is_some() {
                let (message, author) = (Message { blocks: Vec::new(), ..message }, author);
                let event = Event::Prompt { message, author, context: 0, queued };
                self.record(event, Durability::Written).await?;
            }
            return Ok(PromptFate::Blocked(format!("the prompt was blocked by a hook: {reason}")));
        }
        let context: Vec<Block> =
            self.opening_context.drain(..).chain(answer.context).map(|text| Block::Text { text }).collect();
        let added = context.len() + mentions::leading(&message.blocks);
        pictures::fit_prompt(&mut message).await;
        message.blocks.splice(0..0, context);
        let event = Event::Prompt { message, author, context: added, queued };
        self.record(event, Durability::Written).await?;
        Ok(PromptFate::Taken)
    }

    /// Whether somebody has said something that the agent has not heard.
    pub(crate) fn steering_waits(&self) -> bool {
        self.handle.is_queue_waiting()
    }

    pub(crate) fn begin_turn(&mut self) -> BegunTurn {
        self.turns = 0;
        self.refused.clear();
        self.stopped.clear();
        self.notes.clear();
        self.begun_answer.clear();
        self.structured = None;
        self.guard = Guard::default();
        if self.kit.parent().is_none() {
            self.kit.checkpoints.begin(self.conversation.turns_ended());
        }
        BegunTurn {
            at: Instant::now(),
            at_work: self.kit.purse.work(),
            usage: self.kit.purse.spent().usage,
            micro_usd: self.kit.purse.micro_usd().unwrap_or_default(),
        }
    }

    pub(crate) async fn end_turn(&mut self, begun: BegunTurn, result: Result<(), Halt>) -> TurnReport {
        let mut outcome = match result {
            Ok(()) => Outcome::Done,
            Err(Halt::Outcome(outcome)) => self.without_secrets(outcome),
            Err(Halt::Storage(error)) => storage_failure(&error),
        };
        let found = self.kit.shared.fences.nested.settle().await;
        for text in std::mem::take(&mut self.stopped).into_iter().chain(found) {
            if let Err(error) = self.add_note(text).await
                && outcome == Outcome::Done
            {
                outcome = storage_failure(&error);
            }
        }
        let usage = self.conversation.usage();
        let event = Event::TurnEnded {
            outcome: outcome.clone(),
            usage,
            micro_usd: self.kit.purse.micro_usd(),
            turns: self.turns,
        };
        drop(begun.at_work);
        let written = self.record(event, Durability::Synced).await;
        if let Err(error) = written.and_then(|()| session_file::write(&self.kit.wanted.directory))
            && outcome == Outcome::Done
        {
            outcome = storage_failure(&error);
        }
        TurnReport {
            outcome,
            text: self.structured.as_ref().map_or_else(|| self.last_text(), Value::to_string),
            usage: self.kit.purse.spent().usage.less(begun.usage),
            micro_usd: self.kit.purse.micro_usd().map(|now| now.saturating_sub(begun.micro_usd)),
            turns: self.turns,
            refused: std::mem::take(&mut self.refused),
            structured: self.structured.take(),
            notes: std::mem::take(&mut self.notes),
            elapsed: begun.at.elapsed(),
        }
    }

    /// An error may quote what a server or a hook said, and ends up in logs.
    fn without_secrets(&self, outcome: Outcome) -> Outcome {
        let clean = |text: String| self.kit.shared.redactor.redact(&text).into_owned();
        match outcome {
            Outcome::Failed { error, hint } => Outcome::Failed { error: clean(error), hint: hint.map(clean) },
            other => other,
        }
    }

    /// The last text that the model said; all of it when it was said in parts.
    pub(crate) fn last_text(&self) -> String {
        if !self.begun_answer.is_empty() && !self.is_continued {
            // Nothing came after it: the last text is its last part.
            return self.begun_answer.clone();
        }
        let messages = self.conversation.messages().iter().rev();
        let last = messages
            .filter(|message| message.role == caliban_core::message::Role::Assistant)
            .map(Message::text)
            .find(|text| !text.is_empty())
            .unwrap_or_default();
        format!("{}{last}", self.begun_answer)
    }

    /// Something that people have to know beside the answer.
    pub(crate) async fn add_note(&mut self, text: String) -> Result<(), TranscriptError> {
        self.notes.push(text.clone());
        self.record(Event::Note { text }, Durability::Written).await
    }
}

/// Whether an agent's account has what its conversation has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Booked {
    Yes,
    No,
}

/// Books what the conversation and those below it have spent in earlier processes.
fn book_the_past(kit: &Kit, conversation: &Conversation, records: &[Record]) {
    let spent = SessionSpending::of(&kit.wanted.directory, conversation);
    // Where the session can have background agents, their own account has what they spent.
    let has_background = kit.background.is_some();
    spent.book(&kit.purse, kit.shared.billing, has_background);
    kit.purse.carry_over_time(transcript::worked_ms(records).max(spent.worked_ms(has_background)));
}

/// Goes where the agent stood when it was last at work; what the model must be told when that cannot be.
fn stand_where_it_stood(workspace: &Workspace, standing: Option<TranscriptPosition>) -> Option<String> {
    let TranscriptPosition { root, here } = standing?;
    let now = workspace.root();
    if root != now || here == root {
        return None;
    }
    if let Ok(Some(place)) = workspace.place_in_work(&here) {
        workspace.set_cwd(place);
        return None;
    }
    let (gone, now) = (here.display(), now.display());
    Some(format!("[the working directory {gone} is gone; it is now {now}]"))
}

fn storage_failure(error: &TranscriptError) -> Outcome {
    Outcome::Failed {
        error: format!("the transcript cannot be written: {error}"),
        hint: Some(
            "nothing more is done without a record; check the disk, then resume the session".to_owned(),
        ),
    }
}
