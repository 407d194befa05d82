//! Settling: what was spent replaces what was held. One transaction each.
//!
//! Only a request that took more than was held for it is synced by itself. The settlement of one that took less may be
//! lost in a power cut: then its reservation is back, its process is gone, and it counts as spent, which is more. The
//! next reservation of any process syncs everything written before it.
//!
//! Displayed sums never go down: held amounts are not displayed, and booked amounts stay.

use std::collections::BTreeSet;

use caliban_core::budget::{Held, Spent};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::meters::{self, listed, stored};
use super::{Ledger, Reservation, ReservationOwner};
use crate::StoreError;
use crate::open::{Durability, Tx};

impl Ledger {
    /// The request has ended and took this much. An unknown cost counts as the amount held for it. Also works if the
    /// reservation was already booked, because its process was taken for dead: then only the excess is booked.
    ///
    /// # Errors
    /// See [`StoreError`]; the reservation is then held until its process is gone.
    pub async fn settle(
        &mut self,
        reservation: &Reservation,
        usage: Usage,
        cost: Option<MicroUsd>,
        wall_ms: u64,
    ) -> Result<(), StoreError> {
        let held = reservation.held;
        let is_covered = usage.total() <= held.tokens
            && usage.fresh() <= held.fresh
            && cost.is_none_or(|cost| cost <= held.usd);
        let durability = if is_covered { Durability::Written } else { Durability::Synced };
        let Some(mut tx) = self.begin_of(reservation, durability).await? else { return Ok(()) };
        let outcome = settle(tx.conn(), reservation, usage, cost, wall_ms).await;
        let outcome = outcome.map_err(|error| tx.words(error));
        tx.finish(outcome).await
    }

    /// The request was not billed: releases the held amount.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn release(&mut self, reservation: &Reservation) -> Result<(), StoreError> {
        let Some(mut tx) = self.begin_of(reservation, Durability::Written).await? else { return Ok(()) };
        let outcome = release(tx.conn(), reservation).await.map_err(|error| tx.words(error));
        tx.finish(outcome).await
    }

    /// The server reports that the request takes more than was reserved: the larger amount is held from now on, and
    /// counts if the process is killed.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn count(
        &mut self,
        reservation: &Reservation,
        usage: Usage,
        cost: Option<MicroUsd>,
    ) -> Result<(), StoreError> {
        let Some(mut tx) = self.begin_of(reservation, Durability::Synced).await? else { return Ok(()) };
        let outcome = count(tx.conn(), reservation, usage, cost).await.map_err(|error| tx.words(error));
        tx.finish(outcome).await
    }

    /// Begins a transaction in the file that a reservation is in; nothing if that file was replaced since.
    async fn begin_of(
        &mut self,
        reservation: &Reservation,
        durability: Durability,
    ) -> Result<Option<Tx<'_>>, StoreError> {
        if self.generation().await? != reservation.generation {
            return Ok(None);
        }
        self.db.begin_as(durability).await.map(Some)
    }

    /// Books the amounts held by dead processes as spent; returns the number of their requests.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn settle_dead(
        &mut self,
        is_dead: impl Fn(&ReservationOwner) -> bool,
    ) -> Result<u64, StoreError> {
        let conn = self.db.conn().await?;
        let rows = sqlx::query(
            "SELECT DISTINCT boot, pid, started FROM reservations UNION SELECT boot, pid, started FROM tickets",
        )
        .fetch_all(conn)
        .await;
        let owners: BTreeSet<ReservationOwner> = rows
            .map_err(|error| self.db.words(error))?
            .iter()
            .map(owner)
            .filter(|owner| is_dead(owner))
            .collect();
        if owners.is_empty() {
            return Ok(0);
        }
        let mut tx = self.db.begin().await?;
        let outcome = book_dead(tx.conn(), &owners).await.map_err(|error| tx.words(error));
        tx.finish(outcome).await
    }

    /// How many requests are in flight.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn in_flight(&mut self) -> Result<u64, StoreError> {
        let conn = self.db.conn().await?;
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM reservations").fetch_one(conn).await;
        count.map(|count| u64::try_from(count).unwrap_or_default()).map_err(|error| self.db.words(error))
    }
}

pub(super) fn owner(row: &SqliteRow) -> ReservationOwner {
    ReservationOwner {
        boot: row.get("boot"),
        pid: i32::try_from(row.get::<i64, _>("pid")).unwrap_or_default(),
        started: meters::amount(row, "started"),
    }
}

/// The amount that a row of `reservations` holds.
fn held(row: &SqliteRow) -> Held {
    let usd = row.get::<Option<i64>, _>("usd").and_then(|usd| u64::try_from(usd).ok());
    let usage = meters::usage(row);
    Held {
        tokens: usage.total(),
        fresh: usage.fresh(),
        usd: MicroUsd(usd.unwrap_or_default()),
        turns: meters::amount(row, "turns"),
        priced: usd.is_some(),
    }
}

/// Removes a reservation; returns the amount it held, if it was open.
async fn remove(conn: &mut SqliteConnection, seq: i64) -> Result<Option<Held>, sqlx::Error> {
    let row = sqlx::query("DELETE FROM reservations WHERE seq = $1 RETURNING *").bind(seq);
    Ok(row.fetch_optional(conn).await?.as_ref().map(held))
}

async fn settle(
    conn: &mut SqliteConnection,
    reservation: &Reservation,
    usage: Usage,
    cost: Option<MicroUsd>,
    wall_ms: u64,
) -> Result<(), sqlx::Error> {
    let (gone, spent, requests) = match remove(&mut *conn, reservation.seq).await? {
        Some(held) => {
            let unpriced = u64::from(cost.is_none() && !held.priced);
            let usd = cost.unwrap_or(held.usd);
            (held, Spent { usage, usd, turns: held.turns, wall_ms, unpriced }, 1)
        }
        None => {
            let held = reservation.held;
            let in_all = usage.total().saturating_sub(held.tokens);
            let input = in_all.max(usage.fresh().saturating_sub(held.fresh));
            let beyond = Usage { input, ..Usage::default() };
            let usd = MicroUsd(cost.unwrap_or_default().0.saturating_sub(held.usd.0));
            (Held::default(), Spent { usage: beyond, usd, wall_ms, ..Spent::default() }, 0)
        }
    };
    meters::book(&mut *conn, &reservation.meters, gone, spent).await?;
    let day = reservation.day.to_string();
    keep(conn, &day, reservation.account, &reservation.model, requests, spent).await
}

async fn release(conn: &mut SqliteConnection, reservation: &Reservation) -> Result<(), sqlx::Error> {
    match remove(&mut *conn, reservation.seq).await? {
        Some(held) => meters::hold(conn, &reservation.meters, Held::default(), held).await,
        None => Ok(()),
    }
}

async fn count(
    conn: &mut SqliteConnection,
    reservation: &Reservation,
    usage: Usage,
    cost: Option<MicroUsd>,
) -> Result<(), sqlx::Error> {
    let row = sqlx::query("SELECT * FROM reservations WHERE seq = $1").bind(reservation.seq);
    let Some(row) = row.fetch_optional(&mut *conn).await? else { return Ok(()) };
    let before = held(&row);
    let usd = if before.priced { cost.unwrap_or_default().max(before.usd) } else { before.usd };
    let usage = usage.at_least(meters::usage(&row));
    let more = Held { tokens: usage.total(), fresh: usage.fresh(), usd, ..before };
    sqlx::query(
        "UPDATE reservations SET input = $1, output = $2, cache_read = $3, cache_write = $4, usd = $5 WHERE seq = $6",
    )
    .bind(stored(usage.input))
    .bind(stored(usage.output))
    .bind(stored(usage.cache_read))
    .bind(stored(usage.cache_write))
    .bind(before.priced.then_some(stored(more.usd.0)))
    .bind(reservation.seq)
    .execute(&mut *conn)
    .await?;
    meters::hold(conn, &reservation.meters, more, before).await
}

async fn book_dead(
    conn: &mut SqliteConnection,
    owners: &BTreeSet<ReservationOwner>,
) -> Result<u64, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM reservations ORDER BY seq").fetch_all(&mut *conn).await?;
    let mut booked = 0;
    for row in rows.iter().filter(|row| owners.contains(&owner(row))) {
        let held = held(row);
        let unpriced = u64::from(!held.priced);
        let spent =
            Spent { usage: meters::usage(row), usd: held.usd, turns: held.turns, wall_ms: 0, unpriced };
        let meters = listed(row.get("meters"));
        remove(&mut *conn, row.get("seq")).await?;
        meters::book(&mut *conn, &meters, held, spent).await?;
        keep(&mut *conn, row.get("day"), row.get("account"), row.get("model"), 1, spent).await?;
        booked += 1;
    }
    for owner in owners {
        sqlx::query("DELETE FROM tickets WHERE boot = $1 AND pid = $2 AND started = $3")
            .bind(&owner.boot)
            .bind(owner.pid)
            .bind(i64::try_from(owner.started).unwrap_or(i64::MAX))
            .execute(&mut *conn)
            .await?;
    }
    Ok(booked)
}

/// Adds to the history.
async fn keep(
    conn: &mut SqliteConnection,
    day: &str,
    account: i64,
    model: &str,
    requests: i64,
    spent: Spent,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO history (day, account, model, requests, input, output, cache_read, cache_write, usd, turns, \
           wall_ms, unpriced) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (day, account, model) DO UPDATE SET requests = requests + excluded.requests, \
           input = input + excluded.input, output = output + excluded.output, \
           cache_read = cache_read + excluded.cache_read, cache_write = cache_write + excluded.cache_write, \
           usd = usd + excluded.usd, turns = turns + excluded.turns, wall_ms = wall_ms + excluded.wall_ms, \
           unpriced = unpriced + excluded.unpriced",
    )
    .bind(day)
    .bind(account)
    .bind(model)
    .bind(requests)
    .bind(stored(spent.usage.input))
    .bind(stored(spent.usage.output))
    .bind(stored(spent.usage.cache_read))
    .bind(stored(spent.usage.cache_write))
    .bind(stored(spent.usd.0))
    .bind(stored(spent.turns))
    .bind(stored(spent.wall_ms))
    .bind(stored(spent.unpriced))
    .execute(conn)
    .await
    .map(drop)
}
