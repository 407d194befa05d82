//! The index file, read and written by ourselves. Its bytes never pass from an agent to the user: an entry
//! `../.git/hooks/post-checkout` would make the user's `git restore .` write a hook.
//!
//! What is read keeps what git knows about each file, so that a `git status` need not read all files again. Extensions are
//! left out: they only save time.

use std::collections::BTreeSet;

use caliban_core::hex;
use sha1::Digest as _;

use crate::marker::Oid;

/// Times, device, inode, mode, owner and size of a file.
const STAT: usize = 40;
const MODE: std::ops::Range<usize> = 24..28;
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME: u16 = 0x0fff;
const INTENT_TO_ADD: u16 = 0x2000;
const GITLINK: u32 = 0o160_000;
const MODES: [u32; 4] = [0o100_644, 0o100_755, 0o120_000, GITLINK];

/// One path in one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexFileEntry {
    stat: [u8; STAT],
    oid: Vec<u8>,
    flags: u16,
    extended: u16,
    pub(super) path: Vec<u8>,
}

impl IndexFileEntry {
    fn mode(&self) -> u32 {
        u32::from_be_bytes(self.stat[MODE].try_into().unwrap_or_default())
    }

    pub(super) fn is_gitlink(&self) -> bool {
        self.mode() == GITLINK
    }

    fn stage(&self) -> u16 {
        self.flags & STAGE
    }

    pub(super) fn key(&self) -> (&[u8], u16) {
        (&self.path, self.stage())
    }
}

/// All of an index that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) entries: Vec<IndexFileEntry>,
}

struct IndexReader<'a> {
    rest: &'a [u8],
}

impl<'a> IndexReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("the index ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, String> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| "no number")?))
    }

    fn short(&mut self) -> Result<u16, String> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().map_err(|_| "no number")?))
    }

    /// The variable-length number of version 4.
    fn varint(&mut self) -> Result<usize, String> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value
                .checked_add(1)
                .and_then(|value| value.checked_mul(128))
                .map(|value| value | usize::from(byte & 0x7f))
                .ok_or("a length is too large")?;
        }
        Ok(value)
    }

    fn until_nul(&mut self) -> Result<&'a [u8], String> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or("a path does not end")?;
        let path = self.take(end)?;
        self.take(1)?;
        Ok(path)
    }
}

impl Index {
    /// Reads an index of a repository whose object ids have so many bytes.
    pub(super) fn parse(bytes: &[u8], id: usize) -> Result<Self, String> {
        let body = bytes.len().checked_sub(id).ok_or("the index is too short")?;
        let mut reader = IndexReader { rest: &bytes[..body] };
        if reader.take(4)? != b"DIRC" {
            return Err("not an index".into());
        }
        let version = reader.number()?;
        if !(2..=4).contains(&version) {
            return Err(format!("an index of version {version}"));
        }
        let count = reader.number()?;
        let mut entries: Vec<IndexFileEntry> = Vec::new();
        for _ in 0..count {
            let before = reader.rest.len();
            let stat: [u8; STAT] = reader.take(STAT)?.try_into().map_err(|_| "no entry")?;
            let oid = reader.take(id)?.to_vec();
            let flags = reader.short()?;
            let extended = if flags & EXTENDED == 0 { 0 } else { reader.short()? };
            let path = if version == 4 {
                let last = entries.last().map_or(&[][..], |entry| &entry.path);
                let kept = last.len().checked_sub(reader.varint()?).ok_or("a path is cut too far")?;
                [&last[..kept], reader.until_nul()?].concat()
            } else {
                let path = reader.until_nul()?.to_vec();
                let used = before - reader.rest.len();
                reader.take(used.next_multiple_of(8) - used)?;
                path
            };
            let flags = flags & (ASSUME_VALID | STAGE);
            entries.push(IndexFileEntry { stat, oid, flags, extended, path });
        }
        while !reader.rest.is_empty() {
            let (name, size) = (reader.take(4)?, reader.number()?);
            if !name[0].is_ascii_uppercase() {
                return Err(format!(
                    "an index with the extension {:?}, which is not supported",
                    String::from_utf8_lossy(name)
                ));
            }
            reader.take(usize::try_from(size).map_err(|_| "an extension is too large")?)?;
        }
        Ok(Self { entries })
    }

    /// Whether the user's git may read it: what git itself would have refused to put into it is an error.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut directories: BTreeSet<&[u8]> = BTreeSet::new();
        for entry in &self.entries {
            if !MODES.contains(&entry.mode()) {
                return Err(format!("the index has a file of mode {:o}", entry.mode()));
            }
            if !is_plain(&entry.path) {
                return Err(format!("the index has the path {:?}", String::from_utf8_lossy(&entry.path)));
            }
            let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            directories.extend(slashes.map(|(at, _)| &entry.path[..at]));
        }
        if self.entries.windows(2).any(|pair| pair[0].key() >= pair[1].key()) {
            return Err("the index is not sorted".into());
        }
        let both =
            |entry: &&IndexFileEntry| entry.stage() == 0 && directories.contains(entry.path.as_slice());
        // A conflict between a file and a directory has stages other than 0.
        if let Some(entry) = self.entries.iter().find(both)
            && self
                .entries
                .iter()
                .any(|other| other.stage() == 0 && other.path.starts_with(&[&entry.path[..], b"/"].concat()))
        {
            return Err(format!(
                "the index has {:?} as a file and as a directory",
                String::from_utf8_lossy(&entry.path)
            ));
        }
        Ok(())
    }

    /// As it is shown to another git: without marks that hide changes, and without what `leave_out` names.
    pub(super) fn shown(&self, leave_out: impl Fn(&IndexFileEntry) -> bool) -> Self {
        let shown = self.entries.iter().filter(|entry| !leave_out(entry)).cloned().map(|mut entry| {
            entry.flags &= !ASSUME_VALID;
            entry.extended &= INTENT_TO_ADD;
            entry
        });
        Self { entries: shown.collect() }
    }

    /// What it says, without what it knows about files: two with the same answer have the same content.
    pub(super) fn digest(&self) -> String {
        let mut hash = sha2::Sha256::new();
        for entry in &self.entries {
            hash.update(&entry.stat[MODE]);
            hash.update(&entry.oid);
            hash.update((entry.flags & STAGE).to_be_bytes());
            hash.update((entry.extended & INTENT_TO_ADD).to_be_bytes());
            hash.update(&entry.path);
            hash.update([0]);
        }
        hex::encode(&hash.finalize())
    }

    /// The objects that it names, but for commits of submodules.
    pub(super) fn objects(&self) -> BTreeSet<Oid> {
        let named = self.entries.iter().filter(|entry| !entry.is_gitlink());
        named.filter_map(|entry| Oid::parse(&hex::encode(&entry.oid))).collect()
    }

    /// Its bytes, in version 2, or 3 where that is needed, for object ids of so many bytes.
    pub(super) fn bytes(&self, id: usize) -> Vec<u8> {
        let is_extended = self.entries.iter().any(|entry| entry.extended != 0);
        let mut out = b"DIRC".to_vec();
        out.extend(if is_extended { 3u32 } else { 2 }.to_be_bytes());
        out.extend(u32::try_from(self.entries.len()).unwrap_or(u32::MAX).to_be_bytes());
        for entry in &self.entries {
            let start = out.len();
            out.extend(entry.stat);
            out.extend(&entry.oid);
            let name = u16::try_from(entry.path.len()).unwrap_or(NAME).min(NAME);
            let more = if entry.extended == 0 { 0 } else { EXTENDED };
            out.extend((entry.flags | more | name).to_be_bytes());
            if entry.extended != 0 {
                out.extend(entry.extended.to_be_bytes());
            }
            out.extend(&entry.path);
            // At least one NUL.
            let length = (out.len() - start + 1).next_multiple_of(8);
            out.resize(start + length, 0);
        }
        let sum =
            if id == 32 { sha2::Sha256::digest(&out).to_vec() } else { sha1::Sha1::digest(&out).to_vec() };
        out.extend(sum);
        out
    }
}

/// Whether git would take this path, on every file system.
fn is_plain(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|part| {
        // What some file systems do not tell from `.git`.
        let seen: String = String::from_utf8_lossy(part)
            .chars()
            .filter(|c| !is_ignored(*c))
            .collect::<String>()
            .to_lowercase();
        let seen = seen.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
        !part.is_empty() && part != b"." && part != b".." && !matches!(seen, ".git" | "git~1")
    })
}

/// Characters that HFS+ does not see in a name.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, mode: u32, flags: u16, extended: u16) -> IndexFileEntry {
        let mut stat = [7; STAT];
        stat[MODE].copy_from_slice(&mode.to_be_bytes());
        IndexFileEntry { stat, oid: vec![1; 20], flags, extended, path: path.into() }
    }

    fn index(paths: &[&str]) -> Index {
        Index { entries: paths.iter().map(|path| entry(path, 0o100_644, 0, 0)).collect() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut written = index(&["a", "a.b", "dir/file", "dir/other-name-that-is-long"]);
        assert_eq!(Index::parse(&written.bytes(20), 20), Ok(written.clone()));
        written.entries.push(entry("z", 0o100_755, 0x2000, INTENT_TO_ADD));
        assert_eq!(Index::parse(&written.bytes(20), 20), Ok(written.clone()));
        assert_eq!(written.bytes(20)[7], 3);
        let shorter = &written.bytes(20)[..60];
        assert!(Index::parse(shorter, 20).is_err());
    }

    #[test]
    fn paths_out_of_the_tree_are_refused() {
        assert_eq!(index(&["a", "b/c"]).check(), Ok(()));
        for path in [
            "../.git/hooks/post-checkout",
            ".git/config",
            "a/.GIT/x",
            "a/.git",
            "/etc/passwd",
            "a//b",
            "./a",
            "a/",
            "",
            ".git. /x",
            "git~1/x",
            ".g\u{200c}it/x",
            ".git::$INDEX_ALLOCATION/x",
        ] {
            assert!(index(&[path]).check().is_err(), "{path}");
        }
        assert!(index(&["b", "a"]).check().is_err());
        assert!(index(&["a", "a"]).check().is_err());
        assert!(index(&["a", "a/b"]).check().is_err());
        assert!(Index { entries: vec![entry("a", 0o040_000, 0, 0)] }.check().is_err());
    }

    #[test]
    fn marks_that_hide_changes_are_taken_away() {
        let hiding = Index { entries: vec![entry("a", 0o100_644, ASSUME_VALID, 0x4000)] };
        let shown = hiding.shown(|_| false);
        assert_eq!((shown.entries[0].flags, shown.entries[0].extended), (0, 0));
        assert_eq!(hiding.digest(), shown.digest());
        assert_ne!(hiding.digest(), index(&["b"]).digest());
        assert!(hiding.shown(|_| true).entries.is_empty());
    }
}
