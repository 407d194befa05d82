//! Files that a repository brings along, read before anybody has trusted it: nothing that is opened here can make us
//! wait, and nothing is read beyond its limit.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

/// The first bytes of a regular file.
pub(super) struct Start {
    pub(super) bytes: Vec<u8>,
    /// How many there are in all.
    pub(super) size: u64,
}

/// Reads at most `limit` bytes, by a path in which all links are resolved already. A link that has come into it since is not followed.
pub(super) fn start(real: &Path, limit: u64) -> Option<Start> {
    let file = caliban_rooted::real_path::open_file(real).ok()?;
    let size = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(Start { bytes, size })
}

/// The whole text of a file that is not larger than `limit`.
#[expect(clippy::disallowed_methods, reason = "what it leads to is opened without a link on the way")]
pub(super) fn text(path: &Path, limit: u64) -> Option<String> {
    let start = start(&std::fs::canonicalize(path).ok()?, limit.saturating_add(1))?;
    (start.bytes.len() as u64 <= limit).then(|| String::from_utf8(start.bytes).ok()).flatten()
}

/// Where a file is when all links are followed.
pub(super) enum Real {
    /// Within the directory that it has to be in.
    Inside(PathBuf),
    /// Somewhere else.
    Outside,
}

/// Follows the links of a path; `None` when nothing is there.
#[expect(clippy::disallowed_methods, reason = "what it leads to is opened without a link on the way")]
pub(super) fn real(path: &Path, within: &Path) -> Option<Real> {
    let end = std::fs::canonicalize(path).ok()?;
    let within = std::fs::canonicalize(within).ok()?;
    Some(if end.starts_with(within) { Real::Inside(end) } else { Real::Outside })
}
