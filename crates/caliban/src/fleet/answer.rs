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
    event::{Answer, Event, Record},
    transcript,
};
use caliban_core::inert;
use caliban_supervisor::{Client, protocol::AgentRow};
use serde_json::{Value, json};

use super::{
    Fleet,
    approvals::{self, what, who},
    link::Link,
    numbers::Numbered,
    tail::Tail,
    worded,
};
use crate::{
    cli::fleet::{ApproveArgs, DenyArgs},
    report::{Code, Failure},
};

/// How often it is looked whether the question is still open.
const LOOK: Duration = Duration::from_millis(50);
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
            .hint(format!("allow it once: caliban approve {}", asked.number)));
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

/// The question that a number, or an agent with one question, means.
async fn find(fleet: &Fleet<'_>, query: &str) -> Result<Numbered, Failure> {
    let open = approvals::open(fleet).await?;
    let number: Option<u64> = query.parse().ok();
    if let Some(found) = number.and_then(|number| open.iter().find(|asked| asked.number == number)) {
        return Ok(found.clone());
    }
    let unknown = || {
        Failure::usage(format!("there is no open question {}", inert::quoted(query)))
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
            let numbers: Vec<String> =
                of_agent.iter().chain([&last]).map(|asked| asked.number.to_string()).collect();
            Err(Failure::usage(format!("agent {} asks several things: {}", row.id, numbers.join(", ")))
                .hint("name one by its number; `caliban approvals` shows them"))
        }
    }
}

async fn give(fleet: &Fleet<'_>, asked: &Numbered, reply: Reply) -> Result<(), Failure> {
    let mut client = fleet.client().await?;
    let awake = client.wake(&asked.agent.to_string()).await.map_err(worded)?;
    let mut link = Link::open(&awake.socket).await?;
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
    match recorded(&row, asked)? {
        Some(answer) if answer != wanted => Err(Failure::new(format!(
            "somebody else has answered it first: {}",
            match answer {
                Answer::Once | Answer::Always => "allowed".to_owned(),
                Answer::No(reason) =>
                    format!("denied {}", inert::line(reason.as_deref().unwrap_or_default())),
            }
        ))),
        _ => Ok(()),
    }
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

/// Whether it is the question that was shown: the same call, with the same arguments. The agent says how it lists the call,
/// because secrets are not in the list.
fn is_about(question: &Question, asked: &Numbered) -> bool {
    let call = &question.request.tool_call;
    let listed = call.meta.as_ref().and_then(|meta| meta.get("caliban")?.get("ask")?.get("what")?.as_str());
    let is_same = match listed {
        Some(listed) => listed == asked.ask.what,
        // A worker that was started before it said so.
        None => {
            let input = call.fields.raw_input.as_ref().map(caliban_agent::describe).unwrap_or_default();
            input.is_empty() || asked.ask.what.ends_with(&*inert::line(&input))
        }
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

/// What the transcript says was answered last to this question.
fn recorded(row: &AgentRow, asked: &Numbered) -> Result<Option<Answer>, Failure> {
    let lines = Tail::new(row.dir.join(transcript::FILE_NAME)).all()?;
    Ok(lines.iter().rev().find_map(|line| match serde_json::from_str::<Record>(line).ok()?.event {
        Event::AskAnswered { id, answer } if id == asked.ask.id => Some(answer),
        _ => None,
    }))
}

fn gone(asked: &Numbered) -> Failure {
    Failure::new(format!("{} is not asked any more", what(asked)))
        .hint("somebody else has answered, or the agent has ended: `caliban agents list` tells")
}
