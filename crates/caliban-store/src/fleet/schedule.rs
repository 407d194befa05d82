//! Schedules in the registry: which agent to start, when the next run is due, and the outcome of the last.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::names::Slug;
use caliban_core::recurrence::Recurrence;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::Registry;
use super::row::whole;
use crate::{HostId, StoreError};

/// One schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    /// Its name; the agents that it starts have this name with a number.
    pub name: Slug,
    /// When it runs.
    pub every: Recurrence,
    /// What happens when a run is due and the last one has not ended.
    pub overlap: Overlap,
    /// Whether it is paused.
    pub paused: bool,
    /// When the next run is due, in milliseconds since 1970.
    pub next_at: u64,
    /// The number of runs so far.
    pub runs: u64,
    /// The last of them.
    pub last: Option<LastRun>,
    /// A remark on the last time that it was due.
    pub note: Option<String>,
    /// The worker's program.
    pub program: PathBuf,
    /// Whether its agents cannot run without the secret part of their environment.
    pub has_secrets: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_at: u64,
    /// The request of its agents, as JSON.
    pub spec: String,
}

/// What happens when a run is due and the last one has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The new run is skipped.
    #[default]
    Skip,
    /// Both run.
    Allow,
}

/// The last run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Its agent.
    pub agent: AgentId,
    /// When it was due, in milliseconds since 1970.
    pub due_at: u64,
    /// When its agent was registered.
    pub at: u64,
    /// The number of runs before it that were due and did not happen.
    pub missed: u64,
}

impl Registry {
    /// All schedules, by name.
    ///
    /// # Errors
    /// See [`StoreError`]; a row that cannot be read is `Damaged`.
    pub async fn schedules(&mut self) -> Result<Vec<ScheduleRecord>, StoreError> {
        let conn = self.db.conn().await?;
        let rows = sqlx::query("SELECT * FROM schedules ORDER BY name").fetch_all(conn).await;
        let rows = rows.map_err(|error| self.db.words(error))?;
        let file = self.db.file().path();
        let damaged = |detail| StoreError::Damaged { file: file.to_owned(), detail };
        rows.iter().map(|row| read(row).map_err(damaged)).collect()
    }
}

fn read(row: &sqlx::sqlite::SqliteRow) -> Result<ScheduleRecord, String> {
    let text = |name: &str| row.try_get::<String, _>(name).map_err(|error| error.to_string());
    let maybe = |name: &str| row.try_get::<Option<String>, _>(name).map_err(|error| error.to_string());
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(|error| error.to_string());
    let amount = |name: &str| number(name).map(|number| u64::try_from(number).unwrap_or_default());
    let last = maybe("last")?.map(|json| serde_json::from_str(&json)).transpose();
    Ok(ScheduleRecord {
        name: Slug::parse(&text("name")?).map_err(|error| error.to_string())?,
        every: text("every")?
            .parse()
            .map_err(|error: caliban_core::calendar::CalendarError| error.to_string())?,
        overlap: if number("overlap")? == 0 { Overlap::Skip } else { Overlap::Allow },
        paused: number("paused")? != 0,
        next_at: amount("next_at")?,
        runs: amount("runs")?,
        last: last.map_err(|error| error.to_string())?,
        note: maybe("note")?,
        program: text("program")?.into(),
        has_secrets: number("has_secrets")? != 0,
        created_at: amount("created_at")?,
        spec: text("spec")?,
    })
}

/// Writes the present state of a schedule, new or existing.
pub(super) async fn put(
    conn: &mut SqliteConnection,
    host: &HostId,
    record: &ScheduleRecord,
) -> Result<(), sqlx::Error> {
    let last = record.last.as_ref().map(serde_json::to_string).transpose();
    let put = sqlx::query(
        "INSERT INTO schedules (name, host, every, overlap, paused, next_at, runs, last, note, program, has_secrets, \
         created_at, spec) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
         ON CONFLICT (name) DO UPDATE SET host = excluded.host, every = excluded.every, overlap = excluded.overlap, \
         paused = excluded.paused, next_at = excluded.next_at, runs = excluded.runs, last = excluded.last, \
         note = excluded.note, program = excluded.program, has_secrets = excluded.has_secrets, spec = excluded.spec",
    );
    put.bind(record.name.as_str().to_owned())
        .bind(host.to_string())
        .bind(record.every.to_string())
        .bind(i64::from(record.overlap == Overlap::Allow))
        .bind(i64::from(record.paused))
        .bind(whole(record.next_at))
        .bind(whole(record.runs))
        .bind(last.map_err(|error| sqlx::Error::Encode(Box::new(error)))?)
        .bind(record.note.clone())
        .bind(record.program.to_string_lossy().into_owned())
        .bind(i64::from(record.has_secrets))
        .bind(whole(record.created_at))
        .bind(record.spec.clone())
        .execute(conn)
        .await?;
    Ok(())
}

/// Removes a schedule.
pub(super) async fn drop(conn: &mut SqliteConnection, name: &Slug) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM schedules WHERE name = $1").bind(name.as_str().to_owned()).execute(conn).await?;
    Ok(())
}
