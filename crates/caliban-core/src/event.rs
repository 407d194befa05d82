//! What happens in a conversation, as it is written to `transcript.jsonl`.
//!
//! Owns the record format. A transcript is the truth: messages, audit and session file are all
//! derived from these records and from nothing else. Fields are only ever added, with a default. Who reads transcripts of other
//! builds, or long ones, reads [`RecordHead`]s.

mod head;
mod kind;

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::ask::{Answer, GivenAnswer};
pub use crate::turn::TurnOutcome as Outcome;
pub use head::{BlockHead, MessageHead, RecordHead};
pub use kind::EventKind;

use crate::{
    background::BackgroundStatus,
    call_text,
    fence::Profile,
    message::{Message, ResultPart, StopReason},
    usage::Usage,
};

/// The version that this build writes. A transcript of a newer one is refused, never guessed at.
pub const TRANSCRIPT_VERSION: u32 = 1;

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Counts from 0 without gaps.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// How many milliseconds the session and its helpers had worked by then; waiting for a person is no work. A
    /// sub-agent's records have its parent's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked_ms: Option<u64>,
    /// Where the next command starts from now on, when that has changed; a start and a resume stand in their own
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_in: Option<PathBuf>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first record.
    Started(Header),
    /// A process took the conversation up again.
    Resumed {
        /// The provider from now on.
        provider: String,
        /// The model from now on.
        model: String,
        /// The working directory from now on.
        cwd: PathBuf,
    },
    /// Somebody said something to the agent.
    Prompt {
        /// What was said; nothing when a hook has kept it from the agent.
        message: Message,
        /// Who said it.
        author: Author,
        /// How many blocks in front of it are context that was added, not typed.
        #[serde(default)]
        context: usize,
        /// The queued message that this is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<u64>,
    },
    /// Somebody said something while the agent was at work; it waits for the agent's next model request.
    Queued {
        /// Counts from 0 in each conversation; a retry with the sender's own id is recognised by `sender`.
        number: u64,
        /// What was said.
        text: String,
        /// An id that the sender chose, so that sending twice is saying it once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender: Option<String>,
        /// Who said it.
        #[serde(default, skip_serializing_if = "Author::is_user")]
        author: Author,
    },
    /// A model request is about to be sent. It counts as its estimate until `Counted`, `Unanswered`, `Reply` or `Summarised` corrects
    /// it; if the process dies, the estimate stands.
    Asked {
        /// What it will take, about.
        estimate: Usage,
        /// The model that is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The stream of the open request says that it takes more than its estimate.
    Counted {
        /// What it takes, as far as the stream has said.
        usage: Usage,
    },
    /// The open request has ended without a whole answer.
    Unanswered {
        /// What it counts.
        usage: Usage,
    },
    /// The model answered.
    Reply {
        /// What it said.
        message: Message,
        /// What it cost.
        usage: Usage,
        /// Why it stopped.
        stop: StopReason,
        /// The model that answered.
        model: String,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// A tool call is about to be carried out.
    CallStarted {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments as they are carried out (a hook may have changed them).
        input: Value,
        /// Why it may run.
        decision: Decision,
    },
    /// A tool call has ended.
    CallEnded {
        /// The call's id.
        id: String,
        /// What the model gets.
        content: Vec<ResultPart>,
        /// Whether it failed.
        is_error: bool,
        /// One line for people.
        summary: String,
        /// A command's exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Where the whole output is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whole: Option<PathBuf>,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// A tool call was not carried out.
    CallRefused {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
        /// Why not.
        decision: Decision,
        /// What the model gets.
        message: String,
        /// The rules that would allow it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        suggestions: Vec<String>,
    },
    /// A call waits for a person.
    AskOpened(Ask),
    /// A person has decided.
    AskAnswered {
        /// The ask's id.
        id: String,
        /// What they said, and who it was.
        #[serde(flatten)]
        given: GivenAnswer,
    },
    /// Old tool results no longer go to the model.
    ResultsCleared {
        /// The calls whose results are cleared.
        ids: Vec<String>,
    },
    /// A summary stands for the older part of the conversation.
    Summarised {
        /// The summary.
        summary: String,
        /// How many messages at the end stay as they are.
        keep_tail: usize,
        /// What making the summary cost.
        usage: Usage,
    },
    /// Something people should know; the model does not see it.
    Note {
        /// The text.
        text: String,
    },
    /// A background agent of the session has started or ended. The model is told of an end in a message of its own.
    Background {
        /// Its number.
        id: u32,
        /// How it stands from now on.
        status: BackgroundStatus,
        /// What people are told: a title, and below it the first lines of its result.
        text: String,
    },
    /// The turn is over.
    TurnEnded {
        /// How.
        outcome: Outcome,
        /// What the whole conversation has cost so far.
        usage: Usage,
        /// The same in micro-dollars, where the prices are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        micro_usd: Option<u64>,
        /// Model requests in this turn.
        turns: u32,
    },
}

/// What a conversation starts with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The format's version.
    pub version: u32,
    /// The session's id.
    pub session: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// Who said something to the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Author {
    /// The person.
    #[default]
    User,
    /// The agent that started this one.
    Parent,
    /// A hook, by its event.
    Hook(String),
    /// Caliban itself (going on after a cut answer, …).
    Caliban,
}

impl Author {
    fn is_user(&self) -> bool {
        *self == Self::User
    }
}

/// Something that was said and not heard yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// What was said.
    pub text: String,
    /// Who said it.
    pub author: Author,
}

/// Why a call ran or did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The verdict.
    pub verdict: CallVerdict,
    /// The rule that decided, in its own text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why, in words.
    pub why: String,
    /// The fence that it runs in.
    #[serde(default, skip_serializing_if = "is_unfenced")]
    pub fence: Profile,
}

fn is_unfenced(fence: &Profile) -> bool {
    *fence == Profile::None
}

/// The verdict on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallVerdict {
    /// A rule or the mode allows it.
    Allowed,
    /// A person allowed it.
    Approved,
    /// A rule or the mode forbids it.
    Denied,
    /// A person forbade it.
    Rejected,
    /// It would have been asked, and nobody was there.
    Unasked,
    /// A hook blocked it.
    Blocked,
    /// It cannot be carried out: unknown tool, arguments that make no sense.
    Invalid,
    /// It was cancelled before it began.
    Cancelled,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Unique among the asks of a session and its sub-agents: the answer is bound to exactly this call.
    pub id: String,
    /// The sub-agent that asks, by its label or session; the agent itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments.
    pub input: Value,
    /// Why it is asked.
    pub why: String,
    /// The rules that would allow calls of this kind; none when no rule can.
    pub suggestions: Vec<String>,
    /// The rules that would let them run outside of the fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// What it would change, in lines with their numbers, and the lines around; none when the arguments say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// When it counts as refused, if nobody has answered by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Ask {
    /// The rules that this answer adds.
    pub fn rules<'a>(&'a self, answer: &'a Answer) -> &'a [String] {
        match answer {
            Answer::Keep(kept) => &kept.rules,
            Answer::Always => &self.suggestions,
            Answer::AlwaysOutside => &self.outside,
            Answer::Once | Answer::No(_) => &[],
        }
    }

    /// The whole call, as a person reads it before they allow it.
    pub fn call(&self) -> String {
        call_text::asked_call(&self.name, &self.input, self.preview.as_deref())
    }
}

/// Whether all these blocks of a prompt are context.
fn is_context_alone(context: usize, blocks: usize) -> bool {
    context > 0 && blocks <= context
}

/// What a conversation is called: the first line of what was typed first.
pub fn title(typed: &str) -> String {
    /// As much as fits beside the other columns of a list.
    const TITLE_CHARS: usize = 60;
    let line = typed.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let shown: String = crate::inert::line(line).chars().take(TITLE_CHARS).collect();
    if shown.chars().count() < line.chars().count() { format!("{shown}…") } else { shown }
}

impl Event {
    /// What was typed, for a prompt; none for one that is context alone, which nobody has typed.
    pub fn typed(&self) -> Option<String> {
        let Self::Prompt { message, context, .. } = self else { return None };
        if is_context_alone(*context, message.blocks.len()) {
            return None;
        }
        let blocks = message.blocks.get(*context..).unwrap_or_default().to_vec();
        Some(Message { role: message.role, blocks }.text())
    }
}
