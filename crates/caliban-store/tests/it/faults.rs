//! r12 for a process that stays: a sync that fails, injected with strace, costs one write and no more.

use std::process::Command;

use caliban_store::broker::{Broker, CreateSession, MailboxScope, NewMessage, PollQuery, Speaker};
use caliban_store::{Stamp, StoreUrl};

/// How the sends of [`three_sends`] ended.
const OUTCOME: &str = "outcome";

async fn open(dir: &std::path::Path) -> Broker {
    let url = StoreUrl::sqlite(dir.join("store.db"));
    Broker::open(&url, Speaker::Anybody).await.expect("open")
}

/// Not a test by itself: sends three messages over one connection, in the directory that it is started in.
#[tokio::test]
#[ignore = "run by the next test, under strace"]
async fn three_sends() {
    let here = std::env::current_dir().expect("directory");
    let mut broker = open(&here).await;
    let session = broker.sessions().await.expect("sessions").remove(0).session;
    let director = session.director.expect("director");
    let mut outcome = String::new();
    for text in ["one", "two", "three"] {
        let new = NewMessage {
            session: session.id,
            from: director.into(),
            to: director.into(),
            text: text.to_owned(),
            id: None,
        };
        let sent = broker.send(&new, Stamp::now()).await;
        // What is not acknowledged is not shown to the process that tried, either.
        let query = PollQuery {
            agent: director,
            scope: MailboxScope::Open,
            since: None,
            after: Some(0),
            page_size: 9,
        };
        let seen: Vec<String> =
            broker.poll(&query).await.expect("poll").tasks.into_iter().map(|task| task.text).collect();
        outcome.push_str(&format!("{} {}\n", if sent.is_ok() { "sent" } else { "failed" }, seen.join(",")));
    }
    std::fs::write(here.join(OUTCOME), outcome).expect("outcome");
}

#[tokio::test]
async fn r12_a_sync_that_fails_costs_one_write_of_a_process_that_stays() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut broker = open(dir.path()).await;
    let new = CreateSession { label: None, placement: None };
    broker.create_session(&new, Stamp::now()).await.expect("create");
    // The log stays. Then the first send of a connection syncs the log and its directory, each other one the log; strace
    // counts by thread, and so by connection.
    broker.leave().await;
    let output = Command::new("strace")
        .args(["-f", "-o", "trace", "-e", "inject=fsync,fdatasync:error=EIO:when=3"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "faults::three_sends", "--ignored"])
        .current_dir(dir.path())
        .output();
    let Ok(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("ptrace") {
        return;
    }
    let trace = std::fs::read_to_string(dir.path().join("trace")).expect("trace");
    assert!(trace.contains("(INJECTED)"), "the fault did not happen: {said}");
    let outcome = std::fs::read_to_string(dir.path().join(OUTCOME)).expect("outcome");
    assert_eq!(outcome, "sent one\nfailed one\nsent one,three\n");
}

/// The steps of [`one_request_and_one_that_took_more`]: what is made in the directory after each.
const STEPS: [&str; 4] = ["step-opened", "step-reserved", "step-settled", "step-took-more"];

/// Not a test by itself: settles a request that took what was held for it, and one that took more.
#[tokio::test]
#[ignore = "run by the next test, under strace"]
async fn one_request_and_one_that_took_more() {
    use crate::ledger::{account, id, owner, request};
    let here = std::env::current_dir().expect("directory");
    let url = StoreUrl::sqlite(here.join("ledger.db"));
    let mut ledger = caliban_store::ledger::Ledger::open(&url).await.expect("open");
    let none = caliban_core::budget::Limits::NONE;
    ledger.open_account(&account("a", None, none), Stamp::now()).await.expect("account");
    let (account, owner) = (id("a"), owner(1));
    let request = request(&account, &owner, 10);
    let step = |name: &str| std::fs::create_dir(here.join(name)).expect("step");
    step(STEPS[0]);
    let first = ledger.reserve(&request, Stamp::now()).await.expect("fits").reservation;
    step(STEPS[1]);
    ledger.settle(&first, request.usage, request.cost, 1).await.expect("settle");
    step(STEPS[2]);
    let second = ledger.reserve(&request, Stamp::now()).await.expect("fits").reservation;
    let more = caliban_core::usage::Usage { input: 11, ..request.usage };
    // Its own sync is the second one after the step: the reservation has the first.
    ledger.settle(&second, more, request.cost, 1).await.expect("settle");
    step(STEPS[3]);
}

#[test]
fn r20_a_reservation_is_synced_and_so_is_what_took_more_than_was_held() {
    let dir = tempfile::tempdir().expect("temp dir");
    let output = Command::new("strace")
        .args(["-f", "-o", "trace", "-e", "trace=fsync,fdatasync,mkdir,mkdirat"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "faults::one_request_and_one_that_took_more", "--ignored"])
        .current_dir(dir.path())
        .output()
        .expect("strace");
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(dir.path().join("trace")).expect("trace");
    let mut syncs = vec![0];
    for line in trace.lines() {
        if STEPS.iter().any(|step| line.contains(step)) {
            syncs.push(0);
        } else if line.contains("sync(")
            && let Some(last) = syncs.last_mut()
        {
            *last += 1;
        }
    }
    // Opening makes the tables. After it: one for the reservation, none for what it covers, one for each of the second request.
    assert_eq!(syncs.get(1..4), Some([1, 0, 2].as_slice()), "{trace}");
}
