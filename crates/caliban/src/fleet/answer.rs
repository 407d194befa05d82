//! `caliban approve` and `caliban deny`: a person's answer to an agent's question. The first answer counts.

use std::{io::Write, time::Duration};

use caliban_agent::event::Answer;
use caliban_contract::records;
use caliban_control::{
    ClientError,
    protocol::{ApproveRequest, DenyRequest, ErrorCode},
};
use caliban_core::inert;

use super::{
    Fleet,
    approval_numbers::{Numbered, Showing},
    approvals::{self, what, who},
};
use crate::{
    cli::fleet::{ApproveArgs, DenyArgs},
    report::{Code, Failure, Result},
};

/// Where it cannot be noted what was shown: a question that is younger is not answered by the agent's name.
const READING_TIME: Duration = Duration::from_secs(5);

pub(super) async fn approve(fleet: &Fleet<'_>, args: &ApproveArgs, out: &mut dyn Write) -> Result<Code> {
    let asked = find(fleet, &args.ask).await?;
    let answer = match (args.always, args.outside) {
        (true, true) => Answer::AlwaysOutside,
        (true, false) => Answer::Always,
        (false, _) => Answer::Once,
    };
    answered(fleet, &asked, answer, out).await
}

async fn answered(fleet: &Fleet<'_>, asked: &Numbered, answer: Answer, out: &mut dyn Write) -> Result<Code> {
    check(asked, &answer)?;
    give(fleet, &asked.agent.to_string(), &asked.ask, answer.clone()).await?;
    writeln!(out, "{}", told(asked, &answer))?;
    Ok(Code::Done)
}

/// Whether the question can be answered so.
pub(super) fn check(asked: &Numbered, answer: &Answer) -> Result<()> {
    let is_always = matches!(answer, Answer::Always | Answer::AlwaysOutside);
    if is_always && added(asked, answer).is_empty() {
        return Err(Failure::usage(format!("there is no rule that would allow {} always", what(asked)))
            .hint(format!("allow it once: caliban approve {}", approvals::name(asked))));
    }
    Ok(())
}

/// The rules that an answer adds.
fn added<'a>(asked: &'a Numbered, answer: &Answer) -> &'a [String] {
    match answer {
        Answer::Always => &asked.ask.suggestions,
        Answer::AlwaysOutside => &asked.ask.outside,
        Answer::Once | Answer::No(_) => &[],
    }
}

/// What was answered, with the rules that an "always" has added.
pub(super) fn told(asked: &Numbered, answer: &Answer) -> String {
    let how = match answer {
        Answer::Once => "allowed",
        Answer::Always => "allowed always",
        Answer::AlwaysOutside => "allowed always, outside the fence,",
        Answer::No(_) => "denied",
    };
    let rules = match added(asked, answer) {
        [] => String::new(),
        rules => format!("\nadded for it: {}", inert::line(&rules.join(", "))),
    };
    format!("{how} for {}: {}{rules}", who(asked), what(asked))
}

pub(super) async fn deny(fleet: &Fleet<'_>, args: &DenyArgs, out: &mut dyn Write) -> Result<Code> {
    let asked = find(fleet, &args.ask).await?;
    answered(fleet, &asked, Answer::No(args.reason.clone()), out).await
}

/// The question that a number, or an agent with one question, means. An answer is to what was shown: a question of the
/// agent's that nobody was shown is shown now, and not answered.
async fn find(fleet: &Fleet<'_>, query: &str) -> Result<Numbered> {
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
    let age = Duration::from_millis(caliban_contract::wall_ms().saturating_sub(asked.ask.opened_at));
    if age < READING_TIME {
        let words = format!("{} asks this only now: {}", who(&asked), what(&asked));
        return Err(Failure::new(words).hint("say it again in a few seconds"));
    }
    Ok(asked)
}

/// The one among the open ones.
pub(super) async fn pick(fleet: &Fleet<'_>, open: Vec<Numbered>, query: &str) -> Result<Numbered> {
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
    let row = fleet.client().await?.show(query).await?;
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

/// The answer goes to exactly the call that was shown, through the daemon; the agent judges our process.
pub(super) async fn give(
    fleet: &Fleet<'_>,
    agent: &str,
    asked: &records::AskRecord,
    answer: Answer,
) -> Result<()> {
    let mut client = fleet.client().await?;
    fleet.wake(&mut client, agent).await?;
    let (ask, digest) = (asked.id.clone(), asked.digest.clone());
    let given = match answer {
        Answer::No(reason) => client.deny(agent, &DenyRequest { ask, digest, reason }).await,
        yes => {
            let outside = yes == Answer::AlwaysOutside;
            let always = outside || yes == Answer::Always;
            client.approve(agent, &ApproveRequest { ask, digest, always, outside }).await
        }
    };
    match given {
        Ok(_) => Ok(()),
        Err(ClientError::Refused(error)) if error.code == ErrorCode::NotAsked => {
            let failure = Failure::new(format!("{} is not asked any more", inert::line(&asked.what)));
            Err(failure.hint(error.hint.unwrap_or_default()))
        }
        Err(error) => Err(Failure::from(error)),
    }
}
