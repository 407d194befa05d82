//! Rows of `meters`: read, made, changed. All amounts are signed integers of the database; larger ones are clamped.

use caliban_core::budget::{Held, Limits, Meter, Spent};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row};

use super::AccountId;

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

/// The account, those above it, and the meters of its trees and of itself, the narrowest first. The order of the join is fixed:
/// the planner would read the meters of all sessions there ever were.
const ABOVE: &str = "WITH RECURSIVE up(seq, id, parent, repo, own_limits, tree_limits, depth) AS (
     SELECT seq, id, parent, repo, own_limits, tree_limits, 0 FROM accounts WHERE id = $1
     UNION ALL
     SELECT a.seq, a.id, a.parent, a.repo, a.own_limits, a.tree_limits, up.depth + 1
     FROM accounts a JOIN up ON a.seq = up.parent WHERE up.depth < 64)
   SELECT up.seq AS account, up.id, up.repo, up.own_limits, up.tree_limits, up.depth, m.* FROM up CROSS JOIN meters m
   WHERE m.kind IN ('tree', 'agent') AND m.subject = up.id AND (m.kind = 'tree' OR up.depth = 0)
   ORDER BY up.depth, m.kind";

/// The meters of an account and of the trees that it belongs to, the narrowest first, each with its account.
pub(super) async fn above(
    conn: &mut SqliteConnection,
    account: &AccountId,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query(ABOVE).bind(account.as_str()).fetch_all(conn).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;
    use crate::ledger::Ledger;

    /// Each request asks this, so it must not become dearer with the sessions there have been.
    #[tokio::test]
    async fn the_meters_above_an_account_are_found_by_their_index() {
        let dir = tempfile::tempdir().expect("temp dir");
        let url = StoreUrl::sqlite(dir.path().join("ledger.db"));
        let mut ledger = Ledger::open(&url).await.expect("open");
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {ABOVE}")))
            .bind("9f/a")
            .fetch_all(ledger.db.conn().await.expect("connection"))
            .await
            .expect("plan");
        let steps: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
        let meters: Vec<&String> = steps.iter().filter(|step| step.contains(" m ")).collect();
        assert!(
            meters.len() == 1 && meters[0].contains("(kind=? AND subject=?)"),
            "the meters are not found by kind and subject: {steps:#?}"
        );
        assert!(
            !steps.iter().any(|step| step.starts_with("SCAN a")),
            "accounts are read one by one: {steps:#?}"
        );
    }
}
