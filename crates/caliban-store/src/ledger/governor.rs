//! The governor: one lane for each provider and key, shared by all agents of the machine.
//!
//! A lane says until when no request is sent, and how far apart requests are sent. While there is nothing to wait for,
//! asking is one read. An agent that has to wait takes a ticket; tickets are served by priority, then in order, one at
//! a time and spaced, so that those that waited do not return all at once. All of it is in the ledger's file, so it
//! outlives every process.
//!
//! Times are the kernel's, not the wall clock's: `now_ms` is the time since the boot, with suspends, and `awake_ms`
//! without them. A lane belongs to one boot. A ticket counts while its lease lasts: its process renews it whenever it
//! asks, so a stopped process keeps nobody waiting for longer than [`LEASE_MS`], and queues again when it goes on.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::{Ledger, ReservationOwner};
use crate::StoreError;
use crate::open::Durability;

/// The spacing of requests that have waited, in milliseconds.
const STAGGER_MS: u64 = 25;
/// Their spacing while it is unknown whether the server answers again.
const PROBE_MS: u64 = 250;
/// The first wait if the server names none; each further one is twice as long.
const FIRST_WAIT_MS: u64 = 500;
/// The longest wait of our own choosing. Short, because one agent probes for all of them.
const LONGEST_WAIT_MS: u64 = 5_000;
/// How long a ticket counts after its process has asked last. A waiting process asks every five seconds or sooner.
pub const LEASE_MS: u64 = 15_000;
/// A ticket with less than this left is renewed.
const RENEW_MS: u64 = 8_000;

/// A provider and key; contains only the key's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane(String);

impl Lane {
    /// The lane of this name during this boot.
    #[must_use]
    pub fn new(boot: &str, name: &str) -> Self {
        Self(format!("{boot} {name}"))
    }

    /// The name without the boot.
    fn name(&self) -> &str {
        self.0.split_once(' ').map_or(self.0.as_str(), |(_, name)| name)
    }
}

/// A place in the queue of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GovernorTicket(pub i64);

/// Whether a request may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may; the ticket is used up.
    Go,
    /// Not before this time, by what is known now.
    Wait {
        /// In milliseconds since the boot.
        until_ms: u64,
        /// The place in the queue.
        ticket: GovernorTicket,
        /// The reason, as text.
        reason: String,
    },
}

/// The state of a lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneState {
    /// No request is sent before this time, in milliseconds since the boot.
    pub until_ms: u64,
    /// The time of the next request.
    pub next_ms: u64,
    /// The spacing of requests.
    pub interval_ms: u64,
    /// The number of refusals in a row.
    pub strikes: u64,
    /// The server's last message.
    pub reason: String,
}

impl LaneState {
    /// When the next request may be sent.
    fn turn(&self, now_ms: u64) -> u64 {
        now_ms.max(self.until_ms).max(self.next_ms)
    }

    /// How long the agent with so many others ahead waits before it asks again. Assumes that the server answers the
    /// next request: an agent that slept for the worst case would miss its turn when the queue moves faster.
    fn wait(self, ahead: u64, ticket: GovernorTicket, now_ms: u64) -> Admission {
        let apart = self.interval_ms.max(STAGGER_MS);
        let until_ms = self.turn(now_ms).saturating_add(ahead.saturating_mul(apart));
        Admission::Wait { until_ms, ticket, reason: self.reason }
    }

    fn apart(&self) -> u64 {
        let least = if self.strikes > 0 { PROBE_MS } else { 0 };
        self.interval_ms.max(least)
    }
}

impl Ledger {
    /// Asks whether a request may be sent. An agent that has a ticket passes it; one whose lease is over queues again.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn admit(
        &mut self,
        lane: &Lane,
        priority: i64,
        ticket: Option<GovernorTicket>,
        owner: &ReservationOwner,
        now_ms: u64,
        awake_ms: u64,
    ) -> Result<Admission, StoreError> {
        let conn = self.db.conn().await?;
        let looked = look(conn, lane, ticket, priority, awake_ms).await;
        let QueueView { state, ahead, lease_ms } = looked.map_err(|error| self.db.words(error))?;
        let is_turn = ahead == 0 && state.turn(now_ms) <= now_ms;
        match ticket {
            None if is_turn && state.apart() == 0 => return Ok(Admission::Go),
            // Waiting agents only read, so that they do not block the writes of others.
            Some(ticket) if !is_turn && lease_ms > awake_ms.saturating_add(RENEW_MS) => {
                return Ok(state.wait(ahead, ticket, now_ms));
            }
            Some(_) | None => {}
        }
        // A queue that a power cut takes away is made anew: its processes are gone, too.
        let mut tx = self.db.begin_as(Durability::Written).await?;
        let admitted = take_turn(tx.conn(), lane, priority, ticket, owner, [now_ms, awake_ms]).await;
        let admitted = admitted.map_err(|error| tx.words(error));
        tx.finish(admitted).await
    }

    /// Gives up a ticket: its agent no longer wants to send.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn give_up(&mut self, ticket: GovernorTicket) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let gone = sqlx::query("DELETE FROM tickets WHERE seq = $1").bind(ticket.0).execute(tx.conn()).await;
        let gone = gone.map(drop).map_err(|error| tx.words(error));
        tx.finish(gone).await
    }

    /// The server has refused a request sent at that time: a rate limit or overload.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn limited(
        &mut self,
        lane: &Lane,
        reason: &str,
        asked_ms: Option<u64>,
        sent_ms: u64,
        now_ms: u64,
    ) -> Result<LaneState, StoreError> {
        self.change_lane(lane, |state| {
            // A refusal of a request sent before the lane was closed is no news.
            let is_news = sent_ms >= state.until_ms;
            if is_news {
                state.strikes = state.strikes.saturating_add(1);
            }
            let doubled = FIRST_WAIT_MS.saturating_mul(1 << state.strikes.saturating_sub(1).min(16));
            let wait = asked_ms.filter(|asked| *asked > 0).unwrap_or(doubled.min(LONGEST_WAIT_MS));
            if is_news || asked_ms.is_some() {
                state.until_ms = state.until_ms.max(now_ms.saturating_add(wait));
            }
            reason.clone_into(&mut state.reason);
        })
        .await
    }

    /// The server has answered, and reported its allowance: `left` of `limit` requests until `reset_ms` from now.
    /// Writes only changes.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn answered(
        &mut self,
        lane: &Lane,
        allowance: Option<(u64, u64, u64)>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let conn = self.db.conn().await?;
        let QueueView { state, .. } =
            look(conn, lane, None, 0, 0).await.map_err(|error| self.db.words(error))?;
        let (interval_ms, until_ms) = match allowance {
            Some((_, 0, reset)) => (0, now_ms.saturating_add(reset)),
            // While more than half is left, requests are not spaced.
            Some((limit, left, reset)) if left.saturating_mul(2) < limit => (reset / left.max(1), 0),
            _ => (0, 0),
        };
        if state.strikes == 0 && state.interval_ms == interval_ms && state.until_ms >= until_ms {
            return Ok(());
        }
        self.change_lane(lane, |state| {
            state.strikes = 0;
            state.interval_ms = interval_ms;
            state.until_ms = state.until_ms.max(until_ms);
            if until_ms > now_ms {
                "the allowance of this key is used up".clone_into(&mut state.reason);
            }
        })
        .await
        .map(drop)
    }

    /// The state of a lane, and the number of waiting agents.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn lane(&mut self, lane: &Lane) -> Result<(LaneState, u64), StoreError> {
        let conn = self.db.conn().await?;
        let view = look(conn, lane, None, i64::MIN, 0).await.map_err(|error| self.db.words(error))?;
        Ok((view.state, view.ahead))
    }

    async fn change_lane(
        &mut self,
        lane: &Lane,
        change: impl Fn(&mut LaneState) + Send,
    ) -> Result<LaneState, StoreError> {
        let mut tx = self.db.begin().await?;
        let changed = change_lane(tx.conn(), lane, change).await.map_err(|error| tx.words(error));
        tx.finish(changed).await
    }
}

async fn change_lane(
    conn: &mut SqliteConnection,
    lane: &Lane,
    change: impl Fn(&mut LaneState) + Send,
) -> Result<LaneState, sqlx::Error> {
    let QueueView { mut state, .. } = look(&mut *conn, lane, None, 0, 0).await?;
    change(&mut state);
    write(conn, lane, &state).await?;
    Ok(state)
}

/// A lane as one who asks finds it.
struct QueueView {
    state: LaneState,
    /// The number of tickets ahead of this one; without a ticket, all of the same or higher priority.
    ahead: u64,
    /// When the lease of this ticket ends; 0 if there is no such ticket.
    lease_ms: u64,
}

async fn look(
    conn: &mut SqliteConnection,
    lane: &Lane,
    ticket: Option<GovernorTicket>,
    priority: i64,
    awake_ms: u64,
) -> Result<QueueView, sqlx::Error> {
    let row = sqlx::query(
        "SELECT l.*, (SELECT COUNT(*) FROM tickets t WHERE t.lane = $1 AND t.lease_ms > $4 AND (t.priority > $2 OR \
           (t.priority = $2 AND t.seq < $3))) AS ahead, \
           (SELECT t.lease_ms FROM tickets t WHERE t.lane = $1 AND t.seq = $3) AS lease_ms \
         FROM (SELECT 1) LEFT JOIN lanes l ON l.lane = $1",
    )
    .bind(&lane.0)
    .bind(priority)
    .bind(ticket.map_or(i64::MAX, |ticket| ticket.0))
    .bind(database_number(awake_ms))
    .fetch_one(conn)
    .await?;
    let number = |name| {
        row.get::<Option<i64>, _>(name).and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
    };
    let state = LaneState {
        until_ms: number("until_ms"),
        next_ms: number("next_ms"),
        interval_ms: number("interval_ms"),
        strikes: number("strikes"),
        reason: row.get::<Option<String>, _>("reason").unwrap_or_default(),
    };
    Ok(QueueView { state, ahead: number("ahead"), lease_ms: number("lease_ms") })
}

fn database_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn write(conn: &mut SqliteConnection, lane: &Lane, state: &LaneState) -> Result<(), sqlx::Error> {
    let number = database_number;
    // What was known of this provider and key during an earlier boot is in another time.
    sqlx::query("DELETE FROM lanes WHERE lane <> $1 AND substr(lane, instr(lane, ' ') + 1) = $2")
        .bind(&lane.0)
        .bind(lane.name())
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO lanes (lane, until_ms, next_ms, interval_ms, strikes, reason) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (lane) DO UPDATE SET until_ms = excluded.until_ms, next_ms = excluded.next_ms, \
           interval_ms = excluded.interval_ms, strikes = excluded.strikes, reason = excluded.reason",
    )
    .bind(&lane.0)
    .bind(number(state.until_ms))
    .bind(number(state.next_ms))
    .bind(number(state.interval_ms))
    .bind(number(state.strikes))
    .bind(&state.reason)
    .execute(conn)
    .await
    .map(drop)
}

async fn take_turn(
    conn: &mut SqliteConnection,
    lane: &Lane,
    priority: i64,
    ticket: Option<GovernorTicket>,
    owner: &ReservationOwner,
    [now_ms, awake_ms]: [u64; 2],
) -> Result<Admission, sqlx::Error> {
    // Nobody else counts them, and their processes queue again.
    sqlx::query("DELETE FROM tickets WHERE lane = $1 AND lease_ms <= $2")
        .bind(&lane.0)
        .bind(database_number(awake_ms))
        .execute(&mut *conn)
        .await?;
    let lease_ms = database_number(awake_ms.saturating_add(LEASE_MS));
    let renewed = sqlx::query("UPDATE tickets SET lease_ms = $1 WHERE seq = $2 AND lane = $3")
        .bind(lease_ms)
        .bind(ticket.map_or(-1, |ticket| ticket.0))
        .bind(&lane.0)
        .execute(&mut *conn)
        .await?;
    let ticket = ticket.filter(|_| renewed.rows_affected() > 0);
    let QueueView { mut state, ahead, .. } = look(&mut *conn, lane, ticket, priority, awake_ms).await?;
    if ahead == 0 && state.turn(now_ms) <= now_ms {
        if let Some(ticket) = ticket {
            sqlx::query("DELETE FROM tickets WHERE seq = $1").bind(ticket.0).execute(&mut *conn).await?;
        }
        let apart = state.apart().max(if ticket.is_some() { STAGGER_MS } else { 0 });
        state.next_ms = now_ms.saturating_add(apart);
        write(conn, lane, &state).await?;
        return Ok(Admission::Go);
    }
    let ticket = match ticket {
        Some(ticket) => ticket,
        None => {
            let made = sqlx::query(
                "INSERT INTO tickets (lane, priority, boot, pid, started, lease_ms) VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(&lane.0)
            .bind(priority)
            .bind(&owner.boot)
            .bind(owner.pid)
            .bind(database_number(owner.started))
            .bind(lease_ms)
            .execute(&mut *conn)
            .await?;
            GovernorTicket(made.last_insert_rowid())
        }
    };
    Ok(state.wait(ahead, ticket, now_ms))
}
