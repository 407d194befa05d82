//! `caliban gateway …`: the arguments.

use std::{ffi::OsString, num::NonZeroU64};

use clap::{Args, Subcommand};

use super::run::{above_zero, dollars};
use crate::settings::values::Usd;

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Serves on 127.0.0.1 until Ctrl+C, with the keys of your settings: /v1/messages (Anthropic), /v1/chat/completions and \
/v1/responses (OpenAI). A program needs the address and a token.

Examples:
  caliban gateway run -- claude -p \"fix the failing test\"
  caliban gateway run --budget-usd 2 -- codex exec \"fix the failing test\"
  caliban gateway
  caliban gateway token create --label ci --budget-usd 5
  eval \"$(caliban gateway env --label shell)\"")]
pub(crate) struct GatewayArgs {
    /// The port; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = caliban_gateway::DEFAULT_PORT)]
    pub port: u16,
    /// How long a request waits for a rate limit before its program is told to come back later
    #[arg(long, value_name = "SECONDS", default_value_t = caliban_gateway::MAX_WAIT.as_secs(),
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub max_wait: u64,
    /// Print one line of JSON when it listens
    #[arg(long)]
    pub json: bool,
    /// Something else than to serve
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
}

// What to do about the gateway. (No doc comment: it would become the command's description.)
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Run one program behind a gateway and a token of its own, which end with it
    #[command(after_help = "\
Sets ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, OPENAI_BASE_URL, OPENAI_API_KEY, GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY for the program, and ends with its exit code.

Examples:
  caliban gateway run -- claude -p \"fix the failing test\"
  caliban gateway run --budget-usd 2 --label nightly -- codex exec \"update the changelog\"")]
    Run(RunArgs),
    /// Print shell commands that lead a shell's programs through the running gateway, with a token of their own
    #[command(after_help = "\
Examples:
  eval \"$(caliban gateway env --label shell)\"
  caliban gateway env --label ci --budget-tokens 500000 --json")]
    Env(EnvArgs),
    /// Make, list and remove the tokens of programs
    #[command(after_help = "\
Examples:
  caliban gateway token create --label codex --budget-usd 2
  caliban gateway token list
  caliban gateway token rm codex")]
    Token(TokenCommand),
}

// What a token may spend.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TokenBudget {
    /// At most this many tokens of models, cache included
    #[arg(long, value_name = "TOKENS", value_parser = above_zero::<NonZeroU64>, allow_negative_numbers = true)]
    pub budget_tokens: Option<NonZeroU64>,
    /// At most this many US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, allow_negative_numbers = true)]
    pub budget_usd: Option<Usd>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// A name for `caliban budget`; the program's unless it is given
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    #[command(flatten)]
    pub budget: TokenBudget,
    /// How long a request waits for a rate limit before the program is told to come back later
    #[arg(long, value_name = "SECONDS", default_value_t = caliban_gateway::MAX_WAIT.as_secs(),
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub max_wait: u64,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EnvArgs {
    /// A name for `caliban budget`
    #[arg(long, value_name = "TEXT")]
    pub label: String,
    #[command(flatten)]
    pub budget: TokenBudget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do about tokens.
#[derive(Debug, Clone, Subcommand)]
#[command(defer = true)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once: only its hash is kept
    #[command(after_help = "\
Examples:
  caliban gateway token create --label codex --budget-usd 2
  caliban gateway token create --label ci --budget-tokens 500000 --json | jq -r .token")]
    Create {
        /// A name for people and for `caliban budget`
        #[arg(long, value_name = "TEXT")]
        label: String,
        #[command(flatten)]
        budget: TokenBudget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the tokens and what was spent with them
    #[command(after_help = "\
Examples:
  caliban gateway token list
  caliban gateway token list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove tokens: they are void at once
    #[command(after_help = "\
Examples:
  caliban gateway token rm 3fa85f64
  caliban gateway token rm codex")]
    Rm {
        /// Their ids, the beginnings of them, or labels
        #[arg(value_name = "TOKEN", required = true)]
        tokens: Vec<String>,
    },
}
