//! Where a store is: the parsed form of `CAFLEET_DATABASE_URL` and its kin.
//!
//! Owns the reading of the URL and the names of the files that stand beside a SQLite database.
//! Refuses: the home directory (the caller knows it), relative guesses about `~`, databases in memory.

use std::path::{Path, PathBuf};

/// A store that this build can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    file: PathBuf,
}

/// The URL names no store that this build can open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// `sqlite://`, `sqlite::memory:` and the like.
    #[error("no file path in the database URL '{0}'; write sqlite:////absolute/path/registry.db")]
    NoFile(String),
    /// `~` in a URL is a directory of that name to SQLite, which nobody wants.
    #[error("'~' is not expanded in the database URL '{0}'; write the whole path")]
    Tilde(String),
    /// Some other database.
    #[error("the database URL '{0}' is not supported by this build; it must begin with sqlite:")]
    Unsupported(String),
}

impl StoreUrl {
    /// The SQLite database in this file.
    #[must_use]
    pub fn sqlite(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// Reads a URL. `sqlite:////p`, `sqlite:///p` and `sqlite:/p` are the file `/p`;
    /// `sqlite:p` and `sqlite://p` are taken from `here`, the current directory.
    ///
    /// # Errors
    /// When it names no file or another kind of database.
    pub fn parse(text: &str, here: &Path) -> Result<Self, UrlError> {
        let Some(rest) = text.strip_prefix("sqlite:") else {
            return Err(UrlError::Unsupported(text.to_owned()));
        };
        let path = rest.trim_start_matches('/');
        let rooted = rest.starts_with("///") || (rest.starts_with('/') && !rest.starts_with("//"));
        if path.is_empty() || path == ":memory:" || path.starts_with('?') || path.ends_with('/') {
            return Err(UrlError::NoFile(text.to_owned()));
        }
        if path.starts_with('~') {
            return Err(UrlError::Tilde(text.to_owned()));
        }
        let base = if rooted { Path::new("/") } else { here };
        Ok(Self { file: base.join(path) })
    }

    /// The database file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The file that is locked while the schema is made or changed.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// The write-ahead log.
    pub(crate) fn wal_file(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// The directory of doorbells of waiting readers.
    pub(crate) fn bells_dir(&self) -> PathBuf {
        self.beside(".bells")
    }

    /// The file that is locked while somebody types into the pane of this agent.
    #[must_use]
    pub fn pane_lock_file(&self, agent: &str) -> PathBuf {
        self.beside(".panes").join(agent)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{StoreUrl, UrlError};
    use std::path::Path;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, UrlError>) {
        assert_eq!(StoreUrl::parse(text, Path::new("/here")), expected.map(StoreUrl::sqlite), "{text}");
    }

    #[test]
    fn m03_urls_name_a_file_or_are_refused_in_words() {
        check("sqlite:////tmp/a.db", Ok("/tmp/a.db"));
        check("sqlite:///tmp/a.db", Ok("/tmp/a.db"));
        check("sqlite:/tmp/a.db", Ok("/tmp/a.db"));
        check("sqlite:a.db", Ok("/here/a.db"));
        check("sqlite://sub/a.db", Ok("/here/sub/a.db"));
        for none in ["sqlite:", "sqlite://", "sqlite:///", "sqlite::memory:", "sqlite:////tmp/"] {
            check(none, Err(UrlError::NoFile(none.to_owned())));
        }
        check("sqlite:///~/a.db", Err(UrlError::Tilde("sqlite:///~/a.db".to_owned())));
        check("mysql://x", Err(UrlError::Unsupported("mysql://x".to_owned())));
        check("/tmp/a.db", Err(UrlError::Unsupported("/tmp/a.db".to_owned())));
    }
}
