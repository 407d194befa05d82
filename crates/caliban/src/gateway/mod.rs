//! `caliban gateway`: other programs' model requests through the machine's ledger and governor (`caliban-gateway`).
//!
//! Here is what the gateway needs of the settings: whose keys, which limits. One file for each verb.

mod env;
mod programs;
mod run;
mod serve;
mod tokens;

pub(crate) use run::with_parent_main;

use std::{io, path::Path, time::Duration};

use caliban_contract::ancestry::{self, Ancestry};
use caliban_core::{
    budget::Limits,
    priority::{Priority, Standing},
    setup::AgentSetup,
};
use caliban_gateway::{
    Gateway, GatewayOptions, Keys, NewToken, StartError, Token, Tokens, Upstream, Upstreams,
};
use caliban_providers::{ProviderKind, relay::Relay};

use crate::{
    cli::gateway::{GatewayArgs, GatewayCommand, TokenBudget},
    compose::{
        model::governed,
        spending::{self, agent_above, budget_limits, ledger, ledger_of},
    },
    report::{self, Code, Failure, Result},
    settings::{Environment, Layer, Loaded, provider::OutagePatience, values::Usd},
};

/// How other programs stand at a rate limit: as agents in the background; below an agent, not before that one.
fn standing() -> Standing {
    match agent_above() {
        Some(above) => spending::standing(&AgentSetup::default(), false, Some(&above)).0,
        None => Standing::Background(Priority::Normal),
    }
}

pub(crate) async fn gateway(args: &GatewayArgs, environment: &Environment, cwd: &Path) -> Result<Code> {
    let loaded = crate::settings::load(environment, cwd, Layer::default())?;
    match &args.command {
        Some(GatewayCommand::Run(args)) => run::run(args, &loaded, environment).await,
        Some(GatewayCommand::Env(args)) => env::env(args, &loaded),
        Some(GatewayCommand::Token(command)) => tokens::tokens(command, &loaded).await,
        None => serve::serve(args, &loaded, environment).await,
    }
}

/// Whether a process of an agent asks. What an agent's programs spend, the agent spends: it gets no account beside its own.
fn only_a_person(what: &str) -> Result<()> {
    match ancestry::own().agent_in_words() {
        Some(who) => Err(Failure::new(format!("{who} cannot {what}: a person does"))
            .hint("`caliban gateway run -- PROGRAM` runs a program on the agent's own budget")),
        None => Ok(()),
    }
}

/// A gateway with the keys of the settings.
async fn bind(
    port: u16,
    max_wait: u64,
    keys: Keys,
    loaded: &Loaded,
    environment: &Environment,
) -> Result<Gateway> {
    let (fallback, of_caller) = (loaded.clone(), environment.clone());
    let options = GatewayOptions {
        port,
        max_wait: Duration::from_secs(max_wait),
        keys,
        upstreams: upstreams(loaded, environment)?,
        ledger: Box::new(move |token: &Token| {
            // The limits of the repo that the token was made in.
            let of_repo = crate::settings::load(&of_caller, &token.repo, Layer::default());
            ledger_of(of_repo.as_ref().unwrap_or(&fallback), &token.repo, token.above.as_deref())
        }),
        tell: Box::new(report::note),
    };
    Gateway::bind(options).await.map_err(|error| {
        let hint = match &error {
            StartError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "does a gateway run already? --port 0 takes any port that is free"
            }
            StartError::Listen { .. } => "--port 0 takes any port that is free",
            StartError::Itself(_) => {
                "start the gateway in a shell without the gateway's ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL"
            }
        };
        Failure::new(error.to_string()).hint(hint)
    })
}

/// Where requests of each protocol go, by the settings. An error when none can go anywhere.
fn upstreams(loaded: &Loaded, environment: &Environment) -> Result<Upstreams> {
    use ProviderKind::{Anthropic, Gemini, LlamaCpp, LmStudio, Ollama, OpenAi, OpenAiChat, OpenRouter, Vllm};
    let machine = ledger(loaded, None);
    let of = |kind: ProviderKind| -> Result<Upstream> {
        let target = loaded.endpoint(kind)?;
        let config = governed(loaded, &target, environment, OutagePatience::Long, (&machine, standing()));
        let relay = Relay::new(config)?;
        Ok(Upstream { relay, billing: target.billing() })
    };
    // Everything that speaks Chat Completions, when the settings name it.
    let speaks_chat =
        |kind: &ProviderKind| matches!(kind, OpenAiChat | Ollama | OpenRouter | LmStudio | LlamaCpp | Vllm);
    let chat = loaded.settings.provider.filter(speaks_chat).unwrap_or(OpenAiChat);
    match (of(Anthropic), of(OpenAi), of(chat), of(Gemini)) {
        (Err(failure), Err(_), Err(_), Err(_)) => Err(failure),
        (anthropic, responses, chat, gemini) => Ok(Upstreams {
            anthropic: anthropic.map_err(in_words),
            responses: responses.map_err(in_words),
            chat: chat.map_err(in_words),
            gemini: gemini.map_err(in_words),
        }),
    }
}

fn in_words(failure: Failure) -> String {
    match failure.hint {
        Some(hint) => format!("the gateway cannot pass this on: {} ({hint})", failure.message),
        None => format!("the gateway cannot pass this on: {}", failure.message),
    }
}

/// The account above what this process runs: that of the agent whose process it is, none for a person's.
fn above() -> Result<Option<String>> {
    let whose = match ancestry::own() {
        // A team's member spends from no agent's account.
        Ancestry::Member => None,
        above => above.agent_in_words(),
    };
    match (agent_above().and_then(|above| above.account()), whose) {
        (Some(account), _) => Ok(Some(account)),
        (None, None) => Ok(None),
        (None, Some(who)) => Err(Failure::new(format!("nobody can tell whose budget {who} spends from"))
            .hint("an agent in the background has one: caliban --bg; or ask the user to run the program")),
    }
}

/// A token for a program in this place, with the limits of the flags, else of the settings.
fn new_token(label: &str, budget: &TokenBudget, above: Option<String>, loaded: &Loaded) -> NewToken {
    // What an agent's program spends is in the tree of that agent already.
    let usual = match above {
        Some(_) => budget_limits(&loaded.settings),
        None => budget_limits(&loaded.settings).narrower(loaded.settings.budget.per_tree.limits()),
    };
    let limits = Limits {
        tokens: budget.budget_tokens.map(std::num::NonZeroU64::get).or(usual.tokens),
        usd: budget.budget_usd.map(Usd::micro).or(usual.usd),
        ..Limits::NONE
    };
    NewToken { label: label.to_owned(), repo: loaded.root.clone(), above, limits }
}

fn kept(loaded: &Loaded) -> Tokens {
    Tokens::from(loaded.paths.data.as_path())
}

impl From<caliban_gateway::TokenError> for Failure {
    fn from(error: caliban_gateway::TokenError) -> Self {
        Self::new(error.to_string())
    }
}
