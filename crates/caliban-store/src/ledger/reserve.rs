//! Reserving: checks every pool for room, then holds the estimate in every pool. One transaction.

use caliban_core::budget::{Held, Limits, Meter, ReserveRefused, Scope, Spent};
use jiff::civil::Date;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::meters::{self, limits_of, limits_text, list, stored};
use super::{
    AccountId, Granted, Ledger, LedgerError, LedgerRequest, NOTICE_PERCENT, Near, Opening, Reservation,
    accounts,
};
use crate::{Stamp, StoreError};

/// The subject of the meter of all spending.
pub(super) const EVERYTHING: &str = "";

/// The subject of a repo's meter for a day.
pub(super) fn repo_day(day: Date, repo: &str) -> String {
    format!("{day} {repo}")
}

/// A pool that the request counts in.
struct InPool {
    seq: i64,
    scope: Scope<AccountId>,
    meter: Meter,
    limits: Limits,
    noticed: Option<String>,
}

/// The result of the first request of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    /// What the conversation of the last opened account had spent so far, if the ledger knew it.
    pub known: Option<Spent>,
    /// The result of the reservation.
    pub granted: Result<Granted, ReserveRefused<AccountId>>,
}

impl Ledger {
    /// Reserves a request. When it returns `Ok`, the reservation is on the disk and the request may be sent.
    ///
    /// # Errors
    /// The limit that would be exceeded, or a failure of the store.
    pub async fn reserve(&mut self, request: &LedgerRequest<'_>, now: Stamp) -> Result<Granted, LedgerError> {
        let first = self.open_and_reserve(&[], request, now).await?;
        Ok(first.granted?)
    }

    /// Opens accounts, the topmost first, and reserves a request of the last one, in one transaction. The accounts are
    /// opened even if the request is refused, so that a person can raise the limit of an agent that has never sent one.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open_and_reserve(
        &mut self,
        openings: &[Opening<'_>],
        request: &LedgerRequest<'_>,
        now: Stamp,
    ) -> Result<First, StoreError> {
        let mut tx = self.db.begin().await?;
        let first = first(tx.conn(), openings, request, now).await.map_err(|error| tx.words(error));
        let mut first = tx.finish(first).await?;
        if let Ok(granted) = &mut first.granted {
            granted.reservation.generation = self.db.generation();
        }
        Ok(first)
    }
}

async fn first(
    conn: &mut SqliteConnection,
    openings: &[Opening<'_>],
    request: &LedgerRequest<'_>,
    now: Stamp,
) -> Result<First, sqlx::Error> {
    let mut known = None;
    for opening in openings {
        known = accounts::open_with(&mut *conn, *opening, request.day, now).await?;
    }
    Ok(First { known, granted: reserve(conn, request, now).await? })
}

/// Writes nothing if it refuses.
async fn reserve(
    conn: &mut SqliteConnection,
    request: &LedgerRequest<'_>,
    now: Stamp,
) -> Result<Result<Granted, ReserveRefused<AccountId>>, sqlx::Error> {
    let Some((account, mut pools)) = pools(&mut *conn, request).await? else {
        return Ok(Err(ReserveRefused::NoAccount(request.account.clone())));
    };
    let estimate = request.estimate();
    for pool in &pools {
        if let Err(refused) = pool.meter.check(pool.limits, estimate, pool.scope.clone()) {
            return Ok(Err(refused));
        }
    }
    let held = Held::from(estimate);
    let (mut near, mut nearest) = (Vec::new(), None::<Near>);
    for pool in &mut pools {
        pool.meter.hold(held);
        let Some((kind, limit, used)) = pool.meter.is_near(pool.limits, NOTICE_PERCENT) else { continue };
        let this = Near { scope: pool.scope.clone(), kind, limit, used };
        if nearest.as_ref().is_none_or(|nearest| nearest.share() < this.share()) {
            nearest = Some(this.clone());
        }
        // Reported again only if the limit was changed meanwhile.
        let text = limits_text(pool.limits);
        if pool.noticed.as_ref() != Some(&text) {
            sqlx::query("UPDATE meters SET noticed = $1 WHERE seq = $2")
                .bind(text)
                .bind(pool.seq)
                .execute(&mut *conn)
                .await?;
            near.push(this);
        }
    }
    let meters: Vec<i64> = pools.iter().map(|pool| pool.seq).collect();
    meters::hold(&mut *conn, &meters, held, Held::default()).await?;
    let seq = write(conn, request, account, &meters, now).await?;
    let reservation = Reservation {
        generation: 0,
        seq,
        account,
        meters,
        day: request.day,
        model: request.model.to_owned(),
        held,
    };
    Ok(Ok(Granted { reservation, near, nearest }))
}

async fn write(
    conn: &mut SqliteConnection,
    request: &LedgerRequest<'_>,
    account: i64,
    meters: &[i64],
    now: Stamp,
) -> Result<i64, sqlx::Error> {
    let done = sqlx::query(
        "INSERT INTO reservations (account, meters, day, model, input, output, cache_read, cache_write, usd, turns, \
         boot, pid, started, made_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(account)
    .bind(list(meters))
    .bind(request.day.to_string())
    .bind(request.model)
    .bind(stored(request.usage.input))
    .bind(stored(request.usage.output))
    .bind(stored(request.usage.cache_read))
    .bind(stored(request.usage.cache_write))
    .bind(request.cost.map(|cost| stored(cost.0)))
    .bind(stored(request.turns))
    .bind(&request.owner.boot)
    .bind(request.owner.pid)
    .bind(i64::try_from(request.owner.started).unwrap_or(i64::MAX))
    .bind(now.to_string())
    .execute(conn)
    .await?;
    Ok(done.last_insert_rowid())
}

/// The account's number and its pools, the narrowest first: its own, its trees', its repo's day, the day, everything.
async fn pools(
    conn: &mut SqliteConnection,
    request: &LedgerRequest<'_>,
) -> Result<Option<(i64, Vec<InPool>)>, sqlx::Error> {
    let chain = meters::above(&mut *conn, request.account).await?;
    let Some(own) = chain.first() else { return Ok(None) };
    let (account, repo): (i64, String) = (own.get("account"), own.get("repo"));
    let mut pools: Vec<InPool> = chain
        .iter()
        .map(|row| {
            let (scope, limits) = if row.get::<&str, _>("kind") == "agent" {
                (Scope::Agent, row.get::<&str, _>("own_limits"))
            } else {
                (Scope::Tree(AccountId(row.get("id"))), row.get("tree_limits"))
            };
            InPool {
                seq: row.get("seq"),
                scope,
                meter: meters::meter(row),
                limits: limits_of(limits),
                noticed: row.get("noticed"),
            }
        })
        .collect();
    let (day, repo_day) = (request.day.to_string(), repo_day(request.day, &repo));
    let wanted = [
        ("repo_day", repo_day.as_str(), Scope::RepoDay, request.per_repo_day),
        ("day", day.as_str(), Scope::Day, request.per_day),
        ("all", EVERYTHING, Scope::Pool, Limits::NONE),
    ];
    let of_settings = [request.per_repo_day, request.per_day].map(limits_text);
    let mut rows = shared(&mut *conn, &repo_day, &day, &repo, &of_settings).await?;
    if rows.len() < wanted.len() {
        for (kind, subject, _, _) in &wanted {
            meters::make(&mut *conn, kind, subject).await?;
        }
        rows = shared(&mut *conn, &repo_day, &day, &repo, &of_settings).await?;
    }
    for (kind, _, scope, limits) in wanted {
        if let Some(row) = rows.iter().find(|row| row.get::<&str, _>("kind") == kind) {
            let set: Option<&str> = row.get("limits");
            pools.push(InPool {
                seq: row.get("seq"),
                scope,
                meter: meters::meter(row),
                limits: set.map_or(limits, limits_of),
                noticed: row.get("noticed"),
            });
        }
    }
    Ok(Some((account, pools)))
}

/// The meters that do not belong to one agent, with the limits that a person has set or raised in place of the
/// settings' (the repo's day, the day).
async fn shared(
    conn: &mut SqliteConnection,
    repo_day: &str,
    day: &str,
    repo: &str,
    [per_repo_day, per_day]: &[String; 2],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query(
        "SELECT m.*, coalesce(r.limits, s.limits) AS limits FROM meters m \
         LEFT JOIN limits s ON s.kind = m.kind AND s.subject = CASE m.kind WHEN 'repo_day' THEN $3 ELSE '' END \
         LEFT JOIN raised r ON r.kind = m.kind AND r.subject = m.subject \
           AND r.instead_of = coalesce(s.limits, CASE m.kind WHEN 'repo_day' THEN $4 ELSE $5 END) \
         WHERE (m.kind, m.subject) IN (('repo_day', $1), ('day', $2), ('all', ''))",
    )
    .bind(repo_day)
    .bind(day)
    .bind(repo)
    .bind(per_repo_day)
    .bind(per_day)
    .fetch_all(conn)
    .await
}
