//! What SQLite itself costs, for `cargo xtask bench broker`: `commit FILE` opens a database with the store's
//! settings, commits one row to a bare table and prints how many microseconds that took. `commit FILE --rows N` commits N rows
//! at a time for a second and prints how many rows a second that is.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Instant;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor};

/// About the size of a message.
const ROW: &str = "INSERT INTO bare (text) VALUES (hex(zeroblob(200)))";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: commit FILE");
        return ExitCode::from(2);
    };
    let rows = std::env::args().skip(2).collect::<Vec<_>>();
    let measured = match rows.as_slice() {
        [flag, rows] if flag == "--rows" => grouped(&file, rows.parse().unwrap_or(1)).await,
        _ => committed(&file).await,
    };
    match measured {
        Ok(us) => {
            println!("{us}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn committed(file: &str) -> Result<u128, sqlx::Error> {
    let options = || {
        SqliteConnectOptions::new()
            .filename(file)
            .foreign_keys(true)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", "0")
            .disable_statement_logging()
    };
    if !std::path::Path::new(file).exists() {
        let making = options().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let mut connection = making.connect().await?;
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT NOT NULL)").await?;
        leave(connection);
    }
    let start = Instant::now();
    let mut connection = options().connect().await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    transaction.execute(ROW).await?;
    transaction.commit().await?;
    let elapsed = start.elapsed().as_micros();
    leave(connection);
    Ok(elapsed)
}

/// How many rows a second are durable when so many are committed at a time.
async fn grouped(file: &str, rows: u32) -> Result<u128, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .disable_statement_logging();
    let mut connection = options.connect().await?;
    connection
        .execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        .await?;
    let (start, mut count) = (Instant::now(), 0_u128);
    while start.elapsed().as_millis() < 1000 {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for _ in 0..rows {
            transaction.execute(ROW).await?;
        }
        transaction.commit().await?;
        count += u128::from(rows);
    }
    let rate = count * 1000 / start.elapsed().as_millis().max(1);
    leave(connection);
    Ok(rate)
}

/// As the store does it: closing would fold the log back and remove it, and the next process would pay for a new one.
fn leave(connection: SqliteConnection) {
    std::mem::forget(connection);
}
