//! The numbers of open questions. A number means the same question for as long as it is open, whoever lists and
//! whatever is answered or asked meanwhile: approving "2" never approves something that was not shown as 2.
//!
//! Kept in `<base>/approvals.json`, under a lock.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use caliban_core::ids::AgentId;
use caliban_supervisor::{
    protocol::AgentRow,
    records::{self, Ask},
};
use serde::{Deserialize, Serialize};

use super::json;

/// The file's name.
const FILE: &str = "approvals.json";
/// Held while the file is read and replaced.
const LOCK: &str = "approvals.lock";

/// An open question with its number; text and JSON come from it alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Numbered {
    /// What `approve` and `deny` take.
    pub number: u64,
    /// Who asks.
    pub agent: AgentId,
    /// Its label.
    pub label: Option<String>,
    /// What it asks.
    #[serde(flatten, serialize_with = "json::ask")]
    pub ask: Ask,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Book {
    /// The last number that was given.
    last: u64,
    /// By agent, ask and time.
    numbers: BTreeMap<String, u64>,
}

/// All open questions, the oldest first, each with its number.
pub(super) fn number(base: &Path, rows: &[AgentRow]) -> io::Result<Vec<Numbered>> {
    let mut open: Vec<(&AgentRow, &Ask)> =
        rows.iter().flat_map(|row| row.asks.iter().map(move |ask| (row, ask))).collect();
    open.sort_by_key(|(row, ask)| (ask.opened_at, row.id));
    fs::create_dir_all(base)?;
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(base.join(LOCK))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let mut book = read(&base.join(FILE))?;
    let mut numbers = BTreeMap::new();
    let mut listed = Vec::new();
    for (row, ask) in open {
        let key = format!("{}/{}/{}", row.id, ask.id, ask.opened_at);
        let number = book.numbers.get(&key).copied().unwrap_or_else(|| {
            book.last += 1;
            book.last
        });
        numbers.insert(key, number);
        listed.push(Numbered { number, agent: row.id, label: row.label.clone(), ask: ask.clone() });
    }
    if numbers != book.numbers {
        book.numbers = numbers;
        // Replaced whole: whoever is killed in between leaves the old numbers.
        records::write(base, FILE, &book)?;
    }
    listed.sort_by_key(|numbered| numbered.number);
    Ok(listed)
}

/// What is written; nothing when it cannot be understood (numbers then begin anew).
fn read(path: &Path) -> io::Result<Book> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Book::default()),
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
        let ask = |id: &str, opened_at| Ask { id: id.into(), opened_at, ..Ask::default() };
        let row =
            |asks: &[Ask]| AgentRow { asks: asks.to_vec(), ..super::super::row::tests::row(State::Running) };
        let numbers = |asks: &[Ask]| {
            let listed = number(dir.path(), &[row(asks)]).unwrap();
            listed.into_iter().map(|it| (it.number, it.ask.id)).collect::<Vec<_>>()
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
}
