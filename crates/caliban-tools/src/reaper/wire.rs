//! What goes between a workspace and the keeper of a command.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::memory::Memory;

/// Bytes of an order; a hook's input may hold pictures.
const ORDER_BYTES: u32 = 64 << 20;

/// The command to keep. It comes through the pipe, not as arguments or environment: other users see
/// neither, and the keeper itself runs with nothing of the agent's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) cwd: PathBuf,
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) streams: Streams,
}

/// What the command reads, and where it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Streams {
    /// It reads nothing, both its outputs are the keeper's standard output, and the report follows on standard error.
    Joined,
    /// It reads these bytes, its outputs are the keeper's own, and the exit code is all that is reported.
    Apart { input: OsString },
    /// It reads what comes after the order for as long as somebody writes, its outputs are the keeper's own, and the
    /// exit code is all that is reported.
    Live,
}

impl Streams {
    const JOINED: &str = "joined";
    const APART: &str = "apart";
    const LIVE: &str = "live";
}

impl Order {
    /// A length, then NUL-terminated strings: directory, streams (with their input), number of arguments, arguments,
    /// `name=value`s.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4];
        let mut put = |parts: &[&OsStr]| -> io::Result<()> {
            for part in parts {
                if part.as_bytes().contains(&0) {
                    return Err(io::Error::other("a NUL character in a command"));
                }
                bytes.extend_from_slice(part.as_bytes());
            }
            bytes.push(0);
            Ok(())
        };
        put(&[self.cwd.as_os_str()])?;
        match &self.streams {
            Streams::Joined => put(&[OsStr::new(Streams::JOINED)])?,
            Streams::Live => put(&[OsStr::new(Streams::LIVE)])?,
            Streams::Apart { input } => {
                put(&[OsStr::new(Streams::APART)])?;
                put(&[input])?;
            }
        }
        put(&[OsStr::new(&self.argv.len().to_string())])?;
        for argument in &self.argv {
            put(&[argument])?;
        }
        for (name, value) in &self.env {
            put(&[name, OsStr::new("="), value])?;
        }
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        if length > ORDER_BYTES {
            return Err(io::Error::other("the command and its environment are too large"));
        }
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        Ok(bytes)
    }

    /// The other direction.
    pub(crate) fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        reader.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > ORDER_BYTES {
            return Err(io::Error::other("the order is too large"));
        }
        let mut bytes = vec![0; length as usize];
        reader.read_exact(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(|| io::Error::other("the order is not valid"))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let body = bytes.strip_suffix(&[0])?;
        let mut parts = body.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
        let cwd = parts.next()?.into();
        let streams = match parts.next()?.to_str()? {
            Streams::JOINED => Streams::Joined,
            Streams::LIVE => Streams::Live,
            Streams::APART => Streams::Apart { input: parts.next()? },
            _ => return None,
        };
        let count: usize = parts.next()?.to_str()?.parse().ok()?;
        let argv: Vec<OsString> = parts.by_ref().take(count).collect();
        if argv.len() != count {
            return None;
        }
        let env = parts
            .map(|pair| {
                let at = memchr::memchr(b'=', pair.as_bytes())?;
                let (name, value) = pair.as_bytes().split_at(at);
                Some((OsStr::from_bytes(name).into(), OsStr::from_bytes(&value[1..]).into()))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { cwd, argv, env, streams })
    }
}

/// What the keeper says when the tree is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    /// Processes that the command left running and that were ended.
    pub(crate) left: usize,
    /// What some of them are called.
    pub(crate) names: Vec<String>,
    /// Processes that could not be ended.
    pub(crate) stuck: usize,
    /// The shell's last working directory; empty when that is gone, none when the shell did not say.
    pub(crate) cwd: Option<Vec<u8>>,
    /// Whether memory ran out meanwhile.
    pub(crate) memory: Memory,
}

/// How the main process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It never ran.
    NotStarted(String),
}

impl Report {
    pub(crate) fn not_started(reason: String) -> Self {
        Self {
            outcome: Outcome::NotStarted(reason),
            left: 0,
            names: Vec::new(),
            stuck: 0,
            cwd: None,
            memory: Memory::Enough,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_through_unchanged() {
        let order = Order {
            cwd: OsStr::from_bytes(b"/w\xff").into(),
            argv: vec!["bash".into(), "-c".into(), "".into(), "echo ä\n".into()],
            env: vec![("A".into(), "".into()), ("B".into(), "x=y".into())],
            streams: Streams::Joined,
        };
        let bytes = order.encode().unwrap();
        assert_eq!(Order::read(&mut &bytes[..]).unwrap(), order);
        let no_env = Order { env: Vec::new(), streams: Streams::Apart { input: "{}\n".into() }, ..order };
        assert_eq!(Order::read(&mut &no_env.encode().unwrap()[..]).unwrap(), no_env);
        // What follows is not the order's.
        let live = Order { streams: Streams::Live, ..no_env };
        let bytes = [live.encode().unwrap(), b"more".to_vec()].concat();
        let mut rest = &bytes[..];
        assert_eq!(Order::read(&mut rest).unwrap(), live);
        assert_eq!(rest, b"more");
    }

    #[test]
    fn a_broken_order_is_refused() {
        let nul =
            Order { cwd: "/".into(), argv: vec!["a\0b".into()], env: Vec::new(), streams: Streams::Joined };
        assert_eq!(nul.encode().unwrap_err().to_string(), "a NUL character in a command");
        for bytes in
            [&b""[..], b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x05/\0", b"\0\0\0\x04/\x002\0", b"\0\0\0\0"]
        {
            assert!(Order::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_report_comes_through_unchanged() {
        let report = Report {
            outcome: Outcome::Killed(9),
            left: 2,
            names: vec!["sleep".into()],
            stuck: 1,
            cwd: Some(b"/\xff".to_vec()),
            memory: Memory::OutHere,
        };
        assert_eq!(Report::decode(&report.encode()), Some(report));
        assert_eq!(Report::decode(b"thread panicked"), None);
    }
}
