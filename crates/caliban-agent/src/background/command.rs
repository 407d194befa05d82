//! The arguments of `/bg`.

use super::{Background, Refusal, Spawner, now_ms, text};

/// What the arguments are, for people.
pub const USAGE: &str = "[--model M] <task> | list | kill <id> | clear";

/// What `/bg` shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Start an agent.
    Start {
        /// Another model than the session's.
        model: Option<String>,
        /// What it shall do.
        task: String,
    },
    /// Show all.
    List,
    /// Stop one.
    Kill(u32),
    /// Drop those that have ended from the list.
    Clear,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// An agent was started. The session's log says so, too.
    Started(u32),
    /// Something to show.
    Text(String),
}

impl Command {
    /// Reads the arguments. `list`, `clear` and `kill <id>` stand alone: "list all TODO comments" is a task.
    pub fn parse(arguments: &str) -> Result<Self, String> {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        match words.as_slice() {
            [] => Err(format!("usage: /bg {USAGE}")),
            ["list"] => Ok(Self::List),
            ["clear"] => Ok(Self::Clear),
            ["kill"] => Err("usage: /bg kill <id>".to_owned()),
            ["kill", id] if id.parse::<u32>().is_ok() => Ok(Self::Kill(id.parse().unwrap_or_default())),
            ["--model", model, _, ..] => {
                let rest = arguments.trim_start().trim_start_matches("--model").trim_start();
                let task = rest.strip_prefix(model).unwrap_or(rest).trim().to_owned();
                Ok(Self::Start { model: Some((*model).to_owned()), task })
            }
            ["--model", ..] => Err("usage: /bg --model <model> <task>".to_owned()),
            [option, ..] if option.starts_with("--") => {
                Err(format!("/bg has no option {option}; usage: /bg {USAGE}"))
            }
            _ => Ok(Self::Start { model: None, task: arguments.trim().to_owned() }),
        }
    }

    /// Carries it out for a person.
    pub async fn run(self, background: &Background) -> Result<Done, Refusal> {
        match self {
            Self::Start { model, task } => {
                background.start(&task, model, Spawner::Person).await.map(Done::Started)
            }
            Self::List => Ok(Done::Text(text::list(&background.rows(), now_ms()))),
            Self::Kill(id) => {
                background.kill(id).await?;
                Ok(Done::Text(format!("Background agent {id} is stopped.")))
            }
            Self::Clear => Ok(Done::Text(match background.clear() {
                1 => "1 background agent was removed from the list.".to_owned(),
                count => format!("{count} background agents were removed from the list."),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b05_b07_arguments_are_told_from_tasks() {
        let start = |model: Option<&str>, task: &str| {
            Ok(Command::Start { model: model.map(str::to_owned), task: task.to_owned() })
        };
        assert_eq!(Command::parse("list"), Ok(Command::List));
        assert_eq!(Command::parse(" clear "), Ok(Command::Clear));
        assert_eq!(Command::parse("kill 2"), Ok(Command::Kill(2)));
        assert_eq!(Command::parse("list all TODO comments"), start(None, "list all TODO comments"));
        assert_eq!(Command::parse("kill the zombies"), start(None, "kill the zombies"));
        assert_eq!(Command::parse("fix it\nall of it"), start(None, "fix it\nall of it"));
        assert_eq!(
            Command::parse("--model claude-haiku-4-5 summarize all\nTODOs"),
            start(Some("claude-haiku-4-5"), "summarize all\nTODOs")
        );
        for wrong in ["", "kill", "--model m", "--modle m x"] {
            assert!(Command::parse(wrong).is_err_and(|error| error.contains("usage: /bg")), "{wrong}");
        }
    }
}
