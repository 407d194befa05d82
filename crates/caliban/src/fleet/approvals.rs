//! `caliban approvals`: what agents ask, with the numbers that `approve` and `deny` take.

use std::{io::Write, time::Duration};

use caliban_agent::event::Ask;
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_core::{inert, kept_rules::KeptRules};

use super::{
    Fleet, all_repos, answer,
    approval_numbers::{self, Numbered, Showing},
    approvals_watch, json_line, row, width,
};
use crate::{
    cli::fleet::ApprovalsArgs,
    report::{Code, Failure, Result},
};

/// So much of an agent's task is shown with its question.
const TASK_COLUMNS: usize = 100;

pub(super) async fn approvals(fleet: &Fleet<'_>, args: &ApprovalsArgs, out: &mut dyn Write) -> Result<Code> {
    if args.watch {
        return approvals_watch::watch(fleet, args, out).await;
    }
    if args.all_repos {
        return all_repos::approvals(fleet, args.json, out).await;
    }
    let showing = if args.ask.is_some() { Showing::None } else { Showing::All };
    let mut open = open(fleet, showing).await?;
    if let Some(query) = &args.ask {
        let one = answer::pick(fleet, open, query).await?;
        listed(fleet, &one).await?;
        if !args.json {
            return whole(&one, out);
        }
        open = vec![one];
    }
    if args.json {
        return json_line(&open, out).map(|()| Code::Done);
    }
    if open.is_empty() {
        writeln!(out, "Nobody asks anything.")?;
        return Ok(Code::Done);
    }
    print(&open, out)?;
    super::say(
        "answer with: caliban approve N, caliban approve N --always [--for repo], caliban deny N --reason \"…\"",
    );
    Ok(Code::Done)
}

/// The questions with their numbers, as far as a list shows them.
pub(super) fn print(open: &[Numbered], out: &mut dyn Write) -> std::io::Result<()> {
    let now = caliban_contract::wall_ms();
    for asked in open {
        let age = Duration::from_millis(now.saturating_sub(asked.ask.opened_at));
        let end = row::refused_in(&asked.ask, now).map(|end| format!(", {end}")).unwrap_or_default();
        writeln!(out, "{}  {}  {} ago{end}", number(asked), who(asked), row::time(age))?;
        let task = inert::line(asked.task.trim());
        if !task.is_empty() {
            writeln!(out, "   task: {}", width::cut(&task, TASK_COLUMNS))?;
        }
        for line in asked.ask.excerpt().text.lines() {
            writeln!(out, "   {}", inert::line(line))?;
        }
        if is_cut(asked) {
            writeln!(out, "   all of it: caliban approvals {}", name(asked))?;
        }
        if let Some(why) = &asked.ask.why {
            writeln!(out, "   {}", inert::line(why))?;
        }
        let rules = [("--always", &asked.ask.suggestions), ("--always --outside", &asked.ask.outside)];
        for (flags, rules) in rules.into_iter().filter(|(_, rules)| !rules.is_empty()) {
            writeln!(out, "   {flags} would allow {}", inert::line(&KeptRules::line(rules)))?;
        }
    }
    Ok(())
}

/// Whether a part of the call is left out in the list.
pub(super) fn is_cut(asked: &Numbered) -> bool {
    asked.ask.excerpt().hidden > 0
}

/// The whole call, as the transcript has it.
pub(super) fn recorded(asked: &Numbered) -> Result<String> {
    let Some(ask) = RecordedAsk::find::<Ask>(&asked.dir, &asked.ask.id)? else {
        return Err(Failure::new(format!(
            "the transcript of {} does not have the question yet",
            asked.agent
        )));
    };
    Ok(ask.call())
}

/// One call, all of it.
fn whole(asked: &Numbered, out: &mut dyn Write) -> Result<Code> {
    let call = recorded(asked)?;
    writeln!(out, "{}  {}\n{call}", number(asked), who(asked))?;
    super::say(&format!("answer with: caliban approve {0}, or caliban deny {0}", name(asked)));
    Ok(Code::Done)
}

/// All open questions of this repo's agents.
pub(super) async fn open(fleet: &Fleet<'_>, showing: Showing) -> Result<Vec<Numbered>> {
    let rows = fleet.client().await?.list().await?;
    let base = fleet.places().base();
    let listing = approval_numbers::number(base, &rows, showing);
    if let Some(error) = listing.unkept.filter(|_| listing.open.iter().any(|asked| asked.number.is_none())) {
        super::say(&format!(
            "no numbers can be kept in {}: {error}; name an agent that asks one thing by its id",
            base.display()
        ));
    }
    Ok(listing.open)
}

/// Notes that somebody is shown what this agent asks.
pub(super) async fn listed(fleet: &Fleet<'_>, asked: &Numbered) -> Result<()> {
    let rows = fleet.client().await?.list().await?;
    approval_numbers::number(fleet.places().base(), &rows, Showing::OneAgents(asked.agent));
    Ok(())
}

/// Its number in a list.
fn number(asked: &Numbered) -> String {
    asked.number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// What `approve` and `deny` take for it.
pub(super) fn name(asked: &Numbered) -> String {
    asked.number.map_or_else(|| asked.agent.to_string(), |number| number.to_string())
}

/// Who asks: the agents above it, the agent, and its sub-agent behind it when that one asks.
pub(super) fn who(asked: &Numbered) -> String {
    let label = asked.label.as_deref().filter(|label| **label != asked.agent.to_string());
    let agent = match label {
        Some(label) => format!("{} ({})", asked.agent, inert::line(label)),
        None => asked.agent.to_string(),
    };
    let above = asked.above.iter().cloned();
    let below = asked.ask.by.as_deref().map(|by| inert::line(by).into_owned());
    above.chain([agent]).chain(below).collect::<Vec<_>>().join(" › ")
}

/// The call in one line.
pub(super) fn what(asked: &Numbered) -> String {
    caliban_fleet::one_line(&asked.ask.what)
}
