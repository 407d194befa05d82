//! Rows to domain types and back. The only column lists are here.
//!
//! Refuses: a row that the checks of the tables rule out; such a store is damaged.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::ids::{AgentId, SessionId, TaskId};
use super::speaker::{Owner, Seal};
use super::types::{
    Agent, AgentKind, AgentStatus, Delivery, DeliveryState, PaneIdentity, Placement, Session, Task, TaskKind,
    TaskState,
};
use crate::{HostId, Stamp};

macro_rules! task_columns {
    () => {
        "seq, task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
         status_timestamp, origin_task_id, text, delivery_state, delivery_note, hops, number"
    };
}
pub(super) use task_columns;

/// The same in two columns, for reading many rows: the small fields as one JSON list, and the text. The driver has a
/// cost per column and row.
macro_rules! packed_task_columns {
    () => {
        "json_array(seq, task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
         status_timestamp, origin_task_id, delivery_state, delivery_note, hops, number), text"
    };
}
pub(super) use packed_task_columns;

macro_rules! agent_columns {
    () => {
        "a.agent_id, a.session_id, a.name, a.description, a.status, a.kind, a.registered_at, \
         a.agent_card_json, p.agent_id, p.director_agent_id, p.tmux_session, p.tmux_window_id, p.tmux_pane_id, \
         p.coding_agent, p.created_at, p.tmux_socket, p.tmux_server_pid, p.tmux_pane_pid, p.tmux_pane_started, \
         a.owner, a.seal, p.host, a.number \
         FROM agents a LEFT JOIN agent_placements p ON p.agent_id = a.agent_id"
    };
}
pub(super) use agent_columns;

macro_rules! session_columns {
    () => {
        "s.session_id, s.label, s.created_at, s.deleted_at, s.director_agent_id"
    };
}
pub(super) use session_columns;

pub(super) fn task(row: &SqliteRow) -> Result<Task, sqlx::Error> {
    Ok(Task {
        seq: row.try_get(0)?,
        id: read(row, 1, TaskId::parse)?,
        number: row.try_get(14)?,
        context: read(row, 2, AgentId::parse)?,
        from: read(row, 3, AgentId::parse)?,
        to: row.try_get::<Option<&str>, _>(4)?.and_then(AgentId::parse),
        kind: read(row, 5, TaskKind::parse)?,
        created_at: read(row, 6, stamp)?,
        state: read(row, 7, TaskState::parse)?,
        status_at: read(row, 8, stamp)?,
        origin: read_option(row, 9, TaskId::parse)?,
        text: row.try_get(10)?,
        delivery: Delivery { state: read(row, 11, DeliveryState::parse)?, note: row.try_get(12)? },
        hops: u32::try_from(row.try_get::<i64, _>(13)?).unwrap_or(u32::MAX),
    })
}

/// Reads a task from [`packed_task_columns`].
pub(super) fn packed_task(row: &SqliteRow) -> Result<Task, sqlx::Error> {
    type Packed<'a> = (
        i64,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        &'a str,
        Option<&'a str>,
        &'a str,
        Option<String>,
        i64,
        Option<i64>,
    );
    let list: &str = row.try_get(0)?;
    let (
        seq,
        id,
        context,
        from,
        to,
        kind,
        created_at,
        state,
        status_at,
        origin,
        delivery,
        note,
        hops,
        number,
    ): Packed<'_> = serde_json::from_str(list).map_err(|_| odd(0, list))?;
    Ok(Task {
        seq,
        id: TaskId::parse(id).ok_or_else(|| odd(1, id))?,
        number,
        context: AgentId::parse(context).ok_or_else(|| odd(2, context))?,
        from: AgentId::parse(from).ok_or_else(|| odd(3, from))?,
        to: AgentId::parse(to),
        kind: TaskKind::parse(kind).ok_or_else(|| odd(5, kind))?,
        created_at: stamp(created_at).ok_or_else(|| odd(6, created_at))?,
        state: TaskState::parse(state).ok_or_else(|| odd(7, state))?,
        status_at: stamp(status_at).ok_or_else(|| odd(8, status_at))?,
        origin: origin.map(|id| TaskId::parse(id).ok_or_else(|| odd(9, id))).transpose()?,
        text: row.try_get(1)?,
        delivery: Delivery { state: DeliveryState::parse(delivery).ok_or_else(|| odd(11, delivery))?, note },
        hops: u32::try_from(hops).unwrap_or(u32::MAX),
    })
}

pub(super) fn agent(row: &SqliteRow) -> Result<Agent, sqlx::Error> {
    let placed = row.try_get::<Option<&str>, _>(8)?.is_some();
    Ok(Agent {
        id: read(row, 0, AgentId::parse)?,
        number: row.try_get(22)?,
        session: read(row, 1, SessionId::parse)?,
        name: row.try_get(2)?,
        description: row.try_get(3)?,
        status: read(row, 4, AgentStatus::parse)?,
        kind: read(row, 5, AgentKind::parse)?,
        registered_at: read(row, 6, stamp)?,
        card: row.try_get(7)?,
        placement: if placed { Some(placement(row)?) } else { None },
        owner: read_option(row, 19, Owner::parse)?,
        seal: read_option(row, 20, Seal::parse)?,
    })
}

fn placement(row: &SqliteRow) -> Result<Placement, sqlx::Error> {
    let (socket, server, pane, started): (Option<String>, Option<i64>, Option<i64>, Option<String>) =
        (row.try_get(15)?, row.try_get(16)?, row.try_get(17)?, row.try_get(18)?);
    let identity = match (socket, server, pane, started) {
        (Some(socket), Some(server_pid), Some(pane_pid), Some(pane_started)) => {
            Some(PaneIdentity { socket, server_pid, pane_pid, pane_started })
        }
        _ => None,
    };
    Ok(Placement {
        host: read(row, 21, HostId::parse)?,
        director: read_option(row, 9, AgentId::parse)?,
        tmux_session: row.try_get(10)?,
        tmux_window: row.try_get(11)?,
        tmux_pane: row.try_get(12)?,
        coding_agent: row.try_get(13)?,
        created_at: read(row, 14, stamp)?,
        identity,
    })
}

pub(super) fn session(row: &SqliteRow) -> Result<Session, sqlx::Error> {
    Ok(Session {
        id: read(row, 0, SessionId::parse)?,
        label: row.try_get(1)?,
        created_at: read(row, 2, stamp)?,
        deleted_at: read_option(row, 3, stamp)?,
        director: read_option(row, 4, AgentId::parse)?,
    })
}

fn stamp(text: &str) -> Option<Stamp> {
    Stamp::parse(text).ok()
}

/// Reads a text column with a parser.
pub(super) fn read<T>(
    row: &SqliteRow,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, sqlx::Error> {
    let text: &str = row.try_get(column)?;
    parse(text).ok_or_else(|| odd(column, text))
}

fn read_option<T>(
    row: &SqliteRow,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, sqlx::Error> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(|text| parse(text).ok_or_else(|| odd(column, text))).transpose()
}

fn odd(column: usize, text: &str) -> sqlx::Error {
    let said = format!("unexpected value '{}'", text.escape_debug());
    sqlx::Error::ColumnDecode { index: column.to_string(), source: said.into() }
}
