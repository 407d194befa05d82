//! The coding agents that can run in a pane, one row each: how it starts, how its state is detected, how text is
//! entered, how it is ended. A new backend is a new row.
//!
//! Owns every fact about a foreign program's screen and command line. Refuses: looking and typing.

use std::path::Path;

/// How a backend's state is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knows {
    /// From the status file of Claude Code, and from its screen.
    ClaudeStatus,
    /// From the pane's title, as Codex sets it, and from its screen.
    CodexTitle,
    /// From the pane's title, as Gemini CLI sets it, and from its screen.
    GeminiTitle,
    /// From its screen alone.
    Screen,
    /// It reports its state over its own socket.
    Itself,
    /// Not at all.
    Nothing,
}

/// How its input line is found on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// It begins with one of these.
    Marked(&'static [char]),
    /// It is in a box that is open to the right: a bar at the left of each line, the last of which names the agent, and
    /// an edge below.
    Boxed,
    /// No known input line.
    Unknown,
}

/// How text is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextWay {
    /// As one bracketed paste and one Enter.
    Paste,
    /// The program reads its messages from its mailbox by itself.
    Mailbox,
    /// Never by keys; the program polls.
    Polls,
}

/// How the program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// By typing this line.
    Line(&'static str),
    /// By SIGTERM.
    Terminate,
    /// By closing its terminal.
    Hangup,
}

/// The values that a program is started with.
#[derive(Debug, Clone)]
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    /// The member's id.
    pub(crate) member: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) effort: Option<&'a str>,
    pub(crate) prompt: &'a str,
    /// The directory of the broker's database, which the member must be able to write.
    pub(crate) database_dir: &'a Path,
}

/// A coding agent that can run in a pane.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    /// How to install it.
    pub(crate) install: &'static str,
    pub(crate) knows: Knows,
    pub(crate) text: TextWay,
    pub(crate) leave: Leave,
    /// Whether Enter can be sent together with the paste. Some programs take it for a line break then.
    pub(crate) enters_at_once: bool,
    /// Whether a line that begins with `!` runs as a shell command of the user's.
    pub(crate) has_shell_line: bool,
    pub(crate) input: InputLine,
    /// The beginning of the placeholder that it shows in an empty input line in the style of typed text.
    pub(crate) placeholder: Option<&'static str>,
    /// The text near its input line while it works.
    pub(crate) at_work: &'static str,
    /// A regular expression for tmux that matches a dialog and not an idle screen. It may also match earlier
    /// conversation; so what counts is whether the position of the match changes.
    pub(crate) dialog_pattern: &'static str,
    /// A part of the path of its script, if an interpreter runs it.
    pub(crate) package: &'static str,
    /// Whether its effort can be set.
    pub(crate) has_effort: bool,
    arguments: fn(&Start<'_>) -> Vec<String>,
}

/// The prefix of a backend that is an arbitrary command.
const COMMAND: &str = "command:";

static ROWS: [Backend; 6] = [
    Backend {
        name: "claude",
        install: "npm install -g @anthropic-ai/claude-code",
        knows: Knows::ClaudeStatus,
        text: TextWay::Paste,
        leave: Leave::Line("/exit"),
        enters_at_once: true,
        has_shell_line: true,
        input: InputLine::Marked(&['❯', '>']),
        placeholder: None,
        at_work: "esc to interrupt",
        dialog_pattern: "(❯|>) +[0-9]+[.]|Esc to cancel",
        package: "/@anthropic-ai/claude-code/",
        has_effort: true,
        arguments: claude,
    },
    Backend {
        name: "codex",
        install: "npm install -g @openai/codex",
        knows: Knows::CodexTitle,
        text: TextWay::Paste,
        leave: Leave::Line("/exit"),
        enters_at_once: true,
        has_shell_line: true,
        input: InputLine::Marked(&['›']),
        placeholder: None,
        at_work: "esc to interrupt",
        dialog_pattern: "› +[0-9]+[.]|Press enter to confirm",
        package: "/@openai/codex/",
        has_effort: true,
        arguments: codex,
    },
    Backend {
        name: "caliban",
        install: "cargo install --path crates/caliban",
        knows: Knows::Itself,
        text: TextWay::Mailbox,
        leave: Leave::Terminate,
        enters_at_once: true,
        has_shell_line: false,
        input: InputLine::Unknown,
        placeholder: None,
        at_work: "",
        dialog_pattern: "",
        package: "",
        has_effort: true,
        arguments: caliban,
    },
    Backend {
        name: "gemini",
        install: "npm install -g @google/gemini-cli",
        knows: Knows::GeminiTitle,
        text: TextWay::Paste,
        leave: Leave::Line("/quit"),
        enters_at_once: false,
        has_shell_line: false,
        input: InputLine::Marked(&['>']),
        placeholder: Some("Type your message"),
        at_work: "esc to cancel",
        dialog_pattern: "● +[0-9]+[.]",
        package: "/@google/gemini-cli/",
        has_effort: false,
        arguments: gemini,
    },
    Backend {
        name: "opencode",
        install: "npm install -g opencode-ai",
        knows: Knows::Screen,
        text: TextWay::Paste,
        leave: Leave::Line("/exit"),
        enters_at_once: true,
        has_shell_line: false,
        input: InputLine::Boxed,
        placeholder: Some("Ask anything"),
        at_work: "esc interrupt",
        dialog_pattern: "Permission required",
        package: "/opencode-ai/",
        has_effort: false,
        arguments: opencode,
    },
    Backend {
        name: "command",
        install: "",
        knows: Knows::Nothing,
        text: TextWay::Polls,
        leave: Leave::Hangup,
        enters_at_once: true,
        has_shell_line: false,
        input: InputLine::Unknown,
        placeholder: None,
        at_work: "",
        dialog_pattern: "",
        package: "",
        has_effort: false,
        arguments: |start| vec![start.prompt.to_owned()],
    },
];

impl Backend {
    /// The row of a backend by its full name; `command:…` is an arbitrary command.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let name = if name.starts_with(COMMAND) { "command" } else { name };
        ROWS.iter().find(|row| row.name == name)
    }

    /// The names that a user can give.
    pub(crate) fn names() -> Vec<String> {
        ROWS.iter()
            .map(|row| if row.name == "command" { "command:\"…\"".to_owned() } else { row.name.to_owned() })
            .collect()
    }

    /// Parses a backend as typed.
    pub(crate) fn parse(given: &str) -> Option<&'static Self> {
        match given.strip_prefix(COMMAND) {
            Some(command) if command.trim().is_empty() => None,
            Some(_) => Self::named(given),
            None if given == "command" => None,
            None => Self::named(given),
        }
    }

    /// The program and its arguments. `full` differs from the row's name only for `command:…`.
    pub(crate) fn command_line(&self, full: &str, start: &Start<'_>) -> (String, Vec<String>) {
        match full.strip_prefix(COMMAND) {
            // The prompt is the last argument of the command, as for the other backends.
            Some(command) => (
                "/bin/sh".to_owned(),
                vec![
                    "-c".to_owned(),
                    format!("exec {command} \"$@\""),
                    "sh".to_owned(),
                    start.prompt.to_owned(),
                ],
            ),
            None => (self.name.to_owned(), (self.arguments)(start)),
        }
    }
}

fn options(pairs: &[(&str, Option<&str>)]) -> Vec<String> {
    pairs
        .iter()
        .filter_map(|(flag, value)| value.map(|value| [(*flag).to_owned(), value.to_owned()]))
        .flatten()
        .collect()
}

fn with_prompt(mut arguments: Vec<String>, prompt: &str) -> Vec<String> {
    arguments.push(prompt.to_owned());
    arguments
}

fn claude(start: &Start<'_>) -> Vec<String> {
    let mut arguments = options(&[
        ("--permission-mode", Some("dontAsk")),
        ("--name", Some(start.name)),
        ("--model", start.model),
        ("--effort", start.effort),
    ]);
    // A prompt that begins with a dash must not be taken for a flag.
    arguments.push("--".to_owned());
    with_prompt(arguments, start.prompt)
}

fn codex(start: &Start<'_>) -> Vec<String> {
    let database_dir = start.database_dir.display().to_string();
    let effort = start.effort.map(|effort| format!("model_reasoning_effort=\"{effort}\""));
    let mut arguments = options(&[
        ("--ask-for-approval", Some("never")),
        ("--sandbox", Some("workspace-write")),
        // Without it a member in codex's sandbox could not write the broker's database.
        ("--add-dir", Some(&database_dir)),
        ("--model", start.model),
        ("--config", effort.as_deref()),
    ]);
    arguments.push("--".to_owned());
    with_prompt(arguments, start.prompt)
}

fn caliban(start: &Start<'_>) -> Vec<String> {
    let mut arguments = options(&[
        ("--member", Some(start.member)),
        // The same rights as the other backends: edits without asking, commands within the sandbox. Anything else is
        // asked in its pane.
        ("--permission-mode", Some(caliban_contract::member::MODE.name())),
        ("--model", start.model),
        ("--effort", start.effort),
    ]);
    arguments.push("--".to_owned());
    with_prompt(arguments, start.prompt)
}

fn gemini(start: &Start<'_>) -> Vec<String> {
    let mut arguments = options(&[("--model", start.model)]);
    arguments.push("--prompt-interactive".to_owned());
    with_prompt(arguments, start.prompt)
}

fn opencode(start: &Start<'_>) -> Vec<String> {
    let mut arguments = options(&[("--model", start.model)]);
    arguments.push("--prompt".to_owned());
    with_prompt(arguments, start.prompt)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Backend, Start};

    #[test]
    fn m10_each_backend_starts_with_the_documented_command_line() {
        let line = |name: &str, model, effort| {
            let start = Start {
                name: "rev",
                member: "M",
                model,
                effort,
                prompt: "do it",
                database_dir: Path::new("/db"),
            };
            let (program, arguments) = Backend::parse(name).expect("a row").command_line(name, &start);
            format!("{program} {}", arguments.join(" "))
        };
        assert_eq!(line("claude", None, None), "claude --permission-mode dontAsk --name rev -- do it");
        assert_eq!(
            line("claude", Some("opus"), Some("high")),
            "claude --permission-mode dontAsk --name rev --model opus --effort high -- do it"
        );
        assert_eq!(
            line("codex", Some("gpt-5"), Some("high")),
            "codex --ask-for-approval never --sandbox workspace-write --add-dir /db --model gpt-5 \
             --config model_reasoning_effort=\"high\" -- do it"
        );
        assert_eq!(
            line("caliban", Some("m"), Some("high")),
            "caliban --member M --permission-mode accept-edits --model m --effort high -- do it"
        );
        assert_eq!(line("gemini", Some("m"), None), "gemini --model m --prompt-interactive do it");
        assert_eq!(line("opencode", None, None), "opencode --prompt do it");
        assert_eq!(line("command:aider --x", None, None), "/bin/sh -c exec aider --x \"$@\" sh do it");
        for wrong in ["", "vim", "command", "command:", "command: "] {
            assert!(Backend::parse(wrong).is_none(), "{wrong}");
        }
    }
}
