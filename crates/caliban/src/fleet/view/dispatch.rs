//! The dispatch line: the options of `caliban agents spawn`, then the task as it was typed. `@type` is `--agent type`.

use std::ffi::OsString;

use clap::error::ErrorKind;

use crate::{
    cli::{self, Command, Early, agents::AgentsCommand, fleet::SpawnArgs},
    report::{Failure, Result},
};

/// The most words before the task.
const OPTIONS: usize = 40;

/// What a line asks for.
pub(super) fn parse(line: &str) -> Result<Box<SpawnArgs>> {
    let line = line.trim();
    let mut options: Vec<String> = Vec::new();
    let mut rest = line;
    let mut problem: Option<(Option<ErrorKind>, String)> = None;
    // Whether a word is the value of the option before it is known to the parser alone: the task begins at the first
    // word at which the line makes sense.
    for _ in 0..OPTIONS {
        let is_option = rest.starts_with("--") || rest.starts_with('@');
        if !is_option && !rest.is_empty() {
            match spawn(&options, rest) {
                Ok(args) => return Ok(args),
                // That a value is missing may be because it is taken for the task.
                Err(why)
                    if problem.as_ref().is_none_or(|(kind, _)| *kind == Some(ErrorKind::InvalidValue)) =>
                {
                    problem = Some(why);
                }
                Err(_) => {}
            }
        }
        let word = rest.split_whitespace().next().unwrap_or_default();
        if word.is_empty() {
            break;
        }
        rest = rest.get(word.len()..).unwrap_or_default().trim_start();
        match word.strip_prefix('@') {
            Some(kind) if is_option => options.extend(["--agent".to_owned(), kind.to_owned()]),
            _ => options.push(word.to_owned()),
        }
    }
    // A line that would make sense with a task behind it only lacks the task.
    let problem = problem.filter(|_| spawn(&options, "task").is_err());
    let nothing = || "there is no task behind the options".to_owned();
    Err(Failure::usage(problem.map_or_else(nothing, |(_, words)| words))
        .hint("for example: @reviewer --budget-tokens 50000 look for races in the queue"))
}

fn spawn(options: &[String], task: &str) -> Result<Box<SpawnArgs>, (Option<ErrorKind>, String)> {
    let words = ["caliban", "agents", "spawn"].into_iter().map(OsString::from);
    let words = words.chain(options.iter().map(OsString::from));
    let prompt = OsString::from(format!("--prompt={task}"));
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let parsed = cli::parse(words.chain([prompt]).collect::<Vec<_>>()).map_err(|early| match early {
        Early::Wrong(failure, kind) => (kind, first(&failure.message)),
        Early::Shown(error) => (Some(error.kind()), "this starts no agent".to_owned()),
    })?;
    match parsed.command {
        Some(Command::Agents(AgentsCommand::Spawn(args))) => Ok(args),
        _ => Err((Some(ErrorKind::InvalidSubcommand), "this starts no agent".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_before_the_task_and_the_task_stays_as_it_was_typed() {
        let plain = parse("fix  the --flag\nand @all").unwrap();
        assert_eq!(plain.prompt.as_deref(), Some("fix  the --flag\nand @all"));
        let line = "@reviewer --model m1 --after a1 --after b2 --budget-tokens 5000 --budget-usd 0.5 --interactive look -- here";
        let args = parse(line).unwrap();
        assert_eq!(args.prompt.as_deref(), Some("look -- here"));
        assert_eq!(args.task.agent_type.as_deref(), Some("reviewer"));
        assert_eq!(args.task.after, ["a1", "b2"]);
        assert_eq!(args.agent.model.as_deref(), Some("m1"));
        assert_eq!(args.agent.budget_tokens.map(std::num::NonZeroU64::get), Some(5000));
        assert!(args.task.interactive && args.agent.budget_usd.is_some());
        assert_eq!(parse("--label=x - list them").unwrap().prompt.as_deref(), Some("- list them"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let problem = |line: &str| parse(line).unwrap_err().message;
        assert!(problem("--modle m1 fix it").contains("--modle"), "{}", problem("--modle m1 fix it"));
        assert!(problem("--budget-tokens many fix it").contains("many"));
        assert_eq!(problem("--model m1"), "there is no task behind the options");
        assert_eq!(problem("@reviewer"), "there is no task behind the options");
    }
}
