//! A call that waits for a person, as a question to a client, and the client's choice as an answer. Pure.

use std::path::Path;

use caliban_acp::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallUpdate,
};
use caliban_acp::{
    connection::CallError,
    extension::{
        self, KEEP,
        choice::{ALLOW_ALWAYS, ALLOW_ALWAYS_OUTSIDE, ALLOW_ONCE, KEPT, REJECT_ONCE},
        meta,
    },
};
use caliban_agent::event::{Answer, Ask};
use caliban_contract::records::AskRecord;
use caliban_core::{
    call_text, hex, inert,
    kept_rules::{KeepFor, KeptRules},
    redact::Redactor,
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{render::fields_of, tools};

/// Of a digest, so many bytes are kept.
const DIGEST_BYTES: usize = 16;

/// A call that waits, as lists show it: without secrets. `key` is nobody's but the agent's: the digest cannot be guessed at.
pub(crate) fn listed(ask: &Ask, redactor: &Redactor, key: &[u8]) -> AskRecord {
    let who = ask.agent.as_deref().map(|agent| format!("{agent}: ")).unwrap_or_default();
    // The arguments first: a secret that is cut in two, or indented, is none to a redactor.
    let input = redacted(&ask.input, redactor);
    let preview = ask.preview.as_deref().map(|lines| redactor.redact(lines));
    let call = call_text::excerpt(&call_text::asked_call(&ask.name, &input, preview.as_deref()));
    let texts = [
        inert::line(&format!("{who}{} {}", ask.name, caliban_agent::describe(&input))).into_owned(),
        format!("{}{}", inert::line(&who), call.text),
    ];
    let [what, text] = texts.map(|text| redactor.redact(&text).into_owned());
    AskRecord {
        id: ask.id.clone(),
        by: ask.agent.as_deref().map(|agent| inert::line(agent).into_owned()),
        name: ask.name.clone(),
        what,
        call: text,
        hidden: Some(call.hidden),
        digest: digest(ask, key),
        why: Some(inert::line(&ask.why).into_owned()),
        suggestions: ask.suggestions.clone(),
        outside: ask.outside.clone(),
        expires_at: ask.expires_at.and_then(|end| u64::try_from(end.as_millisecond()).ok()),
        ..AskRecord::default()
    }
}

fn redacted(input: &Value, redactor: &Redactor) -> Value {
    match input {
        Value::String(text) => Value::String(redactor.redact(text).into_owned()),
        Value::Array(items) => items.iter().map(|item| redacted(item, redactor)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), redacted(field, redactor))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
    }
}

pub(crate) fn digest(ask: &Ask, key: &[u8]) -> String {
    let mut hash = Sha256::new();
    let input = ask.input.to_string();
    for part in [key, ask.id.as_bytes(), ask.name.as_bytes(), input.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..DIGEST_BYTES])
}

/// The question. It shows exactly the call that the answer is for; `listed` is that call as lists show it, so whoever
/// answers from a list knows that it is the same.
pub(crate) fn question(
    session: &str,
    ask: &Ask,
    listed: &AskRecord,
    root: &Path,
) -> RequestPermissionRequest {
    let mut call = tools::call(&ask.id, &ask.name, &ask.input, root);
    if let Some(agent) = &ask.agent {
        call.title = format!("{agent}: {}", call.title);
    }
    let about = json!({
        "why": caliban_agent::event::why_in_words(ask), "agent": ask.agent, "rules": ask.suggestions, "outside": ask.outside, "tool": ask.name,
        "what": listed.what, "digest": listed.digest, "expiresAt": ask.expires_at, "preview": ask.preview,
    });
    let call = ToolCallUpdate::new(ask.id.clone(), fields_of(call)).meta(meta("ask", about));
    let mut options = vec![PermissionOption::new(ALLOW_ONCE, "Allow", PermissionOptionKind::AllowOnce)];
    options.extend(always(ask).map(|(option, kept)| {
        let name = format!("Always allow {}", kept.words());
        PermissionOption::new(option, name, PermissionOptionKind::AllowAlways)
    }));
    options.push(PermissionOption::new(REJECT_ONCE, "Reject", PermissionOptionKind::RejectOnce));
    RequestPermissionRequest::new(session.to_owned(), call, options)
}

/// The kinds of "always" that a question offers: their ids, and the rules of each.
fn always(ask: &Ask) -> impl Iterator<Item = (&'static str, KeptRules)> + '_ {
    [(ALLOW_ALWAYS, &ask.suggestions), (ALLOW_ALWAYS_OUTSIDE, &ask.outside)]
        .into_iter()
        .filter(|(_, rules)| !rules.is_empty())
        .flat_map(|(always, rules)| {
            let longer = KEPT.into_iter().filter(move |(same, ..)| *same == always);
            let longer = longer.map(|(_, keep, option)| (option, keep));
            [(always, KeepFor::Session)]
                .into_iter()
                .chain(longer)
                .map(|(option, keep)| (option, KeptRules::new(keep, rules)))
        })
}

/// The rules as the person wants them: those of the option, or others in their place.
fn kept(offered: KeptRules, meta: Option<&caliban_acp::v1::Meta>) -> Result<KeptRules, String> {
    let Some(wanted) = extension::field(meta, KEEP) else { return Ok(offered) };
    let wanted = KeptRules::deserialize(wanted)
        .map_err(|error| format!("the client's rules cannot be understood: {error}"))?;
    check_rules(&wanted.rules).map(|()| wanted)
}

fn check_rules(rules: &[String]) -> Result<(), String> {
    if rules.is_empty() {
        return Err("the client names no rule".to_owned());
    }
    let wrong = rules.iter().find_map(|rule| rule.parse::<caliban_permissions::Rule>().err());
    wrong.map_or(Ok(()), |error| Err(error.to_string()))
}

/// A person's answer as the agent takes it, or why it makes no sense. A list shows the offered rules without their secrets;
/// the agent has them whole.
pub(crate) fn understood(ask: &Ask, answer: Answer, redactor: &Redactor) -> Result<Answer, String> {
    let offered = match &answer {
        Answer::Once | Answer::No(_) => return Ok(answer),
        Answer::Always => &ask.suggestions,
        Answer::AlwaysOutside => &ask.outside,
        Answer::Keep(_) if ask.suggestions.is_empty() => &ask.outside,
        Answer::Keep(_) => &ask.suggestions,
    };
    if offered.is_empty() {
        return Err("there is no rule that would allow this call always".to_owned());
    }
    let Answer::Keep(KeptRules { rules, keep }) = answer else { return Ok(answer) };
    let all = || ask.suggestions.iter().chain(&ask.outside);
    let whole = |shown: String| match all().find(|rule| **rule == shown || redactor.redact(rule) == shown) {
        Some(rule) => rule.clone(),
        None => shown,
    };
    let rules: Vec<String> = rules.into_iter().map(whole).collect();
    // What the question offers may be about a tool that only the agent knows.
    let new: Vec<String> =
        rules.iter().filter(|rule| !all().any(|offered| offered == *rule)).cloned().collect();
    if rules.is_empty() || !new.is_empty() {
        check_rules(&new)?;
    }
    Ok(Answer::Keep(KeptRules { rules, keep }))
}

/// What the client's answer means, or why it decides nothing. Only an option that was offered counts.
pub(crate) fn choice(ask: &Ask, answer: Result<&str, CallError>) -> Result<Answer, String> {
    let text = answer.map_err(|error| format!("the client could not ask: {error}"))?;
    let response: RequestPermissionResponse = serde_json::from_str(text)
        .map_err(|error| format!("the client's answer cannot be understood: {error}"))?;
    match response.outcome {
        RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
            ALLOW_ONCE => Ok(Answer::Once),
            REJECT_ONCE => Ok(Answer::No(reason(selected.meta.as_ref()))),
            other => match always(ask).find(|(option, _)| *option == other) {
                Some((_, offered)) => kept(offered, selected.meta.as_ref()).map(Answer::Keep),
                None => Err(format!("the client chose {other:?}, which was not offered")),
            },
        },
        RequestPermissionOutcome::Cancelled => Err("the client cancelled the question".to_owned()),
        _ => Err("the client gave an answer of an unknown kind".to_owned()),
    }
}

/// Why not, for the model: `_meta: {"caliban": {"reason": "…"}}`.
fn reason(meta: Option<&caliban_acp::v1::Meta>) -> Option<String> {
    Some(extension::field(meta, "reason")?.as_str()?.to_owned())
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
            outside: suggestions.iter().map(|rule| format!("{rule} outside")).collect(),
            preview: None,
            expires_at: None,
        }
    }

    fn selected(option: &str) -> String {
        json!({"outcome": {"outcome": "selected", "optionId": option}}).to_string()
    }

    #[test]
    fn the_question_shows_the_exact_call_and_only_what_can_be_chosen() {
        let listed = AskRecord { what: "Bash make".into(), digest: "d".into(), ..AskRecord::default() };
        let question = serde_json::to_value(question("s", &ask(&[]), &listed, Path::new("/w"))).unwrap();
        assert_eq!(
            question,
            json!({
                "sessionId": "s",
                "toolCall": {
                    "toolCallId": "c1", "kind": "execute", "title": "Bash: make", "name": "Bash", "content": [],
                    "locations": [], "rawInput": {"command": "make"},
                    "_meta": {"caliban": {"ask": {
                        "why": "no rule allows it", "agent": null, "rules": [], "outside": [], "tool": "Bash",
                        "what": "Bash make", "digest": "d", "expiresAt": null, "preview": null,
                    }}},
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
        let kept = |keep, rule: &str| Ok(Answer::Keep(KeptRules { rules: vec![rule.to_owned()], keep }));
        for (option, keep, rule) in [
            ("allow_always", KeepFor::Session, "Bash(make)"),
            ("allow_always_repo", KeepFor::Repo, "Bash(make)"),
            ("allow_always_everywhere", KeepFor::Everywhere, "Bash(make)"),
            ("allow_always_outside", KeepFor::Session, "Bash(make) outside"),
            ("allow_always_outside_repo", KeepFor::Repo, "Bash(make) outside"),
        ] {
            assert_eq!(choice(&always, Ok(&selected(option))), kept(keep, rule), "{option}");
        }
        // Our own clients say which rules the person wants.
        let with = |keep: Value| {
            let outcome = json!({"outcome": "selected", "optionId": "allow_always", "_meta": {"caliban": {"keep": keep}}});
            choice(&always, Ok(&json!({ "outcome": outcome }).to_string()))
        };
        let edited = json!({"rules": ["Bash(make *)"], "for": "repo"});
        assert_eq!(with(edited), kept(KeepFor::Repo, "Bash(make *)"));
        for wrong in
            [json!({"rules": ["Bash("]}), json!({"rules": []}), json!({"rules": ["Bash"], "for": "x"})]
        {
            assert!(with(wrong).is_err());
        }
        assert_eq!(choice(&always, Ok(&selected("allow_once"))), Ok(Answer::Once));
        assert_eq!(choice(&always, Ok(&selected("reject_once"))), Ok(Answer::No(None)));
        for (ask, answer) in [
            (ask(&[]), Ok(selected("allow_always"))),
            (ask(&[]), Ok(selected("allow_always_outside"))),
            (ask(&[]), Ok(selected("yes"))),
            (ask(&[]), Ok("{}".to_owned())),
            (ask(&[]), Ok(json!({"outcome": {"outcome": "cancelled"}}).to_string())),
            (ask(&[]), Err(CallError::Closed)),
        ] {
            let got = choice(&ask, answer.as_deref().map_err(Clone::clone));
            assert!(got.is_err(), "{answer:?}: {got:?}");
        }
    }

    #[test]
    fn a16_a_digest_is_of_every_byte_and_of_nothing_that_others_know() {
        let redactor = Redactor::new([("TOKEN".to_owned(), "canary-value".to_owned())]);
        let of = |command: &str, key: &[u8]| {
            let ask = Ask { input: json!({"command": command}), ..ask(&[]) };
            listed(&ask, &redactor, key)
        };
        let long = format!("echo {}", "x".repeat(10_000));
        let (one, other) = (of(&format!("{long} a"), b"k"), of(&format!("{long} b"), b"k"));
        assert_eq!(one.what, other.what);
        assert_ne!(one.digest, other.digest);
        assert!(one.call.ends_with(" a") && one.hidden > Some(0), "{one:?}");
        let (one, other) = (of("echo canary-value", b"k"), of("echo canary-value", b"l"));
        assert_eq!(
            (one.what.as_str(), one.call.as_str()),
            ("Bash echo [redacted:TOKEN]", "Bash echo [redacted:TOKEN]")
        );
        assert_ne!(one.digest, other.digest);
        assert_eq!(one, of("echo canary-value", b"k"));
        assert_ne!(one.digest, of("echo other", b"k").digest);
    }

    #[test]
    fn a_rejection_can_say_why() {
        let answer = json!({"outcome": {
            "outcome": "selected", "optionId": "reject_once", "_meta": {"caliban": {"reason": "use make check"}},
        }});
        let expected = Ok(Answer::No(Some("use make check".into())));
        assert_eq!(choice(&ask(&[]), Ok(&answer.to_string())), expected);
    }

    #[test]
    fn a16_an_answer_from_a_list_has_the_rules_of_the_question_whole() {
        let redactor = Redactor::new([("TOKEN".to_owned(), "canary-value".to_owned())]);
        let asked = ask(&["Bash(make canary-value)"]);
        let of = |ask: &Ask, rules: &[&str]| {
            let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
            let answer = Answer::Keep(KeptRules::new(KeepFor::Repo, &rules));
            understood(ask, answer, &redactor).map(|answer| ask.rules(&answer).to_vec())
        };
        let whole = Ok(vec!["Bash(make canary-value)".to_owned()]);
        assert_eq!(of(&asked, &["Bash(make [redacted:TOKEN])"]), whole);
        assert_eq!(of(&asked, &["Bash(make canary-value)"]), whole);
        assert_eq!(of(&asked, &["Bash(make *)"]), Ok(vec!["Bash(make *)".to_owned()]));
        // No rule, a wrong one, and one where none was offered.
        assert!(
            [of(&asked, &[]), of(&asked, &["Bash("]), of(&ask(&[]), &["Bash(make)"])]
                .iter()
                .all(Result::is_err)
        );
        let plain = |answer| understood(&ask(&[]), answer, &redactor);
        assert_eq!(plain(Answer::Once), Ok(Answer::Once));
        assert_eq!(plain(Answer::No(None)), Ok(Answer::No(None)));
        assert!(plain(Answer::Always).is_err());
    }
}
