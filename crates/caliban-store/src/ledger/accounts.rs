//! Accounts: opened by an agent's process when it starts, and again by each later process of the agent.

use caliban_core::budget::{Held, Limits, Meter, Spent};
use jiff::civil::Date;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::meters::{self, limits_of, limits_text};
use super::reserve::{EVERYTHING, repo_day};
use super::{Account, AccountId, Ledger};
use crate::{Stamp, StoreError};

/// An account as a process opens it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Opening<'a> {
    /// The account.
    pub account: &'a Account,
    /// What the conversation has spent, for a ledger that does not know the account. It counts for the agent and its
    /// trees, not for a day.
    pub earlier: Spent,
    /// What of it this process has spent today, by a ledger that was replaced since: it counts for the day, too.
    pub today: Spent,
}

/// Whether the account existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenedAccount {
    /// It is new: spending of an earlier process of the conversation is not in it.
    New,
    /// It existed, with everything that was spent.
    Known,
}

impl Ledger {
    /// Opens an account, or finds it. The limits that the agent is started with replace those in the ledger only if
    /// they differ from those of its last start. So a limit that a person has set or raised since holds until the agent
    /// is started with a different one.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open_account(&mut self, account: &Account, now: Stamp) -> Result<OpenedAccount, StoreError> {
        let mut tx = self.db.begin().await?;
        let opened = open(tx.conn(), account, now).await.map_err(|error| tx.words(error));
        tx.finish(opened).await
    }

    /// Changes the limit of an agent and all agents below it, from the next request on. Returns whether there is such
    /// an account.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn set_tree_limits(&mut self, account: &AccountId, limits: Limits) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let changed = sqlx::query("UPDATE accounts SET tree_limits = $1 WHERE id = $2")
            .bind(limits_text(limits))
            .bind(account.as_str())
            .execute(tx.conn())
            .await;
        let changed = changed.map(|done| done.rows_affected() > 0).map_err(|error| tx.words(error));
        tx.finish(changed).await
    }

    /// The accounts whose short name begins with this, or whose label is this, the newest first.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn find_accounts(&mut self, name: &str) -> Result<Vec<Account>, StoreError> {
        let conn = self.db.conn().await?;
        let rows = sqlx::query(
            "SELECT a.*, p.id AS parent_id FROM accounts a LEFT JOIN accounts p ON p.seq = a.parent \
             WHERE a.label = $1 OR substr(a.id, instr(a.id, '/') + 1, length($1)) = $1 ORDER BY a.seq DESC LIMIT 64",
        )
        .bind(name)
        .fetch_all(conn)
        .await
        .map_err(|error| self.db.words(error))?;
        let read = |row: &sqlx::sqlite::SqliteRow| Account {
            id: AccountId(row.get("id")),
            parent: row.get::<Option<String>, _>("parent_id").map(AccountId),
            repo: row.get::<String, _>("repo").into(),
            label: row.get("label"),
            own: limits_of(row.get("own_limits")),
            tree: limits_of(row.get("tree_limits")),
        };
        Ok(rows.iter().map(read).collect())
    }
}

/// Opens an account; returns what its conversation has spent so far, if the ledger knows it.
pub(super) async fn open_with(
    conn: &mut SqliteConnection,
    opening: Opening<'_>,
    day: Date,
    now: Stamp,
) -> Result<Option<Spent>, sqlx::Error> {
    let Opening { account, earlier, today } = opening;
    match open(&mut *conn, account, now).await? {
        OpenedAccount::Known => conversation_spent(conn, &account.id).await.map(Some),
        OpenedAccount::New if earlier == Spent::default() => Ok(None),
        OpenedAccount::New => {
            carry_over(&mut *conn, &account.id, earlier).await?;
            count_for_day(conn, account, today, day).await.map(|()| None)
        }
    }
}

async fn count_for_day(
    conn: &mut SqliteConnection,
    account: &Account,
    spent: Spent,
    day: Date,
) -> Result<(), sqlx::Error> {
    if spent == Spent::default() {
        return Ok(());
    }
    let of_repo = repo_day(day, &account.repo.to_string_lossy());
    let meters = [("repo_day", of_repo.as_str()), ("day", &day.to_string()), ("all", EVERYTHING)];
    let mut seqs = Vec::new();
    for (kind, subject) in meters {
        meters::make(&mut *conn, kind, subject).await?;
        let seq = sqlx::query_scalar("SELECT seq FROM meters WHERE kind = $1 AND subject = $2");
        seqs.push(seq.bind(kind).bind(subject).fetch_one(&mut *conn).await?);
    }
    meters::book(conn, &seqs, Held::default(), spent).await
}

/// What the agents of one conversation have spent: this agent and the helpers in its process, not those that were
/// started as agents of their own.
async fn conversation_spent(conn: &mut SqliteConnection, id: &AccountId) -> Result<Spent, sqlx::Error> {
    // As a range, so that the index finds them among the meters of all sessions there ever were: `0` follows `/`.
    let rows = sqlx::query(
        "SELECT * FROM meters WHERE kind = 'agent' \
         AND (subject = $1 OR (subject > $1 || '/' AND subject < $1 || '0'))",
    )
    .bind(id.as_str())
    .fetch_all(conn)
    .await?;
    let mut sum = Meter::default();
    for row in &rows {
        sum.book(Held::default(), meters::spent(row));
    }
    Ok(sum.spent)
}

async fn carry_over(
    conn: &mut SqliteConnection,
    account: &AccountId,
    spent: Spent,
) -> Result<(), sqlx::Error> {
    let above = meters::above(&mut *conn, account).await?;
    let meters: Vec<i64> = above.iter().map(|row| row.get("seq")).collect();
    meters::book(conn, &meters, Held::default(), spent).await
}

async fn open(
    conn: &mut SqliteConnection,
    account: &Account,
    now: Stamp,
) -> Result<OpenedAccount, sqlx::Error> {
    let asked = limits_text(account.tree);
    let found: Option<(i64, String)> =
        sqlx::query_as("SELECT seq, asked_limits FROM accounts WHERE id = $1 AND asked_limits <> ''")
            .bind(account.id.as_str())
            .fetch_optional(&mut *conn)
            .await?;
    if let Some((seq, before)) = found {
        let tree = if before == asked { None } else { Some(&asked) };
        sqlx::query(
            "UPDATE accounts SET repo = $1, label = $2, own_asked = $3, asked_limits = $4, \
             own_limits = CASE WHEN own_asked = $3 THEN own_limits ELSE $3 END, \
             tree_limits = coalesce($5, tree_limits) WHERE seq = $6",
        )
        .bind(account.repo.to_string_lossy())
        .bind(&account.label)
        .bind(limits_text(account.own))
        .bind(&asked)
        .bind(tree)
        .bind(seq)
        .execute(conn)
        .await?;
        return Ok(OpenedAccount::Known);
    }
    // The parent may have no account yet: a placeholder is inserted, which the parent completes when it opens its own.
    if let Some(parent) = &account.parent {
        insert(&mut *conn, parent, None, account, "", now).await?;
    }
    insert(conn, &account.id, account.parent.as_ref(), account, &asked, now).await?;
    Ok(OpenedAccount::New)
}

async fn insert(
    conn: &mut SqliteConnection,
    id: &AccountId,
    parent: Option<&AccountId>,
    about: &Account,
    asked: &str,
    now: Stamp,
) -> Result<(), sqlx::Error> {
    let is_real = !asked.is_empty();
    let none = limits_text(Limits::NONE);
    sqlx::query(
        "INSERT INTO accounts (id, parent, repo, label, own_limits, own_asked, tree_limits, asked_limits, created_at)
         VALUES ($1, (SELECT seq FROM accounts WHERE id = $2), $3, $4, $5, $5, $6, $7, $8)
         ON CONFLICT (id) DO UPDATE SET parent = coalesce(excluded.parent, parent), repo = excluded.repo, \
           label = excluded.label, own_limits = excluded.own_limits, own_asked = excluded.own_asked, tree_limits = excluded.tree_limits, \
           asked_limits = excluded.asked_limits WHERE asked_limits = '' AND excluded.asked_limits <> ''",
    )
    .bind(id.as_str())
    .bind(parent.map(AccountId::as_str))
    .bind(about.repo.to_string_lossy())
    .bind(about.label.as_ref().filter(|_| is_real))
    .bind(if is_real { limits_text(about.own) } else { none.clone() })
    .bind(if is_real { asked.to_owned() } else { none })
    .bind(asked)
    .bind(now.to_string())
    .execute(&mut *conn)
    .await?;
    for kind in ["agent", "tree"] {
        meters::make(&mut *conn, kind, id.as_str()).await?;
    }
    Ok(())
}
