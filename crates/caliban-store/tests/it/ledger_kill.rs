//! Many processes spend from one ledger and are killed at any moment: the limit holds, and what was sent is counted.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use caliban_core::budget::Limits;
use caliban_core::usage::Usage;
use caliban_store::ledger::{Account, AccountId, Ledger, LedgerError, LedgerRequest, Pool, ReservationOwner};
use caliban_store::{Stamp, StoreUrl};

use crate::ledger::{DAY, account, id, tokens};

const LIMIT: u64 = 60_000;
const WORKERS: usize = 6;
const KILLS: usize = 50;

/// Acts as a worker when it is told where; a test without anything to do otherwise.
#[test]
fn worker() {
    let mut place = String::new();
    if std::io::stdin().read_to_string(&mut place).is_err() || !place.starts_with('/') {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(spend(Path::new(place.trim())));
}

fn note(dir: &Path, what: &str, amount: u64) {
    let file = OpenOptions::new().append(true).create(true).open(dir.join(what));
    writeln!(file.expect("open"), "{amount}").expect("note");
}

fn noted(dir: &Path, what: &str) -> u64 {
    let text = std::fs::read_to_string(dir.join(what)).unwrap_or_default();
    text.lines().filter_map(|line| line.parse::<u64>().ok()).sum()
}

async fn spend(dir: &Path) {
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.join("ledger.db"))).await.expect("open");
    let gone = |owner: &ReservationOwner| !PathBuf::from(format!("/proc/{}", owner.pid)).exists();
    ledger.settle_dead(gone).await.expect("dead");
    let pid = i32::try_from(std::process::id()).expect("pid");
    let own = AccountId::new("9f", &format!("w{pid}"));
    let opened = Account { id: own.clone(), ..account("w", Some("root"), Limits::NONE) };
    ledger.open_account(&opened, Stamp::now()).await.expect("account");
    loop {
        let asked = fastrand::u64(50..400);
        let request = LedgerRequest {
            account: &own,
            owner: &ReservationOwner { boot: "b".to_owned(), pid, started: 1 },
            model: "m",
            usage: Usage { input: asked, ..Usage::default() },
            cost: None,
            turns: 1,
            day: DAY,
            per_repo_day: Limits::NONE,
            per_day: Limits::NONE,
        };
        let reservation = match ledger.reserve(&request, Stamp::now()).await {
            Ok(granted) => granted.reservation,
            Err(LedgerError::Refused(_)) => return,
            Err(error) => panic!("{error}"),
        };
        note(dir, "sent", asked);
        let took = Usage { output: fastrand::u64(asked / 2..=asked), ..Usage::default() };
        ledger.settle(&reservation, took, None, 0).await.expect("settle");
        note(dir, "settled", took.total());
    }
}

fn start(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("own program"))
        .args(["--exact", "ledger_kill::worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(dir.to_str().expect("path").as_bytes()).expect("tell");
    child
}

#[tokio::test]
async fn r20_fifty_kills_in_the_middle_of_requests_pass_no_limit_and_lose_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.path().join("ledger.db"))).await.expect("open");
    ledger.open_account(&account("root", None, tokens(LIMIT)), Stamp::now()).await.expect("account");
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| start(dir.path())).collect();
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..40))).await;
        let which = fastrand::usize(0..WORKERS);
        workers[which].kill().expect("kill");
        workers[which].wait().expect("wait");
        workers[which] = start(dir.path());
        let meter = ledger.pool(&Pool::Tree(id("root")), Limits::NONE).await.expect("pool").meter;
        let used = meter.spent.usage.total() + meter.held.tokens;
        assert!(used <= LIMIT, "{used} of {LIMIT}");
    }
    // They end by themselves when nothing more fits.
    for mut worker in workers {
        assert!(worker.wait().expect("wait").success());
    }
    ledger.settle_dead(|_| true).await.expect("dead");
    let meter = ledger.pool(&Pool::Tree(id("root")), Limits::NONE).await.expect("pool").meter;
    let spent = meter.spent.usage.total();
    assert_eq!((meter.held.tokens, ledger.in_flight().await.expect("count")), (0, 0));
    assert!(spent <= LIMIT && spent > LIMIT - 400, "{spent} of {LIMIT}");
    assert!(noted(dir.path(), "settled") <= spent, "what was settled is there");
    let day = ledger.pool(&Pool::Day(DAY), Limits::NONE).await.expect("pool").meter.spent.usage.total();
    assert_eq!(day, spent, "every pool has the same sum");
}
