//! The known state of all fleets, and the ring of recent events. There is one ring and a cursor per reader: an idle
//! reader costs nothing, and a reader that the ring has overtaken gets a new snapshot.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use caliban_contract::Places;
use caliban_core::ids::AgentId;
use caliban_core::status_word::StatusGroup;
use caliban_fleet::protocol::AgentRow;
use caliban_fleet::words;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::asks::FleetQuestion;
use super::{shown, spent_today};
use crate::time;

/// Maximum time that a reader waits for the first scan of all repos.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);
/// Number of events kept for readers that reconnect.
const RING: usize = 8192;
/// Maximum total size of these events in bytes.
const RING_BYTES: usize = 8 * 1024 * 1024;

/// A repo with a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repo {
    pub(crate) hash: String,
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// Whether its daemon runs and reports.
    pub(crate) daemon: bool,
    /// When the state was read from the disk, if no daemon reports it.
    pub(crate) recorded_at: Option<u64>,
    pub(crate) problem: Option<String>,
}

impl Repo {
    pub(crate) fn new(hash: &str, path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = caliban_core::inert::line(&name).into_owned();
        Self { hash: hash.to_owned(), path: path.to_owned(), name, ..Self::default() }
    }

    fn json(&self) -> Value {
        json!({
            "hash": self.hash,
            "path": caliban_core::inert::line(&self.path.to_string_lossy()),
            "name": self.name,
            "daemon": self.daemon,
            "recorded_at": self.recorded_at.map(time::text),
            "problem": self.problem,
        })
    }
}

/// An agent and when its state last changed.
#[derive(Debug, Clone)]
struct Known {
    row: AgentRow,
    since: u64,
    /// The JSON that was last sent for it, to detect changes.
    said: Arc<str>,
}

#[derive(Debug)]
struct Fleet {
    repo: Repo,
    places: Places,
    agents: BTreeMap<AgentId, Known>,
}

impl Fleet {
    /// An agent as pages show it.
    fn shown(&self, known: &Known, now: u64) -> Value {
        let label = |id| self.agents.get(&id)?.row.label.clone();
        shown::agent(&self.repo, &known.row, known.since, now, &label)
    }

    /// The open questions of an agent.
    fn asks(&self, row: &AgentRow) -> Vec<FleetQuestion> {
        // The common case first: most agents ask nothing, and have no ancestors.
        if row.asks.is_empty() {
            return Vec::new();
        }
        let above = match row.parent {
            None => Vec::new(),
            Some(_) => {
                let rows: Vec<AgentRow> = self.agents.values().map(|known| known.row.clone()).collect();
                words::above(row, &rows)
            }
        };
        FleetQuestion::of(&self.repo, row, &above)
    }
}

/// An event as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    pub(crate) data: Arc<str>,
}

/// The whole state, and the number of the last event that it includes.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) number: u64,
    pub(crate) json: String,
}

#[derive(Debug, Default)]
struct State {
    fleets: BTreeMap<String, Fleet>,
    ring: VecDeque<Event>,
    ring_bytes: usize,
    next: u64,
    counts: Value,
    today: Value,
}

/// The known state of all fleets.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Distinguishes our events from those of an earlier server process.
    epoch: String,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    /// Whether every repo that was there at the start has been read.
    is_settled: watch::Sender<bool>,
}

/// A repo and its paths, for a route.
#[derive(Debug, Clone)]
pub(crate) struct RepoView {
    pub(crate) repo: Repo,
    pub(crate) places: Places,
}

impl Hub {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (changed, _) = watch::channel(0);
        let state = State { next: 1, today: spent_today::unknown(), ..State::default() };
        Ok(Self {
            epoch: caliban_contract::random_hex::<2>()?,
            state: Mutex::new(state),
            changed,
            is_settled: watch::channel(false).0,
        })
    }

    /// Every repo that was there at the start has been read.
    pub(crate) fn settle(&self) {
        self.is_settled.send_replace(true);
    }

    /// Waits for [`Hub::settle`], for a limited time. Without it a page that reconnects to a server that has just
    /// started would conclude that all agents are gone.
    pub(crate) async fn settled(&self) {
        let mut settled = self.is_settled.subscribe();
        let _late = tokio::time::timeout(SETTLE_LIMIT, settled.wait_for(|is_settled| *is_settled)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes when there are new events.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// An event's id.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The event number of an id; `None` if another server process made the id.
    pub(crate) fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (epoch == self.epoch).then(|| number.parse().ok()).flatten()
    }

    /// The events after this number; `None` if the ring does not reach back that far.
    pub(crate) fn after(&self, number: u64) -> Option<Vec<Event>> {
        let state = self.state();
        let last = state.next.saturating_sub(1);
        let oldest = state.ring.front().map_or(state.next, |event| event.number);
        if number > last || number.saturating_add(1) < oldest {
            return None;
        }
        let skip = usize::try_from(number.saturating_add(1).saturating_sub(oldest)).ok()?;
        Some(state.ring.iter().skip(skip).cloned().collect())
    }

    /// The current state. Serialized agent by agent: hundreds of them as JSON values at once take megabytes.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut state = self.state();
        let now = caliban_contract::wall_ms();
        let number = state.next.saturating_sub(1);
        state.counts = counts(&state);
        let repos: Vec<Value> = state.fleets.values().map(|fleet| fleet.repo.json()).collect();
        let head = json!({"at": time::text(now), "event": self.id(number), "repos": repos, "counts": state.counts["counts"], "today": state.counts["today"]});
        let mut json = head.to_string();
        json.pop();
        json.push_str(",\"agents\":[");
        let agents =
            state.fleets.values().flat_map(|fleet| fleet.agents.values().map(move |known| (fleet, known)));
        for (n, (fleet, known)) in agents.enumerate() {
            if n > 0 {
                json.push(',');
            }
            json.push_str(&fleet.shown(known, now).to_string());
        }
        json.push_str("]}");
        Snapshot { number, json }
    }

    /// All questions, the oldest first.
    pub(crate) fn asks(&self) -> Vec<FleetQuestion> {
        let state = self.state();
        let mut asks: Vec<FleetQuestion> = state
            .fleets
            .values()
            .flat_map(|fleet| fleet.agents.values().flat_map(|known| fleet.asks(&known.row)))
            .collect();
        asks.sort_by_key(|question| question.ask.opened_at);
        asks
    }

    /// All repos whose daemon runs.
    pub(crate) fn repos(&self) -> Vec<RepoView> {
        let state = self.state();
        let running = state.fleets.values().filter(|fleet| fleet.repo.daemon);
        running.map(|fleet| RepoView { repo: fleet.repo.clone(), places: fleet.places.clone() }).collect()
    }

    pub(crate) fn repo(&self, hash: &str) -> Option<RepoView> {
        let state = self.state();
        let fleet = state.fleets.get(hash)?;
        Some(RepoView { repo: fleet.repo.clone(), places: fleet.places.clone() })
    }

    /// One agent by its whole id: its row, and the JSON that pages show.
    pub(crate) fn agent(&self, hash: &str, id: AgentId) -> Option<(AgentRow, Value)> {
        let state = self.state();
        let fleet = state.fleets.get(hash)?;
        let known = fleet.agents.get(&id)?;
        let now = caliban_contract::wall_ms();
        Some((known.row.clone(), fleet.shown(known, now)))
    }

    /// All agents of all repos.
    pub(crate) fn agents(&self) -> Vec<(Repo, AgentRow)> {
        let state = self.state();
        let each = |fleet: &Fleet| -> Vec<(Repo, AgentRow)> {
            fleet.agents.values().map(|known| (fleet.repo.clone(), known.row.clone())).collect()
        };
        state.fleets.values().flat_map(each).collect()
    }

    /// Adds or updates a repo; whether a daemon reports it may have changed.
    pub(crate) fn put_repo(&self, repo: Repo, places: &Places) {
        let mut state = self.state();
        let data = repo.json();
        let is_same = state.fleets.get(&repo.hash).is_some_and(|fleet| fleet.repo.json() == data);
        let fresh = || Fleet { repo: repo.clone(), places: places.clone(), agents: BTreeMap::new() };
        state.fleets.entry(repo.hash.clone()).or_insert_with(fresh).repo = repo.clone();
        if !is_same {
            self.push_json(&mut state, "daemon", &data);
        }
    }

    /// Removes a repo: its fleet has no agents any more, or its directory is gone.
    pub(crate) fn forget(&self, hash: &str) {
        self.replace(hash, Vec::new());
        self.state().fleets.remove(hash);
    }

    /// Replaces all agents of a repo.
    pub(crate) fn replace(&self, hash: &str, rows: Vec<AgentRow>) {
        let mut state = self.state();
        let Some(fleet) = state.fleets.get(hash) else { return };
        let is_gone = |id: &AgentId| !rows.iter().any(|row| row.id == *id);
        let gone: Vec<AgentId> = fleet.agents.keys().copied().filter(is_gone).collect();
        for id in gone {
            self.take_out(&mut state, hash, id);
        }
        self.put_all(&mut state, hash, rows);
    }

    /// Adds or updates an agent.
    pub(crate) fn put(&self, hash: &str, row: AgentRow) {
        self.put_all(&mut self.state(), hash, vec![row]);
    }

    fn put_all(&self, state: &mut State, hash: &str, rows: Vec<AgentRow>) {
        let now = caliban_contract::wall_ms();
        let Some(fleet) = state.fleets.get_mut(hash) else { return };
        // The JSON of an agent names other agents: all rows are stored before any event is made.
        let mut before = Vec::new();
        for row in rows {
            let id = row.id;
            let old = fleet.agents.remove(&id);
            let since = match &old {
                Some(known) if words::status(&known.row) == words::status(&row) => known.since,
                Some(_) => now,
                None => first_since(&row),
            };
            fleet.agents.insert(id, Known { row, since, said: Arc::default() });
            before.push((id, old));
        }
        for (id, old) in before {
            self.tell(state, hash, id, old.as_ref(), now);
        }
        self.count(state);
    }

    /// Sends the events for what has changed about an agent.
    fn tell(&self, state: &mut State, hash: &str, id: AgentId, old: Option<&Known>, now: u64) {
        let Some(fleet) = state.fleets.get_mut(hash) else { return };
        let Some(known) = fleet.agents.get(&id) else { return };
        let said: Arc<str> = fleet.shown(known, now).to_string().into();
        let old_asks = old.map(|old| fleet.asks(&old.row)).unwrap_or_default();
        let new_asks = fleet.asks(&known.row);
        if let Some(known) = fleet.agents.get_mut(&id) {
            known.said = Arc::clone(&said);
        }
        if old.is_none_or(|old| old.said != said) {
            self.push(state, "agent", said);
        }
        let key = format!("{hash}/{id}");
        for closed in old_asks.iter().filter(|old| !new_asks.iter().any(|new| new.is_same(old))) {
            self.push_json(state, "ask_closed", &json!({"key": key, "ask": closed.ask.id, "by": null}));
        }
        for opened in new_asks.iter().filter(|new| !old_asks.iter().any(|old| old.is_same(new))) {
            self.push_json(state, "ask", &opened.json());
        }
    }

    /// Removes an agent.
    pub(crate) fn remove(&self, hash: &str, id: AgentId) {
        self.take_out(&mut self.state(), hash, id);
    }

    fn take_out(&self, state: &mut State, hash: &str, id: AgentId) {
        let Some(fleet) = state.fleets.get_mut(hash) else { return };
        let Some(known) = fleet.agents.remove(&id) else { return };
        let key = format!("{hash}/{id}");
        for ask in &known.row.asks {
            self.push_json(state, "ask_closed", &json!({"key": key, "ask": ask.id, "by": null}));
        }
        self.push_json(state, "removed", &json!({"key": key, "repo": hash, "id": id}));
        self.count(state);
    }

    /// Today's spending and limit, as last read.
    pub(crate) fn today(&self) -> Value {
        self.state().today.clone()
    }

    /// Stores today's spending and limit.
    pub(crate) fn put_today(&self, today: Value) {
        let mut state = self.state();
        state.today = today;
        self.count(&mut state);
    }

    /// Sends another kind of event.
    pub(crate) fn say(&self, name: &'static str, data: &Value) {
        self.push_json(&mut self.state(), name, data);
    }

    fn count(&self, state: &mut State) {
        let counts = counts(state);
        if counts != state.counts {
            state.counts = counts.clone();
            self.push_json(state, "counts", &counts);
        }
    }

    fn push_json(&self, state: &mut State, name: &'static str, data: &Value) {
        self.push(state, name, data.to_string().into());
    }

    fn push(&self, state: &mut State, name: &'static str, data: Arc<str>) {
        let number = state.next;
        state.next += 1;
        state.ring_bytes += data.len();
        state.ring.push_back(Event { number, name, data });
        while state.ring.len() > RING || state.ring_bytes > RING_BYTES && state.ring.len() > 1 {
            let Some(oldest) = state.ring.pop_front() else { break };
            state.ring_bytes -= oldest.data.len();
        }
        self.changed.send_replace(number);
    }
}

/// The time of the last state change of an agent that is new to us, as far as its row shows it.
fn first_since(row: &AgentRow) -> u64 {
    row.asks.first().map_or(row.updated_at.max(row.created_at), |ask| ask.opened_at)
}

fn counts(state: &State) -> Value {
    let rows = || state.fleets.values().flat_map(|fleet| fleet.agents.values().map(|known| &known.row));
    let in_group = |group| rows().filter(|row| words::status(row).group() == group).count();
    json!({
        "counts": {
            "needs_you": rows().filter(|row| words::needs_you(row)).count(),
            "working": in_group(StatusGroup::Working),
            "queued": in_group(StatusGroup::Queued),
            "finished": in_group(StatusGroup::Finished),
            "failed": rows().filter(|row| words::status(row).has_failed()).count(),
            "asks": rows().map(|row| row.asks.len()).sum::<usize>(),
        },
        "today": state.today,
    })
}

#[cfg(test)]
mod tests {
    use caliban_contract::PlaceSources;
    use caliban_core::lifecycle::State as Life;

    use super::*;

    fn hub() -> (Hub, String) {
        let sources = PlaceSources { data: "/data".into(), ..PlaceSources::default() };
        let places = Places::of("/repo".into(), &sources).unwrap();
        let hub = Hub::new().unwrap();
        hub.put_repo(Repo::new(places.hash(), places.repo()), &places);
        (hub, places.hash().to_owned())
    }

    #[test]
    fn a_reader_goes_on_where_it_was_and_begins_anew_when_the_ring_has_gone_past_it() {
        let (hub, hash) = hub();
        let row = AgentRow::new("a3f8b2c1".parse().unwrap(), Life::Running);
        hub.put(&hash, row.clone());
        let Snapshot { number, json } = hub.snapshot();
        let all: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (all["event"].as_str(), all["agents"].as_array().map(Vec::len)),
            (Some(hub.id(number).as_str()), Some(1))
        );
        assert_eq!(hub.after(number).unwrap().len(), 0);
        hub.put(&hash, AgentRow { turns: 2, ..row.clone() });
        hub.put(&hash, AgentRow { turns: 2, ..row.clone() });
        let names: Vec<&str> = hub.after(number).unwrap().iter().map(|event| event.name).collect();
        assert_eq!(names, ["agent"], "what has not changed is not said again");
        // An id of another server process, of the future, and one that is too old.
        assert_eq!(hub.number("zzzz-1"), None);
        assert!(hub.after(number + 10_000).is_none());
        for turns in 0..(RING as u64 + 5) {
            hub.put(&hash, AgentRow { turns: turns + 10, ..row.clone() });
        }
        assert!(hub.after(number).is_none());
        // With long rows the ring keeps fewer events.
        let text = "x".repeat(64 * 1024);
        for turns in 0..200 {
            hub.put(&hash, AgentRow { turns, last_text: Some(text.clone()), ..row.clone() });
        }
        let kept: usize = hub.state().ring.iter().map(|event| event.data.len()).sum();
        assert!(kept <= RING_BYTES && kept > RING_BYTES / 2, "{kept} bytes");
        hub.remove(&hash, row.id);
        assert_eq!(hub.after(hub.snapshot().number - 2).unwrap()[0].name, "removed");
    }

    #[test]
    fn one_that_waits_names_the_others_by_their_labels_whoever_is_told_of_first() {
        let (hub, hash) = hub();
        let row = |id: &str| AgentRow::new(id.parse().unwrap(), Life::Running);
        let after = ["b0000000", "c0000000"].map(|id| id.parse().unwrap()).to_vec();
        let waits = AgentRow { state: Life::Spawning, queued_behind: Some(0), after, ..row("a0000000") };
        let named = AgentRow { label: Some("build\u{1b}".into()), ..row("b0000000") };
        hub.replace(&hash, vec![waits, named, row("c0000000")]);
        let told = hub.after(0).unwrap();
        let said: Vec<Value> = told.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
        let waiting = said.iter().find(|said| said["id"] == "a0000000").unwrap();
        assert_eq!(waiting["doing"], "queued, starts after build␛, c0000000");
    }
}
