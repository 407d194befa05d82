//! Records as rows, both ways.

use std::path::PathBuf;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, Sqlite};

use super::{AgentRecord, RegistryChange, WantedState, history, schedule, schema};
use crate::HostId;

/// A row as a record and its request; the error says what is wrong with the row.
pub(super) fn read(row: &SqliteRow) -> Result<(AgentRecord, String), String> {
    let id: String = column(row, "id")?;
    let wrong = |what: &dyn std::fmt::Display| format!("agent {id}: {what}");
    let json = |name: &str| -> Result<Option<String>, String> { column(row, name) };
    let state: State = column::<String>(row, "state")?.parse().map_err(|e| wrong(&e))?;
    let waiting_for = json("waiting_for")?.map(|text| serde_json::from_str(&text)).transpose();
    let ending = json("ending")?.map(|text| serde_json::from_str(&text)).transpose();
    let status =
        Status::from_parts(state, waiting_for.map_err(|e| wrong(&e))?, ending.map_err(|e| wrong(&e))?);
    let record = AgentRecord {
        seq: column(row, "seq")?,
        id: id.parse::<AgentId>().map_err(|e| wrong(&e))?,
        key: json("request_key")?,
        status: status.map_err(|e| wrong(&e))?,
        wanted: if column::<String>(row, "wanted")? == "kill" { WantedState::Kill } else { WantedState::Run },
        nonce: column(row, "nonce")?,
        runs: u32::try_from(column::<i64>(row, "runs")?).unwrap_or(0),
        after: serde_json::from_str(&column::<String>(row, "after_ids")?).map_err(|e| wrong(&e))?,
        program: PathBuf::from(column::<String>(row, "program")?),
        has_secrets: column::<i64>(row, "has_secrets")? != 0,
        resume_prompt: json("resume_prompt")?,
        note: json("note")?,
        created_at: u64::try_from(column::<i64>(row, "created_at")?).unwrap_or(0),
        updated_at: u64::try_from(column::<i64>(row, "updated_at")?).unwrap_or(0),
    };
    Ok((record, column(row, "spec")?))
}

/// Carries out one change.
pub(super) async fn write(
    conn: &mut SqliteConnection,
    host: &HostId,
    change: &RegistryChange,
) -> Result<(), sqlx::Error> {
    match change {
        RegistryChange::Insert(record, spec) => {
            let insert = sqlx::query(
                "INSERT INTO agents (state, waiting_for, ending, wanted, nonce, runs, after_ids, program, \
                 has_secrets, resume_prompt, note, updated_at, host, id, seq, request_key, created_at, spec) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)",
            );
            bind(insert, host, record)?
                .bind(record.seq)
                .bind(record.key.clone())
                .bind(whole(record.created_at))
                .bind(spec.clone())
                .execute(&mut *conn)
                .await?;
            history::note(conn, record).await?;
        }
        RegistryChange::Update(record) => {
            let update = sqlx::query(
                "UPDATE agents SET state = $1, waiting_for = $2, ending = $3, wanted = $4, nonce = $5, runs = $6, \
                 after_ids = $7, program = $8, has_secrets = $9, resume_prompt = $10, note = $11, updated_at = $12, \
                 host = $13 WHERE id = $14",
            );
            bind(update, host, record)?.execute(&mut *conn).await?;
            history::note(conn, record).await?;
        }
        RegistryChange::Delete(id) => {
            sqlx::query("DELETE FROM agents WHERE id = $1").bind(id.to_string()).execute(conn).await?;
        }
        RegistryChange::Stood(change) => history::write(conn, change).await?,
        RegistryChange::Answer(request, answer) => {
            sqlx::query(schema::ANSWERS_TABLE).execute(&mut *conn).await?;
            let insert = "INSERT INTO answers (request, answer) VALUES ($1, $2) \
                          ON CONFLICT (request) DO UPDATE SET answer = excluded.answer";
            sqlx::query(insert).bind(request.clone()).bind(answer.clone()).execute(&mut *conn).await?;
            let old = "DELETE FROM answers WHERE seq <= (SELECT max(seq) FROM answers) - $1";
            sqlx::query(old).bind(super::ANSWERS).execute(conn).await?;
        }
        RegistryChange::Schedule(record) => schedule::put(conn, host, record).await?,
        RegistryChange::Unschedule(name) => schedule::drop(conn, name).await?,
    }
    Ok(())
}

type Query<'q> = sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments>;

/// Binds the columns that insert and update share, in the same order.
fn bind<'q>(query: Query<'q>, host: &HostId, record: &AgentRecord) -> Result<Query<'q>, sqlx::Error> {
    let json = |value: Result<String, serde_json::Error>| value.map_err(|e| sqlx::Error::Encode(Box::new(e)));
    let waiting_for =
        record.status.waiting_for().map(|what| json(serde_json::to_string(what))).transpose()?;
    let ending = record.status.ending().map(|how| json(serde_json::to_string(how))).transpose()?;
    Ok(query
        .bind(record.status.state().word())
        .bind(waiting_for)
        .bind(ending)
        .bind(match record.wanted {
            WantedState::Run => "run",
            WantedState::Kill => "kill",
        })
        .bind(record.nonce.clone())
        .bind(i64::from(record.runs))
        .bind(json(serde_json::to_string(&record.after))?)
        .bind(record.program.to_string_lossy().into_owned())
        .bind(i64::from(record.has_secrets))
        .bind(record.resume_prompt.clone())
        .bind(record.note.clone())
        .bind(whole(record.updated_at))
        .bind(host.to_string())
        .bind(record.id.to_string()))
}

fn column<'r, T>(row: &'r SqliteRow, name: &str) -> Result<T, String>
where
    T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
{
    row.try_get(name).map_err(|error| error.to_string())
}

pub(super) fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
