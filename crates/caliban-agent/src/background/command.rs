//! The arguments of `/bg`.

use super::{Background, BackgroundOrder, BackgroundRefusal, Ground, Spawner, text};
use caliban_contract::wall_ms;

/// What the arguments are, for people.
pub const USAGE: &str = "[--model M] [--isolation none|worktree] <task> | list | kill <id> | keep <id> | keep all | raise <id> [<tokens>] | clear";

/// What `/bg` shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundCommand {
    /// Start an agent.
    Start(BackgroundOrder),
    /// Show all.
    List,
    /// Stop one.
    Kill(u32),
    /// Hand one to the fleet.
    Keep(u32),
    /// Hand all that run to the fleet.
    KeepAll,
    /// Let one spend so many tokens more, as many as each may when nobody says it.
    Raise(u32, Option<u64>),
    /// Drop those that have ended from the list.
    Clear,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandDone {
    /// An agent was started. The session's log says so, too.
    Started(u32),
    /// Something to show.
    Text(String),
}

impl BackgroundCommand {
    /// Reads the arguments. `list`, `clear`, `kill <id>`, `keep <id>` and `raise <id>` stand alone: "list all TODO comments" is a task.
    pub fn parse(arguments: &str) -> Result<Self, String> {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        match words.as_slice() {
            [] => Err(format!("usage: /bg {USAGE}")),
            ["list"] => Ok(Self::List),
            ["keep", "all"] => Ok(Self::KeepAll),
            ["clear"] => Ok(Self::Clear),
            [verb @ ("kill" | "keep")] => Err(format!("usage: /bg {verb} <id>")),
            ["raise"] => Err("usage: /bg raise <id> [<tokens>]".to_owned()),
            ["raise", id, tokens @ ..]
                if tokens.len() < 2 && id.parse::<u32>().is_ok() && tokens.iter().all(|it| is_amount(it)) =>
            {
                let tokens = tokens.first().map(|tokens| tokens.parse().unwrap_or_default());
                Ok(Self::Raise(id.parse().unwrap_or_default(), tokens))
            }
            [verb @ ("kill" | "keep"), id] if id.parse::<u32>().is_ok() => {
                let id = id.parse().unwrap_or_default();
                Ok(if *verb == "kill" { Self::Kill(id) } else { Self::Keep(id) })
            }
            _ => order(arguments).map(Self::Start),
        }
    }

    /// Carries it out for a person.
    pub async fn run(self, background: &Background) -> Result<CommandDone, BackgroundRefusal> {
        match self {
            Self::Start(order) => background.start(order, Spawner::Person).await.map(CommandDone::Started),
            Self::List => Ok(CommandDone::Text(text::list(&background.rows(), wall_ms()))),
            Self::Kill(id) => {
                background.kill(id).await?;
                Ok(CommandDone::Text(format!("Background agent {id} is stopped.")))
            }
            Self::Keep(id) => {
                let agent = background.keep(id).await?;
                Ok(CommandDone::Text(format!(
                    "Background agent {id} is agent {agent} of the fleet from now on."
                )))
            }
            Self::KeepAll => {
                let kept = background.keep_all().await?;
                let list: Vec<String> = kept
                    .iter()
                    .map(|(id, agent)| format!("Background agent {id} is agent {agent}"))
                    .collect();
                Ok(CommandDone::Text(match list.is_empty() {
                    true => "No background agent is at work.".to_owned(),
                    false => format!("{} of the fleet from now on.", list.join(", ")),
                }))
            }
            Self::Raise(id, tokens) => background.raise(id, tokens).await.map(CommandDone::Text),
            Self::Clear => Ok(CommandDone::Text(match background.clear() {
                1 => "1 background agent was removed from the list.".to_owned(),
                count => format!("{count} background agents were removed from the list."),
            })),
        }
    }
}

fn is_amount(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|amount| amount > 0)
}

/// Options, then the task as it was typed.
fn order(arguments: &str) -> Result<BackgroundOrder, String> {
    let mut order = BackgroundOrder::default();
    let mut rest = arguments.trim();
    while rest.starts_with("--") {
        let (option, value, after) = option(rest);
        match (option, value) {
            ("--model", value) if !value.is_empty() => order.model = Some(value.to_owned()),
            ("--isolation", "none") => order.ground = Some(Ground::None),
            ("--isolation", "worktree") => order.ground = Some(Ground::Worktree),
            ("--model" | "--isolation", _) => return Err(format!("usage: /bg {USAGE}")),
            _ => return Err(format!("/bg has no option {option}; usage: /bg {USAGE}")),
        }
        rest = after;
    }
    if rest.is_empty() {
        return Err(format!("there is no task behind the options; usage: /bg {USAGE}"));
    }
    Ok(BackgroundOrder { task: rest.to_owned(), ..order })
}

/// The first option of a text, its value, and what follows.
fn option(text: &str) -> (&str, &str, &str) {
    let word = |text: &'_ str| text.find(char::is_whitespace).unwrap_or(text.len());
    let (option, rest) = text.split_at(word(text));
    if let Some((option, value)) = option.split_once('=') {
        return (option, value, rest.trim_start());
    }
    let rest = rest.trim_start();
    let (value, rest) = rest.split_at(word(rest));
    (option, value, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b07_b05_arguments_are_told_from_tasks() {
        let start = |model: Option<&str>, task: &str| {
            Ok(BackgroundCommand::Start(BackgroundOrder {
                model: model.map(str::to_owned),
                task: task.to_owned(),
                ground: None,
            }))
        };
        let apart = |line: &str| match BackgroundCommand::parse(line) {
            Ok(BackgroundCommand::Start(order)) => order,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(BackgroundCommand::parse("keep 1"), Ok(BackgroundCommand::Keep(1)));
        assert_eq!(BackgroundCommand::parse("keep all"), Ok(BackgroundCommand::KeepAll));
        assert_eq!(BackgroundCommand::parse("raise 1"), Ok(BackgroundCommand::Raise(1, None)));
        assert_eq!(BackgroundCommand::parse("raise 1 9000"), Ok(BackgroundCommand::Raise(1, Some(9_000))));
        for task in ["raise 1 of the errors", "raise the limit", "raise 1 0"] {
            assert_eq!(BackgroundCommand::parse(task), start(None, task));
        }
        assert_eq!(BackgroundCommand::parse("keep the tests green"), start(None, "keep the tests green"));
        for line in ["--isolation worktree --model m1 do it", "--model=m1 --isolation=worktree  do it"] {
            let order = apart(line);
            assert_eq!((order.ground, order.model.as_deref()), (Some(Ground::Worktree), Some("m1")));
            assert_eq!(order.task, "do it");
        }
        assert_eq!(apart("--isolation none do it").ground, Some(Ground::None));
        assert_eq!(BackgroundCommand::parse("list"), Ok(BackgroundCommand::List));
        assert_eq!(BackgroundCommand::parse(" clear "), Ok(BackgroundCommand::Clear));
        assert_eq!(BackgroundCommand::parse("kill 2"), Ok(BackgroundCommand::Kill(2)));
        assert_eq!(BackgroundCommand::parse("list all TODO comments"), start(None, "list all TODO comments"));
        assert_eq!(BackgroundCommand::parse("kill the zombies"), start(None, "kill the zombies"));
        assert_eq!(BackgroundCommand::parse("fix it\nall of it"), start(None, "fix it\nall of it"));
        assert_eq!(
            BackgroundCommand::parse("--model claude-haiku-4-5 summarize all\nTODOs"),
            start(Some("claude-haiku-4-5"), "summarize all\nTODOs")
        );
        for wrong in [
            "",
            "kill",
            "keep",
            "raise",
            "--model m",
            "--modle m x",
            "--isolation tree x",
            "--isolation worktree",
        ] {
            assert!(
                BackgroundCommand::parse(wrong).is_err_and(|error| error.contains("usage: /bg")),
                "{wrong}"
            );
        }
    }
}
