//! Reading a settings file: bounded, regular files only, UTF-8 only, each failure in words.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::error::{SettingPlace, SettingsError};

/// The largest settings file that is read.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The bytes of a file; `None` when there is none.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, SettingsError> {
    let wrong = |message: String| SettingsError::new(SettingPlace::File(path.to_owned()), message);
    // Without NONBLOCK a named pipe at this path would hang the start for ever.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        // NotADirectory: `.caliban` itself is a file, so nothing can be below it.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(wrong(format!("cannot be read: {}", words(&error)))
                .hint("make it readable for you, or move it away"));
        }
    };
    let metadata = file.metadata().map_err(|error| wrong(format!("cannot be read: {}", words(&error))))?;
    if metadata.is_dir() {
        return Err(wrong("is a directory, expected a file".to_owned()));
    }
    if !metadata.is_file() {
        return Err(wrong("is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(format!("cannot be read: {}", words(&error))))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "is larger than {} KiB, the most a settings file may have",
            MAX_FILE_BYTES / 1024
        )));
    }
    Ok(Some(bytes))
}

/// The bytes as text, or where they stop being UTF-8.
pub fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, SettingsError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes
            .get(..error.valid_up_to())
            .and_then(|good| std::str::from_utf8(good).ok())
            .unwrap_or_default();
        let (line, column) = super::error::position(good, good.len());
        SettingsError::new(
            SettingPlace::Position { path: path.to_owned(), line, column },
            "found bytes that are not UTF-8, expected text in UTF-8",
        )
    })
}

/// An I/O error without the number at its end.
pub fn words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::StorageFull => "no space left on the disk".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => error.to_string(),
    }
}
