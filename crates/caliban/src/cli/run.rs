//! The flags of a run, and the setup that they make.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::{Path, PathBuf},
    str::FromStr,
};

use caliban_core::{budget::Limits, message::Effort, mode::Mode, setup::AgentSetup};
use caliban_providers::ProviderKind;
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};

use crate::{
    report::{Failure, Result},
    settings::values::{Usd, provider_names},
};

/// The work itself: what is asked and how the answer is printed.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunFlags {
    /// What to do
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,
    /// Work on the prompt, print the answer and exit; stdin is appended to the prompt
    #[arg(short, long, value_name = "PROMPT", num_args = 0..=1)]
    pub print: Option<Option<String>>,
    /// Work on the prompt in the background: print the agent's id and return at once; stdin is appended to the prompt
    #[arg(long, value_name = "PROMPT", num_args = 0..=1,
          conflicts_with_all = ["print", "output_format", "output_schema", "continue_last", "resume", "verbose"])]
    pub bg: Option<Option<String>>,
    /// With --bg: read the prompt from this file; - is stdin
    #[arg(long, value_name = "FILE", requires = "bg")]
    pub prompt_file: Option<PathBuf>,
    /// Print JSON: the answer, as --output-format json does, or with --bg the new agent
    #[arg(long, conflicts_with = "output_format")]
    pub json: bool,
    /// How the answer is printed
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Text)]
    pub output_format: OutputFormat,
    /// With -p: the answer is JSON that the JSON Schema in this file allows; one that is not is asked for again
    #[arg(long, value_name = "FILE", requires = "print")]
    pub output_schema: Option<PathBuf>,
    /// Go on with the last session of this directory
    #[arg(short, long = "continue", conflicts_with = "resume")]
    pub continue_last: bool,
    /// Go on with this session: an id or the beginning of one; without it the screen lists the sessions to choose from
    #[arg(short, long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,
    /// Append this text to the system prompt
    #[arg(long, value_name = "TEXT")]
    pub system_prompt_append: Option<String>,
    /// Show on stderr what the agent does
    #[arg(short, long)]
    pub verbose: bool,
    /// Be this member of a broker team, whose pane this is; `cafleet member create` says it
    #[arg(long, value_name = "ID", hide = true, conflicts_with_all = ["print", "bg", "plain", "output_format"])]
    pub member: Option<String>,
    /// On a terminal: no screen, plain lines
    #[arg(long)]
    pub plain: bool,
    /// On a terminal: what is finished goes into the terminal's own scrollback, not onto a screen of its own
    #[arg(long)]
    pub no_alt_screen: bool,
    /// On a terminal: labelled lines, and nothing that moves by itself (implies --no-alt-screen)
    #[arg(long)]
    pub screen_reader: bool,
}

impl RunFlags {
    pub(crate) fn output_format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output_format }
    }

    /// Whether a session is to be chosen on the screen: `--resume` without an id.
    pub(crate) fn chooses_session(&self) -> bool {
        self.resume.as_deref() == Some("")
    }

    /// The prompt, wherever it stands.
    pub(crate) fn prompt(&self) -> Option<&str> {
        let behind = self.print.as_ref().or(self.bg.as_ref());
        self.prompt.as_deref().or(behind.and_then(Option::as_deref))
    }

    /// Whether `-p` was given.
    pub(crate) fn is_print(&self) -> bool {
        self.print.is_some()
    }

    /// What is wrong with the flags taken together.
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.prompt, self.print.as_ref().or(self.bg.as_ref())) {
            (Some(one), Some(Some(other))) => Err(format!(
                "found two prompts, `{other}` and `{one}`, expected one; put a prompt of several words in quotes"
            )),
            (None, Some(None)) if self.bg.is_some() && self.prompt_file.is_none() => {
                Err("--bg needs a prompt: say what to do, or where it is written with --prompt-file"
                    .to_owned())
            }
            _ if self.prompt_file.is_some() && self.prompt().is_some() => {
                Err("found a prompt and --prompt-file, expected one of them".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// How the answer is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer as text
    #[default]
    Text,
    /// One JSON object at the end
    Json,
    /// One JSON object for each event, one to a line
    StreamJson,
}

// How the agent is set up. Each flag is stronger than its setting.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Agent")]
pub(crate) struct AgentFlags {
    /// Who answers
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(provider_names()))]
    pub provider: Option<String>,
    /// The model, as the provider names it
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The model that goes on when the other is overloaded, limited or not there
    #[arg(long, value_name = "MODEL")]
    pub fallback_model: Option<String>,
    /// Reasoning effort; falls back to the next lower level
    #[arg(long, value_name = "EFFORT", value_parser = PossibleValuesParser::new(Effort::ALL.map(Effort::word)).try_map(|word| effort(&word)))]
    pub effort: Option<Effort>,
    /// A script that answers instead of a model (implies --provider scripted)
    #[arg(long, value_name = "FILE", value_parser = utf8_path())]
    pub script: Option<PathBuf>,
    /// End after this many model requests
    #[arg(long, value_name = "N", value_parser = above_zero::<NonZeroU32>, allow_negative_numbers = true)]
    pub max_turns: Option<NonZeroU32>,
    /// End when this many tokens are spent, cache included
    #[arg(long, value_name = "TOKENS", value_parser = above_zero::<NonZeroU64>, allow_negative_numbers = true)]
    pub budget_tokens: Option<NonZeroU64>,
    /// End when this many US dollars are spent
    #[arg(long, value_name = "USD", value_parser = dollars, allow_negative_numbers = true)]
    pub budget_usd: Option<Usd>,
    /// What happens where no rule decides
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(Mode::NAMES).try_map(|word| word.parse::<Mode>()))]
    pub permission_mode: Option<Mode>,
    /// Allow what this rule covers, such as "Bash(git add *)" or "Edit(src/**)"; may be given again
    #[arg(long, value_name = "RULE")]
    pub allow: Vec<String>,
    /// Refuse what this rule covers; may be given again
    #[arg(long, value_name = "RULE")]
    pub deny: Vec<String>,
    /// Let the agent work in this directory too; may be given again
    #[arg(long, value_name = "DIR", value_parser = utf8_path())]
    pub add_dir: Vec<PathBuf>,
    /// Do not let the model start sub-agents
    #[arg(long)]
    pub no_sub_agent: bool,
}

impl AgentFlags {
    /// What is wrong with the flags taken together.
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.script, self.provider.as_deref()) {
            (Some(_), Some(provider)) if provider != ProviderKind::Scripted.name() => Err(format!(
                "--script is for --provider scripted, and --provider {provider} would not read it"
            )),
            _ => Ok(()),
        }
    }

    /// Refuses a directory that is not there: it is mistyped, and would be granted without a word.
    pub(crate) fn check_dirs(&self, cwd: &Path) -> Result<()> {
        match self.add_dir.iter().map(|dir| cwd.join(dir)).find(|dir| !dir.is_dir()) {
            Some(missing) => {
                let text = format!("--add-dir: there is no directory {}", missing.display());
                Err(Failure::usage(text).hint("name one that is there, or make it first"))
            }
            None => Ok(()),
        }
    }

    /// The setup that the flags make. Relative paths are taken from `cwd`; `~` is left for the settings to resolve.
    pub(crate) fn setup(&self, cwd: &Path) -> AgentSetup {
        let absolute = |path: &PathBuf| if path.starts_with("~") { path.clone() } else { cwd.join(path) };
        AgentSetup {
            provider: self.provider.clone(),
            model: self.model.clone(),
            fallback_model: self.fallback_model.clone(),
            effort: self.effort,
            script: self.script.as_ref().map(absolute),
            max_turns: self.max_turns.map(|turns| turns.get().into()),
            budget: Limits {
                tokens: self.budget_tokens.map(NonZeroU64::get),
                usd: self.budget_usd.map(Usd::micro),
                ..Limits::NONE
            },
            permission_mode: self.permission_mode,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            add_dirs: self.add_dir.iter().map(absolute).collect(),
            no_sub_agent: self.no_sub_agent,
            ..AgentSetup::default()
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  caliban acp                               # the command that an editor starts
  caliban acp --model claude-opus-4-5 --permission-mode accept-edits")]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub agent: AgentFlags,
}

/// The words are those of the settings.
fn effort(word: &str) -> Result<Effort, serde_json::Error> {
    serde_json::from_value(word.into())
}

pub(super) fn dollars(text: &str) -> Result<Usd, String> {
    let amount: f64 = text.parse().map_err(|_| "expected an amount of dollars, such as 0.50".to_owned())?;
    Usd::new(amount).ok_or_else(|| "expected an amount of dollars above 0".to_owned())
}

/// A limit: `NonZero…` of std has no words for people.
pub(super) fn above_zero<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number above 0".to_owned())
}

/// Settings are text, so a path in them is too; refusing others here beats losing their bytes later.
fn utf8_path() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    clap::builder::NonEmptyStringValueParser::new().map(PathBuf::from)
}
