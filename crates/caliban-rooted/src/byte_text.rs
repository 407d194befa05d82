//! Bytes of paths, arguments and variables as JSON: each byte is the character of its number.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Bytes that pass through JSON unchanged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteText(pub OsString);

impl ByteText {
    /// As a path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<&Path> for ByteText {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().to_owned())
    }
}

impl From<PathBuf> for ByteText {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string())
    }
}

impl From<&OsStr> for ByteText {
    fn from(text: &OsStr) -> Self {
        Self(text.to_owned())
    }
}

impl From<&str> for ByteText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        Ok(Self(OsString::from_vec(bytes.map_err(|_| D::Error::custom("a character that is no byte"))?)))
    }
}
