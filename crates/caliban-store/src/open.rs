//! Opening a store: one connection, durable settings, the current schema.
//!
//! Owns the order of first use. Opening a store that is current costs one cheap read; only when
//! that read does not show the current version is a file lock taken, the version read again, and
//! the missing steps run in one transaction. So any number of processes may come first at once.
//!
//! The connection is single and has no pool: a short command pays for one thread and nothing else.
//! A command that ends calls [`Db::leave`], which skips SQLite's checkpoint at close; instead the
//! writer that finds the log grown past [`WAL_LIMIT`] folds it back (see `Db::tidy`).
//!
//! After a commit that failed the connection is not used again: what it thinks of its transaction is not to be relied
//! upon. The next use opens another (r12).
//!
//! Refuses: downgrading, guessing about files of other programs, retrying a failed commit.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, Row};
use tokio::time::Instant;

use crate::{StoreError, StoreUrl};

/// How long to wait for a lock that somebody else holds.
const BUSY_LIMIT: Duration = Duration::from_secs(30);
/// The log is folded back into the database when it is larger than this. Bounds what a crash
/// recovery reads, which every process that comes alone has to do (3 µs for each 4 KiB, so 0.1 ms on average); folding
/// back costs two syncs, here once in sixteen messages.
pub const WAL_LIMIT: u64 = 256 * 1024;
/// A process that stays lets the log grow to this many times the limit before it folds it back
/// in the middle of its work.
const WAL_PATIENCE: u64 = 4;
/// How long folding back may wait for readers before it is left to the next writer.
const TIDY_TIMEOUT: Duration = Duration::from_millis(20);

/// Does a thing again while the store is busy: recovering a log after a crash and changing the
/// journal's mode need locks that SQLite does not wait for itself. (A macro, because a function that
/// takes an async closure would make futures that cannot be sent to another thread.)
macro_rules! patiently {
    ($url:expr, $work:expr) => {{
        let give_up = Instant::now() + BUSY_LIMIT;
        loop {
            match $work.await.map_err(|error| StoreError::from_sqlx($url.file(), error)) {
                Err(error) if error.is_busy() && Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..20))).await;
                }
                other => break other,
            }
        }
    }};
}

/// The tables of one part of the project, as steps that are never changed once released.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// SQLite's mark in the file header that tells our files from others'.
    pub application_id: i64,
    /// Step `n` brings version `n` to `n + 1`.
    pub steps: &'static [&'static str],
}

impl Schema {
    /// The version that this build writes.
    #[must_use]
    pub fn version(&self) -> i64 {
        i64::try_from(self.steps.len()).unwrap_or(i64::MAX)
    }
}

/// What opening did to the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// It was current.
    Current,
    /// There was no schema; now there is.
    Created,
    /// It was older.
    Upgraded {
        /// The version before.
        from: i64,
    },
}

/// An open store with its single connection.
#[derive(Debug)]
pub struct Db {
    conn: SqliteConnection,
    url: StoreUrl,
    schema: Schema,
    prepared: Prepared,
    trust: Trust,
}

/// Whether the connection may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It is as it should be.
    Good,
    /// A transaction of it ended in a way that nobody knows.
    Lost,
}

impl Db {
    /// Opens the store and brings it to `schema`.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing is half made.
    pub async fn open(url: &StoreUrl, schema: &Schema) -> Result<Self, StoreError> {
        if url.file().exists() {
            let mut conn = connect(url).await?;
            if read_version(&mut conn, url, schema).await? == Some(schema.version()) {
                return Ok(Self::of(conn, url, schema, Prepared::Current));
            }
            close(conn).await;
        }
        Self::prepare(url, schema).await
    }

    fn of(conn: SqliteConnection, url: &StoreUrl, schema: &Schema, prepared: Prepared) -> Self {
        Self { conn, url: url.clone(), schema: *schema, prepared, trust: Trust::Good }
    }

    /// What opening had to do.
    #[must_use]
    pub fn prepared(&self) -> Prepared {
        self.prepared
    }

    /// Where the store is.
    #[must_use]
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The connection, for reads; a new one after a commit that failed.
    ///
    /// # Errors
    /// When a new one cannot be had.
    pub(crate) async fn conn(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        if self.trust == Trust::Lost {
            let fresh = Self::open(&self.url, &self.schema).await?;
            close(std::mem::replace(&mut self.conn, fresh.conn)).await;
            self.trust = Trust::Good;
        }
        Ok(&mut self.conn)
    }

    /// Puts a driver's error into words.
    pub(crate) fn words(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(self.url.file(), error)
    }

    /// Begins a write transaction: from here to its end nobody else writes. What is not
    /// [finished](Tx::finish) is rolled back.
    ///
    /// # Errors
    /// When the lock cannot be had in time, or the store fails.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        self.conn().await?;
        self.tidy(WAL_LIMIT * WAL_PATIENCE).await;
        let file = self.url.file();
        match self.conn.begin_with("BEGIN IMMEDIATE").await {
            Ok(inner) => Ok(Tx { inner, file, trust: &mut self.trust }),
            Err(error) => Err(StoreError::from_sqlx(file, error)),
        }
    }

    /// Runs `work` between [`Db::begin`] and [`Tx::finish`]. The future can stay on one thread only; where it
    /// has to move, use the two themselves.
    ///
    /// # Errors
    /// What `work` returns, or the store's own failure. After an error nothing is acknowledged.
    pub(crate) async fn write<T, E: From<StoreError>>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tx = self.begin().await?;
        let outcome = work(&mut tx).await;
        tx.finish(outcome).await
    }

    /// Best effort: folds a log larger than `limit` back into the database. What was committed is
    /// already durable, so a failure here is the next writer's work, not an error.
    async fn tidy(&mut self, limit: u64) {
        let grown = fs::metadata(self.url.wal_file()).is_ok_and(|log| log.len() > limit);
        if !grown {
            return;
        }
        let patience = sqlx::AssertSqlSafe(format!("PRAGMA busy_timeout = {}", TIDY_TIMEOUT.as_millis()));
        let restore = sqlx::AssertSqlSafe(format!("PRAGMA busy_timeout = {}", BUSY_LIMIT.as_millis()));
        let _ = self.conn.execute(patience).await;
        let _ = self.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let _ = self.conn.execute(restore).await;
    }

    /// Ends the use of the store in a process that has answered and is about to exit. All that was
    /// acknowledged is in the log and safe, as after a crash; the log is only folded back when it
    /// has grown.
    pub async fn leave(mut self) {
        self.tidy(WAL_LIMIT).await;
        // Dropping would close the connection on its thread while the process exits.
        std::mem::forget(self.conn);
    }

    /// Closes the store in a process that lives on.
    pub async fn close(self) {
        close(self.conn).await;
    }

    async fn prepare(url: &StoreUrl, schema: &Schema) -> Result<Self, StoreError> {
        let words = |error: io::Error| StoreError::from_io(url.file(), &error);
        if let Some(dir) = url.file().parent() {
            if dir.exists() && !dir.is_dir() {
                let detail = format!("{} is not a directory", dir.display());
                return Err(StoreError::Open { file: url.file().to_owned(), detail });
            }
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(words)?;
        }
        let _lock = lock_first_use(url).await?;
        // Made by hand so that it is private whatever the umask; SQLite gives log and index the same mode.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(url.file()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(words(error)),
        }
        let mut conn = connect(url).await?;
        let words = |error| StoreError::from_sqlx(url.file(), error);
        let found = match read_version(&mut conn, url, schema).await? {
            Some(version) => version,
            None if has_tables(&mut conn).await.map_err(words)? => {
                return Err(StoreError::Foreign(url.file().to_owned()));
            }
            None => 0,
        };
        if found == schema.version() {
            return Ok(Self::of(conn, url, schema, Prepared::Current));
        }
        patiently!(url, conn.execute("PRAGMA journal_mode = WAL"))?;
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(words)?;
        for step in schema.steps.iter().skip(usize::try_from(found).unwrap_or_default()) {
            tx.execute(*step).await.map_err(words)?;
        }
        let mark = format!(
            "PRAGMA application_id = {}; PRAGMA user_version = {}",
            schema.application_id,
            schema.version()
        );
        tx.execute(sqlx::AssertSqlSafe(mark)).await.map_err(words)?;
        tx.commit().await.map_err(words)?;
        let prepared = if found == 0 { Prepared::Created } else { Prepared::Upgraded { from: found } };
        Ok(Self::of(conn, url, schema, prepared))
    }
}

/// A write transaction in progress.
pub(crate) struct Tx<'a> {
    inner: sqlx::Transaction<'a, sqlx::Sqlite>,
    file: &'a std::path::Path,
    trust: &'a mut Trust,
}

impl Tx<'_> {
    /// The connection inside the transaction.
    pub(crate) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.inner
    }

    /// Puts a driver's error into words.
    pub(crate) fn words(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(self.file, error)
    }

    /// Commits when `outcome` is good, else rolls back. A commit that fails is not tried again: what
    /// the disk has after a failed sync nobody knows, so it is not acknowledged.
    ///
    /// # Errors
    /// The outcome's own, or the commit's.
    pub(crate) async fn finish<T, E: From<StoreError>>(self, outcome: Result<T, E>) -> Result<T, E> {
        match outcome {
            Ok(value) => match self.inner.commit().await {
                Ok(()) => Ok(value),
                Err(error) => {
                    *self.trust = Trust::Lost;
                    Err(StoreError::from_sqlx(self.file, error).into())
                }
            },
            Err(error) => {
                // One that cannot be rolled back dies with its connection.
                if self.inner.rollback().await.is_err() {
                    *self.trust = Trust::Lost;
                }
                Err(error)
            }
        }
    }
}

async fn connect(url: &StoreUrl) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(url.file())
        .create_if_missing(false)
        .busy_timeout(BUSY_LIMIT)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        // SQLite's own checkpoints forget their progress when a process leaves; `tidy` does not.
        .pragma("wal_autocheckpoint", "0")
        .disable_statement_logging();
    patiently!(url, options.connect())
}

async fn close(conn: SqliteConnection) {
    // Best effort: whatever is unflushed is in the log, which the next opener reads.
    let _ = conn.close().await;
}

/// The version in the file; `None` when the file is not marked as ours.
async fn read_version(
    conn: &mut SqliteConnection,
    url: &StoreUrl,
    schema: &Schema,
) -> Result<Option<i64>, StoreError> {
    const VERSION: &str =
        "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version";
    let row = patiently!(url, conn.fetch_one(VERSION))?;
    let (mark, found): (i64, i64) = (row.get(0), row.get(1));
    if mark == 0 && found == 0 {
        return Ok(None);
    }
    if mark != schema.application_id {
        return Err(StoreError::Foreign(url.file().to_owned()));
    }
    if found > schema.version() {
        return Err(StoreError::Newer { file: url.file().to_owned(), found, known: schema.version() });
    }
    Ok(Some(found))
}

async fn has_tables(conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let row = conn.fetch_one("SELECT COUNT(*) FROM sqlite_master").await?;
    Ok(row.get::<i64, _>(0) > 0)
}

/// Waits for the lock of first use without blocking the runtime's timers.
async fn lock_first_use(url: &StoreUrl) -> Result<File, StoreError> {
    let words = |error: io::Error| StoreError::from_io(url.file(), &error);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(url.lock_file())
        .map_err(words)?;
    let give_up = Instant::now() + BUSY_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::Busy(url.file().to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(words(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema = Schema {
        application_id: 7,
        steps: &["CREATE TABLE a (x INTEGER PRIMARY KEY); \
                  CREATE TABLE b (y INTEGER REFERENCES a(x) DEFERRABLE INITIALLY DEFERRED);"],
    };

    async fn write(db: &mut Db, sql: &'static str) -> Result<(), StoreError> {
        db.write(async |tx: &mut Tx<'_>| -> Result<(), StoreError> {
            tx.conn().execute(sql).await.map(drop).map_err(|error| tx.words(error))
        })
        .await
    }

    async fn count(db: &mut Db) -> i64 {
        let conn = db.conn().await.expect("connection");
        sqlx::query_scalar("SELECT COUNT(*) FROM a").fetch_one(conn).await.expect("count")
    }

    /// A reference to nothing, looked at when the transaction ends, makes the commit itself fail and leaves the
    /// transaction open. The driver gets over this one by itself; tests/it/faults.rs has the one that it does not.
    #[tokio::test]
    async fn r12_after_a_commit_that_failed_nothing_of_it_is_seen_and_the_next_write_works() {
        let dir = tempfile::tempdir().expect("temp dir");
        let url = StoreUrl::sqlite(dir.path().join("store.db"));
        let mut db = Db::open(&url, &SCHEMA).await.expect("open");
        write(&mut db, "INSERT INTO a VALUES (1)").await.expect("first");
        let failed = write(&mut db, "INSERT INTO a VALUES (2); INSERT INTO b VALUES (9)").await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(count(&mut db).await, 1, "what was not acknowledged is not shown");
        let failed = write(&mut db, "INSERT INTO b VALUES (9)").await;
        assert!(failed.is_err(), "{failed:?}");
        write(&mut db, "INSERT INTO a VALUES (3)").await.expect("the next write");
        assert_eq!(count(&mut db).await, 2);
        db.close().await;
    }
}
