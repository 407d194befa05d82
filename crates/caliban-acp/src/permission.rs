//! A call that waits for a person, as a question to a client, and the client's choice as an answer. Pure.

use std::path::Path;

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallUpdate,
};
use caliban_agent::event::{Answer, Ask};
use caliban_core::inert;
use serde_json::json;

use crate::{
    conn::CallError,
    render::{fields_of, meta},
    tools,
};

/// This call may run.
pub const ALLOW_ONCE: &str = "allow_once";
/// This call and those like it may run.
pub const ALLOW_ALWAYS: &str = "allow_always";
/// It may not.
pub const REJECT_ONCE: &str = "reject_once";

/// What a client has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Decided(Answer),
    /// It cannot or will not.
    Undecided(String),
}

/// A call that waits, as lists show it: the whole call in one line. Secrets are still in it.
pub fn what(ask: &Ask) -> String {
    let who = ask.agent.as_deref().map(|agent| format!("{agent}: ")).unwrap_or_default();
    inert::line(&format!("{who}{} {}", ask.name, caliban_agent::describe(&ask.input))).into_owned()
}

/// The question. It shows exactly the call that the answer is for; `listed` is that call as lists show it, so whoever
/// answers from a list knows that it is the same.
pub(crate) fn question(session: &str, ask: &Ask, listed: &str, root: &Path) -> RequestPermissionRequest {
    let mut call = tools::call(&ask.id, &ask.name, &ask.input, root);
    if let Some(agent) = &ask.agent {
        call.title = format!("{agent}: {}", call.title);
    }
    let about = json!({"why": ask.why, "agent": ask.agent, "rules": ask.suggestions, "what": listed});
    let call = ToolCallUpdate::new(ask.id.clone(), fields_of(call)).meta(meta("ask", about));
    let mut options = vec![PermissionOption::new(ALLOW_ONCE, "Allow", PermissionOptionKind::AllowOnce)];
    if !ask.suggestions.is_empty() {
        let name = format!("Always allow {}", ask.suggestions.join(", "));
        options.push(PermissionOption::new(ALLOW_ALWAYS, name, PermissionOptionKind::AllowAlways));
    }
    options.push(PermissionOption::new(REJECT_ONCE, "Reject", PermissionOptionKind::RejectOnce));
    RequestPermissionRequest::new(session.to_owned(), call, options)
}

/// What the client's answer means. Only an option that was offered counts.
pub(crate) fn choice(ask: &Ask, answer: Result<&str, CallError>) -> Choice {
    let text = match answer {
        Ok(text) => text,
        Err(error) => return Choice::Undecided(format!("the client could not ask: {error}")),
    };
    let response: RequestPermissionResponse = match serde_json::from_str(text) {
        Ok(response) => response,
        Err(error) => return Choice::Undecided(format!("the client's answer cannot be understood: {error}")),
    };
    match response.outcome {
        RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
            ALLOW_ONCE => Choice::Decided(Answer::Once),
            ALLOW_ALWAYS if !ask.suggestions.is_empty() => Choice::Decided(Answer::Always),
            REJECT_ONCE => Choice::Decided(Answer::No(reason(selected.meta.as_ref()))),
            other => Choice::Undecided(format!("the client chose {other:?}, which was not offered")),
        },
        RequestPermissionOutcome::Cancelled => {
            Choice::Undecided("the client cancelled the question".to_owned())
        }
        _ => Choice::Undecided("the client gave an answer of an unknown kind".to_owned()),
    }
}

/// Why not, for the model: `_meta: {"caliban": {"reason": "…"}}`.
fn reason(meta: Option<&agent_client_protocol_schema::v1::Meta>) -> Option<String> {
    Some(meta?.get("caliban")?.get("reason")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(suggestions: &[&str]) -> Ask {
        Ask {
            id: "c1".into(),
            agent: None,
            name: "Bash".into(),
            input: json!({"command": "make"}),
            why: "no rule allows it".into(),
            suggestions: suggestions.iter().map(ToString::to_string).collect(),
        }
    }

    fn selected(option: &str) -> String {
        json!({"outcome": {"outcome": "selected", "optionId": option}}).to_string()
    }

    #[test]
    fn the_question_shows_the_exact_call_and_only_what_can_be_chosen() {
        let question = serde_json::to_value(question("s", &ask(&[]), "Bash make", Path::new("/w"))).unwrap();
        assert_eq!(
            question,
            json!({
                "sessionId": "s",
                "toolCall": {
                    "toolCallId": "c1", "kind": "execute", "title": "Bash: make", "name": "Bash", "content": [],
                    "locations": [], "rawInput": {"command": "make"},
                    "_meta": {"caliban": {"ask": {"why": "no rule allows it", "agent": null, "rules": [], "what": "Bash make"}}},
                },
                "options": [
                    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
                ],
            })
        );
    }

    #[test]
    fn a16_only_an_offered_option_is_an_answer() {
        let always = ask(&["Bash(make)"]);
        assert_eq!(choice(&always, Ok(&selected("allow_always"))), Choice::Decided(Answer::Always));
        assert_eq!(choice(&always, Ok(&selected("allow_once"))), Choice::Decided(Answer::Once));
        assert_eq!(choice(&always, Ok(&selected("reject_once"))), Choice::Decided(Answer::No(None)));
        for (ask, answer) in [
            (ask(&[]), Ok(selected("allow_always"))),
            (ask(&[]), Ok(selected("yes"))),
            (ask(&[]), Ok("{}".to_owned())),
            (ask(&[]), Ok(json!({"outcome": {"outcome": "cancelled"}}).to_string())),
            (ask(&[]), Err(CallError::Closed)),
        ] {
            let got = choice(&ask, answer.as_deref().map_err(Clone::clone));
            assert!(matches!(got, Choice::Undecided(_)), "{answer:?}: {got:?}");
        }
    }

    #[test]
    fn a_rejection_can_say_why() {
        let answer = json!({"outcome": {
            "outcome": "selected", "optionId": "reject_once", "_meta": {"caliban": {"reason": "use make check"}},
        }});
        let expected = Choice::Decided(Answer::No(Some("use make check".into())));
        assert_eq!(choice(&ask(&[]), Ok(&answer.to_string())), expected);
    }
}
