//! What the ledger costs, for `cargo xtask bench ledger`: `ledger DIR ROUNDS` commits one row to a bare table, and reserves and
//! settles one request, in turns. Prints the medians in microseconds: the bare commit, the request.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use caliban_core::budget::Limits;
use caliban_core::usage::Usage;
use caliban_store::ledger::{Account, AccountId, Ledger, LedgerRequest, ReservationOwner};
use caliban_store::{Stamp, StoreUrl};
use jiff::civil::date;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(rounds)) = (args.next(), args.next().and_then(|n| n.parse().ok())) else {
        eprintln!("usage: ledger DIR ROUNDS");
        return ExitCode::from(2);
    };
    match measured(Path::new(&dir), rounds).await {
        Ok((bare, request)) => {
            println!("{bare} {request}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn measured(dir: &Path, rounds: usize) -> Result<(u128, u128), Box<dyn std::error::Error>> {
    let mut bare = SqliteConnectOptions::new()
        .filename(dir.join("bare.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", "0")
        .disable_statement_logging()
        .connect()
        .await?;
    bare.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT NOT NULL)").await?;
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.join("ledger.db"))).await?;
    let limits = |tokens| Limits { tokens: Some(tokens), ..Limits::NONE };
    // A sub-agent of an agent that an agent has started: as deep as most are.
    let ids = ["a", "b", "c"].map(|name| AccountId::new("9f", name));
    for (n, id) in ids.iter().enumerate() {
        let parent = n.checked_sub(1).map(|above| ids[above].clone());
        let (repo, tree) = ("/repo".into(), limits(u64::MAX >> 16));
        let account = Account { id: id.clone(), parent, repo, label: None, own: Limits::NONE, tree };
        ledger.open_account(&account, Stamp::now()).await?;
    }
    let owner = ReservationOwner { boot: "b".to_owned(), pid: 1, started: 1 };
    let usage = Usage { input: 1000, output: 100, ..Usage::default() };
    let request = LedgerRequest {
        account: &ids[2],
        owner: &owner,
        model: "m",
        usage,
        cost: None,
        turns: 1,
        day: date(2026, 11, 17),
        per_repo_day: limits(u64::MAX >> 16),
        per_day: limits(u64::MAX >> 16),
    };
    let (mut bares, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let mut transaction = bare.begin_with("BEGIN IMMEDIATE").await?;
        transaction.execute("INSERT INTO bare (text) VALUES (hex(zeroblob(200)))").await?;
        transaction.commit().await?;
        bares.push(start.elapsed().as_micros());
        let start = Instant::now();
        let granted = ledger.reserve(&request, Stamp::now()).await?;
        ledger.settle(&granted.reservation, usage, None, 1).await?;
        requests.push(start.elapsed().as_micros());
    }
    ledger.leave().await;
    Ok((median(bares), median(requests)))
}

fn median(mut samples: Vec<u128>) -> u128 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
