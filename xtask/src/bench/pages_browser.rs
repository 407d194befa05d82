//! The dashboard in headless Chromium: 500 agents on one page, and a transcript of 50,000 events. Measures the time
//! until something is visible, the time until an event is on the screen, the smoothness of a jump and a scroll, and the
//! memory of tab and server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Bed;
use super::fleet_model::SilentModel;
use super::fleet_place::{AfterTurn, BenchFleet, Daemon};
use super::measure::median;
use super::pages::{memory_mb, own_memory_mb};
use super::pages_pressure::Pressure;
use super::table::Table;

/// Number of agents on the page.
const AGENTS: usize = 500;
/// Number of events of the long transcript.
const EVENTS: u64 = 50_000;
/// Number of times a page is opened.
const OPENS: usize = 5;
/// Number of events, and number of jumps.
const TIMES: usize = 40;

pub(super) fn measure(bed: &Bed, table: &mut Table) -> Result<()> {
    let model = SilentModel::start()?;
    let place = BenchFleet::new(bed, "pages-browser", &model.url, 1)?;
    let daemon = place.daemon()?;
    let request = place.spawn_request(AfterTurn::End);
    let first = daemon.spawn(&request)?;
    model.request_after(0)?;
    let queued = (1..AGENTS).map(|_| daemon.spawn(&request)).collect::<Result<Vec<_>>>()?;
    let mut book = Book::of(&daemon, &first)?;
    book.write_to(EVENTS)?;
    let dashboard = Dashboard::start(&place)?;
    let mut page = Tab::open(bed)?;
    page.goto(&dashboard.url)?;
    page.order(&json!({"see": ["[role=status]", "live"]}))?;
    let (mut painted, mut whole) = (Vec::new(), Vec::new());
    let rows =
        |count: usize| shown_when(&format!("document.querySelectorAll('.agent-row').length >= {count}"));
    for _ in 0..OPENS {
        page.goto(&dashboard.origin)?;
        whole.push(number(&page.eval(&rows(AGENTS))?)?);
        painted.push(number(&page.eval(PAINTED)?)?);
    }
    table.promise("first paint, 500 agents", median(painted), 400.0, " ms");
    table.remark(format!("all {AGENTS} rows are there: {:.0} ms", median(whole)));

    let mut updates = Vec::new();
    for more in 1..=TIMES {
        let told = rows(AGENTS + more);
        page.eval(&format!("window.told = {told}.then((at) => performance.timeOrigin + at); true"))?;
        let asked = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0;
        daemon.spawn(&request)?;
        updates.push(number(&page.eval("window.told")?)? - asked);
    }
    table.promise("a new agent, from the request to the screen, p95", high(updates, 0.95), 100.0, " ms");
    let fleet_heap = page.heap()?;

    let repo = page.eval("document.querySelector('[id^=row-]').id.slice(4).split('/')[0]")?;
    let repo = repo.as_str().context("no row has an id")?;
    let mut opened = Vec::new();
    for _ in 0..OPENS {
        page.goto(&format!("{}/agent/{repo}/{first}", dashboard.origin))?;
        let last = format!("document.querySelector('.transcript')?.textContent.includes('number {EVENTS}')");
        opened.push(number(&page.eval(&shown_when(&last))?)?);
    }
    table.promise("open 50,000 events", median(opened), 300.0, " ms");
    let jumps = page.eval(&JUMPS.replace("TIMES", &TIMES.to_string()))?;
    table.promise("a jump within it, p95", high(numbers(&jumps)?, 0.95), 100.0, " ms");
    let frames = page.eval(FRAMES)?;
    table.promise("a frame while one scrolls, p99", high(numbers(&frames)?, 0.99), 33.0, " ms");
    let nodes = page.eval("document.querySelectorAll('*').length")?;
    let talk_heap = page.heap()?;
    table.remark(format!(
        "memory of the tab: {fleet_heap:.1} MB with the fleet, {talk_heap:.1} MB with the transcript, {nodes} elements"
    ));
    let server = |when: &str| -> Result<String> {
        let (all, own) = (memory_mb(dashboard.child.id())?, own_memory_mb(dashboard.child.id())?);
        Ok(format!("memory of the server {when}: {all:.1} MB, {own:.1} MB of it not its program's file"))
    };
    table.remark(server("with both")?);
    let pressure = Pressure {
        daemon: &daemon,
        queued: &queued,
        origin: &dashboard.origin,
        agent: format!("{repo}/{first}"),
    };
    pressure.measure(&mut page, &mut book, table)?;
    table.remark(server("after that")?);
    drop(page);
    drop(dashboard);
    place.end()
}

const PAINTED: &str = "performance.getEntriesByName('first-contentful-paint')[0].startTime";

/// Jumps to positions all over the list; returns the time until the window has no gap.
const JUMPS: &str = "(async () => { const list = document.querySelector('.transcript'); const took = []; \
    for (let i = 0; i < TIMES; i += 1) { \
      const begun = performance.now(); list.scrollTop = (list.scrollHeight * ((i * 37) % 97)) / 97; \
      await new Promise((resolve) => { const look = () => { const at = list.getBoundingClientRect(); \
        const isSeen = (it) => { const box = it.getBoundingClientRect(); return box.bottom > at.top && box.top < at.bottom; }; \
        const seen = [...list.querySelectorAll('.it')].filter(isSeen); \
        if (seen.length > 3 && seen.every((it) => !it.classList.contains('it-gap'))) resolve(); else requestAnimationFrame(look); }; \
        requestAnimationFrame(look); }); \
      took.push(performance.now() - begun); } \
    return took; })()";

/// Scrolls, and measures the time of each frame.
const FRAMES: &str = "(async () => { const list = document.querySelector('.transcript'); list.scrollTop = 1000; \
    const took = []; let last = performance.now(); \
    for (let i = 0; i < 240; i += 1) { list.scrollTop += 120; const now = await new Promise(requestAnimationFrame); \
      took.push(now - last); last = now; } \
    return took.slice(5); })()";

/// A script that returns the milliseconds from the page's request to the first frame in which this holds.
fn shown_when(what: &str) -> String {
    format!(
        "new Promise((resolve) => {{ const look = () => ({what}) ? resolve(performance.now()) : requestAnimationFrame(look); look(); }})"
    )
}

pub(super) fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("the page gave no number")
}

pub(super) fn numbers(value: &Value) -> Result<Vec<f64>> {
    value.as_array().context("the page gave no list")?.iter().map(number).collect()
}

/// The quantile: the value below which this share of all values lies.
pub(super) fn high(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * part).ceil() as usize).saturating_sub(1);
    values.get(at).copied().unwrap_or_default()
}

/// The transcript of an agent that waits for its model and writes nothing itself, so that we can append replies.
pub(super) struct Book {
    file: std::fs::File,
    at: Value,
    last: u64,
}

impl Book {
    fn of(daemon: &Daemon, id: &str) -> Result<Self> {
        let rows = daemon.rows()?;
        let row = rows.iter().find(|row| row["id"] == id).context("the agent is gone")?;
        let path = std::path::Path::new(row["dir"].as_str().context("it has no directory")?)
            .join("transcript.jsonl");
        let known = std::fs::read_to_string(&path)?;
        let last: Value = serde_json::from_str(known.lines().last().context("its transcript is empty")?)?;
        let file = std::fs::OpenOptions::new().append(true).open(&path)?;
        Ok(Self {
            file,
            at: last["at"].clone(),
            last: last["seq"].as_u64().context("a record has no number")?,
        })
    }

    /// The number of the last record.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends replies up to this record, in one write.
    pub(super) fn write_to(&mut self, last: u64) -> Result<()> {
        let mut all = String::new();
        while self.last < last {
            self.last += 1;
            let seq = self.last;
            let words = format!(
                "Reply number {seq}: `check` is in **src/auth.rs**.\n\n- one thing\n- another thing\n"
            );
            let message = json!({"role": "assistant", "blocks": [{"type": "text", "text": words}]});
            let record = json!({"seq": seq, "at": self.at, "event": "reply", "message": message, "model": "m", "ms": 900});
            all += &format!("{record}\n");
        }
        Ok(self.file.write_all(all.as_bytes())?)
    }
}

/// A tab in a browser (`crates/testkit/examples/browser.rs`).
pub(super) struct Tab {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Tab {
    fn open(bed: &Bed) -> Result<Self> {
        let mut command = Command::new(bed.example("browser")?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().context("the browser has no output")?);
        Ok(Self { orders: child.stdin.take(), answers, child })
    }

    fn order(&mut self, order: &Value) -> Result<Value> {
        writeln!(self.orders.as_mut().context("the browser takes no orders")?, "{order}")?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the browser has ended");
        Ok(serde_json::from_str(&line)?)
    }

    pub(super) fn goto(&mut self, url: &str) -> Result<()> {
        self.order(&json!({ "goto": url })).map(drop)
    }

    pub(super) fn eval(&mut self, expression: &str) -> Result<Value> {
        self.order(&json!({ "eval": expression }))
    }

    /// Megabytes of the tab's heap.
    pub(super) fn heap(&mut self) -> Result<f64> {
        Ok(number(&self.order(&json!({"heap": true}))?)? / 1e6)
    }

    /// CPU seconds that it has used.
    pub(super) fn cpu(&mut self) -> Result<f64> {
        number(&self.order(&json!({"cpu": true}))?)
    }

    /// Hides or shows the tab.
    pub(super) fn hide(&mut self, is_hidden: bool) -> Result<()> {
        self.order(&json!({"hide": is_hidden})).map(drop)
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ended = self.child.wait();
    }
}

/// `caliban dashboard` of the fleet.
struct Dashboard {
    child: Child,
    url: String,
    origin: String,
}

impl Dashboard {
    fn start(place: &BenchFleet) -> Result<Self> {
        let mut command = place.subject(&["dashboard", "--no-open", "--json", "--port", "0"]).command()?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("the dashboard has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready: Value =
            serde_json::from_str(&line).with_context(|| format!("the dashboard said '{line}'"))?;
        let text =
            |name: &str| ready[name].as_str().map(str::to_owned).context("the dashboard told no address");
        let (url, origin) = (text("url")?, text("origin")?);
        ensure!(url.starts_with(&origin), "{url} is elsewhere");
        Ok(Self { child, url, origin })
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
