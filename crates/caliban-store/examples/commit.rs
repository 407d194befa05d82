//! What SQLite itself costs, for `cargo xtask bench broker`: `commit FILE` opens a database with the store's
//! settings, commits one row to a bare table and prints how many microseconds that took.

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
    match committed(&file).await {
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

/// As the store does it: closing would fold the log back and remove it, and the next process would pay for a new one.
fn leave(connection: SqliteConnection) {
    std::mem::forget(connection);
}
