//! `caliban approve` and `caliban deny`: a person's answer to an agent's question. The first answer counts.

use std::{io::Write, time::Duration};

use caliban_agent::event::Answer;
use caliban_contract::records;
use caliban_core::{
    inert,
    kept_rules::{KeepFor, KeptRules},
};
use caliban_fleet::{
    ClientError,
    protocol::{ApproveRequest, DenyRequest, ErrorCode},
};

use super::{
    Fleet,
    approval_numbers::{Numbered, Showing},
    approvals::{self, what, who},
};
use crate::{
    cli::fleet::{ApproveArgs, DenyArgs},
    report::{Code, Failure, Result},
    settings::parse_rule,
};

/// Where it cannot be noted what was shown: a question that is younger is not answered by the agent's name.
const READING_TIME: Duration = Duration::from_secs(5);

pub(super) async fn approve(fleet: &Fleet<'_>, args: &ApproveArgs, out: &mut dyn Write) -> Result<Code> {
    let asked = find(fleet, &args.ask).await?;
    let answer = if args.always {
        let offered = if args.outside { &asked.ask.outside } else { &asked.ask.suggestions };
        if offered.is_empty() {
            return Err(no_rule(&asked));
        }
        let rules = if args.rule.is_empty() { offered } else { &args.rule };
        Answer::Keep(KeptRules::new(args.keep.unwrap_or_default(), rules))
    } else {
        Answer::Once
    };
    answered(fleet, &asked, answer, out).await
}

async fn answered(fleet: &Fleet<'_>, asked: &Numbered, answer: Answer, out: &mut dyn Write) -> Result<Code> {
    check(asked, &answer)?;
    give(fleet, &asked.agent.to_string(), &asked.ask, answer.clone()).await?;
    writeln!(out, "{}", told(asked, &answer))?;
    Ok(Code::Done)
}

/// Whether the rules of an answer are rules.
pub(super) fn check(asked: &Numbered, answer: &Answer) -> Result<()> {
    let Answer::Keep(kept) = answer else { return Ok(()) };
    // What the question offers may be about a tool that only the agent knows.
    for rule in kept.rules.iter().filter(|rule| !offers(asked, rule)) {
        parse_rule(rule).map_err(|(wrong, hint)| Failure::usage(wrong).hint(hint.unwrap_or_default()))?;
    }
    Ok(())
}

fn offers(asked: &Numbered, rule: &String) -> bool {
    asked.ask.suggestions.contains(rule) || asked.ask.outside.contains(rule)
}

pub(super) fn no_rule(asked: &Numbered) -> Failure {
    Failure::usage(format!("there is no rule that would allow {} always", what(asked)))
        .hint(format!("allow it once: caliban approve {}", approvals::name(asked)))
}

/// What was answered, with the rules that an "always" has added.
pub(super) fn told(asked: &Numbered, answer: &Answer) -> String {
    let (how, rules) = match answer {
        Answer::Once => ("allowed", String::new()),
        Answer::Keep(kept) => ("allowed always", format!("\nadded: {}", kept.words())),
        Answer::Always | Answer::AlwaysOutside => ("allowed always", String::new()),
        Answer::No(_) => ("denied", String::new()),
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
        Answer::Keep(kept) => {
            let outside = kept.rules == asked.outside || asked.suggestions.is_empty();
            // The record has its rules without secrets; the agent has them whole.
            let is_offered = [&asked.suggestions, &asked.outside].contains(&&kept.rules);
            let rules = if is_offered { Vec::new() } else { kept.rules };
            let request = ApproveRequest { ask, digest, always: true, outside, keep: kept.keep, rules };
            client.approve(agent, &request).await
        }
        yes => {
            let outside = yes == Answer::AlwaysOutside;
            let always = outside || yes == Answer::Always;
            let (keep, rules) = (KeepFor::Session, Vec::new());
            client.approve(agent, &ApproveRequest { ask, digest, always, outside, keep, rules }).await
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
