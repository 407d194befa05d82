//! Failures of the store itself, in words that a person can act on.
//!
//! Owns the translation of database codes. Refuses: domain errors (those are in [`crate::broker`]).

use std::path::{Path, PathBuf};

/// A failure of the database or its files. Nothing was written unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process held the write lock for longer than we wait.
    #[error("the database {0} is busy: another process has been writing to it for too long; try again")]
    Busy(PathBuf),
    /// The file has tables of another program.
    #[error(
        "{0} has tables but no schema version of this program; it was made by another program \
         (set CAFLEET_DATABASE_URL to another file)"
    )]
    Foreign(PathBuf),
    /// Written before the first release. Such tables are not upgraded.
    #[error(
        "{file} has schema {found}, this build knows {known} and upgrades none older than {oldest} (move the file away)"
    )]
    Older {
        /// The database file.
        file: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version that this build knows.
        known: i64,
        /// The oldest version that this build upgrades.
        oldest: i64,
    },
    /// Written by a newer program.
    #[error("{file} has schema {found}, this build knows {known}; refusing to downgrade (use a newer build)")]
    Newer {
        /// The database file.
        file: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version that this build knows.
        known: i64,
    },
    /// Not a database, or a broken one.
    #[error("{file} is damaged or not a database ({detail}); restore a copy or move it away")]
    Damaged {
        /// The database file.
        file: PathBuf,
        /// What the database said.
        detail: String,
    },
    /// The opened file was deleted, cut or replaced, and there is no whole one in its place.
    #[error(
        "{0} was deleted, cut or replaced while it was in use; nothing more is written until it is whole again"
    )]
    Replaced(PathBuf),
    /// File, directory or file system cannot be written.
    #[error("the database {0} is read-only; nothing was written")]
    ReadOnly(PathBuf),
    /// No room on the device.
    #[error("the disk is full; nothing was written to {0}")]
    Full(PathBuf),
    /// Reading, writing or syncing failed. A commit that ends like this is not acknowledged.
    #[error("{file}: {detail}; the write is not confirmed")]
    Io {
        /// The database file.
        file: PathBuf,
        /// What the database said.
        detail: String,
    },
    /// The file could not be opened at all.
    #[error("cannot open the database {file}: {detail}")]
    Open {
        /// The database file.
        file: PathBuf,
        /// Why not.
        detail: String,
    },
    /// Any other error of the database.
    #[error("{file}: {source}")]
    Sql {
        /// The database file.
        file: PathBuf,
        /// The driver's error.
        source: sqlx::Error,
    },
}

/// Primary result codes of SQLite that have variants of their own.
mod code {
    pub(super) const BUSY: i64 = 5;
    pub(super) const LOCKED: i64 = 6;
    pub(super) const READONLY: i64 = 8;
    pub(super) const IOERR: i64 = 10;
    pub(super) const CORRUPT: i64 = 11;
    pub(super) const FULL: i64 = 13;
    pub(super) const CANTOPEN: i64 = 14;
    pub(super) const PROTOCOL: i64 = 15;
    pub(super) const NOTADB: i64 = 26;
    /// The shared-memory index could not grow; a full disk shows up here first.
    pub(super) const IOERR_SHMSIZE: i64 = 4874;
}

impl StoreError {
    /// Translates an error of the database driver.
    #[must_use]
    pub fn from_sqlx(file: &Path, source: sqlx::Error) -> Self {
        let file = file.to_owned();
        let Some(database) = source.as_database_error() else {
            return match source {
                // The connection's thread could not be started: there are too many processes at the moment.
                sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock => Self::Busy(file),
                sqlx::Error::Io(error) => Self::Io { file, detail: error.to_string() },
                source => Self::Sql { file, source },
            };
        };
        let detail = database.message().to_owned();
        let number = database.code().and_then(|code| code.parse::<i64>().ok()).unwrap_or_default();
        if number == code::IOERR_SHMSIZE {
            return Self::Full(file);
        }
        match number & 0xff {
            code::BUSY | code::LOCKED | code::PROTOCOL => Self::Busy(file),
            code::READONLY => Self::ReadOnly(file),
            code::FULL => Self::Full(file),
            code::IOERR if no_room(&file) => Self::Full(file),
            code::IOERR => Self::Io { file, detail: format!("{detail} ({number})") },
            code::CORRUPT | code::NOTADB => Self::Damaged { file, detail },
            code::CANTOPEN if no_room(&file) => Self::Full(file),
            code::CANTOPEN => Self::Open { file, detail },
            _ => Self::Sql { file, source },
        }
    }

    /// Translates a failed file operation beside the database.
    #[must_use]
    pub fn from_io(file: &Path, error: &std::io::Error) -> Self {
        let file = file.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full(file),
            std::io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(file),
            _ => Self::Open { file, detail: error.to_string() },
        }
    }

    /// Whether waiting and trying again can help.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    /// Whether the write may turn up later nevertheless (after a failed sync the content of the disk is unknown).
    #[must_use]
    pub fn is_unconfirmed(&self) -> bool {
        matches!(self, Self::Io { .. })
    }
}

/// Whether the disk is full: some I/O errors of SQLite (mapping the shared index, making a file) hide that.
fn no_room(file: &Path) -> bool {
    file.parent().and_then(|dir| rustix::fs::statvfs(dir).ok()).is_some_and(|fs| fs.f_bavail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::error::{DatabaseError, ErrorKind};
    use std::borrow::Cow;
    use std::io;

    /// An error of SQLite with this code.
    #[derive(Debug)]
    struct Coded(i64);

    impl std::fmt::Display for Coded {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.message())
        }
    }

    impl std::error::Error for Coded {}

    impl DatabaseError for Coded {
        fn message(&self) -> &str {
            "words"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    fn shown(error: &StoreError) -> (String, bool, bool) {
        let name = format!("{error:?}");
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        (name, error.is_busy(), error.is_unconfirmed())
    }

    #[test]
    fn codes_of_sqlite_become_words() {
        let dir = tempfile::tempdir().expect("temp dir");
        // /proc never has free space.
        let (roomy, full) = (dir.path().join("a.db"), Path::new("/proc/a.db"));
        for (code, here, without_room) in [
            (5, "Busy", "Busy"),
            (517, "Busy", "Busy"),
            (6, "Busy", "Busy"),
            (15, "Busy", "Busy"),
            (8, "ReadOnly", "ReadOnly"),
            (13, "Full", "Full"),
            (10, "Io", "Full"),
            (1034, "Io", "Full"),
            (4874, "Full", "Full"),
            (11, "Damaged", "Damaged"),
            (26, "Damaged", "Damaged"),
            (14, "Open", "Full"),
            (1, "Sql", "Sql"),
        ] {
            for (file, wanted) in [(roomy.as_path(), here), (full, without_room)] {
                let error = StoreError::from_sqlx(file, sqlx::Error::Database(Box::new(Coded(code))));
                let expected = (wanted.to_owned(), wanted == "Busy", wanted == "Io");
                assert_eq!(shown(&error), expected, "{code} {}", file.display());
            }
        }
        let io = sqlx::Error::Io(io::Error::other("x"));
        assert_eq!(shown(&StoreError::from_sqlx(&roomy, io)).0, "Io");
        let no_thread = sqlx::Error::Io(io::ErrorKind::WouldBlock.into());
        assert_eq!(shown(&StoreError::from_sqlx(&roomy, no_thread)).0, "Busy");
        assert_eq!(shown(&StoreError::from_sqlx(&roomy, sqlx::Error::RowNotFound)).0, "Sql");
    }

    #[test]
    fn failed_file_operations_become_words() {
        for (kind, wanted) in [
            (io::ErrorKind::StorageFull, "Full"),
            (io::ErrorKind::QuotaExceeded, "Full"),
            (io::ErrorKind::ReadOnlyFilesystem, "ReadOnly"),
            (io::ErrorKind::PermissionDenied, "Open"),
        ] {
            assert_eq!(shown(&StoreError::from_io(Path::new("/a"), &kind.into())).0, wanted);
        }
    }
}
