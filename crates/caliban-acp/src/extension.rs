//! What we add to the protocol: methods that begin with `_caliban/`, and the key `caliban` of `_meta`.

use agent_client_protocol_schema::v1::{Error, Meta, SessionUpdate};
use caliban_core::{ask::Answer, background::BackgroundRow, turn::TurnOutcome, usage::Usage, wait::Wait};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The client says something to the agent and does not wait for the end of the turn. See [`SendParams`].
pub const SEND: &str = "_caliban/send";
/// A person answers a call that waits, whether or not the client is at the session. See [`AnswerRequest`]. The result is a
/// [`GivenAnswer`](caliban_core::ask::GivenAnswer): what is recorded, which is somebody else's answer when that was first.
pub const ANSWER: &str = "_caliban/answer";
/// In the `_meta` of the answer to `initialize`: the agent takes [`ANSWER`].
pub const TAKES_ANSWERS: &str = "takesAnswers";
/// Tells clients that did not begin a turn that it has ended. See [`TurnEndedNotice`].
pub const TURN_ENDED: &str = "_caliban/turn_ended";
/// Tells that a session is closed. See [`SessionRequest`].
pub const CLOSED: &str = "_caliban/closed";

/// Tells a client that what it said is on the disk: the agent will hear it, whatever happens. See [`SessionRequest`].
pub const HEARD: &str = "_caliban/heard";

/// Tells what the background agents of a session do. See [`BackgroundNotice`].
pub const BACKGROUND: &str = "_caliban/background";

/// Asks for the prompts of a session that began a turn: `{"prompts": [{"turn", "text"}]}`. See [`SessionRequest`].
pub const PROMPTS: &str = "_caliban/prompts";

/// Says which secrets the client's shell has, `{"secrets": [[name, value]]}`, for a client that no process can look into: what it
/// says may quote them, and is kept without them. Only from a person's process. See [`SecretsRequest`].
pub const SECRETS: &str = "_caliban/secrets";

/// Asks what a session that a person has on a screen is at: `{"state": …}`, see [`AgentState`]. The only request that the
/// socket of a broker's member takes.
pub const STATE: &str = "_caliban/state";

/// In the `_meta` of a message: the client goes on with another session, `{"session", "draft"}`.
pub const LOAD: &str = "load";

/// In the `_meta` of a message: the session goes on elsewhere, and the client leaves it.
pub const LEAVE: &str = "leave";

/// In the `_meta` of `initialize`: the process that the client speaks for. See [`Behalf`].
pub const BEHALF: &str = "behalf";
/// In the `_meta` of the answer to `initialize`: why this client is asked nothing.
pub const NO_SAY: &str = "noSay";
/// In the `_meta` of an update: what the agent waits for.
const WAIT: &str = "wait";
/// In the `data` of an error: the call is not asked for (any more).
const IS_NOT_ASKED: &str = "notAsked";
/// In the `data` of an error: the session takes no more prompts.
const IS_CLOSED: &str = "closed";

/// In the `_meta` of the answer to a permission request that is one of the "always": the rules, as the person wants them.
pub const KEEP: &str = "keep";

/// The ids of the answers to a permission request.
pub mod choice {
    use caliban_core::kept_rules::KeepFor;

    /// This call may run.
    pub const ALLOW_ONCE: &str = "allow_once";
    /// This call and those like it may run.
    pub const ALLOW_ALWAYS: &str = "allow_always";
    /// The same, outside of the fence.
    pub const ALLOW_ALWAYS_OUTSIDE: &str = "allow_always_outside";
    /// The same as [`ALLOW_ALWAYS`] and [`ALLOW_ALWAYS_OUTSIDE`], for every agent in the repo and for every agent of the user.
    pub const KEPT: [(&str, KeepFor, &str); 4] = [
        (ALLOW_ALWAYS, KeepFor::Repo, "allow_always_repo"),
        (ALLOW_ALWAYS, KeepFor::Everywhere, "allow_always_everywhere"),
        (ALLOW_ALWAYS_OUTSIDE, KeepFor::Repo, "allow_always_outside_repo"),
        (ALLOW_ALWAYS_OUTSIDE, KeepFor::Everywhere, "allow_always_outside_everywhere"),
    ];
    /// It may not.
    pub const REJECT_ONCE: &str = "reject_once";
}

/// The parameters of [`SEND`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendParams {
    /// The session.
    pub session_id: String,
    /// What is said.
    pub text: String,
    /// Chosen by the sender: the same id twice is one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The parameters of [`SECRETS`]. Not to be printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretsRequest {
    /// Names of variables and their secrets: a variable may have several.
    pub secrets: Vec<(String, String)>,
}

/// The parameters of [`ANSWER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerRequest {
    /// The session.
    pub session_id: String,
    /// The question's id.
    pub ask: String,
    /// Stands for the exact call: the answer is to no other.
    pub digest: String,
    /// The answer. Its rules may be the offered ones as a list shows them, without their secrets.
    pub answer: Answer,
}

/// What an agent is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// It waits for the next message.
    Idle,
    /// It works.
    Working,
    /// It waits for an answer of a person.
    Asking,
}

/// The answer to [`STATE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateAnswer {
    /// What it is at.
    pub state: AgentState,
}

/// The parameters of what is about a session and says nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRequest {
    /// The session.
    pub session_id: String,
}

/// A process that somebody else speaks for. Only the fleet's daemon is believed, and an agent judges the process as if it
/// had connected itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Behalf {
    /// The process.
    pub pid: i32,
    /// When the kernel started it: another process that has this pid later is not meant.
    pub start_time: u64,
}

/// The parameters of [`TURN_ENDED`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnEndedNotice {
    /// The session.
    pub session_id: String,
    /// How the turn ended.
    pub outcome: TurnOutcome,
    /// What the whole conversation has cost so far.
    pub usage: Usage,
    /// Model requests in this turn.
    pub turns: u32,
}

/// The parameters of [`BACKGROUND`]: always the whole list, in the order of the numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundNotice {
    /// The session.
    pub session_id: String,
    /// Its background agents.
    pub agents: Vec<BackgroundRow>,
}

/// `_meta` with one field of ours.
pub fn meta(name: &str, value: Value) -> Meta {
    metas([(name, value)])
}

/// `_meta` with these fields of ours.
pub fn metas<const N: usize>(fields: [(&str, Value); N]) -> Meta {
    let fields: serde_json::Map<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Meta::from_iter([("caliban".to_owned(), fields.into())])
}

/// A field of ours in a `_meta`.
pub fn field<'a>(meta: Option<&'a Meta>, name: &str) -> Option<&'a Value> {
    meta?.get("caliban")?.get(name)
}

/// The `_meta` of an update about a wait.
pub fn wait_meta(wait: &Wait) -> Meta {
    meta(WAIT, json!(wait))
}

/// What the agent waits for, if the update tells of a wait.
pub fn wait(update: &SessionUpdate) -> Option<Wait> {
    let meta = match update {
        SessionUpdate::Notice(notice) => notice.meta.as_ref(),
        SessionUpdate::AgentThoughtChunk(chunk) => chunk.meta.as_ref(),
        _ => None,
    };
    serde_json::from_value(field(meta, WAIT)?.clone()).ok()
}

/// Marks an error: the session takes no more prompts.
pub fn closed_error(error: Error) -> Error {
    error.data(json!({IS_CLOSED: true}))
}

/// Whether an error says that the session takes no more prompts.
pub fn is_closed_error(error: &Error) -> bool {
    is_marked(error, IS_CLOSED)
}

/// Says that a call is not asked for (any more).
pub fn not_asked_error() -> Error {
    let code = Error::invalid_request().code;
    Error::new(code.into(), "this call is not asked for any more").data(json!({IS_NOT_ASKED: true}))
}

/// Whether an error says that a call is not asked for (any more).
pub fn is_not_asked_error(error: &Error) -> bool {
    is_marked(error, IS_NOT_ASKED)
}

fn is_marked(error: &Error, mark: &str) -> bool {
    error.data.as_ref().and_then(|data| data.get(mark)?.as_bool()).unwrap_or(false)
}
