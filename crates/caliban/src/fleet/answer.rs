//! `caliban approve` and `caliban deny`: a person's answer to an agent's question. The first answer counts.
//!
//! The answer goes to exactly the call that was shown: the agent asks us again over its socket, and a question about
//! another call is not answered.

use std::{io::Write, time::Duration};

use caliban_acp::{
    ClientEvent,
    client::{Question, Reply},
    v1::AGENT_METHOD_NAMES,
};
use caliban_agent::{
    event::{Answer, Ask, Event, Record},
    transcript,
};
use caliban_control::{Client, protocol::AgentRow};
use caliban_core::inert;
use serde_json::{Value, json};

use super::{
    Fleet,
    approval_numbers::{Numbered, Showing},
    approvals::{self, what, who},
    link::Link,
    row,
    tail::Tail,
    worded,
};
use crate::{
    cli::fleet::{ApproveArgs, DenyArgs},
    report::{Code, Failure},
};

/// How often it is looked whether the question is still open.
const LOOK: Duration = Duration::from_millis(50);
/// Where it cannot be noted what was shown: a question that is younger is not answered by the agent's name.
const READING_TIME: Duration = Duration::from_secs(5);
/// How long the agent may take to ask us, and to act on the answer.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn approve(
    fleet: &Fleet<'_>,
    args: &ApproveArgs,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let asked = find(fleet, &args.ask).await?;
    if args.always && asked.ask.suggestions.is_empty() {
        return Err(Failure::usage(format!("there is no rule that would allow {} always", what(&asked)))
            .hint(format!("allow it once: caliban approve {}", approvals::name(&asked))));
    }
    let reply = if args.always { Reply::AllowAlways } else { Reply::AllowOnce };
    give(fleet, &asked, reply).await?;
    let how = if args.always { "allowed always" } else { "allowed" };
    writeln!(out, "{how} for {}: {}", who(&asked), what(&asked))?;
    Ok(Code::Done)
}

pub(super) async fn deny(fleet: &Fleet<'_>, args: &DenyArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let asked = find(fleet, &args.ask).await?;
    give(fleet, &asked, Reply::Reject(args.reason.clone())).await?;
    writeln!(out, "denied for {}: {}", who(&asked), what(&asked))?;
    Ok(Code::Done)
}

/// The question that a number, or an agent with one question, means. An answer is to what was shown: a question of the
/// agent's that nobody was shown is shown now, and not answered.
async fn find(fleet: &Fleet<'_>, query: &str) -> Result<Numbered, Failure> {
    let asked = pick(fleet, approvals::open(fleet, Showing::None).await?, query).await?;
    let is_number = asked.number.is_some_and(|number| query.parse() == Ok(number));
    if is_number || asked.was_shown {
        return Ok(asked);
    }
    if asked.number.is_some() {
        approvals::listed(fleet, &asked).await?;
        // The first of an agent that was never listed: there is no other that it could be taken for.
        if !asked.is_agent_known {
            return Ok(asked);
        }
        let words = format!("what {} asks now was not listed yet: {}", who(&asked), what(&asked));
        let name = approvals::name(&asked);
        return Err(Failure::new(words).hint(format!("caliban approve {name}, or caliban deny {name}")));
    }
    // Nothing can be noted: only a question that somebody can have read is answered.
    let age = Duration::from_millis(row::now_ms().saturating_sub(asked.ask.opened_at));
    if age < READING_TIME {
        let words = format!("{} asks this only now: {}", who(&asked), what(&asked));
        return Err(Failure::new(words).hint("say it again in a few seconds"));
    }
    Ok(asked)
}

/// The one among the open ones.
pub(super) async fn pick(fleet: &Fleet<'_>, open: Vec<Numbered>, query: &str) -> Result<Numbered, Failure> {
    let number: Option<u64> = query.parse().ok();
    if let Some(found) = number.and_then(|number| open.iter().find(|asked| asked.number == Some(number))) {
        return Ok(found.clone());
    }
    let unknown = || {
        Failure::new(format!("there is no open question {}", inert::quoted(query)))
            .hint("`caliban approvals` lists those that are open; somebody may have answered it")
    };
    // A short number that is not open is never taken for the beginning of an id.
    if query.len() < 4 && number.is_some() {
        return Err(unknown());
    }
    let row = fleet.client().await?.show(query).await.map_err(worded)?;
    let mut of_agent: Vec<Numbered> = open.into_iter().filter(|asked| asked.agent == row.id).collect();
    match (of_agent.pop(), of_agent.is_empty()) {
        (None, _) => Err(unknown()),
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            let numbers: Vec<String> = of_agent.iter().chain([&last]).map(approvals::name).collect();
            Err(Failure::new(format!("agent {} asks several things: {}", row.id, numbers.join(", ")))
                .hint("name one by its number; `caliban approvals` shows them"))
        }
    }
}

async fn give(fleet: &Fleet<'_>, asked: &Numbered, reply: Reply) -> Result<(), Failure> {
    let mut client = fleet.client().await?;
    let awake = fleet.wake(&mut client, &asked.agent.to_string()).await.map_err(worded)?;
    let mut link = Link::open(&awake.socket).await?;
    if let Some(why) = link.client.no_say() {
        return Err(Failure::new(inert::line(why).into_owned())
            .hint("a person answers, in a terminal of their own: caliban approvals"));
    }
    let wanted = match &reply {
        Reply::AllowOnce => Answer::Once,
        Reply::AllowAlways => Answer::Always,
        Reply::Reject(reason) => Answer::No(reason.clone()),
    };
    let question = tokio::time::timeout(LIMIT, question(&mut link, &mut client, asked))
        .await
        .map_err(|_| Failure::new("the agent does not ask us: it may be stopped"))??;
    let _seen_below = question.answer(reply).await;
    let row = tokio::time::timeout(LIMIT, closed(&mut link, &mut client, asked))
        .await
        .map_err(|_| Failure::new("the agent has not taken the answer yet; `caliban approvals` tells"))??;
    let answer = tokio::time::timeout(LIMIT, recorded(&mut client, row, asked))
        .await
        .map_err(|_| Failure::new("the agent has not taken the answer yet; `caliban approvals` tells"))??;
    if answer == wanted {
        return Ok(());
    }
    Err(Failure::new(format!(
        "somebody else has answered it first: {}",
        match answer {
            Answer::Once | Answer::Always => "allowed".to_owned(),
            Answer::No(reason) => format!("denied {}", inert::line(reason.as_deref().unwrap_or_default())),
        }
    )))
}

/// Takes part in the conversation, and waits to be asked.
async fn question(link: &mut Link, client: &mut Client, asked: &Numbered) -> Result<Question, Failure> {
    let params = json!({"sessionId": link.session, "cwd": link.cwd, "mcpServers": []});
    let peer = link.client.peer().clone();
    let joining = async move { peer.call::<Value>(AGENT_METHOD_NAMES.session_resume, &params).await };
    tokio::pin!(joining);
    let mut look = tokio::time::interval(LOOK);
    let mut joined = false;
    loop {
        tokio::select! {
            event = link.events.next() => match event.map_err(|error| super::link::worded(error.into()))? {
                Some(ClientEvent::Permission(question)) if is_about(&question, asked) => return Ok(question),
                Some(_) => {}
                None => return Err(gone(asked)),
            },
            answer = &mut joining, if !joined => {
                answer.map_err(|error| super::link::worded(error.into()))?;
                joined = true;
            }
            _ = look.tick(), if joined => {
                if !is_open(client, asked).await?.1 {
                    return Err(gone(asked));
                }
            }
        }
    }
}

/// Whether it is the question that was shown: the same call, with the same arguments to the last byte. The agent says
/// what stands for the call, because secrets are not in the list.
fn is_about(question: &Question, asked: &Numbered) -> bool {
    let call = &question.request.tool_call;
    let about = call.meta.as_ref().and_then(|meta| meta.get("caliban")?.get("ask"));
    let said = |name: &str| about.and_then(|about| about.get(name)?.as_str());
    let is_same = match (said("digest"), said("what")) {
        (Some(digest), _) => digest == asked.ask.digest,
        // Workers that were started before they said so.
        (None, Some(what)) => what == asked.ask.what,
        (None, None) => false,
    };
    is_same && *call.tool_call_id.0 == *asked.ask.id
}

/// Waits until the question is not open any more, keeping up with what the agent says.
async fn closed(link: &mut Link, client: &mut Client, asked: &Numbered) -> Result<AgentRow, Failure> {
    let mut look = tokio::time::interval(LOOK);
    let mut hung_up = false;
    loop {
        tokio::select! {
            event = link.events.next(), if !hung_up => hung_up = !matches!(event, Ok(Some(_))),
            _ = look.tick() => {
                let (row, is_open) = is_open(client, asked).await?;
                if !is_open {
                    return Ok(row);
                }
            }
        }
    }
}

async fn is_open(client: &mut Client, asked: &Numbered) -> Result<(AgentRow, bool), Failure> {
    let row = client.show(&asked.agent.to_string()).await.map_err(worded)?;
    let is_open = row.asks.iter().any(|ask| ask.id == asked.ask.id && ask.opened_at == asked.ask.opened_at);
    Ok((row, is_open))
}

/// What the transcript says was answered. The record comes a moment after the question is closed, or never, when the agent
/// has ended in between.
async fn recorded(client: &mut Client, mut row: AgentRow, asked: &Numbered) -> Result<Answer, Failure> {
    loop {
        let has_ended = row::has_ended(row.state);
        if let Some(answer) = asked_in(&row, &asked.ask.id)?.and_then(|found| found.answer) {
            return Ok(answer);
        }
        if has_ended {
            return Err(gone(asked));
        }
        tokio::time::sleep(LOOK).await;
        row = client.show(&asked.agent.to_string()).await.map_err(worded)?;
    }
}

/// A question as the transcript has it.
pub(super) struct Found {
    pub ask: Ask,
    pub answer: Option<Answer>,
}

/// The question of this id that was asked last, and the answer to it. A sub-agent's is in its own transcript.
pub(super) fn asked_in(row: &AgentRow, id: &str) -> Result<Option<Found>, Failure> {
    let sub = id.split_once(':').map(|(session, _)| row.dir.join("sub").join(session));
    let dir = sub.filter(|dir| dir.is_dir()).unwrap_or_else(|| row.dir.clone());
    let mut found: Option<Found> = None;
    for line in Tail::new(dir.join(transcript::FILE_NAME)).all()? {
        // Most lines are about something else, and long.
        if !line.contains("\"ask_") {
            continue;
        }
        match serde_json::from_str::<Record>(&line).map(|record| record.event) {
            Ok(Event::AskOpened(ask)) if ask.id == id => found = Some(Found { ask, answer: None }),
            Ok(Event::AskAnswered { id: of, answer }) if of == id => {
                if let Some(found) = &mut found {
                    found.answer = Some(answer);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn gone(asked: &Numbered) -> Failure {
    Failure::new(format!("{} is not asked any more", what(asked)))
        .hint("somebody else has answered, or the agent has ended: `caliban agents list` tells")
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::State;

    use super::*;

    #[test]
    fn only_an_answer_to_the_question_that_was_asked_last_counts() {
        let dir = tempfile::tempdir().unwrap();
        let row = AgentRow { dir: dir.path().to_owned(), ..row::tests::row(State::Running) };
        let write = |at: &std::path::Path, lines: &[Value]| {
            std::fs::create_dir_all(at).unwrap();
            let lines: Vec<String> = lines
                .iter()
                .enumerate()
                .map(|(seq, line)| {
                    let mut line = line.clone();
                    (line["seq"], line["at"]) = (json!(seq), json!("2026-11-16T00:00:00Z"));
                    format!("{line}\n")
                })
                .collect();
            std::fs::write(at.join(transcript::FILE_NAME), lines.concat()).unwrap();
        };
        let opened = |id: &str, command: &str| {
            json!({
                "event": "ask_opened", "id": id, "agent": null, "name": "Bash", "input": {"command": command},
                "why": "no rule", "suggestions": [],
            })
        };
        let answered = Event::AskAnswered { id: "c1".into(), answer: Answer::Once };
        let answered = serde_json::to_value(answered).unwrap();
        let found = |id: &str| {
            let found = asked_in(&row, id).unwrap();
            found.map(|found| (found.ask.input["command"].as_str().unwrap().to_owned(), found.answer))
        };
        assert_eq!(found("c1"), None);
        write(dir.path(), &[opened("c1", "ls"), answered.clone()]);
        assert_eq!(found("c1"), Some(("ls".into(), Some(Answer::Once))));
        // The same id again, and nobody has answered.
        write(dir.path(), &[opened("c1", "ls"), answered, opened("c1", "rm")]);
        assert_eq!((found("c1"), found("c2")), (Some(("rm".into(), None)), None));
        // A sub-agent's is in its own transcript.
        write(&dir.path().join("sub/x-1"), &[opened("x-1:c1", "pwd")]);
        assert_eq!(found("x-1:c1"), Some(("pwd".into(), None)));
    }
}
