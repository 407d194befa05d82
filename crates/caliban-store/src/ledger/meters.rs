//! Rows of `meters`: read, made, changed. All amounts are signed integers of the database; larger ones are clamped.

use caliban_core::budget::{Held, Limits, Meter, Spent};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row};

/// The largest stored amount of one request, so that sums do not overflow the database's integers.
const MOST: u64 = 1 << 48;

/// An amount as an integer of the database.
pub(super) fn stored(amount: u64) -> i64 {
    i64::try_from(amount.min(MOST)).unwrap_or(i64::MAX)
}

/// Reads an amount from the database.
pub(super) fn amount(row: &SqliteRow, column: &str) -> u64 {
    u64::try_from(row.get::<i64, _>(column)).unwrap_or_default()
}

pub(super) fn usage(row: &SqliteRow) -> Usage {
    Usage {
        input: amount(row, "input"),
        output: amount(row, "output"),
        cache_read: amount(row, "cache_read"),
        cache_write: amount(row, "cache_write"),
    }
}

pub(super) fn spent(row: &SqliteRow) -> Spent {
    Spent {
        usage: usage(row),
        usd: MicroUsd(amount(row, "usd")),
        turns: amount(row, "turns"),
        wall_ms: amount(row, "wall_ms"),
        unpriced: amount(row, "unpriced"),
    }
}

pub(super) fn meter(row: &SqliteRow) -> Meter {
    let held = Held {
        tokens: amount(row, "held_tokens"),
        fresh: amount(row, "held_fresh"),
        usd: MicroUsd(amount(row, "held_usd")),
        turns: amount(row, "held_turns"),
        priced: true,
    };
    Meter { spent: spent(row), held }
}

/// Makes a meter that is not there.
pub(super) async fn make(conn: &mut SqliteConnection, kind: &str, subject: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO meters (kind, subject) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(kind)
        .bind(subject)
        .execute(conn)
        .await
        .map(drop)
}

/// Row numbers as an SQL list.
pub(super) fn list(meters: &[i64]) -> String {
    meters.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

/// Parses such a list.
pub(super) fn listed(text: &str) -> Vec<i64> {
    text.split(',').filter_map(|number| number.parse().ok()).collect()
}

/// Changes the held amount: adds `more`, subtracts `less`.
pub(super) async fn hold(
    conn: &mut SqliteConnection,
    meters: &[i64],
    more: Held,
    less: Held,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE meters SET held_tokens = max(0, held_tokens + $1), held_usd = max(0, held_usd + $2), \
         held_turns = max(0, held_turns + $3), held_fresh = max(0, held_fresh + $4) WHERE seq IN ({})",
        list(meters)
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(stored(more.tokens) - stored(less.tokens))
        .bind(stored(more.usd.0) - stored(less.usd.0))
        .bind(stored(more.turns) - stored(less.turns))
        .bind(stored(more.fresh) - stored(less.fresh))
        .execute(conn)
        .await
        .map(drop)
}

/// Replaces the held amount by what was spent.
pub(super) async fn book(
    conn: &mut SqliteConnection,
    meters: &[i64],
    held: Held,
    spent: Spent,
) -> Result<(), sqlx::Error> {
    let sql = format!(
        "UPDATE meters SET input = input + $1, output = output + $2, cache_read = cache_read + $3, \
         cache_write = cache_write + $4, usd = usd + $5, turns = turns + $6, wall_ms = wall_ms + $7, \
         unpriced = unpriced + $8, held_tokens = max(0, held_tokens - $9), held_usd = max(0, held_usd - $10), \
         held_turns = max(0, held_turns - $11), held_fresh = max(0, held_fresh - $12) WHERE seq IN ({})",
        list(meters)
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(stored(spent.usage.input))
        .bind(stored(spent.usage.output))
        .bind(stored(spent.usage.cache_read))
        .bind(stored(spent.usage.cache_write))
        .bind(stored(spent.usd.0))
        .bind(stored(spent.turns))
        .bind(stored(spent.wall_ms))
        .bind(stored(spent.unpriced))
        .bind(stored(held.tokens))
        .bind(stored(held.usd.0))
        .bind(stored(held.turns))
        .bind(stored(held.fresh))
        .execute(conn)
        .await
        .map(drop)
}

/// Limits as they are stored: their JSON form.
pub(super) fn limits_text(limits: Limits) -> String {
    serde_json::to_string(&limits).unwrap_or_default()
}

/// Stored limits. Unreadable ones count as no limit; this cannot happen to limits that we wrote.
pub(super) fn limits_of(text: &str) -> Limits {
    serde_json::from_str(text).unwrap_or(Limits::NONE)
}
