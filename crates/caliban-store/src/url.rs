//! The location of a store: the parsed form of `CAFLEET_DATABASE_URL` and similar settings.
//!
//! Owns the parsing of the URL and the names of the files beside a SQLite database. [`StoreUrl`] is an enum with one
//! variant on purpose: a second kind of database (PostgreSQL) becomes a second variant, and the compiler then points
//! out every place that has to distinguish the two. Refuses: the home directory (the caller knows it), relative guesses
//! about `~`, databases in memory.

use std::fmt;
use std::path::{Path, PathBuf};

/// A store that this build can open. Displays as a URL that [`StoreUrl::parse`] accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite database.
    Sqlite(SqliteFile),
}

/// A SQLite database file, and the files beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteFile(PathBuf);

/// The URL names no store that this build can open. An unsupported URL is not quoted: it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// `sqlite://`, `sqlite::memory:` and the like.
    #[error("no file path in the database URL '{0}'; write sqlite:////absolute/path/registry.db")]
    NoFile(String),
    /// SQLite would take `~` for the name of a directory, which is never intended.
    #[error("'~' is not expanded in the database URL '{0}'; write the whole path")]
    Tilde(String),
    /// `sqlite:////p?mode=rwc`: taken as a file name, it would be another database than `sqlite:////p`.
    #[error(
        "the database URL '{0}' has a query or a fragment, which is not supported; leave out '?' and '#'"
    )]
    Query(String),
    /// `postgres://` or `postgresql://`.
    #[error("this build cannot use PostgreSQL yet; the database URL must begin with sqlite:")]
    Postgres,
    /// Some other database, or no URL at all.
    #[error("the database URL is not supported by this build; it must begin with sqlite:")]
    Unsupported,
}

impl StoreUrl {
    /// The SQLite database in this file.
    #[must_use]
    pub fn sqlite(file: impl Into<PathBuf>) -> Self {
        Self::Sqlite(SqliteFile(file.into()))
    }

    /// Parses a URL. `sqlite:////p`, `sqlite:///p` and `sqlite:/p` are the file `/p`; `sqlite:p` and `sqlite://p` are
    /// relative to `here`, the current directory.
    ///
    /// # Errors
    /// When it names no file or another kind of database.
    pub fn parse(text: &str, here: &Path) -> Result<Self, UrlError> {
        match text.split_once(':') {
            Some(("sqlite", rest)) => sqlite_file(text, rest, here).map(Self::Sqlite),
            Some(("postgres" | "postgresql", _)) => Err(UrlError::Postgres),
            _ => Err(UrlError::Unsupported),
        }
    }
}

fn sqlite_file(text: &str, rest: &str, here: &Path) -> Result<SqliteFile, UrlError> {
    let path = rest.trim_start_matches('/');
    let rooted = rest.starts_with("///") || (rest.starts_with('/') && !rest.starts_with("//"));
    if path.contains(['?', '#']) {
        return Err(UrlError::Query(text.to_owned()));
    }
    if path.is_empty() || path == ":memory:" || path.ends_with('/') {
        return Err(UrlError::NoFile(text.to_owned()));
    }
    if path.starts_with('~') {
        return Err(UrlError::Tilde(text.to_owned()));
    }
    let base = if rooted { Path::new("/") } else { here };
    Ok(SqliteFile(base.join(path)))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:///{}", file.path().display()),
        }
    }
}

impl SqliteFile {
    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file that is locked while the tables are made.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// The write-ahead log.
    pub(crate) fn wal_file(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// The directory with the doorbells of waiting readers.
    pub(crate) fn bells_dir(&self) -> PathBuf {
        self.beside(".bells")
    }

    /// The directory with one lock file for each pane that was typed into.
    pub(crate) fn panes_dir(&self) -> PathBuf {
        self.beside(".panes")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
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
        for query in ["sqlite:?a", "sqlite:////tmp/a.db?mode=rwc", "sqlite:a.db#x"] {
            check(query, Err(UrlError::Query(query.to_owned())));
        }
        check("sqlite:///~/a.db", Err(UrlError::Tilde("sqlite:///~/a.db".to_owned())));
        check("postgres://u:password@host/db", Err(UrlError::Postgres));
        check("postgresql://host/db", Err(UrlError::Postgres));
        check("mysql://x", Err(UrlError::Unsupported));
        check("/tmp/a.db", Err(UrlError::Unsupported));
    }

    #[test]
    fn a_url_is_read_back_as_it_is_shown() {
        let url = StoreUrl::sqlite("/tmp/a b.db");
        assert_eq!(url.to_string(), "sqlite:////tmp/a b.db");
        assert_eq!(StoreUrl::parse(&url.to_string(), Path::new("/here")), Ok(url));
    }
}
