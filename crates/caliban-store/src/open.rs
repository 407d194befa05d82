//! Opening a store: one connection, durable settings, the tables.
//!
//! Owns the order of first use. Opening a store that has its tables costs one cheap read. Only if that read finds no
//! tables, a file lock is taken, the version is read again, and the tables are made in one transaction. So any number
//! of processes may race to be the first.
//!
//! The connection is single and has no pool: a short command pays for one thread and nothing else.
//! A command that ends calls [`Db::leave`], which skips SQLite's checkpoint at close; instead the writer that finds the
//! log larger than [`WAL_LIMIT`] checkpoints it (see `Db::tidy`).
//!
//! After a failed commit the connection is not used again, because the state of its transaction is unknown. The next
//! use opens another connection (r12).
//!
//! A connection keeps its files even when somebody deletes, cuts or replaces them; what is written there then is lost,
//! and nobody else reads it. So each use of a store that is watched (`Watch`) looks whether the file is still the opened one, and so
//! does each commit before it is acknowledged. If it is not, nothing more is written (r25). A running process never makes a new file.
//!
//! A file of an older version is upgraded in the same way: one lock, one transaction for the missing steps (r22).
//!
//! Refuses: downgrading, upgrading from before the first version with steps, guessing about files of other programs,
//! retrying a failed commit.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, Row};
use tokio::time::Instant;

use crate::ask::Change;
use crate::url::SqliteFile;
use crate::{StoreError, StoreUrl};

/// Maximum time to wait for a lock that another process holds.
const BUSY_LIMIT: Duration = Duration::from_secs(30);
/// The log is checkpointed when it is larger than this. This bounds what a process has to read when it opens a store
/// that no other process has open (3 µs for each 4 KiB, so 0.1 ms on average). A checkpoint costs two syncs, here once
/// in sixteen messages.
pub const WAL_LIMIT: u64 = 256 * 1024;
/// A long-lived process lets the log grow to this many times the limit before it checkpoints in the middle of its work.
const WAL_PATIENCE: u64 = 4;
/// Under many writes the log has the same pages again and again. A process then checkpoints once in this time ...
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// ... or when the log is larger than this.
const WAL_CAP: u64 = 16 * 1024 * 1024;
/// Maximum number of rows that the connection's thread may be ahead of the reader.
const ROWS_AT_ONCE: usize = 2048;
/// Maximum time that a checkpoint waits for readers before it is left to the next writer.
const TIDY_TIMEOUT: Duration = Duration::from_millis(20);

/// Repeats an operation while the store is busy: recovering a log after a crash and changing the journal's mode need
/// locks that SQLite does not wait for by itself. (A macro, because a function that takes an async closure would make
/// futures that are not `Send`.)
macro_rules! patiently {
    ($file:expr, $work:expr) => {{
        let give_up = Instant::now() + BUSY_LIMIT;
        loop {
            match $work.await.map_err(|error| StoreError::from_sqlx($file.path(), error)) {
                Err(error) if error.is_busy() && Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..20))).await;
                }
                other => break other,
            }
        }
    }};
}

/// The tables of one part of the store.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The mark in SQLite's file header that identifies our files.
    pub application_id: i64,
    /// The version of `tables`. A different number means different tables.
    pub base: i64,
    /// The statements that make them.
    pub tables: &'static str,
    /// The changes since, in order: each step turns one version into the next. A new file gets all of them, so that
    /// there is one path to every version. A released step never changes.
    pub steps: &'static [&'static str],
}

impl Schema {
    /// The version that this build makes and understands.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.base + self.steps.len() as i64
    }
}

/// What opening did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenReport {
    /// The tables were there.
    Current,
    /// The tables were made.
    Created,
    /// The tables were upgraded from this older version.
    Upgraded(i64),
}

/// An open store with its single connection.
#[derive(Debug)]
pub struct Db {
    conn: SqliteConnection,
    file: SqliteFile,
    schema: Schema,
    prepared: OpenReport,
    trust: ConnectionTrust,
    /// The files that the connection has open, where it matters that they are still there.
    watch: Option<Watch>,
    /// How often another file was opened in place of the first one.
    generation: u64,
    /// The connection's present setting.
    durability: Durability,
    /// When this process last checkpointed the log.
    tidied_at: Option<Instant>,
}

/// How durable a transaction is when its commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// On the disk: survives a power cut.
    Synced,
    /// Handed to the kernel: survives the end of every process, and after the next synced commit of any process also a
    /// power cut.
    Written,
}

impl Durability {
    fn begin(self) -> &'static str {
        match self {
            Self::Synced => "PRAGMA synchronous = FULL; BEGIN IMMEDIATE",
            Self::Written => "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE",
        }
    }
}

/// Whether the connection may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionTrust {
    /// Yes.
    Good,
    /// No: the outcome of its last transaction is unknown.
    Lost,
}

/// Which files a connection has open: database and log, and how long the database was at least. Neither is replaced
/// or cut by any of our processes while a connection is open.
#[derive(Debug, Clone, Copy, Default)]
struct FileState {
    database: Option<(u64, u64)>,
    log: Option<(u64, u64)>,
    length: u64,
}

impl FileState {
    /// Whether these are the same files. A log that is not there yet may come.
    fn is_same(self, now: Self) -> bool {
        self.database == now.database
            && now.length >= self.length
            && self.log.is_none_or(|log| now.log == Some(log))
    }
}

/// A watched store: its files as they were last seen.
#[derive(Debug)]
struct Watch {
    seen: FileState,
    place: WatchPlace,
}

/// Where a watched file is looked for.
#[derive(Debug)]
enum WatchPlace {
    /// By its path: others find it there. A whole file that another process made or restored is opened in its place.
    Path,
    /// In its directory, wherever that was moved. Whoever uses it knows more than the file says, so no other file takes its place.
    Directory(OwnedFd),
}

impl Watch {
    fn new(file: &SqliteFile, place: WatchPlace) -> Self {
        Self { seen: place.look(file), place }
    }

    /// Whether the names still lead to the opened files, and what is there now.
    fn look(&self, file: &SqliteFile) -> (bool, FileState) {
        let now = self.place.look(file);
        (self.seen.is_same(now), now)
    }
}

impl WatchPlace {
    fn look(&self, file: &SqliteFile) -> FileState {
        let stat = |path: &Path| {
            let found = match self {
                Self::Path => rustix::fs::stat(path),
                Self::Directory(directory) => {
                    rustix::fs::statat(directory, path.file_name()?, AtFlags::empty())
                }
            };
            found.ok()
        };
        let identity = |found: &rustix::fs::Stat| (found.st_dev, found.st_ino);
        let database = stat(file.path());
        FileState {
            database: database.as_ref().map(identity),
            log: stat(&file.wal_file()).as_ref().map(identity),
            length: database.map_or(0, |found| u64::try_from(found.st_size).unwrap_or_default()),
        }
    }
}

impl Db {
    /// Opens the store and makes the tables of `schema` if there are none.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing is half made.
    pub async fn open(url: &StoreUrl, schema: &Schema) -> Result<Self, StoreError> {
        let StoreUrl::Sqlite(file) = url;
        Self::open_file(file, schema).await
    }

    async fn open_file(file: &SqliteFile, schema: &Schema) -> Result<Self, StoreError> {
        if file.path().exists() {
            let mut conn = connect(file).await?;
            if found(&mut conn, file, schema).await? == FoundSchema::Current {
                return Ok(Self::of(conn, file, schema, OpenReport::Current));
            }
            close(conn).await;
        }
        Self::prepare(file, schema).await
    }

    fn of(conn: SqliteConnection, file: &SqliteFile, schema: &Schema, prepared: OpenReport) -> Self {
        let durability = Durability::Synced;
        Self {
            conn,
            file: file.clone(),
            schema: *schema,
            prepared,
            trust: ConnectionTrust::Good,
            watch: None,
            generation: 0,
            durability,
            tidied_at: None,
        }
    }

    /// What opening the store did.
    #[must_use]
    pub fn prepared(&self) -> OpenReport {
        self.prepared
    }

    /// The database file.
    pub(crate) fn file(&self) -> &SqliteFile {
        &self.file
    }

    /// Watches the file at its path from now on: nothing is written to one that was deleted, cut or replaced. A whole one that
    /// comes to its place is opened.
    pub(crate) fn watched(self) -> Self {
        let watch = Some(Watch::new(&self.file, WatchPlace::Path));
        Self { watch, ..self }
    }

    /// Watches the file in its directory from now on, which may be moved. Once the file is another one, this store is of no more use.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub(crate) fn watched_in_its_directory(self) -> Result<Self, StoreError> {
        let path = self.file.path();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path.parent().unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(|error| StoreError::from_io(path, &error.into()))?;
        let watch = Some(Watch::new(&self.file, WatchPlace::Directory(directory)));
        Ok(Self { watch, ..self })
    }

    /// How often another file was opened because the first one was deleted, cut or replaced.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The connection for reads; a new one after a failed commit, and when the file was replaced by a whole one.
    ///
    /// # Errors
    /// When a new connection cannot be opened, or the file is gone or no longer whole.
    pub(crate) async fn conn(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        let now = self.watch.as_ref().map(|watch| watch.look(&self.file));
        if let Some((false, now)) = now {
            self.open_successor(now).await?;
        } else if self.trust == ConnectionTrust::Lost {
            let fresh = Self::open_file(&self.file, &self.schema).await?;
            close(std::mem::replace(&mut self.conn, fresh.conn)).await;
            (self.trust, self.durability) = (ConnectionTrust::Good, fresh.durability);
            self.see();
        } else if let (Some(watch), Some((_, now))) = (&mut self.watch, now) {
            watch.seen = now;
        }
        Ok(&mut self.conn)
    }

    /// Opens the whole file that stands in place of the opened one, where that may be.
    async fn open_successor(&mut self, now: FileState) -> Result<(), StoreError> {
        let lost = || StoreError::Replaced(self.file.path().to_owned());
        let may_be = self.watch.as_ref().is_some_and(|watch| matches!(watch.place, WatchPlace::Path));
        if !may_be || now.database.is_none() {
            return Err(lost());
        }
        let mut conn = match connect(&self.file).await {
            // No database at all.
            Err(StoreError::Damaged { .. }) => return Err(lost()),
            other => other?,
        };
        if !is_whole(&mut conn, &self.file, &self.schema).await {
            close(conn).await;
            return Err(lost());
        }
        close(std::mem::replace(&mut self.conn, conn)).await;
        (self.trust, self.durability) = (ConnectionTrust::Good, Durability::Synced);
        self.see();
        self.generation += 1;
        Ok(())
    }

    /// The files are as the connection has just opened them.
    fn see(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.seen = watch.place.look(&self.file);
        }
    }

    /// Translates an error of the database driver.
    pub(crate) fn words(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(self.file.path(), error)
    }

    /// Begins a write transaction: no other process writes until it ends. A transaction that is not
    /// [finished](Tx::finish) is rolled back.
    ///
    /// # Errors
    /// When the write lock is not free in time, or the store fails.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        self.begin_as(Durability::Synced).await
    }

    /// Like [`Db::begin`], with this durability.
    ///
    /// # Errors
    /// As for [`Db::begin`].
    pub(crate) async fn begin_as(&mut self, durability: Durability) -> Result<Tx<'_>, StoreError> {
        self.conn().await?;
        let is_storm = self.tidied_at.is_some_and(|at| at.elapsed() < TIDY_EVERY);
        self.tidy(if is_storm { WAL_CAP } else { WAL_LIMIT * WAL_PATIENCE }).await;
        let begin = if self.durability == durability { "BEGIN IMMEDIATE" } else { durability.begin() };
        let begun = self.conn.begin_with(begin).await;
        // The pragma takes effect even if the lock is not granted.
        self.durability = durability;
        let (file, watch) = (&self.file, self.watch.as_ref());
        match begun {
            Ok(inner) => Ok(Tx { inner, file, watch, trust: &mut self.trust }),
            Err(error) => Err(StoreError::from_sqlx(file.path(), error)),
        }
    }

    /// Runs `work` between [`Db::begin`] and [`Tx::finish`]. The future is not `Send`; where it has to be, call those
    /// two instead.
    ///
    /// # Errors
    /// What `work` returns, or a failure of the store. After an error nothing is acknowledged.
    pub(crate) async fn write<T, E: From<StoreError>>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tx = self.begin().await?;
        let outcome = work(&mut tx).await;
        tx.finish(outcome).await
    }

    /// Runs one statement as a transaction of its own; returns the number of changed rows. A guarded update has won if
    /// that is one.
    ///
    /// # Errors
    /// When the store fails; then nothing is acknowledged.
    pub(crate) async fn run(&mut self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let outcome = statement.run(&mut tx).await;
        tx.finish(outcome).await
    }

    /// Best effort: checkpoints a log larger than `limit`. Commits are durable without it, so after a failure the next
    /// writer tries again.
    pub(crate) async fn tidy(&mut self, limit: u64) {
        let grown = fs::metadata(self.file.wal_file()).is_ok_and(|log| log.len() > limit);
        if !grown {
            return;
        }
        let patience = sqlx::AssertSqlSafe(format!("PRAGMA busy_timeout = {}", TIDY_TIMEOUT.as_millis()));
        let restore = sqlx::AssertSqlSafe(format!("PRAGMA busy_timeout = {}", BUSY_LIMIT.as_millis()));
        let _ = self.conn.execute(patience).await;
        let _ = self.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let _ = self.conn.execute(restore).await;
        self.tidied_at = Some(Instant::now());
    }

    /// Ends the use of the store in a process that has given its answer and is about to exit. Acknowledged writes are
    /// safe in the log, as after a crash. The log is checkpointed only if it has grown.
    pub async fn leave(mut self) {
        self.tidy(WAL_LIMIT).await;
        // Dropping would close the connection on its thread while the process exits.
        std::mem::forget(self.conn);
    }

    /// Closes the store in a process that lives on.
    pub async fn close(self) {
        close(self.conn).await;
    }

    async fn prepare(file: &SqliteFile, schema: &Schema) -> Result<Self, StoreError> {
        let words = |error: io::Error| StoreError::from_io(file.path(), &error);
        if let Some(dir) = file.path().parent() {
            if dir.exists() && !dir.is_dir() {
                let detail = format!("{} is not a directory", dir.display());
                return Err(StoreError::Open { file: file.path().to_owned(), detail });
            }
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(words)?;
        }
        let _lock = lock_first_use(file).await?;
        // Created here so that it is private whatever the umask; SQLite gives log and index the same mode.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file.path()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(words(error)),
        }
        let mut conn = connect(file).await?;
        let words = |error| StoreError::from_sqlx(file.path(), error);
        let prepared = match found(&mut conn, file, schema).await? {
            FoundSchema::Current => return Ok(Self::of(conn, file, schema, OpenReport::Current)),
            FoundSchema::Nothing => OpenReport::Created,
            FoundSchema::Older(version) => OpenReport::Upgraded(version),
        };
        patiently!(file, conn.execute("PRAGMA journal_mode = WAL"))?;
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(words)?;
        let missing = match prepared {
            OpenReport::Upgraded(version) => usize::try_from(version - schema.base).unwrap_or_default(),
            _ => {
                tx.execute(schema.tables).await.map_err(words)?;
                0
            }
        };
        for step in schema.steps.iter().skip(missing) {
            tx.execute(*step).await.map_err(words)?;
        }
        let mark = format!(
            "PRAGMA application_id = {}; PRAGMA user_version = {}",
            schema.application_id,
            schema.version()
        );
        tx.execute(sqlx::AssertSqlSafe(mark)).await.map_err(words)?;
        tx.commit().await.map_err(words)?;
        Ok(Self::of(conn, file, schema, prepared))
    }
}

/// A statement with its values.
pub(crate) type Statement<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// A write transaction in progress.
pub(crate) struct Tx<'a> {
    inner: sqlx::Transaction<'a, sqlx::Sqlite>,
    file: &'a SqliteFile,
    watch: Option<&'a Watch>,
    trust: &'a mut ConnectionTrust,
}

impl Tx<'_> {
    /// The connection inside the transaction.
    pub(crate) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.inner
    }

    /// Translates an error of the database driver.
    pub(crate) fn words(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(self.file.path(), error)
    }

    /// Commits when `outcome` is `Ok`, else rolls back. A commit that fails is not retried and not acknowledged: after a
    /// failed sync the content of the disk is unknown. Nor is one into a file that is no longer at its place.
    ///
    /// # Errors
    /// The error of `outcome`, or of the commit.
    pub(crate) async fn finish<T, E: From<StoreError>>(self, outcome: Result<T, E>) -> Result<T, E> {
        match outcome {
            Ok(value) => match self.inner.commit().await {
                Ok(()) if self.watch.is_none_or(|watch| watch.look(self.file).0) => Ok(value),
                Ok(()) => Err(StoreError::Replaced(self.file.path().to_owned()).into()),
                Err(error) => {
                    *self.trust = ConnectionTrust::Lost;
                    Err(StoreError::from_sqlx(self.file.path(), error).into())
                }
            },
            Err(error) => {
                // A transaction that cannot be rolled back ends with its connection.
                if self.inner.rollback().await.is_err() {
                    *self.trust = ConnectionTrust::Lost;
                }
                Err(error)
            }
        }
    }
}

async fn connect(file: &SqliteFile) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(file.path())
        .create_if_missing(false)
        .busy_timeout(BUSY_LIMIT)
        .foreign_keys(true)
        // A long result is passed on in few pieces: each piece wakes the other thread.
        .row_buffer_size(ROWS_AT_ONCE)
        .synchronous(SqliteSynchronous::Full)
        // SQLite's own checkpoint would start over in every process; `tidy` finishes it.
        .pragma("wal_autocheckpoint", "0")
        // A statement that writes many rows keeps a journal to undo them, which need not go through a file.
        .pragma("temp_store", "MEMORY")
        // Deleted content must not be readable in the file any more.
        .pragma("secure_delete", "ON")
        .disable_statement_logging();
    patiently!(file, options.connect())
}

async fn close(conn: SqliteConnection) {
    // Best effort: the log has every commit, and the next process that opens the store reads it.
    let _ = conn.close().await;
}

/// The schema found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundSchema {
    Nothing,
    /// An older version that can be upgraded.
    Older(i64),
    Current,
}

/// The schema in the file. Anything but an empty file, the present version or one that can be upgraded is an error.
async fn found(
    conn: &mut SqliteConnection,
    file: &SqliteFile,
    schema: &Schema,
) -> Result<FoundSchema, StoreError> {
    const MARKS: &str = "SELECT application_id, user_version, (SELECT COUNT(*) FROM sqlite_master) \
                         FROM pragma_application_id, pragma_user_version";
    let row = patiently!(file, conn.fetch_one(MARKS))?;
    let (mark, found, tables): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let (file, known) = (file.path().to_owned(), schema.version());
    match (mark, found) {
        (0, 0) if tables == 0 => Ok(FoundSchema::Nothing),
        (mark, _) if mark != schema.application_id => Err(StoreError::Foreign(file)),
        (_, found) if found > known => Err(StoreError::Newer { file, found, known }),
        (_, found) if found < schema.base => {
            Err(StoreError::Older { file, found, known, oldest: schema.base })
        }
        (_, found) if found < known => Ok(FoundSchema::Older(found)),
        _ => Ok(FoundSchema::Current),
    }
}

/// Whether a file has the tables of this version, and is not damaged.
async fn is_whole(conn: &mut SqliteConnection, file: &SqliteFile, schema: &Schema) -> bool {
    if !matches!(found(&mut *conn, file, schema).await, Ok(FoundSchema::Current)) {
        return false;
    }
    let checked = sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)").fetch_one(conn).await;
    checked.is_ok_and(|word| word == "ok")
}

/// Waits for the first-use lock without blocking the runtime's timers.
async fn lock_first_use(file: &SqliteFile) -> Result<File, StoreError> {
    let words = |error: io::Error| StoreError::from_io(file.path(), &error);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(file.lock_file())
        .map_err(words)?;
    let give_up = Instant::now() + BUSY_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::Busy(file.path().to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(words(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema = Schema {
        application_id: 7,
        base: 1,
        tables: "CREATE TABLE a (x INTEGER PRIMARY KEY); \
                 CREATE TABLE b (y INTEGER REFERENCES a(x) DEFERRABLE INITIALLY DEFERRED);",
        steps: &[],
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

    /// A deferred foreign key that points nowhere makes the commit itself fail and leaves the transaction open. The
    /// driver recovers from this one by itself; tests/it/faults.rs has the case in which it does not.
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
