//! `handed.jsonl`: what an agent granted its background agents out of its own budget. Worker and daemon both append and
//! read it, so a later process of the same conversation does not spend the amount again (r20).
//!
//! One line per grant, on the disk before the new agent starts. A start that failed appends the same amount as a negative line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use caliban_core::{budget::Limits, price::MicroUsd};
use serde::{Deserialize, Serialize};

use crate::records::read_capped;

/// The file's name, in the agent's or session's directory.
const FILE: &str = "handed.jsonl";
/// The largest such file that is read.
const CAP: u64 = 1024 * 1024;

/// One line: an amount that was granted, or a negative one that came back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    tokens: i64,
    micro_usd: i64,
}

impl Grant {
    /// The amounts that these limits allow.
    #[must_use]
    pub fn of(limits: Limits) -> Self {
        let signed = |amount: Option<u64>| i64::try_from(amount.unwrap_or_default()).unwrap_or(i64::MAX);
        Self { tokens: signed(limits.tokens), micro_usd: signed(limits.usd.map(|usd| usd.0)) }
    }

    /// The line that takes this one back.
    #[must_use]
    pub fn returned(self) -> Self {
        Self { tokens: -self.tokens, micro_usd: -self.micro_usd }
    }

    /// Appends the line. The caller syncs the file when the grant must survive a power failure.
    pub fn append(self, directory: &Path) -> io::Result<File> {
        let mut text = serde_json::to_string(&self)?;
        text.push('\n');
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(FILE))?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    }
}

/// The sum of all lines, in tokens and money. A missing file is nothing; a line that cannot be read is skipped.
pub fn total(directory: &Path) -> io::Result<(u64, MicroUsd)> {
    let bytes = match read_capped(&directory.join(FILE), CAP) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, MicroUsd(0))),
        Err(error) => return Err(error),
    };
    let lines =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Grant>(line).ok());
    let sum = lines.fold(Grant::default(), |sum, line| Grant {
        tokens: sum.tokens.saturating_add(line.tokens),
        micro_usd: sum.micro_usd.saturating_add(line.micro_usd),
    });
    let some = |amount: i64| u64::try_from(amount).unwrap_or(0);
    Ok((some(sum.tokens), MicroUsd(some(sum.micro_usd))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r20_what_was_granted_is_known_to_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(total(dir.path()).unwrap(), (0, MicroUsd(0)));
        let grant = Grant::of(Limits { tokens: Some(70), usd: Some(MicroUsd(5)), ..Limits::NONE });
        grant.append(dir.path()).unwrap();
        grant.append(dir.path()).unwrap();
        grant.returned().append(dir.path()).unwrap();
        assert_eq!(total(dir.path()).unwrap(), (70, MicroUsd(5)));
        // A torn last line says nothing.
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.path().join(FILE))
            .and_then(|mut file| file.write_all(b"{\"tok"))
            .unwrap();
        assert_eq!(total(dir.path()).unwrap(), (70, MicroUsd(5)));
    }
}
