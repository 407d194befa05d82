//! What background agents were given of an agent's budget, on the disk: a later process of the same conversation must not
//! spend it again (r20).
//!
//! A line for each, written before the agent is started; one that could not be started gives it back with another line.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use caliban_core::{budget::Limits, price::MicroUsd};
use serde::{Deserialize, Serialize};

/// The file's name, in the session's directory.
const FILE: &str = "handed.jsonl";

/// A line: more is given, or comes back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Line {
    tokens: i64,
    micro_usd: i64,
}

impl Line {
    fn of(limits: Limits) -> Self {
        let signed = |amount: Option<u64>| i64::try_from(amount.unwrap_or_default()).unwrap_or(i64::MAX);
        Self { tokens: signed(limits.tokens), micro_usd: signed(limits.usd.map(|usd| usd.0)) }
    }
}

/// It is given: on the disk when this returns.
pub(crate) fn given(directory: &Path, limits: Limits) -> io::Result<()> {
    append(directory, Line::of(limits))
}

/// It was not taken.
pub(crate) fn came_back(directory: &Path, limits: Limits) -> io::Result<()> {
    let Line { tokens, micro_usd } = Line::of(limits);
    append(directory, Line { tokens: -tokens, micro_usd: -micro_usd })
}

/// All that was given, in tokens and money. What cannot be read is nothing, and said.
pub(crate) fn total(directory: &Path) -> (u64, MicroUsd) {
    let text = match fs::read_to_string(directory.join(FILE)) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "what background agents were given is not known");
            }
            return (0, MicroUsd(0));
        }
    };
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let (tokens, micro_usd) = lines.fold((0_i64, 0_i64), |(tokens, micro_usd), line| {
        (tokens.saturating_add(line.tokens), micro_usd.saturating_add(line.micro_usd))
    });
    (u64::try_from(tokens).unwrap_or(0), MicroUsd(u64::try_from(micro_usd).unwrap_or(0)))
}

fn append(directory: &Path, line: Line) -> io::Result<()> {
    let mut text = serde_json::to_string(&line)?;
    text.push('\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(FILE))?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r20_what_was_given_is_known_to_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(total(dir.path()), (0, MicroUsd(0)));
        let limits = Limits { tokens: Some(70), usd: Some(MicroUsd(5)), ..Limits::NONE };
        given(dir.path(), limits).unwrap();
        given(dir.path(), limits).unwrap();
        came_back(dir.path(), limits).unwrap();
        given(dir.path(), Limits { tokens: Some(1), ..Limits::NONE }).unwrap();
        assert_eq!(total(dir.path()), (71, MicroUsd(5)));
    }
}
