//! `caliban budget show`, `set` and `history`: the machine's ledger for people.

use std::io::Write;

use caliban_contract::ancestry;
use caliban_core::{
    budget::{Limits, Meter},
    inert,
    price::MicroUsd,
};
use caliban_store::{
    StoreUrl,
    ledger::{AccountId, By, FILE, Filter, Ledger, Pool, SetLimit, SpendingSum},
};
use jiff::civil::Date;
use serde::Serialize;

use crate::{
    Here,
    cli::budget::{BudgetCommand, Column},
    report::{Code, Failure, Result},
    settings::{Layer, Loaded, values::Usd},
};

/// How a pool stands, as it is shown.
#[derive(Debug, Serialize)]
struct ShownPool {
    pool: String,
    tokens: u64,
    micro_usd: u64,
    /// Requests whose price is not known.
    unpriced: u64,
    in_flight_tokens: u64,
    in_flight_micro_usd: u64,
    limit_tokens: Option<u64>,
    limit_micro_usd: Option<u64>,
    /// Where the limit comes from: `settings`, `set` (by `caliban budget set`, or raised by a yes) or `agent`.
    limit_from: Option<&'static str>,
    /// What the settings say, also where something else holds.
    settings_limit_tokens: Option<u64>,
    settings_limit_micro_usd: Option<u64>,
}

pub(crate) async fn budget(
    command: &BudgetCommand,
    Here { environment, cwd, out }: Here<'_>,
) -> Result<Code> {
    let loaded = crate::settings::load(environment, cwd, Layer::default())?;
    let mut ledger = open(&loaded).await?;
    let today = caliban_contract::local_time::now().date();
    match command {
        BudgetCommand::Show { agent, json } => {
            settle_dead(&mut ledger).await?;
            let shown = match agent {
                Some(name) => vec![of_agent(&mut ledger, name).await?],
                None => of_today(&mut ledger, &loaded, today).await?,
            };
            show(&shown, *json, out)?;
        }
        BudgetCommand::Set { whose, tokens, usd, unset } => {
            if let Some(who) = ancestry::own().agent_in_words() {
                let text = format!("{who} cannot change what agents may spend: a person does");
                return Err(Failure::new(text));
            }
            let limits = Limits {
                tokens: tokens.map(std::num::NonZeroU64::get),
                usd: usd.map(Usd::micro),
                ..Limits::NONE
            };
            let told = set(&mut ledger, &loaded, whose, (!*unset).then_some(limits)).await?;
            writeln!(out, "{told}")?;
        }
        BudgetCommand::History { by, days, here, json } => {
            let back = jiff::Span::new().days(i64::from(days.get()) - 1);
            let filter = Filter {
                since: today.checked_sub(back).ok(),
                until: None,
                repo: here.then(|| loaded.root.clone()),
            };
            let columns: Vec<By> = by.iter().map(|column| column.of_store()).collect();
            let lines = ledger.history(&columns, &filter).await?;
            history(by, &lines, *json, out)?;
        }
    }
    ledger.leave().await;
    Ok(Code::Done)
}

/// Books what dead processes hold. While many others write, what they hold is shown as in flight instead.
pub(crate) async fn settle_dead(ledger: &mut Ledger) -> Result<()> {
    match caliban_agent::budget::settle_dead(ledger).await {
        Err(error) if error.is_busy() => Ok(()),
        settled => Ok(settled?),
    }
}

async fn open(loaded: &Loaded) -> Result<Ledger> {
    Ok(Ledger::open(&StoreUrl::sqlite(loaded.paths.data.join(FILE))).await?)
}

impl From<caliban_store::StoreError> for Failure {
    fn from(error: caliban_store::StoreError) -> Self {
        Self::new(format!("the ledger: {error}"))
    }
}

impl Column {
    fn of_store(self) -> By {
        match self {
            Self::Day => By::Day,
            Self::Repo => By::Repo,
            Self::Model => By::Model,
            Self::Label => By::Label,
            Self::Agent => By::Agent,
        }
    }
}

impl ShownPool {
    fn new(pool: String, meter: &Meter, limits: Limits, from: &'static str, of_settings: Limits) -> Self {
        let has_limit = (limits.tokens, limits.usd) != (None, None);
        Self {
            pool,
            tokens: meter.spent.usage.total(),
            micro_usd: meter.spent.usd.0,
            unpriced: meter.spent.unpriced,
            in_flight_tokens: meter.held.tokens,
            in_flight_micro_usd: meter.held.usd.0,
            limit_tokens: limits.tokens,
            limit_micro_usd: limits.usd.map(|usd| usd.0),
            limit_from: has_limit.then_some(from),
            settings_limit_tokens: of_settings.tokens,
            settings_limit_micro_usd: of_settings.usd.map(|usd| usd.0),
        }
    }

    fn limit_in_words(&self) -> String {
        let part = |used: u64, limit: u64| u128::from(used) * 100 / u128::from(limit.max(1));
        let tokens = self
            .limit_tokens
            .map(|limit| format!("{limit} tokens ({} %)", part(self.tokens + self.in_flight_tokens, limit)));
        let usd = self.limit_micro_usd.map(|limit| {
            format!("{} ({} %)", MicroUsd(limit), part(self.micro_usd + self.in_flight_micro_usd, limit))
        });
        let all: Vec<String> = tokens.into_iter().chain(usd).collect();
        match self.limit_from {
            Some(from) => format!("{}, {from}", all.join(", ")),
            None => "none".to_owned(),
        }
    }
}

/// The day's pools.
async fn of_today(ledger: &mut Ledger, loaded: &Loaded, today: Date) -> Result<Vec<ShownPool>> {
    let budget = &loaded.settings.budget;
    let pools = [
        (Pool::Day(today), "all agents today".to_owned(), budget.per_day.limits()),
        (
            Pool::RepoDay(loaded.root.clone(), today),
            "this repo today".to_owned(),
            budget.per_repo_day.limits(),
        ),
        (Pool::Everything, "all agents, ever".to_owned(), Limits::NONE),
    ];
    let mut shown = Vec::new();
    for (pool, name, of_settings) in pools {
        let state = ledger.pool(&pool, of_settings).await?;
        let (limits, from) = state.limits.map_or((of_settings, "settings"), |limits| (limits, "set"));
        shown.push(ShownPool::new(name, &state.meter, limits, from, of_settings));
    }
    Ok(shown)
}

async fn of_agent(ledger: &mut Ledger, name: &str) -> Result<ShownPool> {
    let id = find(ledger, name).await?;
    let state = ledger.pool(&Pool::Tree(id.clone()), Limits::NONE).await?;
    let name = format!("agent {}", id.short());
    Ok(ShownPool::new(name, &state.meter, state.limits.unwrap_or(Limits::NONE), "agent", Limits::NONE))
}

/// The account that a person means.
async fn find(ledger: &mut Ledger, name: &str) -> Result<AccountId> {
    let found = ledger.find_accounts(name).await?;
    // Its helpers begin with the same letters.
    let mut roots = found.iter().filter(|account| !account.id.short().contains('/'));
    let hint = "`caliban budget history --by agent` lists those that have spent something";
    match (roots.next(), roots.next(), found.first()) {
        (Some(one), None, _) | (None, _, Some(one)) => Ok(one.id.clone()),
        (Some(newest), Some(_), _) if newest.label.as_deref() == Some(name) => Ok(newest.id.clone()),
        (Some(_), Some(_), _) => {
            Err(Failure::new(format!("{} is the beginning of several ids", inert::quoted(name))).hint(hint))
        }
        (None, _, None) => {
            Err(Failure::new(format!("no agent {} has spent anything on this machine", inert::quoted(name)))
                .hint(hint))
        }
    }
}

async fn set(ledger: &mut Ledger, loaded: &Loaded, whose: &str, limits: Option<Limits>) -> Result<String> {
    let (limit, words) = match whose {
        "day" => (SetLimit::Day, "all agents, each day".to_owned()),
        "repo" => (SetLimit::RepoDay(loaded.root.clone()), "the agents of this repo, each day".to_owned()),
        agent => {
            let id = find(ledger, agent).await?;
            ledger.set_tree_limits(&id, limits.unwrap_or(Limits::NONE)).await?;
            let words = format!("agent {} and all that it started", id.short());
            return Ok(format!("{words}: {}", in_words(limits, "no limit")));
        }
    };
    ledger.change_limit(&limit, limits).await?;
    Ok(format!("{words}: {}", in_words(limits, "as the settings say")))
}

fn in_words(limits: Option<Limits>, none: &str) -> String {
    let Some(limits) = limits else { return none.to_owned() };
    let tokens = limits.tokens.map(|tokens| format!("{tokens} tokens"));
    let usd = limits.usd.map(|usd| usd.to_string());
    let all: Vec<String> = tokens.into_iter().chain(usd).collect();
    format!("at most {}", all.join(" and "))
}

fn show(shown: &[ShownPool], json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        return crate::fleet::json_line(&shown, out);
    }
    writeln!(out, "{:<20}  {:>12}  {:>10}  {:>10}  LIMIT", "WHO", "TOKENS", "COST", "IN FLIGHT")?;
    for line in shown {
        let cost = money(line.micro_usd, line.unpriced);
        let limit = line.limit_in_words();
        writeln!(
            out,
            "{:<20}  {:>12}  {cost:>10}  {:>10}  {limit}",
            line.pool, line.tokens, line.in_flight_tokens
        )?;
    }
    Ok(())
}

/// An amount; with a plus where requests are in it whose price is not known.
fn money(micro_usd: u64, unpriced: u64) -> String {
    format!("{}{}", MicroUsd(micro_usd), if unpriced > 0 { "+?" } else { "" })
}

fn history(by: &[Column], sums: &[SpendingSum], json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        return crate::fleet::json_line(&sums, out);
    }
    if sums.is_empty() {
        writeln!(out, "Nothing was spent.")?;
        return Ok(());
    }
    let texts: Vec<Vec<String>> =
        sums.iter().map(|sum| by.iter().map(|column| cell(sum, *column)).collect()).collect();
    let heads: Vec<String> = by.iter().map(|column| format!("{column:?}").to_uppercase()).collect();
    let widths: Vec<usize> = (0..by.len())
        .map(|n| texts.iter().map(|row| row[n].chars().count()).max().unwrap_or(0).max(heads[n].len()))
        .collect();
    let cells = |row: &[String]| -> String {
        row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}  ")).collect()
    };
    writeln!(out, "{}{:>8}  {:>12}  {:>10}", cells(&heads), "REQUESTS", "TOKENS", "COST")?;
    for (sum, row) in sums.iter().zip(&texts) {
        let cost = money(sum.spent.usd.0, sum.spent.unpriced);
        writeln!(out, "{}{:>8}  {:>12}  {cost:>10}", cells(row), sum.requests, sum.spent.usage.total())?;
    }
    Ok(())
}

/// What a sum is grouped by, as text.
fn cell(sum: &SpendingSum, column: Column) -> String {
    let text = match column {
        Column::Day => sum.day.map(|day| day.to_string()),
        Column::Repo => sum.repo.as_ref().map(|repo| repo.display().to_string()),
        Column::Model => sum.model.clone(),
        Column::Label => sum.label.clone(),
        Column::Agent => sum.agent.as_ref().map(|agent| agent.short().to_owned()),
    };
    inert::line(text.as_deref().unwrap_or("-")).into_owned()
}
