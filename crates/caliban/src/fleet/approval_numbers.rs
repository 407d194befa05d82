//! The numbers of open questions, and which of them people were shown. A number means the same question for as long as it
//! is open, whoever lists and whatever is answered or asked meanwhile: approving "2" never approves something that was
//! not shown as 2, and approving an agent by its name nothing that was not shown at all.
//!
//! Kept in `<base>/approvals.json`, under a lock. Where that cannot be written, questions get no new numbers, and nothing
//! else depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use caliban_contract::records::{self, AskRecord};
use caliban_core::ids::AgentId;
use caliban_fleet::{protocol::AgentRow, words};
use serde::{Deserialize, Serialize};

/// The file's name.
const FILE: &str = "approvals.json";
/// Held while the file is read and replaced.
const LOCK: &str = "approvals.lock";

/// An open question with its number; text and JSON come from it alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Numbered {
    /// What `approve` and `deny` take; none when no number can be kept.
    pub number: Option<u64>,
    /// Who asks.
    pub agent: AgentId,
    pub label: Option<String>,
    /// What it was told to do.
    pub task: String,
    /// The agents above it, the first first, by their labels or ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// Its directory.
    #[serde(skip)]
    pub dir: PathBuf,
    #[serde(flatten)]
    pub ask: AskRecord,
    /// Whether it was shown to somebody before.
    #[serde(skip)]
    pub was_shown: bool,
    /// Whether anything that its agent asked was.
    #[serde(skip)]
    pub is_agent_known: bool,
}

/// The open questions.
#[derive(Debug)]
pub(super) struct Listing {
    /// By their numbers.
    pub open: Vec<Numbered>,
    /// Why new ones have none.
    pub unkept: Option<io::Error>,
}

/// Which questions are about to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Showing {
    All,
    OneAgents(AgentId),
    None,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct NumberBook {
    /// The last number that was given.
    last: u64,
    /// By agent, ask and time.
    numbers: BTreeMap<String, u64>,
    /// Those that were shown to somebody.
    shown: BTreeSet<String>,
    /// The agents that something was shown of.
    agents: BTreeSet<AgentId>,
}

/// All open questions, of all agents, each with its number. Those that are not open any more are forgotten.
pub(super) fn number(base: &Path, rows: &[AgentRow], showing: Showing) -> Listing {
    let mut open = asks(rows);
    open.sort_by_key(|(row, ask)| (ask.opened_at, row.id));
    // Without a lock, too, what is there can be read.
    let locked = lock(base);
    let (before, unread) = match read(&base.join(FILE)) {
        Ok(book) => (book, None),
        Err(error) => (NumberBook::default(), Some(error)),
    };
    let agents = rows.iter().map(|row| row.id).filter(|id| before.agents.contains(id)).collect();
    let mut book = NumberBook { last: before.last, agents, ..NumberBook::default() };
    for (row, ask) in &open {
        let key = key(row, ask);
        let number = before.numbers.get(&key).copied().unwrap_or_else(|| {
            book.last += 1;
            book.last
        });
        book.numbers.insert(key.clone(), number);
        let is_shown = match showing {
            Showing::All => true,
            Showing::OneAgents(id) => row.id == id,
            Showing::None => false,
        };
        if is_shown || before.shown.contains(&key) {
            book.agents.insert(row.id);
            book.shown.insert(key);
        }
    }
    let written = match (locked, unread) {
        (Ok(_), None) if book == before => Ok(()),
        // Replaced whole: whoever is killed in between leaves the old numbers.
        (Ok(_lock), None) => records::write(base, FILE, &book),
        (Err(error), _) | (Ok(_), Some(error)) => Err(error),
    };
    let kept = if written.is_ok() { &book } else { &before };
    let numbered = open.into_iter().map(|(row, ask)| {
        let key = key(row, ask);
        Numbered {
            number: kept.numbers.get(&key).copied(),
            agent: row.id,
            label: row.label.clone(),
            task: row.prompt.clone(),
            above: words::above(row, rows),
            dir: row.dir.clone(),
            ask: ask.clone(),
            was_shown: before.shown.contains(&key),
            is_agent_known: before.agents.contains(&row.id),
        }
    });
    let mut open: Vec<Numbered> = numbered.collect();
    // Stable: those without one stay in the order in which they were asked.
    open.sort_by_key(|numbered| numbered.number.unwrap_or(u64::MAX));
    Listing { open, unkept: written.err() }
}

/// Notes that a person is shown what these agents ask. Best effort: one that is not noted is shown once more before it
/// can be approved by the agent's name.
pub(super) fn shown(base: &Path, rows: &[AgentRow]) {
    let asks = asks(rows);
    let missing = |book: &NumberBook| asks.iter().any(|(row, ask)| !book.shown.contains(&key(row, ask)));
    if asks.is_empty() || read(&base.join(FILE)).is_ok_and(|book| !missing(&book)) {
        return;
    }
    let noted = lock(base).and_then(|_lock| {
        let mut book = read(&base.join(FILE))?;
        book.agents.extend(asks.iter().map(|(row, _)| row.id));
        book.shown.extend(asks.iter().map(|(row, ask)| key(row, ask)));
        records::write(base, FILE, &book)
    });
    if let Err(error) = noted {
        tracing::debug!(%error, "what was shown is not noted");
    }
}

fn asks(rows: &[AgentRow]) -> Vec<(&AgentRow, &AskRecord)> {
    rows.iter().flat_map(|row| row.asks.iter().map(move |ask| (row, ask))).collect()
}

fn key(row: &AgentRow, ask: &AskRecord) -> String {
    format!("{}/{}/{}", row.id, ask.id, ask.opened_at)
}

fn lock(base: &Path) -> io::Result<File> {
    fs::create_dir_all(base)?;
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(base.join(LOCK))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// What is written; nothing when it cannot be understood (numbers then begin anew).
fn read(path: &Path) -> io::Result<NumberBook> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(NumberBook::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::lifecycle::State;

    use super::*;

    #[test]
    fn a_number_stays_with_its_question() {
        let dir = tempfile::tempdir().unwrap();
        let ask = |id: &str, opened_at| AskRecord { id: id.into(), opened_at, ..AskRecord::default() };
        let row =
            |asks: &[AskRecord]| AgentRow { asks: asks.to_vec(), ..crate::fleet::tests::row(State::Running) };
        let numbers = |asks: &[AskRecord]| {
            let listed = number(dir.path(), &[row(asks)], Showing::None).open;
            listed.into_iter().map(|it| (it.number.unwrap(), it.ask.id)).collect::<Vec<_>>()
        };
        let (a, b, c) = (ask("a", 10), ask("b", 20), ask("c", 5));
        assert_eq!(numbers(&[b.clone(), a.clone()]), [(1, "a".into()), (2, "b".into())]);
        // The first is answered, an older one appears: two is still b, and nothing new is called one.
        assert_eq!(numbers(&[b.clone(), c.clone()]), [(2, "b".into()), (3, "c".into())]);
        assert_eq!(numbers(&[]), []);
        // Asked again later it is another question.
        assert_eq!(numbers(&[ask("b", 30)]), [(4, "b".into())]);
        // Never written in place: a reader, or a kill in the middle, meets the old file or the new one.
        let old = fs::File::open(dir.path().join(FILE)).unwrap();
        let before = io::read_to_string(&old).unwrap();
        assert_eq!(numbers(&[ask("d", 40)]), [(5, "d".into())]);
        std::io::Seek::rewind(&mut &old).unwrap();
        assert_eq!(io::read_to_string(&old).unwrap(), before);
        fs::write(dir.path().join(FILE), "{torn").unwrap();
        assert_eq!(numbers(&[a]), [(1, "a".into())]);
    }

    #[test]
    fn a_question_is_shown_by_who_shows_it_and_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let row = |id: &str, ask: &str| AgentRow {
            id: id.parse().unwrap(),
            asks: vec![AskRecord { id: ask.into(), ..AskRecord::default() }],
            ..crate::fleet::tests::row(State::Running)
        };
        let (one, two) = (row("00000001", "a"), row("00000002", "b"));
        let listed = |showing| {
            let open = number(dir.path(), &[one.clone(), two.clone()], showing).open;
            open.into_iter().map(|it| (it.number, it.was_shown)).collect::<Vec<_>>()
        };
        assert_eq!(listed(Showing::None), [(Some(1), false), (Some(2), false)]);
        assert_eq!(listed(Showing::OneAgents(two.id)), [(Some(1), false), (Some(2), false)]);
        assert_eq!(listed(Showing::None), [(Some(1), false), (Some(2), true)]);
        // What is told of one agent forgets no other.
        shown(dir.path(), std::slice::from_ref(&one));
        assert_eq!(listed(Showing::None), [(Some(1), true), (Some(2), true)]);
    }

    #[test]
    fn numbers_that_were_given_hold_where_no_other_can_be_kept() {
        let dir = tempfile::tempdir().unwrap();
        let ask = |id: &str, opened_at| AskRecord { id: id.into(), opened_at, ..AskRecord::default() };
        let row =
            |asks: &[AskRecord]| AgentRow { asks: asks.to_vec(), ..crate::fleet::tests::row(State::Running) };
        number(dir.path(), &[row(&[ask("a", 2)])], Showing::All);
        fs::remove_file(dir.path().join(LOCK)).unwrap();
        fs::create_dir(dir.path().join(LOCK)).unwrap();
        let listing = number(dir.path(), &[row(&[ask("b", 1), ask("a", 2)])], Showing::All);
        let open: Vec<_> = listing.open.into_iter().map(|it| (it.number, it.ask.id, it.was_shown)).collect();
        assert_eq!(open, [(Some(1), "a".into(), true), (None, "b".into(), false)]);
        assert!(listing.unkept.is_some());
    }
}
