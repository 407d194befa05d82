//! `GET /v1/agents/{id}/log`: what an agent did, a part at a time. Read like `caliban logs` does, by [`Tail`].

use caliban_contract::tail::Tail;
use serde_json::Value;

use super::internal;
use crate::protocol::{AgentRow, ApiError, LogPart};
use crate::records::{TRANSCRIPT, WORKER_LOG};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogFile {
    Transcript,
    WorkerLog,
}

/// The part behind a position.
pub(super) async fn log(row: AgentRow, which: LogFile, after: u64) -> Result<LogPart, ApiError> {
    let file = match which {
        LogFile::Transcript => TRANSCRIPT,
        LogFile::WorkerLog => WORKER_LOG,
    };
    let mut tail = Tail::at(row.dir.join(file), after);
    let read = tokio::task::spawn_blocking(move || tail.lines().map(|lines| (lines, tail.position()))).await;
    let read = read.unwrap_or_else(|error| Err(error.into()));
    let (lines, next) = read.map_err(|error| internal(format!("{file} cannot be read: {error}")))?;
    let record = |line: String| match which {
        LogFile::Transcript => serde_json::from_str(&line).unwrap_or(Value::String(line)),
        LogFile::WorkerLog => Value::String(line),
    };
    let more = !lines.is_empty();
    Ok(LogPart { agent: row.id, records: lines.into_iter().map(record).collect(), next, more })
}
