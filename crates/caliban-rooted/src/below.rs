//! A name beneath a root.

use std::{
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::byte_text::ByteText;

/// Plain parts, without `.` and `..`, never absolute; the empty one is the root itself. It is no path on purpose: only a
/// [`crate::Root`] can look it up.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Below(PathBuf);

impl Below {
    /// A relative path of plain parts; anything else is an error.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut plain = PathBuf::new();
        for part in path.as_ref().components() {
            match part {
                Component::Normal(name) => plain.push(name),
                Component::CurDir => {}
                Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain relative path"));
                }
            }
        }
        Ok(Self(plain))
    }

    /// A name that is written in the program. What is not plain in it is left out, so it cannot lead out of a root either.
    pub fn fixed(name: &'static str) -> Self {
        let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
        Self(Path::new(name).components().filter(is_plain).collect())
    }

    /// The root itself.
    pub fn here() -> Self {
        Self::default()
    }

    /// Whether it is the root itself.
    pub fn is_here(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// A name in this directory. More than a plain name is an error.
    pub fn join(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(self.0.join(Self::new(name)?.0))
    }

    /// The directory that it is in, and its last part; none for the root itself.
    pub fn split(&self) -> Option<(Self, &OsStr)> {
        Some((Self(self.0.parent()?.to_owned()), self.0.file_name()?))
    }

    /// Whether it is this name or beneath it.
    pub fn starts_with(&self, top: &Self) -> bool {
        self.0.starts_with(&top.0)
    }

    /// Its parts, the outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &OsStr> {
        self.0.iter()
    }

    /// The name as bytes, for lists and digests.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// Itself and the directories on the way to it, the outermost first, without the root.
    pub fn steps(&self) -> Vec<Self> {
        let mut steps: Vec<Self> = self
            .0
            .ancestors()
            .filter(|step| !step.as_os_str().is_empty())
            .map(|step| Self(step.to_owned()))
            .collect();
        steps.reverse();
        steps
    }

    /// Where it is, for people and for rules about paths: not to be opened.
    pub fn under(&self, root: &Path) -> PathBuf {
        if self.is_here() { root.to_owned() } else { root.join(&self.0) }
    }

    /// For a look-up beneath a descriptor of the root.
    pub fn text(&self) -> &OsStr {
        if self.is_here() { OsStr::new(".") } else { self.0.as_os_str() }
    }
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl fmt::Debug for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Below {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ByteText::from(self.0.as_path()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(ByteText::deserialize(deserializer)?.path()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beneath_a_root_cannot_lead_out_of_it() {
        for bad in ["/x", "..", "a/../b", "a/.."] {
            assert!(Below::new(bad).is_err(), "{bad}");
        }
        let name = Below::new("a/./b//c").unwrap();
        assert_eq!(name.under(Path::new("/r")), Path::new("/r/a/b/c"));
        assert_eq!(name.steps().len(), 3);
        assert!(name.join("../x").is_err() && name.join("/x").is_err());
        assert!(Below::here().is_here() && Below::here().steps().is_empty());
        assert_eq!(Below::fixed("/a/../b"), Below::new("a/b").unwrap());
        let text = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<Below>(&text).unwrap(), name);
        assert!(serde_json::from_str::<Below>("\"../x\"").is_err());
    }
}
