//! What went wrong with a file, in words for the model and for people.

use std::{
    ffi::OsStr,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    Workspace,
    limits::SIMILAR_ENTRIES,
    walk::{self, Ignored},
};

/// Names offered when a file does not exist.
const SIMILAR_SHOWN: usize = 3;
/// How alike a name must be to be offered (1 is equal).
const SIMILAR_ENOUGH: f64 = 0.85;
/// Entries that are looked at for a file of the same name, and for how long.
const NAMED_ENTRIES: usize = 50_000;
const NAMED_TIME: Duration = Duration::from_millis(500);

/// The plain reason of an I/O error, without numbers.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        ErrorKind::StorageFull => "no space left on the device".into(),
        ErrorKind::QuotaExceeded => "the disk quota is used up".into(),
        ErrorKind::NotADirectory => "a part of the path is not a directory".into(),
        ErrorKind::IsADirectory => "it is a directory".into(),
        ErrorKind::InvalidFilename => "the name is too long or not valid".into(),
        ErrorKind::FileTooLarge => "the file is too large for this file system".into(),
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error())
            || error.raw_os_error() == Some(rustix::io::Errno::NFILE.raw_os_error()) =>
        {
            "too many files are open".into()
        }
        _ => error.to_string().to_lowercase(),
    }
}

/// A number with its noun: `1 line`, `2 lines`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes as people read them.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{:.1} KB", count as f64 / 1_024.0),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}

/// What to say of a path that does not exist: which part is missing, and names that are close.
pub(crate) fn missing(shown: &str, path: &Path) -> String {
    let Some(parent) = path.parent() else { return format!("{shown} does not exist") };
    if !parent.is_dir() {
        let there = parent.ancestors().find(|ancestor| ancestor.is_dir());
        return match there {
            Some(there) => {
                format!("{shown} does not exist; the last directory that does is {}", there.display())
            }
            None => format!("{shown} does not exist"),
        };
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = similar_names(parent, &name);
    if names.is_empty() {
        format!("{shown} does not exist")
    } else {
        format!("{shown} does not exist; in that directory there is {}", names.join(", "))
    }
}

/// The same for a path of an agent's: where nothing near it has such a name, files of that name elsewhere in its workspace.
pub(crate) fn missing_here(workspace: &Workspace, shown: &str, path: &Path) -> String {
    let text = missing(shown, path);
    let is_near = text.contains("; in that directory there is ");
    let Some(name) = path.file_name().filter(|_| !is_near) else { return text };
    let found = named(workspace.root(), name);
    if found.is_empty() {
        return text;
    }
    let found: Vec<String> = found.iter().map(|found| workspace.shown(found)).collect();
    format!("{text}; of that name there is {}", found.join(", "))
}

/// Some files of that name below a directory.
fn named(root: &Path, name: &OsStr) -> Vec<PathBuf> {
    let deadline = Instant::now() + NAMED_TIME;
    let walk = walk::walk(root, Ignored::Skip).build().take(NAMED_ENTRIES);
    let files = walk
        .take_while(|_| Instant::now() < deadline)
        .flatten()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()) && entry.file_name() == name);
    let mut found: Vec<PathBuf> = files.map(ignore::DirEntry::into_path).collect();
    found.sort();
    found.truncate(SIMILAR_SHOWN);
    found
}

#[expect(clippy::disallowed_methods, reason = "names for a hint, of a directory that the call may read")]
fn similar_names(directory: &Path, wanted: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let lower = wanted.to_lowercase();
    let mut names: Vec<(f64, String)> = entries
        .flatten()
        .take(SIMILAR_ENTRIES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| (strsim::jaro_winkler(&name.to_lowercase(), &lower), name))
        .filter(|(score, _)| *score >= SIMILAR_ENOUGH)
        .collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    names.into_iter().take(SIMILAR_SHOWN).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_names_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["main.rs", "Maim.rs", "readme.md"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            missing("mian.rs", &dir.path().join("mian.rs")),
            "mian.rs does not exist; in that directory there is main.rs, Maim.rs"
        );
        assert_eq!(missing("zzz", &dir.path().join("zzz")), "zzz does not exist");
        assert_eq!(
            missing("a/b/c", &dir.path().join("a/b/c")),
            format!("a/b/c does not exist; the last directory that does is {}", dir.path().display())
        );
    }

    #[test]
    fn sizes_are_rounded() {
        assert_eq!([bytes(12), bytes(2_048), bytes(5 << 20)], ["12 bytes", "2.0 KB", "5.0 MB"]);
    }
}
