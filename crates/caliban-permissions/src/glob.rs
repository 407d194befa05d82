//! The files that a shell's pattern stands for.
//!
//! Rather too many than too few: `?` and `[…]` stand for anything, and so does a quoted `*`. A pattern that fits nothing stays as it is
//! written, and is found too, as it fits itself.

use std::path::{Path, PathBuf};

use crate::command_pattern::wildcard;

/// The files that a pattern stands for now; nothing when there are too many, or when one would be an option.
#[expect(clippy::disallowed_methods, reason = "what the shell would find, to judge each name")]
pub(crate) fn expand(directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
    const MOST: usize = 2_000;
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { directory.to_owned() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let stars = with_stars(part);
        if !stars.contains('*') {
            found.iter_mut().for_each(|path| path.push(&stars));
            continue;
        }
        let mut next = Vec::new();
        for path in found {
            for entry in path.read_dir().into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if (name.starts_with('.') && !stars.starts_with('.')) || !wildcard(&stars, &name) {
                    continue;
                }
                if name.starts_with('-') || next.len() > MOST {
                    return None;
                }
                next.push(entry.path());
            }
        }
        found = next;
    }
    Some(found)
}

/// The pattern with `*` for all that is not written out.
fn with_stars(part: &str) -> String {
    let mut stars = String::new();
    // Classes and quotes decide where a bracket ends. Take the last `]` that could end it, so that nothing is missed.
    let last = part.rfind(']');
    let mut chars = part.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '?' => stars.push('*'),
            '[' if last.is_some_and(|last| last > at) => {
                chars.by_ref().find(|(at, _)| Some(*at) == last);
                stars.push('*');
            }
            '\\' => stars.extend(chars.next().map(|(_, c)| c)),
            c => stars.push(c),
        }
    }
    stars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_at_least_what_the_shell_says() {
        let fitting = [
            ("*.rs", "a.rs"),
            ("[[:alpha:]]tc", "etc"),
            ("[]x]y", "]y"),
            ("[!a]b[c]", "xbc"),
            ("[x]", "[x]"),
            ("?", "é"),
            ("a?c", "abc"),
            ("a\\*[b]", "a*b"),
            ("**", "x"),
        ];
        for (pattern, name) in fitting {
            assert!(wildcard(&with_stars(pattern), name), "{pattern} {name}");
        }
        let other = [("*.rs", "a.rc"), ("a?c", "ab"), ("a\\*[b]", "xb"), ("a[b", "ab"), ("?.c", ".h")];
        for (pattern, name) in other {
            assert!(!wildcard(&with_stars(pattern), name), "{pattern} {name}");
        }
    }
    #[test]
    fn nothing_is_known_when_a_name_would_be_an_option_or_there_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: String| std::fs::write(dir.path().join(name), "").unwrap();
        put("-x".to_owned());
        assert_eq!(expand(dir.path(), "*x"), None);
        (0..2_001).for_each(|number| put(format!("a{number}")));
        assert_eq!(expand(dir.path(), "a*").map(|found| found.len()), Some(2_001));
        put("a".to_owned());
        assert_eq!(expand(dir.path(), "a*"), None);
    }
}
