//! The broker under load: 100,000 messages in the database, and eight concurrent senders.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::broker::{Broker, row};
use super::measure;
use super::table::{Table, ms, times};
use super::{Bed, Bench};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "broker-load",
    what: "100,000 messages, a poll of 10,000, and 8 senders at once; × of the wall time is to the same command in a new database",
    run,
};

/// The limit of a poll's wall time in a large database, relative to a small one.
const AT_MOST: f64 = 1.5;

/// Maximum number of messages that one poll returns, and the time limit for all of them, in milliseconds.
const MAILBOX: usize = 10_000;
const MAILBOX_MS: f64 = 100.0;

const AGENTS: usize = 500;
const BROADCASTS: usize = 200;
const MESSAGES: usize = AGENTS * BROADCASTS;

const SENDERS: usize = 8;
const SENDS: usize = 200;

fn run(bed: &Bed) -> Result<Table> {
    let mut table = Table::of_costs();
    let small = Pair::create(bed, &bed.dir("broker-small")?.join("registry.db"))?;
    let large = Pair::large(bed)?;
    let full = Pair::full(bed)?;
    let subjects =
        [&bed.bare(), &small.poll(), &large.poll(), &small.send(), &large.send(), &full.poll_all()];
    let [bare, small_poll, large_poll, small_send, large_send, all] = measure::costs(subjects, bed.runs)?;
    row(&mut table, "poll, new database", small_poll, bare, small_poll.wall_us);
    row(&mut table, &format!("poll, {MESSAGES} messages"), large_poll, bare, small_poll.wall_us);
    row(&mut table, &format!("poll of {MAILBOX}, all, JSON"), all, bare, small_poll.wall_us);
    row(&mut table, "send, new database", small_send, bare, small_send.wall_us);
    row(&mut table, &format!("send, {MESSAGES} messages"), large_send, bare, small_send.wall_us);
    let each_us = at_once(bed)?;
    table.row(
        format!("{SENDERS}×{SENDS} sends at once, each"),
        [format!("{} {:>6}", ms(each_us), times(each_us / small_send.wall_us.max(1.0)))],
    );
    table.remark(format!(
        "the {} sends at once are all there, and in order for each sender; their × is to one send alone",
        SENDERS * SENDS
    ));
    table.promise("poll", large_poll.wall_us / small_poll.wall_us.max(1.0), AT_MOST, "×");
    table.promise(&format!("poll of {MAILBOX}"), all.wall_us / 1000.0, MAILBOX_MS, " ms");
    Ok(table)
}

/// A sender and a reader with one message.
struct Pair {
    broker: Broker,
    from: String,
    to: String,
    reader: String,
}

impl Pair {
    fn create(bed: &Bed, file: &Path) -> Result<Self> {
        let broker = Broker::create(bed, file)?;
        let (from, to, reader) =
            (broker.register("from")?, broker.register("to")?, broker.register("reader")?);
        broker.output(&["message", "send", "--agent-id", &from, "--to", &reader, "--text", "hello"])?;
        Ok(Self { broker, from, to, reader })
    }

    /// In a database with many messages, which is made once and kept.
    fn large(bed: &Bed) -> Result<Self> {
        let (dir, ids) = (bed.cache.join(format!("broker-{MESSAGES}")), "ids.json");
        let file = dir.join("registry.db");
        if let Ok(text) = std::fs::read_to_string(dir.join(ids))
            && let Some(pair) = serde_json::from_str(&text).ok().and_then(|ids| Self::known(bed, &file, &ids))
            && pair.poll().command()?.status().is_ok_and(|status| status.success())
        {
            return Ok(pair);
        }
        run::say(&format!("making a database of {MESSAGES} messages, once"));
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let crowd = Broker::create(bed, &file)?;
        let first = crowd.register("speaker")?;
        for n in 0..AGENTS {
            crowd.register(&format!("agent-{n}"))?;
        }
        for n in 0..BROADCASTS {
            crowd.output(&[
                "message",
                "broadcast",
                "--agent-id",
                &first,
                "--text",
                &format!("message {n}"),
            ])?;
        }
        let pair = Self::create(bed, &file)?;
        let Self { broker, from, to, reader } = &pair;
        let known = json!({"session": broker.session, "from": from, "to": to, "reader": reader});
        std::fs::write(dir.join(ids), known.to_string()).context("cannot note the ids")?;
        Ok(pair)
    }

    /// With a mailbox of as many messages as one poll returns.
    fn full(bed: &Bed) -> Result<Self> {
        let file = bed.dir("broker-full")?.join("registry.db");
        let pair = Self::create(bed, &file)?;
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {MAILBOX}) \
             INSERT INTO tasks (task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
             status_timestamp, text, delivery_state, number) SELECT printf('%08x-0000-4000-8000-000000000000', i), context_id, \
             from_agent_id, to_agent_id, type, created_at, status_state, status_timestamp, \
             'message ' || i || ': please review the change and say what you think of it', delivery_state, i FROM tasks, n"
        );
        let made = std::process::Command::new("sqlite3").arg(&file).arg(sql).status();
        ensure!(made.context("cannot run sqlite3")?.success(), "sqlite3 failed");
        Ok(pair)
    }

    fn poll_all(&self) -> measure::Subject {
        let size = MAILBOX.to_string();
        self.broker.subject(&[
            "--json",
            "message",
            "poll",
            "--agent-id",
            &self.reader,
            "--all",
            "--page-size",
            &size,
        ])
    }

    fn known(bed: &Bed, file: &Path, ids: &Value) -> Option<Self> {
        let id = |name: &str| ids[name].as_str().map(str::to_owned);
        let broker = Broker::open(bed, file, id("session")?);
        Some(Self { broker, from: id("from")?, to: id("to")?, reader: id("reader")? })
    }

    fn poll(&self) -> measure::Subject {
        self.broker.subject(&["message", "poll", "--agent-id", &self.reader])
    }

    fn send(&self) -> measure::Subject {
        let Self { from, to, .. } = self;
        self.broker.subject(&["message", "send", "--agent-id", from, "--to", to, "--text", "hello"])
    }
}

/// The time per send with eight concurrent senders: the total in microseconds divided by the number of sends. No
/// message may be lost, and each sender's messages must stay in order.
fn at_once(bed: &Bed) -> Result<f64> {
    let broker = Broker::create(bed, &bed.dir("broker-crowd")?.join("registry.db"))?;
    let reader = broker.register("reader")?;
    let senders =
        (0..SENDERS).map(|n| broker.register(&format!("sender-{n}"))).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = senders
            .iter()
            .map(|from| {
                let (broker, reader) = (&broker, &reader);
                scope.spawn(move || -> Result<()> {
                    for n in 0..SENDS {
                        let text = n.to_string();
                        broker.output(&[
                            "message",
                            "send",
                            "--agent-id",
                            from,
                            "--to",
                            reader,
                            "--text",
                            &text,
                        ])?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a sender panicked"))??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let each_us = start.elapsed().as_secs_f64() * 1e6 / (SENDERS * SENDS) as f64;
    let mut heard: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = broker.json(&[
            "message",
            "poll",
            "--agent-id",
            &reader,
            "--after",
            &after.to_string(),
            "--full",
        ])?;
        let page = page.as_array().context("a poll is a list")?.clone();
        let Some(last) = page.last() else { break };
        after = last["seq"].as_i64().context("a message has a seq")?;
        for message in &page {
            let (from, text) = said(message).with_context(|| format!("what is this message? {message}"))?;
            heard.entry(from).or_default().push(text);
        }
    }
    let wanted: Vec<usize> = (0..SENDS).collect();
    for from in &senders {
        ensure!(heard.get(from) == Some(&wanted), "messages of {from} were lost or came in another order");
    }
    Ok(each_us)
}

fn said(message: &Value) -> Option<(String, usize)> {
    Some((message["from_agent_id"].as_str()?.to_owned(), message["text"].as_str()?.parse().ok()?))
}
