//! What went wrong with a file, in words for the model and for people.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use crate::limits::SIMILAR_ENTRIES;

/// Names offered when a file does not exist.
const SIMILAR_SHOWN: usize = 3;
/// How alike a name must be to be offered (1 is equal).
const SIMILAR_ENOUGH: f64 = 0.85;

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
