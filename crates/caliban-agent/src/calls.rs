//! Carries out the tool calls of one reply.
//!
//! Independent calls run in parallel; calls that could disturb each other run in the model's order. What a call
//! touches is known when its `PreToolUse` hooks have answered, because they may rewrite it: a later call waits for
//! that. Each is judged (hook, then rules, then a person), recorded before it begins and after it has ended.

mod outside;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use caliban_core::{
    access::Access,
    fence::Profile,
    kept_rules::{KeepFor, KeptRules},
    message::{ResultPart, StopReason},
    mode::Mode,
};
use caliban_fence::Fenced;
use caliban_permissions::{Effect, Verdict as Rules};
use caliban_tools::{CallContext, Tool, ToolOutput};
use futures_util::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Agent, Attendance, Kit, RefusedCall},
    asks::{Asks, LiveAsk, Waited},
    choices::Choices,
    conversation::OpenCall,
    event::{Answer, Ask, Author, CallVerdict, Decision, Event, Outcome, Record},
    feed::FeedEntry,
    hooks::{HookEvent, HookPermission},
    no_progress::{CallProgress, ENDED_AFTER, TOLD_AFTER},
    pictures,
    transcript::{Durability, Transcript, TranscriptError},
    turn::{Halt, milliseconds},
};

/// The source of the rules that a person's "always" made.
pub(crate) const APPROVED: &str = "approved in this session";
/// How many calls of one reply are under way at once; the others wait for their turn.
pub(crate) const PARALLEL_CALLS: usize = 16;
/// What a refusal quotes of a call's arguments.
const QUOTED_CHARACTERS: usize = 200;
/// Why a call that is taken up again from the transcript cannot be carried out as it stands there.
const NOT_WHOLE: &str =
    "its arguments were not recorded whole, because they held a secret; make the call again";

/// The file that an access writes.
fn written(access: Access) -> Option<PathBuf> {
    match access {
        Access::Write(path) => Some(path),
        _ => None,
    }
}

/// The one file that an access is about.
fn touched(access: &Access) -> Option<PathBuf> {
    match access {
        Access::Read(path) | Access::Write(path) => Some(path.clone()),
        _ => None,
    }
}

impl Agent {
    pub(crate) async fn run_calls(
        &mut self,
        calls: Vec<OpenCall>,
        cancel: &CancellationToken,
    ) -> Result<(), Halt> {
        let runner = Runner {
            kit: &self.kit,
            transcript: &self.transcript,
            asks: self.handle.asks(),
            cancel,
            is_cut_by_limit: self.conversation.last_stop() == Some(&StopReason::MaxTokens),
            recorded: Mutex::default(),
        };
        let (begun, calls): (Vec<OpenCall>, Vec<OpenCall>) = calls.into_iter().partition(|call| call.started);
        let ended = runner.run_all(&begun, &calls).await;
        // Also when the transcript fails in the middle: what it says has begun is not begun again.
        let recorded = runner.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        for event in &recorded {
            self.conversation.apply(event);
        }
        let (mut stop, mut outcomes) = (None, Vec::new());
        for (index, ended) in ended? {
            let call = &calls[index];
            self.refused.extend(ended.refused);
            self.stopped.extend(ended.stopped);
            outcomes.push((call.name.as_str(), &call.input, ended.failed));
            stop = stop.or(ended.stop);
        }
        let progress = self.guard.after(outcomes.into_iter());
        // Only now: every call that ran is part of the conversation.
        if let Some(reason) = stop {
            return Err(Halt::Outcome(Outcome::failed(format!("stopped by a hook: {reason}"))));
        }
        match progress {
            CallProgress::Stuck(tool) => Err(Halt::Outcome(Outcome::Failed {
                error: format!("no progress: the same {tool} call failed {ENDED_AFTER} times in a row"),
                hint: Some("look at the transcript, then resume with a hint for the agent".to_owned()),
            })),
            CallProgress::Repeats(tool) => {
                let text = format!(
                    "[The same {tool} call has failed {TOLD_AFTER} times in a row. Do not repeat it: read its error, test \
                     what you assume, and try another way.]"
                );
                self.say(text, Author::Caliban).await
            }
            CallProgress::Fine => Ok(()),
        }
    }
}

impl Kit {
    /// The name under which it asks, when it is a sub-agent: its label, or what its session is called below its parent's.
    pub(crate) fn asks_as(&self) -> Option<String> {
        let parent = self.parent()?;
        let below = self
            .wanted
            .session
            .strip_prefix(parent.session.as_str())
            .map(|rest| rest.trim_start_matches(['-', '/']));
        let session = below.filter(|rest| !rest.is_empty()).unwrap_or(&self.wanted.session);
        Some(self.wanted.label.clone().unwrap_or_else(|| session.to_owned()))
    }

    /// Why nobody is asked, when that is so.
    fn asks_nobody(&self) -> Option<&'static str> {
        match self.shared.attendance {
            Attendance::Nobody => Some("nobody is there to be asked"),
            Attendance::Somebody if self.mode() == Mode::NeverAsk => {
                Some("the mode never-ask refuses what would be asked")
            }
            Attendance::Somebody => None,
        }
    }

    /// What a person's "always" means, said then.
    fn allow_since(&self, said: Timestamp, rules: &[String]) {
        let at = u64::try_from(said.as_millisecond()).unwrap_or_default();
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        for text in rules {
            match text.parse() {
                Ok(rule) => {
                    policy.add_at(at, Effect::Allow, rule, APPROVED);
                    // A helper's answers end with it.
                    if let Some(rule) = policy.rules.last().filter(|_| self.parent().is_none()) {
                        Choices::note_rule(&self.wanted.directory, rule.clone());
                    }
                }
                // Whoever offers it has looked at it; should it not parse, this call is approved all the same.
                Err(error) => tracing::warn!(text, %error, "a rule of an answer does not parse"),
            }
        }
    }

    /// Writes rules down that hold for longer than the session; what came of it, in words.
    async fn keep(&self, kept: &KeptRules) -> Vec<String> {
        if kept.keep == KeepFor::Session {
            return Vec::new();
        }
        let (words, rules) = (kept.words(), kept.clone());
        let written = match self.shared.keep_rules.clone() {
            Some(keep) => tokio::task::spawn_blocking(move || keep(&rules)).await,
            None => Ok(Err("there are no settings here".to_owned())),
        };
        vec![match written {
            Ok(Ok(file)) => format!("kept: {words}, in {}", file.display()),
            Ok(Err(why)) => format!("{words} holds for this session only: {why}"),
            Err(error) => format!("{words} holds for this session only: {error}"),
        }]
    }

    /// The same for what was answered with "always" in an earlier process of this conversation. What the agent's
    /// sub-agents asked is in their own transcripts, and ended with them.
    pub(crate) fn remember_always(&self, records: &[Record]) {
        let mut asked: BTreeMap<&str, &Ask> = BTreeMap::new();
        for record in records {
            match &record.event {
                Event::AskOpened(ask) => {
                    asked.insert(&ask.id, ask);
                }
                Event::AskAnswered { id, given } => {
                    let rules =
                        asked.get(id.as_str()).map(|ask| ask.rules(&given.answer)).unwrap_or_default();
                    self.allow_since(record.at, rules);
                }
                _ => {}
            }
        }
    }
}

/// How far a call is.
enum CallStatus<'a> {
    /// Its hooks have not answered: it may yet touch anything.
    Waiting,
    Asked,
    /// What it will touch is known.
    Ready(Box<PreparedCall<'a>>),
    Running,
    Ended,
}

/// A call whose hooks have answered.
struct PreparedCall<'a> {
    tool: &'a dyn Tool,
    /// The arguments, as a hook may have rewritten them.
    input: Value,
    accesses: Vec<Access>,
    permission: Option<HookPermission>,
    context: Vec<String>,
}

/// What has come of a step.
enum CallStep<'a> {
    Prepared(Box<PreparedCall<'a>>),
    Ended(CallResult),
}

/// What a call touches, as far as order matters.
enum Touch {
    /// Nothing that another call could see.
    Nothing,
    /// Only these paths, as they are written and where they lead.
    Paths { read: Vec<PathBuf>, written: Vec<PathBuf> },
    /// Anything: a command, a tool of a foreign server.
    Anything,
}

impl Touch {
    /// By the model's own arguments.
    fn claimed(kit: &Kit, call: &OpenCall) -> Self {
        let tool = kit.tools.iter().find(|tool| tool.spec().name == call.name);
        match tool.map(|tool| tool.access(&call.input)) {
            Some(Ok(accesses)) => Self::of(&accesses),
            // It will not be carried out.
            Some(Err(_)) | None => Self::Nothing,
        }
    }

    fn of(accesses: &[Access]) -> Self {
        let both = |path: &PathBuf| [Some(path.clone()), caliban_permissions::resolve(path)];
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for access in accesses {
            match access {
                Access::Read(path) => read.extend(both(path).into_iter().flatten()),
                Access::Write(path) => written.extend(both(path).into_iter().flatten()),
                Access::Command { .. } | Access::Detach { .. } | Access::Mcp { read_only: false, .. } => {
                    return Self::Anything;
                }
                Access::Fetch { .. } | Access::Mcp { .. } | Access::Nothing => {}
                Access::Agent | Access::AgentInWorktree => {}
            }
        }
        if read.is_empty() && written.is_empty() { Self::Nothing } else { Self::Paths { read, written } }
    }

    /// Whether the order of the two matters.
    fn disturbs(&self, other: &Self) -> bool {
        let overlap = |ours: &[PathBuf], theirs: &[PathBuf]| {
            ours.iter().any(|a| theirs.iter().any(|b| a.starts_with(b) || b.starts_with(a)))
        };
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::Anything, _) | (_, Self::Anything) => true,
            (Self::Paths { read, written }, Self::Paths { read: other_read, written: other_written }) => {
                overlap(written, other_written)
                    || overlap(written, other_read)
                    || overlap(read, other_written)
            }
        }
    }
}

#[derive(Default)]
struct CallResult {
    failed: bool,
    refused: Option<RefusedCall>,
    /// What would have let a command run that its fence stopped.
    stopped: Option<String>,
    /// A hook wants the turn to end.
    stop: Option<String>,
}

struct Runner<'a> {
    kit: &'a Kit,
    transcript: &'a Transcript,
    asks: &'a Asks,
    cancel: &'a CancellationToken,
    /// Whether the reply of these calls was cut off by the output limit.
    is_cut_by_limit: bool,
    /// What is in the transcript and not yet in the conversation, in this order.
    recorded: Mutex<Vec<Event>>,
}

impl Runner<'_> {
    /// Runs the calls; those that had begun before a crash are not run again. What came of each, in the model's order.
    async fn run_all(
        &self,
        begun: &[OpenCall],
        calls: &[OpenCall],
    ) -> Result<Vec<(usize, CallResult)>, TranscriptError> {
        for call in begun {
            // It may have done its work.
            self.record(call.given_up(), Durability::Written).await?;
        }
        // The turn is at work when one of its calls is.
        let _resting = self.kit.purse.rest();
        // Only of tools that there are: what the model calls them can be anything.
        let is_hooked = |call: &OpenCall| {
            let is_known = self.kit.tools.iter().any(|tool| tool.spec().name == call.name);
            is_known && self.kit.hooks.has(HookEvent::PreToolUse, &call.name)
        };
        let is_hooked: Vec<bool> = calls.iter().map(is_hooked).collect();
        let mut touches: Vec<Touch> = calls.iter().map(|call| Touch::claimed(self.kit, call)).collect();
        let mut status: Vec<CallStatus<'_>> = calls.iter().map(|_| CallStatus::Waiting).collect();
        let mut running = FuturesUnordered::new();
        let mut ended = Vec::new();
        loop {
            for index in 0..calls.len() {
                let disturbed = |earlier: usize| touches[index].disturbs(&touches[earlier]);
                let is_free = match &status[index] {
                    // A hook is asked right before its call, and so when nothing more is in the call's way.
                    CallStatus::Waiting => (0..index)
                        .all(|earlier| matches!(status[earlier], CallStatus::Ended) || !disturbed(earlier)),
                    CallStatus::Ready(_) => (0..index).all(|earlier| match status[earlier] {
                        CallStatus::Ended => true,
                        CallStatus::Waiting | CallStatus::Asked => !is_hooked[earlier] && !disturbed(earlier),
                        CallStatus::Ready(_) | CallStatus::Running => !disturbed(earlier),
                    }),
                    CallStatus::Asked | CallStatus::Running | CallStatus::Ended => false,
                };
                if !is_free || running.len() >= PARALLEL_CALLS {
                    continue;
                }
                let prepared = match std::mem::replace(&mut status[index], CallStatus::Asked) {
                    CallStatus::Ready(prepared) => {
                        status[index] = CallStatus::Running;
                        Some(prepared)
                    }
                    _ => None,
                };
                running.push(async move { (index, self.step(&calls[index], prepared).await) });
            }
            let Some((index, result)) = running.next().await else { break };
            match result? {
                CallStep::Prepared(prepared) => {
                    touches[index] = Touch::of(&prepared.accesses);
                    status[index] = CallStatus::Ready(prepared);
                }
                CallStep::Ended(what) => {
                    status[index] = CallStatus::Ended;
                    ended.push((index, what));
                }
            }
        }
        ended.sort_by_key(|(index, _)| *index);
        Ok(ended)
    }

    /// The next step of a call: its hooks are asked, or it is judged and carried out.
    async fn step(
        &self,
        call: &OpenCall,
        prepared: Option<Box<PreparedCall<'_>>>,
    ) -> Result<CallStep<'_>, TranscriptError> {
        let _at_work = self.kit.purse.work();
        match prepared {
            None => self.prepare(call).await,
            Some(prepared) => Ok(CallStep::Ended(self.run(call, *prepared).await?)),
        }
    }

    /// Asks the call's hooks; what cannot be carried out whatever they say ends here.
    async fn prepare(&self, call: &OpenCall) -> Result<CallStep<'_>, TranscriptError> {
        let mut ended = CallResult::default();
        match self.asked(call, &mut ended).await? {
            Ok(prepared) => Ok(CallStep::Prepared(Box::new(prepared))),
            Err((input, decision)) => {
                self.refuse(&mut ended, call, &input, decision, Vec::new()).await?;
                Ok(CallStep::Ended(ended))
            }
        }
    }

    /// The call as its hooks leave it; else its arguments, and why it is refused.
    async fn asked(
        &self,
        call: &OpenCall,
        ended: &mut CallResult,
    ) -> Result<Result<PreparedCall<'_>, (Value, Decision)>, TranscriptError> {
        let invalid = |why| Ok(Err((call.input.clone(), judged(CallVerdict::Invalid, why))));
        let Some(tool) = self.kit.tools.iter().find(|tool| tool.spec().name == call.name) else {
            let names: Vec<&str> = self.kit.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
            return invalid(format!("there is no tool {:?}; the tools are {}", call.name, names.join(", ")));
        };
        if let Value::String(raw) = &call.input {
            let error = serde_json::from_str::<Value>(raw).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| "an object was expected, not nested too deep".to_owned());
            let cut = if self.is_cut_by_limit {
                ". The output limit cut your answer off: make a smaller call, and write long files in parts"
            } else {
                ""
            };
            return invalid(format!("the arguments are not a JSON object: {error}{cut}"));
        }
        if call.has_gaps {
            return invalid(NOT_WHOLE.to_owned());
        }
        let details = json!({"tool_name": call.name, "tool_input": call.input});
        let hook = self.kit.hooks.ask(HookEvent::PreToolUse, Some(&call.name), details, self.cancel).await;
        self.note(hook.warnings).await?;
        ended.stop = hook.stop;
        let input = hook.input.unwrap_or_else(|| call.input.clone());
        if let Some(reason) = hook.block.or_else(|| ended.stop.clone()) {
            let why = format!("a hook blocked this call: {reason}");
            return Ok(Err((input, judged(CallVerdict::Blocked, why))));
        }
        let (permission, context) = (hook.permission, hook.context);
        Ok(match tool.access(&input) {
            Ok(accesses) => Ok(PreparedCall { tool: tool.as_ref(), input, accesses, permission, context }),
            Err(why) => Err((input, judged(CallVerdict::Invalid, why))),
        })
    }

    /// Judges a call now, when all before it that could matter have ended, and carries it out.
    async fn run(&self, call: &OpenCall, prepared: PreparedCall<'_>) -> Result<CallResult, TranscriptError> {
        let mut ended = CallResult::default();
        match self.judge(call, &prepared.input, &prepared.accesses, prepared.permission).await? {
            Judgement::May(decision) => match self.kit.fence(decision.fence, &prepared.accesses) {
                Ok(fence) => self.carry_out(&mut ended, call, prepared, decision, fence).await?,
                Err(why) => {
                    let decision = judged(CallVerdict::Denied, format!("its fence cannot be put up: {why}"));
                    self.refuse(&mut ended, call, &prepared.input, decision, Vec::new()).await?;
                }
            },
            Judgement::MayNot(decision, suggestions) => {
                self.refuse(&mut ended, call, &prepared.input, decision, suggestions).await?;
            }
        }
        Ok(ended)
    }

    /// The rules, a hook's wish, and where they leave it open, a person.
    async fn judge(
        &self,
        call: &OpenCall,
        input: &Value,
        accesses: &[Access],
        hook: Option<HookPermission>,
    ) -> Result<Judgement, TranscriptError> {
        if self.cancel.is_cancelled() {
            let decision = judged(CallVerdict::Cancelled, "cancelled".to_owned());
            return Ok(Judgement::MayNot(decision, Vec::new()));
        }
        let verdict = self.kit.decide(&call.name, accesses);
        let question = match (verdict, hook) {
            (Rules::Deny { rule, why }, _) => {
                let decision = Decision { rule, ..judged(CallVerdict::Denied, why) };
                return Ok(Judgement::MayNot(decision, Vec::new()));
            }
            (Rules::Ask { .. }, Some(HookPermission::Allow)) => {
                return Ok(Judgement::May(judged(CallVerdict::Allowed, "allowed by a hook".to_owned())));
            }
            (Rules::Allow { rule, .. }, Some(HookPermission::Ask)) => RuleQuestion {
                why: "a hook wants it asked".to_owned(),
                suggestions: rule.into_iter().collect(),
                outside: Vec::new(),
            },
            (Rules::Allow { rule, why, fence }, _) => {
                return Ok(Judgement::May(Decision { verdict: CallVerdict::Allowed, rule, why, fence }));
            }
            (Rules::Ask { why, suggestions, outside }, _) => RuleQuestion { why, suggestions, outside },
        };
        if let Some(nobody) = self.kit.asks_nobody() {
            let why = format!("{}, and {nobody}", question.why);
            return Ok(Judgement::MayNot(judged(CallVerdict::Unasked, why), question.rules()));
        }
        self.ask_person(call, input, accesses, question).await
    }

    async fn ask_person(
        &self,
        call: &OpenCall,
        input: &Value,
        accesses: &[Access],
        question: RuleQuestion,
    ) -> Result<Judgement, TranscriptError> {
        // A sub-agent's asks stand beside its parent's: the id tells them apart.
        let id = match self.kit.parent() {
            Some(_) => format!("{}:{}", self.kit.wanted.session, call.id),
            None => call.id.clone(),
        };
        let agent = self.kit.asks_as();
        let tool = self.kit.tools.iter().find(|tool| tool.spec().name == call.name).cloned();
        let wanted = input.clone();
        let preview = tokio::task::spawn_blocking(move || tool?.preview(&wanted)).await.ok().flatten();
        let ask = Ask {
            id: id.clone(),
            agent,
            name: call.name.clone(),
            input: input.clone(),
            why: question.why.clone(),
            suggestions: question.suggestions.clone(),
            outside: question.outside.clone(),
            preview,
            expires_at: None,
        };
        // From the moment at which somebody could answer.
        let resting = self.kit.purse.rest();
        let mut parked = self.asks.park(ask);
        let ask = parked.ask().clone();
        self.record(Event::AskOpened(ask.clone()), Durability::Synced).await?;
        let _mirrored = self.kit.parent().map(|parent| LiveAsk::new(&parent.feed, ask.clone()));
        let details = json!({"message": format!("caliban needs your permission to use {}", call.name)});
        let notify = self.kit.hooks.ask(HookEvent::Notification, None, details, self.cancel);
        let answer_recorded = async {
            let waited = parked.answer(self.cancel).await;
            drop(resting);
            let given = match &waited {
                Waited::Answered(given) => given.clone(),
                Waited::TooLate(why) => Answer::No(Some(why.clone())).into(),
                Waited::Cancelled => return Ok::<_, TranscriptError>(waited),
            };
            let answered = Event::AskAnswered { id, given: given.clone() };
            self.record(answered, Durability::Synced).await?;
            parked.recorded(given);
            Ok(waited)
        };
        // A slow hook keeps nobody's answer from being recorded; the call waits for both.
        let (notified, answer) = tokio::join!(notify, answer_recorded);
        self.note(notified.warnings).await?;
        let why = question.why.clone();
        let answer = match answer? {
            Waited::Answered(given) => given.answer,
            Waited::TooLate(late) => {
                let decision = judged(CallVerdict::Unasked, format!("{why}, and {late}"));
                return Ok(Judgement::MayNot(decision, question.rules()));
            }
            Waited::Cancelled => {
                let decision = judged(CallVerdict::Cancelled, "cancelled".to_owned());
                return Ok(Judgement::MayNot(decision, Vec::new()));
            }
        };
        Ok(match answer {
            Answer::Once => Judgement::May(judged(CallVerdict::Approved, why)),
            Answer::Always | Answer::AlwaysOutside | Answer::Keep(_) => {
                let rules = ask.rules(&answer);
                self.kit.allow_since(Timestamp::now(), rules);
                if let Answer::Keep(kept) = &answer {
                    self.note(self.kit.keep(kept).await).await?;
                }
                let rule = (!rules.is_empty()).then(|| rules.join(", "));
                // A rule says "do not ask"; its fence holds from the first call on.
                let fence = match self.kit.decide(&call.name, accesses) {
                    Rules::Allow { fence, .. } => fence,
                    Rules::Ask { .. } | Rules::Deny { .. } => Profile::None,
                };
                Judgement::May(Decision { rule, fence, ..judged(CallVerdict::Approved, why) })
            }
            Answer::No(reason) => {
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                let why = format!("the user rejected this call{reason}");
                Judgement::MayNot(judged(CallVerdict::Rejected, why), Vec::new())
            }
        })
    }

    async fn carry_out(
        &self,
        ended: &mut CallResult,
        call: &OpenCall,
        prepared: PreparedCall<'_>,
        decision: Decision,
        fence: Option<Fenced>,
    ) -> Result<(), TranscriptError> {
        let PreparedCall { tool, input, accesses, context, .. } = prepared;
        let changes = accesses.iter().any(Access::changes_something);
        let durability = if changes { Durability::Synced } else { Durability::Written };
        self.record(started(call, &input, decision), durability).await?;
        let touched: Vec<PathBuf> = accesses.iter().filter_map(touched).collect();
        let written: Vec<PathBuf> = accesses.iter().cloned().filter_map(written).collect();
        self.kit.checkpoints.before(written.clone()).await;
        let begun = Instant::now();
        let feed = self.transcript.feed();
        let progress =
            |text: &str| feed.push(FeedEntry::ToolOutput { id: call.id.clone(), text: text.to_owned() });
        let going = |fence| CallContext { id: &call.id, cancel: self.cancel, progress: &progress, fence };
        let mut output = tool.call(input.clone(), going(fence)).await;
        if let Some(stopped) = output.stopped.take()
            && let Some(decision) =
                self.ask_outside(ended, call, &input, &accesses, &mut output, stopped).await?
        {
            self.record(started(call, &input, decision), durability).await?;
            let first = std::mem::take(&mut output.content);
            output = tool.call(input.clone(), going(None)).await;
            output.content.splice(0..0, first);
        }
        let ms = milliseconds(begun.elapsed());
        pictures::fit_parts(&mut output.content).await;
        self.after(ended, call, &input, &mut output).await?;
        if !output.is_error {
            let told = self.kit.writers.wrote(&self.kit.wanted.session, &written).await;
            output.content.extend(told.into_iter().map(|text| ResultPart::Text { text }));
        }
        // A hook may have formatted the file: that belongs to the call.
        self.kit.checkpoints.after(written).await;
        ended.failed = output.is_error;
        output.content.extend(context.into_iter().map(|text| ResultPart::Text { text }));
        if !output.is_error {
            let blocks = touched
                .iter()
                .flat_map(|path| self.kit.instructions.first_touch(path, &*self.kit.off_limits));
            output.content.extend(blocks.map(|text| ResultPart::Text { text }));
        }
        let event = Event::CallEnded {
            id: call.id.clone(),
            content: output.content,
            is_error: output.is_error,
            summary: output.summary,
            exit_code: output.exit_code,
            whole: output.whole,
            ms,
        };
        self.record(event, Durability::Written).await
    }

    /// `PostToolUse`: what the hook has to say goes to the model with the result.
    async fn after(
        &self,
        ended: &mut CallResult,
        call: &OpenCall,
        input: &Value,
        output: &mut ToolOutput,
    ) -> Result<(), TranscriptError> {
        let details = json!({
            "tool_name": call.name,
            "tool_input": input,
            "tool_response": {"content": output.content, "is_error": output.is_error},
        });
        let hook = self.kit.hooks.ask(HookEvent::PostToolUse, Some(&call.name), details, self.cancel).await;
        self.note(hook.warnings).await?;
        ended.stop = ended.stop.take().or(hook.stop);
        let feedback = hook.block.map(|reason| format!("[a hook says: {reason}]"));
        output.content.extend(feedback.into_iter().chain(hook.context).map(|text| ResultPart::Text { text }));
        Ok(())
    }

    async fn refuse(
        &self,
        ended: &mut CallResult,
        call: &OpenCall,
        input: &Value,
        decision: Decision,
        suggestions: Vec<String>,
    ) -> Result<(), TranscriptError> {
        ended.failed = true;
        let mut message = format!("Not carried out: {}.", decision.why.trim_end_matches('.'));
        if let Some(flags) = allowing_flags(&suggestions) {
            message.push_str(&format!(" The user can allow it with {flags}."));
        }
        if !matches!(decision.verdict, CallVerdict::Invalid | CallVerdict::Cancelled) {
            ended.refused = Some(RefusedCall {
                tool: call.name.clone(),
                what: quote(input),
                why: decision.why.clone(),
                suggestions: suggestions.clone(),
            });
        }
        let event = Event::CallRefused {
            id: call.id.clone(),
            name: call.name.clone(),
            input: input.clone(),
            decision,
            message,
            suggestions,
        };
        self.record(event, Durability::Written).await
    }

    async fn record(&self, event: Event, durability: Durability) -> Result<(), TranscriptError> {
        self.transcript.append(event.clone(), durability).await?;
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        Ok(())
    }

    async fn note(&self, notes: Vec<String>) -> Result<(), TranscriptError> {
        for text in notes {
            self.record(Event::Note { text }, Durability::Written).await?;
        }
        Ok(())
    }
}

fn started(call: &OpenCall, input: &Value, decision: Decision) -> Event {
    Event::CallStarted { id: call.id.clone(), name: call.name.clone(), input: input.clone(), decision }
}

/// What the rules want a person to be asked.
struct RuleQuestion {
    why: String,
    suggestions: Vec<String>,
    outside: Vec<String>,
}

impl RuleQuestion {
    /// The rules that would have answered it.
    fn rules(self) -> Vec<String> {
        if self.suggestions.is_empty() { self.outside } else { self.suggestions }
    }
}

enum Judgement {
    May(Decision),
    MayNot(Decision, Vec<String>),
}

/// A decision that no rule made, about a call that runs as the user or not at all.
fn judged(verdict: CallVerdict, why: String) -> Decision {
    Decision { verdict, rule: None, why, fence: Profile::None }
}

fn allowing_flags(suggestions: &[String]) -> Option<String> {
    let (why, suggestions) = (String::new(), suggestions.to_vec());
    Rules::Ask { why, suggestions, outside: Vec::new() }.allowing_flags()
}

/// A call's arguments in one line: the telling one where there is one.
pub fn quote(input: &Value) -> String {
    let telling =
        caliban_core::call_text::TELLING.iter().find_map(|name| input.get(*name).and_then(Value::as_str));
    let text = telling.map_or_else(|| input.to_string(), str::to_owned);
    let line = caliban_core::inert::line(&text);
    let mut quoted: String = line.chars().take(QUOTED_CHARACTERS).collect();
    if quoted.len() < line.len() {
        quoted.push('…');
    }
    quoted
}
