//! `caliban approve` and `caliban deny`: a person's answer to an agent's question. The first answer counts.

use std::io::Write;

use serde_json::{Value, json};

use super::{
    Fleet,
    approvals::{self, what, who},
    link::{ANSWER, Link},
    numbers::Numbered,
    worded,
};
use crate::{
    cli::fleet::{ApproveArgs, DenyArgs},
    report::{Code, Failure},
};

pub(super) async fn approve(fleet: &Fleet<'_>, args: &ApproveArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let asked = find(fleet, &args.ask).await?;
    if args.always && asked.ask.suggestions.is_empty() {
        return Err(Failure::usage(format!("there is no rule that would allow {} always", what(&asked)))
            .hint(format!("allow it once: caliban approve {}", asked.number)));
    }
    let answer = if args.always { "always" } else { "once" };
    give(fleet, &asked, json!({"answer": answer})).await?;
    let how = if args.always { "allowed always" } else { "allowed" };
    writeln!(out, "{how} for {}: {}", who(&asked), what(&asked))?;
    Ok(Code::Done)
}

pub(super) async fn deny(fleet: &Fleet<'_>, args: &DenyArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let asked = find(fleet, &args.ask).await?;
    let mut answer = json!({"answer": "no"});
    if let Some(reason) = &args.reason {
        answer["reason"] = json!(reason);
    }
    give(fleet, &asked, answer).await?;
    writeln!(out, "denied for {}: {}", who(&asked), what(&asked))?;
    Ok(Code::Done)
}

/// The question that a number, or an agent with one question, means.
async fn find(fleet: &Fleet<'_>, query: &str) -> Result<Numbered, Failure> {
    let open = approvals::open(fleet).await?;
    if let Some(found) = query.parse().ok().and_then(|number: u64| by_number(&open, number)) {
        return Ok(found);
    }
    let unknown = || {
        Failure::usage(format!("there is no open question {}", caliban_core::inert::quoted(query)))
            .hint("`caliban approvals` lists those that are open; somebody may have answered it")
    };
    // A short number that is not open is never taken for the beginning of an id.
    if query.len() < 4 && query.chars().all(|c| c.is_ascii_digit()) {
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

fn by_number(open: &[Numbered], number: u64) -> Option<Numbered> {
    open.iter().find(|asked| asked.number == number).cloned()
}

async fn give(fleet: &Fleet<'_>, asked: &Numbered, mut answer: Value) -> Result<(), Failure> {
    let awake = fleet.client().await?.wake(&asked.agent.to_string()).await.map_err(worded)?;
    let mut link = Link::open(&awake.socket).await?;
    answer["askId"] = json!(asked.ask.id);
    let answered = link.call(ANSWER, answer).await?;
    if answered.get("taken") == Some(&json!(false)) {
        return Err(Failure::new("somebody else has answered it first"));
    }
    Ok(())
}
