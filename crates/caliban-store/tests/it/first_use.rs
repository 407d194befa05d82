//! Opening: by many at once, and over what is already there.

use std::path::Path;

use caliban_store::broker::{
    Broker, CreateSession, IdPrefix, MailboxScope, NewAgent, NewMessage, PollQuery, SCHEMA, Speaker,
};
use caliban_store::open::{OpenReport, WAL_LIMIT};
use caliban_store::{Stamp, StoreError, StoreUrl};
use sqlx::{ConnectOptions, Connection, Executor};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_open_a_new_store_at_once_and_one_makes_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("store.db"));
    let openers: Vec<_> = (0..20)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(
                async move { Broker::open(&url, Speaker::Anybody).await.map(|broker| broker.prepared()) },
            )
        })
        .collect();
    let mut created = 0;
    for opener in openers {
        created += usize::from(opener.await.expect("join").expect("open") == OpenReport::Created);
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn an_empty_file_is_a_new_store_and_a_cut_one_is_damaged() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("store.db");
    let url = StoreUrl::sqlite(&file);
    std::fs::write(&file, "").expect("write");
    let broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    assert_eq!(broker.prepared(), OpenReport::Created);
    broker.close().await;
    let whole = std::fs::read(&file).expect("read");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("cut");
    let mut outcome =
        Broker::open(&url, Speaker::Anybody).await.map_err(caliban_store::broker::BrokerError::from);
    if let Ok(broker) = &mut outcome {
        let new = CreateSession { label: None, placement: None };
        outcome = match broker.create_session(&new, Stamp::now()).await {
            Ok(_) => panic!("a cut store took a write"),
            Err(error) => Err(error),
        };
    }
    let error = outcome.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("is damaged or not a database"), "{error}");
}

/// Short commands leave without a checkpoint; the log must stay small all the same.
#[tokio::test]
async fn the_log_is_folded_back_although_nobody_closes() {
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("store.db"));
    let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    let new = CreateSession { label: None, placement: None };
    let made = broker.create_session(&new, Stamp::now()).await.expect("create");
    let session = made.session.id;
    let agent = NewAgent { name: "a".to_owned(), description: String::new(), skills: Vec::new() };
    let to = broker.register(&session.into(), &agent, Stamp::now()).await.expect("register").id;
    broker.leave().await;
    let mut largest = 0;
    for _ in 0..120 {
        let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
        let from: IdPrefix = made.director.id.into();
        let new = NewMessage { session, from, to: to.into(), text: "x".repeat(8000), id: None };
        broker.send(&new, Stamp::now()).await.expect("send");
        // In one process closing stands for the exit of a short command; it must not be the cure.
        broker.leave().await;
        largest = largest.max(std::fs::metadata(dir.path().join("store.db-wal")).map_or(0, |log| log.len()));
    }
    assert!(largest < WAL_LIMIT * 2, "the log grew to {largest}");
    let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    let query = PollQuery { agent: to, scope: MailboxScope::Open, since: None, after: None, page_size: 1000 };
    assert_eq!(broker.poll(&query).await.expect("poll").tasks.len(), 120);
    broker.close().await;
}

#[tokio::test]
async fn a_store_that_is_locked_for_a_while_is_waited_for() {
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("store.db"));
    let lock = std::fs::File::create(dir.path().join("store.db.lock")).expect("lock file");
    lock.lock().expect("lock");
    let opener = tokio::spawn({
        let url = url.clone();
        async move { Broker::open(&url, Speaker::Anybody).await.map(|broker| broker.prepared()) }
    });
    tokio::task::yield_now().await;
    assert!(!opener.is_finished());
    drop(lock);
    let prepared: Result<OpenReport, StoreError> = opener.await.expect("join");
    assert_eq!(prepared.expect("open"), OpenReport::Created);
}

/// Runs a statement on the file itself.
async fn change(file: &Path, statement: String) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let mut conn = options.connect().await.expect("connect");
    conn.execute(sqlx::AssertSqlSafe(statement)).await.expect("change");
    conn.close().await.expect("close");
}

#[tokio::test]
async fn r22_a_store_of_another_shape_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("store.db");
    let url = StoreUrl::sqlite(&file);
    Broker::open(&url, Speaker::Anybody).await.expect("open").close().await;
    let known = SCHEMA.version();
    for (mark, version, refusal) in [
        (
            SCHEMA.application_id,
            SCHEMA.base - 1,
            format!(
                "has schema {}, this build knows {known} and upgrades none older than {}",
                SCHEMA.base - 1,
                SCHEMA.base
            ),
        ),
        (
            SCHEMA.application_id,
            known + 1,
            format!("has schema {}, this build knows {known}; refusing to downgrade", known + 1),
        ),
        (SCHEMA.application_id + 1, known, "it was made by another program".to_owned()),
        (0, known, "it was made by another program".to_owned()),
        (0, 0, "it was made by another program".to_owned()),
    ] {
        change(&file, format!("PRAGMA application_id = {mark}; PRAGMA user_version = {version}")).await;
        let before = std::fs::read(&file).expect("read");
        let refused = Broker::open(&url, Speaker::Anybody).await.map(drop).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|words| words.contains(&refusal)), "{refused:?}");
        assert!(std::fs::read(&file).expect("read") == before, "it was written: {refusal}");
    }
    change(
        &file,
        format!("PRAGMA application_id = {}; PRAGMA user_version = {known}", SCHEMA.application_id),
    )
    .await;
    let broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    assert_eq!(broker.prepared(), OpenReport::Current);
    broker.close().await;
}
