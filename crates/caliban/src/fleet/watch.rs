//! `caliban agents list --watch`: the list as it changes.
//!
//! On a terminal the table is drawn in place, and `q` leaves; elsewhere every change is a line. A bell rings when an agent begins to
//! need a person; one that has ended is said without it.

use std::{collections::BTreeMap, io::Write, path::PathBuf, time::Duration};

use caliban_core::{ids::AgentId, lifecycle::State};
use caliban_fleet::{
    Client,
    feed::{DaemonEnd, FleetFeed, FleetNews},
    protocol::AgentRow,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::{
    Fleet, approval_numbers, json_line,
    list::{agents, need, size, table},
    row::{self, ShownAgent},
    say,
    watch_keys::Keys,
    width::cut,
};
use crate::report::{Code, Failure, Result};

/// How often the table is drawn again at most; ages move on once a second.
const DRAW_EVERY: Duration = Duration::from_millis(100);
const AGE_EVERY: Duration = Duration::from_secs(1);
/// How long a daemon that is gone may take to come back before the watch ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks for it.
const LOOK: Duration = Duration::from_millis(50);
/// So many daemons in a row may end before they have told anything.
const LOST_CAP: u32 = 20;
/// Lines of news that are kept below the table.
const NEWS: usize = 3;

pub(super) async fn watch(fleet: &Fleet<'_>, json: bool, out: &mut dyn Write) -> Result<Code> {
    let is_dumb = fleet.environment.raw("TERM").is_none_or(|term| term == "dumb");
    let terminal = if json || is_dumb { None } else { size() };
    let mut view = WatchView {
        rows: Rows::default(),
        news: Vec::new(),
        drawn: 0,
        json,
        in_place: terminal.is_some(),
        base: fleet.places().base().to_owned(),
    };
    let mut client = fleet.client().await?;
    let mut daemons = Daemons::new(fleet);
    let mut keys = if view.in_place { Keys::open() } else { None };
    let mut term = signal(SignalKind::terminate())?;
    // However it is left, the terminal is put back.
    let interrupted = async {
        tokio::select! {
            _no_handler = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
            () = Keys::quit(&mut keys) => {}
        }
    };
    tokio::pin!(interrupted);
    loop {
        let left = tokio::select! {
            left = follow(&client, &mut view, &mut daemons, out) => left?,
            () = &mut interrupted => return Ok(Code::Done),
        };
        let next = tokio::select! {
            next = daemons.next(left) => next?,
            () = &mut interrupted => return Ok(Code::Done),
        };
        let Some(next) = next else {
            say("the daemon was stopped; agents go on");
            return Ok(Code::Done);
        };
        client = next;
    }
}

/// Shows what happens until the daemon leaves.
async fn follow(
    client: &Client,
    view: &mut WatchView,
    daemons: &mut Daemons<'_>,
    out: &mut dyn Write,
) -> Result<DaemonEnd> {
    let mut feed = match FleetFeed::open(client).await {
        Ok(feed) => feed,
        Err(left) => return Ok(left),
    };
    let mut ready = false;
    let mut age = interval(AGE_EVERY);
    age.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut draw_at: Option<Instant> = None;
    loop {
        tokio::select! {
            news = feed.next() => match news {
                Ok(FleetNews::All(rows)) => {
                    ready = true;
                    daemons.is_well();
                    view.all(rows.into_iter().collect(), out)?;
                }
                Ok(FleetNews::Changed(row)) => view.changed(*row, out)?,
                Ok(FleetNews::Removed(id)) => view.removed(id, out)?,
                Err(left) => return Ok(left),
            },
            _ = age.tick(), if view.in_place && ready => {
                draw_at.get_or_insert_with(Instant::now);
            }
            () = tokio::time::sleep_until(draw_at.unwrap_or_else(Instant::now)), if draw_at.is_some() => {
                draw_at = None;
                view.draw(out)?;
                continue;
            }
        }
        if view.in_place && ready {
            draw_at.get_or_insert_with(|| Instant::now() + DRAW_EVERY);
        }
    }
}

/// The daemons of a fleet, one after the other, for whoever listens for long.
pub(super) struct Daemons<'f> {
    fleet: &'f Fleet<'f>,
    /// How many were lost since one was well.
    lost: u32,
}

impl<'f> Daemons<'f> {
    pub(super) fn new(fleet: &'f Fleet<'f>) -> Self {
        Self { fleet, lost: 0 }
    }

    /// The one that we listen to has told how things stand.
    pub(super) fn is_well(&mut self) {
        self.lost = 0;
    }

    /// The next daemon; none when the last was stopped and nobody has started another.
    pub(super) async fn next(&mut self, left: DaemonEnd) -> Result<Option<Client>> {
        self.lost += 1;
        if self.lost > LOST_CAP {
            return Err(
                Failure::new("the daemon ends again and again").hint("`caliban daemon logs` tells why")
            );
        }
        match left {
            DaemonEnd::Stopped => Ok(again(self.fleet).await),
            DaemonEnd::Gone => self.after_one_that_said_nothing().await,
        }
    }

    /// One that was killed is followed by another, which we start. One that was stopped takes its socket with it: whoever came too
    /// late for its last word was told nothing.
    async fn after_one_that_said_nothing(&self) -> Result<Option<Client>> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            sleep(LOOK).await;
            if let Some(client) = running(self.fleet).await {
                return Ok(Some(client));
            }
            match Client::connect(self.fleet.places()).await {
                // It is just leaving.
                Ok(_) if Instant::now() < give_up => {}
                Err(_) if !self.fleet.places().socket().exists() => return Ok(again(self.fleet).await),
                _ => return self.fleet.client().await.map(Some),
            }
        }
    }
}

/// A daemon that somebody has started again. We start none: it may have been stopped on purpose.
async fn again(fleet: &Fleet<'_>) -> Option<Client> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(client) = running(fleet).await {
            return Some(client);
        }
        if Instant::now() > give_up {
            return None;
        }
        sleep(LOOK).await;
    }
}

/// The daemon that runs, if one does.
pub(super) async fn running(fleet: &Fleet<'_>) -> Option<Client> {
    let mut client = Client::connect(fleet.places()).await.ok()?;
    // One that is just leaving may still be found.
    client.status().await.is_ok().then_some(client)
}

/// Agents in the order in which the daemon has them: it tells them in it, and a new one is the last. When they were
/// created says nothing after the clock was set (r15).
#[derive(Debug, Default)]
struct Rows {
    numbered: BTreeMap<u64, HeardRow>,
    numbers: BTreeMap<AgentId, u64>,
    next: u64,
}

/// An agent, and when it was told: its age grows from there, whatever the clock does (r15).
#[derive(Debug)]
struct HeardRow {
    row: AgentRow,
    at: Instant,
}

impl HeardRow {
    /// The agent with the age that it has by now.
    fn aged(&self) -> AgentRow {
        let since = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        AgentRow { age_ms: self.row.age_ms.saturating_add(since), ..self.row.clone() }
    }
}

impl FromIterator<AgentRow> for Rows {
    fn from_iter<I: IntoIterator<Item = AgentRow>>(rows: I) -> Self {
        let mut all = Self::default();
        rows.into_iter().for_each(|row| all.insert(row));
        all
    }
}

impl Rows {
    fn get(&self, id: AgentId) -> Option<&AgentRow> {
        self.numbered.get(self.numbers.get(&id)?).map(|heard| &heard.row)
    }

    fn insert(&mut self, row: AgentRow) {
        let number = *self.numbers.entry(row.id).or_insert(self.next);
        self.next = self.next.max(number + 1);
        self.numbered.insert(number, HeardRow { row, at: Instant::now() });
    }

    fn remove(&mut self, id: AgentId) -> Option<AgentRow> {
        self.numbered.remove(&self.numbers.remove(&id)?).map(|heard| heard.row)
    }

    fn in_order(&self) -> impl Iterator<Item = &HeardRow> {
        self.numbered.values()
    }
}

struct WatchView {
    rows: Rows,
    news: Vec<String>,
    /// Lines that were drawn the last time.
    drawn: usize,
    json: bool,
    in_place: bool,
    /// Where the numbers of questions are.
    base: PathBuf,
}

impl WatchView {
    /// All agents as they are now.
    fn all(&mut self, fresh: Rows, out: &mut dyn Write) -> Result<()> {
        let known = self.rows.in_order().map(|heard| heard.row.id);
        let gone: Vec<AgentId> = known.filter(|id| fresh.get(*id).is_none()).collect();
        for id in gone {
            self.removed(id, out)?;
        }
        for HeardRow { row, .. } in fresh.numbered.into_values() {
            if self.rows.get(row.id).is_none_or(|known| !same(known, &row)) {
                self.changed(row, out)?;
            }
        }
        if self.in_place { self.draw(out) } else { Ok(()) }
    }

    fn changed(&mut self, row: AgentRow, out: &mut dyn Write) -> Result<()> {
        let known = self.rows.get(row.id);
        if known.is_some_and(|known| is_older(&row, known)) {
            return Ok(());
        }
        approval_numbers::shown(&self.base, std::slice::from_ref(&row));
        let shown = ShownAgent::new(&row, caliban_contract::wall_ms());
        if self.json {
            json_line(&shown, out)?;
        } else if !self.in_place {
            let mark = if shown.needs_you { "! " } else { "  " };
            let line = format!("{mark}{}  {}  {}", row::name(&row), row::state(&row), shown.doing);
            let before = known.map(|known| (row::state(known), ShownAgent::new(known, 0).doing));
            // Turns and tokens change all the time; as lines they would bury the rest.
            if before.is_none_or(|before| before != (row::state(&row), shown.doing.clone())) {
                writeln!(out, "{line}")?;
                out.flush()?;
            }
        } else if let Some(news) = known.and_then(|known| news(known, &row)) {
            if shown.needs_you {
                control("\x07", out)?;
            }
            self.news.push(news);
            let old = self.news.len().saturating_sub(NEWS);
            self.news.drain(..old);
        }
        self.rows.insert(row);
        Ok(())
    }

    fn removed(&mut self, id: AgentId, out: &mut dyn Write) -> Result<()> {
        if self.rows.remove(id).is_none() {
            return Ok(());
        }
        if self.json {
            json_line(&serde_json::json!({"id": id, "removed": true}), out)?;
        } else if !self.in_place {
            writeln!(out, "  {id}  removed")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Draws the table over the one before.
    fn draw(&mut self, out: &mut dyn Write) -> Result<()> {
        let (columns, height) = size().unwrap_or((80, 24));
        let now = caliban_contract::wall_ms();
        let mut rows: Vec<AgentRow> = self.rows.in_order().map(HeardRow::aged).collect();
        let mut lines = if rows.is_empty() { table(&rows, now, Some(columns)) } else { Vec::new() };
        if !rows.is_empty() {
            let need = need(&rows, Some(columns));
            // The head, who needs somebody, the news, and the line below.
            let taken = 2 + usize::from(need.is_some()) + self.news.len();
            let hidden = hide(&mut rows, height.saturating_sub(taken));
            lines.extend(agents(&rows, now, Some(columns)));
            if hidden > 0 {
                lines.insert(
                    1,
                    cut(&format!("  … {hidden} more, most of them ended"), columns.saturating_sub(1)),
                );
            }
            lines.extend(need);
        }
        lines.extend(self.news.iter().map(|line| cut(line, columns.saturating_sub(1))));
        if self.drawn > 0 {
            control(&format!("\x1b[{}F\x1b[J", self.drawn), out)?;
        }
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        self.drawn = lines.len();
        Ok(())
    }
}

/// Takes so many out that the rest fits, with a line that says how many: first what has ended, what needs a person last;
/// the oldest first.
fn hide(rows: &mut Vec<AgentRow>, room: usize) -> usize {
    let room = room.max(2);
    if rows.len() <= room {
        return 0;
    }
    let hidden = rows.len() - (room - 1);
    let rank = |row: &AgentRow| match (row::needs_you(row), row::has_ended(row.state)) {
        (true, _) => 2,
        (false, false) => 1,
        (false, true) => 0,
    };
    let mut order: Vec<&AgentRow> = rows.iter().collect();
    // Stable: the oldest first.
    order.sort_by_key(|row| rank(row));
    let gone: Vec<AgentId> = order.into_iter().take(hidden).map(|row| row.id).collect();
    rows.retain(|row| !gone.contains(&row.id));
    hidden
}

/// To the terminal itself: where colours are not wanted, every escape sequence is taken out of `out`.
pub(super) fn control(sequence: &str, out: &mut dyn Write) -> std::io::Result<()> {
    out.flush()?;
    let mut terminal = std::io::stdout();
    terminal.write_all(sequence.as_bytes())?;
    terminal.flush()
}

/// Whether a row tells of an agent at work whose end is known: a daemon that came after another, or told all anew, may
/// begin with what it knew before. One that was started again has another run, or news since its end.
fn is_older(row: &AgentRow, known: &AgentRow) -> bool {
    row::has_ended(known.state)
        && !row::has_ended(row.state)
        && row.runs <= known.runs
        && row.updated_at <= known.updated_at
}

/// Whether nothing but the age differs.
fn same(one: &AgentRow, other: &AgentRow) -> bool {
    AgentRow { age_ms: 0, ..one.clone() } == AgentRow { age_ms: 0, ..other.clone() }
}

/// What is worth a line of its own.
fn news(before: &AgentRow, now: &AgentRow) -> Option<String> {
    let name = row::name(now);
    if row::needs_you(now) && !row::needs_you(before) && !row::has_ended(now.state) {
        return Some(format!("{name} needs you: {}", row::doing(now, 0)));
    }
    match (before.state == now.state, now.state) {
        (true, _) => None,
        (false, State::Done) => Some(format!("{name} is done: {}", row::spent(now))),
        (false, State::Failed | State::Crashed | State::Killed) => {
            Some(format!("{name} {}: {}", now.state, row::ended(now)))
        }
        (false, State::Spawning | State::Running | State::Idle) => None,
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::{Ending, WaitingFor};

    use super::*;

    #[test]
    fn needing_a_person_and_being_done_are_told_apart() {
        let running = crate::fleet::tests::row(State::Running);
        let asks = AgentRow {
            waiting_for: Some(WaitingFor::Approval { call: "make".into() }),
            asks: vec![caliban_contract::records::AskRecord {
                what: "Bash make".into(),
                ..Default::default()
            }],
            ..running.clone()
        };
        let done = AgentRow { ending: Some(Ending::Finished), ..crate::fleet::tests::row(State::Done) };
        let crashed = AgentRow { ending: Some(Ending::Unknown), ..crate::fleet::tests::row(State::Crashed) };
        let cases = [
            ((&running, &asks), Some("a3f8b2c1 needs you: asks: Bash make")),
            ((&asks, &asks), None),
            ((&asks, &running), None),
            ((&running, &done), Some("a3f8b2c1 is done: 0 turns, 0 tokens")),
            ((&running, &crashed), Some("a3f8b2c1 crashed: gone, reason unknown")),
        ];
        for ((before, now), words) in cases {
            assert_eq!(news(before, now).as_deref(), words);
        }
    }

    #[test]
    fn who_needs_a_person_is_seen_in_however_long_a_list() {
        let row = |number: u64, state| AgentRow {
            id: format!("{number:08x}").parse().unwrap(),
            created_at: number,
            ..crate::fleet::tests::row(state)
        };
        let mut rows: Vec<AgentRow> = vec![AgentRow {
            waiting_for: Some(WaitingFor::Approval { call: "make".into() }),
            ..row(1, State::Idle)
        }];
        rows.extend((2..=3).map(|number| row(number, State::Running)));
        rows.extend((4..=9).map(|number| row(number, State::Done)));
        let left = |room| {
            let mut rows = rows.clone();
            let hidden = hide(&mut rows, room);
            (hidden, rows.iter().map(|row| row.created_at).collect::<Vec<_>>())
        };
        assert_eq!(left(9), (0, (1..=9).collect()));
        assert_eq!(left(5), (5, vec![1, 2, 3, 9]));
        assert_eq!(left(3), (7, vec![1, 3]));
        assert_eq!(left(0), (8, vec![1]));
    }

    #[test]
    fn r15_a_clock_that_jumps_back_changes_no_order() {
        let row = |number: u64, created_at| AgentRow {
            id: format!("{number:08x}").parse().unwrap(),
            created_at,
            ..crate::fleet::tests::row(State::Done)
        };
        let mut rows = Rows::default();
        // The second was spawned after the clock had been set back, and the first has had news since.
        for (number, created_at) in [(7, 2_000), (5, 1_000), (9, 3_000), (7, 2_000)] {
            rows.insert(row(number, created_at));
        }
        assert!(rows.remove(row(9, 0).id).is_some());
        rows.insert(row(3, 500));
        let order = |rows: &[AgentRow]| rows.iter().map(|row| row.created_at).collect::<Vec<_>>();
        let mut shown: Vec<AgentRow> = rows.in_order().map(|heard| heard.row.clone()).collect();
        assert_eq!(order(&shown), [2_000, 1_000, 500]);
        // The oldest is hidden first, by the same order.
        assert_eq!((hide(&mut shown, 2), order(&shown)), (2, vec![500]));
    }

    #[tokio::test(start_paused = true)]
    async fn r15_an_age_grows_with_time_and_not_with_the_clock() {
        let mut rows = Rows::default();
        // Created in the future, by a clock that was set back since.
        let row = crate::fleet::tests::row(State::Running);
        rows.insert(AgentRow { created_at: u64::MAX, age_ms: 60_000, ..row });
        let age = |rows: &Rows| rows.in_order().map(|heard| heard.aged().age_ms).collect::<Vec<_>>();
        assert_eq!(age(&rows), [60_000]);
        tokio::time::advance(std::time::Duration::from_secs(7)).await;
        assert_eq!(age(&rows), [67_000]);
    }

    #[test]
    fn changes_are_lines_where_there_is_no_terminal() {
        let base = PathBuf::new();
        let mut view = WatchView {
            rows: Rows::default(),
            news: Vec::new(),
            drawn: 0,
            json: false,
            in_place: false,
            base,
        };
        let mut out = Vec::new();
        let running = AgentRow { runs: 1, ..crate::fleet::tests::row(State::Running) };
        let mut all = Rows::default();
        all.insert(running.clone());
        view.all(all, &mut out).unwrap();
        view.changed(AgentRow { turns: 2, ..running.clone() }, &mut out).unwrap();
        let done =
            AgentRow { ending: Some(Ending::Finished), runs: 1, ..crate::fleet::tests::row(State::Done) };
        view.changed(done, &mut out).unwrap();
        // Another daemon begins with what it knew before the end.
        let mut old = Rows::default();
        old.insert(running.clone());
        view.all(old, &mut out).unwrap();
        // It is started again.
        view.changed(AgentRow { runs: 2, ..running }, &mut out).unwrap();
        view.all(Rows::default(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  a3f8b2c1  running  at work\n  a3f8b2c1  done  finished\n  a3f8b2c1  running  at work\n  a3f8b2c1  \
             removed\n"
        );
    }
}
