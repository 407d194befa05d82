//! The dashboard under load: hundreds of events per second for half a minute. Measures the time until they are on the
//! screen, the number of late frames, the memory that the tab retains, and the cost of a hidden tab.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::fleet_place::Daemon;
use super::pages_browser::{Book, Tab, high, number, numbers};
use super::table::Table;

/// Events per second.
const RATE: u64 = 200;
/// Duration in seconds.
const SECONDS: u64 = 30;
/// Number of agents that change in turn.
const CHANGING: usize = 200;
/// Number of concurrent requests.
const WRITERS: u64 = 4;
/// A frame at 60 Hz is late above this: at least one was dropped.
const LATE_MS: f64 = 25.0;

/// See the module documentation.
pub(super) struct Pressure<'a> {
    pub(super) daemon: &'a Daemon,
    /// Agents that have not started.
    pub(super) queued: &'a [String],
    pub(super) origin: &'a str,
    /// `repo/id` of the agent with the long transcript.
    pub(super) agent: String,
}

/// When an event was caused, in milliseconds since 1970.
type Caused = (u64, f64);

impl Pressure<'_> {
    pub(super) fn measure(&self, tab: &mut Tab, book: &mut Book, table: &mut Table) -> Result<()> {
        table.remark(format!("{RATE} events a second for {SECONDS} s:"));
        let mut next = 0;
        tab.goto(self.origin)?;
        // Every agent has a start time now, and the page is settled.
        next += self.fleet(next, CHANGING as u64)?.len() as u64;
        tab.eval(&settled(&format!("({FLEET_SHOWS})()"), next - 1))?;
        let idle = spent(tab, |_| {
            std::thread::sleep(Duration::from_secs(SECONDS / 3));
            Ok(())
        })?;
        table.remark(format!("  the fleet, nothing happens: {:.1} % of a processor", idle.1));
        for is_hidden in [false, true] {
            tab.hide(is_hidden)?;
            let heap = tab.heap()?;
            tab.eval(&WATCH.replace("SHOWS", FLEET_SHOWS).replace("LIST", ".groups"))?;
            let (caused, cpu) = spent(tab, |_| self.fleet(next, RATE * SECONDS))?;
            next += caused.len() as u64;
            tab.hide(false)?;
            tab.eval(&settled(&format!("({FLEET_SHOWS})()"), next - 1))?;
            let label = if is_hidden { "the fleet, hidden" } else { "the fleet" };
            report(tab, table, label, &caused, cpu, heap, is_hidden)?;
        }
        tab.goto(&format!("{}/agent/{}", self.origin, self.agent))?;
        tab.eval(&settled(&format!("({TALK_SHOWS})()"), book.last()))?;
        for is_hidden in [false, true] {
            tab.hide(is_hidden)?;
            let heap = tab.heap()?;
            tab.eval(&WATCH.replace("SHOWS", TALK_SHOWS).replace("LIST", ".transcript"))?;
            let (caused, cpu) = spent(tab, |_| talk(book))?;
            tab.hide(false)?;
            tab.eval(&settled(&format!("({TALK_SHOWS})()"), book.last()))?;
            let label = if is_hidden { "a transcript, hidden" } else { "a transcript" };
            report(tab, table, label, &caused, cpu, heap, is_hidden)?;
        }
        Ok(())
    }

    /// Changes the start times of agents, at the wanted rate.
    fn fleet(&self, first: u64, count: u64) -> Result<Vec<Caused>> {
        let begun = Instant::now();
        let write = |writer: u64| -> Result<Vec<Caused>> {
            let mut caused = Vec::new();
            for n in (first..first + count).filter(|n| n % WRITERS == writer) {
                until(begun, n - first);
                let id = usize::try_from(n)? % CHANGING;
                let id = self.queued.iter().rev().nth(id).context("there are too few agents")?;
                let body = json!({"start_at": start_at(n)}).to_string();
                self.daemon.ask("POST", &format!("/v1/agents/{id}/requeue"), &body)?;
                // The daemon sends the event before it answers.
                caused.push((n, now()?));
            }
            Ok(caused)
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            let mut all = Vec::new();
            for writer in writers {
                all.extend(writer.join().map_err(|_| anyhow!("a writer panicked"))??);
            }
            Ok(all)
        })
    }
}

/// Each event sets an agent's start to another minute of January 2030, so that the page shows which event it was.
fn start_at(n: u64) -> String {
    format!("2030-01-{:02}T{:02}:{:02}:00Z", 1 + n / (24 * 60), n / 60 % 24, n % 60)
}

/// Appends to the transcript.
fn talk(book: &mut Book) -> Result<Vec<Caused>> {
    let begun = Instant::now();
    let mut caused = Vec::new();
    for n in 0..RATE * SECONDS {
        until(begun, n);
        book.write_to(book.last() + 1)?;
        caused.push((book.last(), now()?));
    }
    Ok(caused)
}

fn until(begun: Instant, events: u64) {
    let due = begun
        + Duration::from_secs(1) * u32::try_from(events).unwrap_or(u32::MAX)
            / u32::try_from(RATE).unwrap_or(1);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0)
}

/// The result of `what`, and the tab's CPU usage meanwhile, in percent of one processor.
fn spent<T>(tab: &mut Tab, what: impl FnOnce(&mut Tab) -> Result<T>) -> Result<(T, f64)> {
    let (begun, before) = (Instant::now(), tab.cpu()?);
    let made = what(tab)?;
    Ok((made, 100.0 * (tab.cpu()? - before) / begun.elapsed().as_secs_f64()))
}

fn report(
    tab: &mut Tab,
    table: &mut Table,
    label: &str,
    caused: &[Caused],
    cpu: f64,
    heap: f64,
    is_hidden: bool,
) -> Result<()> {
    let seen = tab.eval("window.watched.end()")?;
    let grown = (tab.heap()? - heap) * 1e6 / caused.len() as f64;
    let took = caused.last().zip(caused.first()).map_or(1.0, |(last, first)| (last.1 - first.1) / 1000.0);
    let rate = caused.len() as f64 / took.max(0.001);
    let mut line =
        format!("  {label}: {rate:.0}/s, {cpu:.1} % of a processor, heap {grown:+.0} bytes an event");
    if !is_hidden {
        let frames = numbers(&seen["frames"])?;
        let late = frames.iter().filter(|ms| **ms > LATE_MS).count();
        // An event counts as shown with the first frame that shows it or a later one.
        let shown: Vec<(u64, f64)> = seen["shown"]
            .as_array()
            .context("the page gave no list")?
            .iter()
            .map(|it| Ok((number(&it[0])? as u64, number(&it[1])?)))
            .collect::<Result<_>>()?;
        let waits = caused
            .iter()
            .filter_map(|(n, at)| Some(first_shown(&seen, &shown, *n)? - at))
            .collect::<Vec<_>>();
        let (half, most) = (high(waits.clone(), 0.5), high(waits.clone(), 0.95));
        line += &format!(
            "; on the screen after {half:.0} ms, p95 {most:.0} ms, {} of {}; {late} of {} frames late, p99 {:.0} ms",
            waits.len(),
            caused.len(),
            frames.len(),
            high(frames.clone(), 0.99)
        );
    }
    table.remark(line);
    Ok(())
}

/// When the page first showed an event. A transcript shows only its end: earlier records of the same frame are never
/// visible.
fn first_shown(seen: &Value, shown: &[(u64, f64)], n: u64) -> Option<f64> {
    let is_it = |(known, _): &&(u64, f64)| if seen["isEnd"] == true { *known >= n } else { *known == n };
    shown.iter().find(is_it).map(|(_, at)| *at)
}

/// A script that waits until the page shows this number or a later one.
fn settled(shows: &str, last: u64) -> String {
    format!(
        "new Promise((resolve) => {{ const look = () => Math.max(...{shows}) >= {last} ? resolve(true) : setTimeout(look, 50); look(); }})"
    )
}

/// The events that the fleet page shows, in these rows or in all.
const FLEET_SHOWS: &str = "(rows = document.querySelectorAll('.agent-row')) => [...rows].map((row) => /starts at (\\d{4}-\\d\\d-\\d\\d) (\\d\\d:\\d\\d)/.exec(row.querySelector('.doing').textContent)).filter(Boolean).map((it) => Math.round((Date.parse(it[1] + 'T' + it[2]) - 1893456000000) / 60000)).concat([-1])";

/// The last record that the transcript shows.
const TALK_SHOWS: &str = "() => [Math.max(-1, ...[...document.querySelectorAll('.transcript .it')].slice(-3).map((it) => Number(/number (\\d+)/.exec(it.textContent)?.[1] ?? -1)))]";

/// Records when the displayed events change, and the time of each frame.
const WATCH: &str = "(() => { const shows = SHOWS; const list = document.querySelector('LIST'); const isEnd = list.matches('.transcript'); \
    const shown = []; const known = new Set(); const frames = []; let rows = new Set(); let last = 0; let isOver = false; \
    const seen = new MutationObserver((all) => { for (const { target } of all) { const row = (target.nodeType === 3 ? target.parentElement : target)?.closest('.agent-row'); if (row) rows.add(row); } \
      const now = isEnd ? shows() : shows(rows); rows = new Set(); \
      const fresh = now.filter((n) => n >= 0 && !known.has(n)); fresh.forEach((n) => known.add(n)); \
      if (fresh.length > 0) requestAnimationFrame(() => { const at = performance.timeOrigin + performance.now(); fresh.forEach((n) => shown.push([n, at])); }); }); \
    seen.observe(list, { subtree: true, childList: true, characterData: true }); \
    const frame = (at) => { if (isOver) return; if (last > 0 && !document.hidden) frames.push(at - last); last = document.hidden ? 0 : at; requestAnimationFrame(frame); }; \
    requestAnimationFrame(frame); \
    window.watched = { end() { isOver = true; seen.disconnect(); delete window.watched; return { shown, frames, isEnd }; } }; return true; })()";
