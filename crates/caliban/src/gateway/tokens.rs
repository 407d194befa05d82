//! `caliban gateway token create`, `list` and `rm`.

use std::{io::Write as _, path::PathBuf};

use caliban_core::{budget::Limits, inert, price::MicroUsd};
use caliban_gateway::Token;
use caliban_store::{
    StoreUrl,
    ledger::{AccountId, FILE, Ledger, Pool},
};
use serde::Serialize;

use super::{kept, new_token, only_a_person};
use crate::{
    cli::gateway::TokenCommand,
    fleet::json::At,
    report::{self, Code, Failure, Result},
    settings::Loaded,
};

/// A token that was just made: the only time that its text is shown.
#[derive(Debug, Serialize)]
struct Made<'a> {
    id: &'a str,
    label: &'a str,
    token: &'a str,
    account: String,
    budget_tokens: Option<u64>,
    budget_micro_usd: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ListedToken {
    id: String,
    label: String,
    account: String,
    repo: PathBuf,
    created_at: At,
    tokens: u64,
    micro_usd: u64,
    in_flight_tokens: u64,
    limit_tokens: Option<u64>,
    limit_micro_usd: Option<u64>,
}

pub(super) async fn tokens(command: &TokenCommand, loaded: &Loaded) -> Result<Code> {
    match command {
        TokenCommand::Create { label, budget, json } => {
            only_a_person("make a token")?;
            let (token, text) = kept(loaded).create(new_token(label, budget, None, loaded))?;
            let mut out = std::io::stdout().lock();
            if *json {
                let made = Made {
                    id: &token.id,
                    label,
                    token: &text,
                    account: token.account(),
                    budget_tokens: token.budget_tokens,
                    budget_micro_usd: token.budget_micro_usd,
                };
                crate::fleet::json_line(&made, &mut out)?;
            } else {
                writeln!(out, "{text}")?;
                report::note(&format!(
                    "token {} is shown this once; `caliban gateway token rm {0}` makes it void",
                    token.id
                ));
            }
        }
        TokenCommand::List { json } => {
            let listed = listed(loaded).await?;
            let mut out = std::io::stdout().lock();
            if *json {
                crate::fleet::json_line(&listed, &mut out)?;
            } else {
                show(&listed, &mut out)?;
            }
        }
        TokenCommand::Rm { tokens } => {
            only_a_person("remove a token")?;
            for name in tokens {
                let token = find(loaded, name)?;
                kept(loaded).remove(&token.id)?;
                writeln!(std::io::stdout(), "{}", token.id)?;
            }
        }
    }
    Ok(Code::Done)
}

/// The token that a person means.
fn find(loaded: &Loaded, name: &str) -> Result<Token> {
    let all = kept(loaded).list()?;
    let mut found = all.into_iter().filter(|token| token.label == name || token.id.starts_with(name));
    let hint = "`caliban gateway token list` lists them";
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            Err(Failure::new(format!("{} is several tokens: name one by its id", inert::quoted(name)))
                .hint(hint))
        }
        (None, _) => Err(Failure::new(format!("there is no token {}", inert::quoted(name))).hint(hint)),
    }
}

async fn listed(loaded: &Loaded) -> Result<Vec<ListedToken>> {
    let mut ledger = Ledger::open(&StoreUrl::sqlite(loaded.paths.data.join(FILE))).await?;
    crate::budget::settle_dead(&mut ledger).await?;
    let mut listed = Vec::new();
    for token in kept(loaded).list()? {
        let account = AccountId::new(&caliban_contract::repo_hash(&token.repo), &token.account());
        let state = ledger.pool(&Pool::Tree(account), Limits::NONE).await?;
        let limits: Limits = state.limits.unwrap_or(token.limits());
        listed.push(ListedToken {
            account: token.account(),
            created_at: At::seconds(i64::try_from(token.created_ms / 1_000).unwrap_or(i64::MAX)),
            tokens: state.meter.spent.usage.total(),
            micro_usd: state.meter.spent.usd.0,
            in_flight_tokens: state.meter.held.tokens,
            limit_tokens: limits.tokens,
            limit_micro_usd: limits.usd.map(|usd| usd.0),
            id: token.id,
            label: token.label,
            repo: token.repo,
        });
    }
    ledger.leave().await;
    Ok(listed)
}

fn show(listed: &[ListedToken], out: &mut dyn std::io::Write) -> Result<()> {
    if listed.is_empty() {
        writeln!(out, "There are no tokens.")?;
        return Ok(());
    }
    writeln!(out, "{:<8}  {:<20}  {:>12}  {:>10}  LIMIT", "ID", "LABEL", "TOKENS", "COST")?;
    for token in listed {
        let tokens = token.limit_tokens.map(|limit| format!("{limit} tokens"));
        let usd = token.limit_micro_usd.map(|limit| MicroUsd(limit).to_string());
        let limits: Vec<String> = tokens.into_iter().chain(usd).collect();
        let limit = if limits.is_empty() { "none".to_owned() } else { limits.join(", ") };
        let (label, cost) = (inert::line(&token.label), MicroUsd(token.micro_usd));
        writeln!(out, "{:<8}  {label:<20}  {:>12}  {cost:>10}  {limit}", token.id, token.tokens)?;
    }
    Ok(())
}
