//! What to start: one value for every program that is kept.
//!
//! The shim builds one from its arguments; the reaper reads one from its standard input ([`Launch::encode`],
//! [`Launch::read`]). It comes through the pipe and not as arguments or environment because other users can see those, and
//! because the reaper itself runs without the agent's environment.
//!
//! Limits: the kernel's (the OOM score) are set by the keeper around the start ([`crate::OwnScore`]); the time limit is
//! held by whoever waits for the keeper ([`crate::Supervised`]). A fence is put up by a process that the reaper forks
//! (`caliban_fence::fence_child`), which is then what is kept; the other keepers start no fenced program.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process::Command,
};

use caliban_contract::tree_limits::TreeLimits;
use caliban_fence::{ByteText, Fence, FencedCommand};
use caliban_rooted::{Identity, open_exactly};

/// The largest encoded launch; a hook's input may hold pictures.
const ENCODED_BYTES: u32 = 64 << 20;

/// Variables of an environment.
pub type Variables = Vec<(OsString, OsString)>;

/// A program to start under a keeper.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program; a bare name is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Which directory that was when the launch was judged; another one in its place is an error. Not compared when absent.
    pub identity: Option<Identity>,
    /// Its environment.
    pub environment: LaunchEnvironment,
    /// Its standard input and outputs.
    pub streams: Streams,
    /// The fence that it runs in; none for a program that runs as the user.
    pub fence: Option<Fence>,
    /// What it may take with all that it starts. Those of the fence count where there is one.
    pub limits: TreeLimits,
}

/// The environment of a launched program.
#[derive(Clone, PartialEq, Eq)]
pub enum LaunchEnvironment {
    /// That of the keeper.
    Inherit,
    /// Exactly these variables.
    Exactly(Variables),
}

/// What the program reads, and where it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Streams {
    /// A shell command: it reads nothing, both outputs go to the reaper's standard output, and a [`crate::Report`] follows
    /// on the reaper's standard error. The shell gets one more argument: the number of a descriptor to which it may write
    /// its last working directory.
    Shell,
    /// A shell command in a terminal of its own, otherwise like [`Self::Shell`]. It reads what follows the launch on the
    /// reaper's standard input, as if typed.
    Terminal,
    /// It reads nothing, and both outputs go to the reaper's standard output. Only the exit code is reported.
    Joined,
    /// It reads these bytes, and its outputs are the reaper's own. Only the exit code is reported.
    Apart {
        /// What it reads; holds no NUL.
        input: OsString,
    },
    /// It reads what follows the launch on the reaper's standard input, and its outputs are the reaper's own. Only the
    /// exit code is reported.
    Live,
}

impl Launch {
    /// A command line of the user's settings, for `sh -c`.
    pub fn shell(line: &str, directory: PathBuf, environment: Variables, streams: Streams) -> Self {
        Self {
            program: "sh".into(),
            arguments: vec!["-c".into(), line.into()],
            directory,
            identity: None,
            environment: LaunchEnvironment::Exactly(environment),
            streams,
            fence: None,
            limits: TreeLimits::default(),
        }
    }

    /// The command as it is started, in a process group of its own, and its directory, to be held until it was started. The keeper
    /// adds the streams. It is an error for a program that has to run in a fence: the reaper forks the helper for that one.
    pub fn command(&self) -> io::Result<(Command, Option<OwnedFd>)> {
        if self.fence.is_some() {
            return Err(io::Error::other("this keeper puts up no fence"));
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).process_group(0);
        let held = match self.identity {
            Some(identity) => {
                let changed = || {
                    let directory = self.directory.display();
                    io::Error::other(format!(
                        "{directory} is not the directory that it was when the command was judged"
                    ))
                };
                Some(open_exactly(&self.directory, identity)?.ok_or_else(changed)?)
            }
            None => None,
        };
        match &held {
            // The child has the same descriptor until it is the program.
            Some(held) => command.current_dir(format!("/proc/self/fd/{}", held.as_raw_fd())),
            None => command.current_dir(&self.directory),
        };
        if let LaunchEnvironment::Exactly(variables) = &self.environment {
            command.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        }
        Ok((command, held))
    }

    /// What the helper of the fence carries out, of a program that has one.
    ///
    /// `more` is an argument that only the keeper knows, `descriptors` are those that the program gets besides its streams.
    pub(crate) fn order(
        &self,
        more: Option<OsString>,
        descriptors: &[i32],
    ) -> io::Result<Option<FencedCommand>> {
        let Some(fence) = &self.fence else { return Ok(None) };
        let LaunchEnvironment::Exactly(variables) = &self.environment else {
            return Err(io::Error::other("a fenced program inherits no environment"));
        };
        let text = |text: &OsString| ByteText(text.clone());
        Ok(Some(FencedCommand {
            fence: fence.clone(),
            program: text(&self.program),
            arguments: self.arguments.iter().chain(&more).map(text).collect(),
            directory: self.directory.clone().into(),
            environment: variables.iter().map(|(name, value)| (text(name), text(value))).collect(),
            descriptors: descriptors.to_vec(),
        }))
    }

    /// A length, then NUL-terminated strings: directory, its identity, streams (with their input), fence, limits, number of arguments, program and
    /// arguments, `name=value` entries. What the reaper would inherit is empty.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
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
        put(&[self.directory.as_os_str()])?;
        let identity = self.identity.as_ref().map(serde_json::to_string).transpose()?.unwrap_or_default();
        put(&[OsStr::new(&identity)])?;
        put(&[OsStr::new(self.streams.name())])?;
        if let Streams::Apart { input } = &self.streams {
            put(&[input])?;
        }
        let fence = self.fence.as_ref().map(serde_json::to_string).transpose()?.unwrap_or_default();
        put(&[OsStr::new(&fence)])?;
        put(&[OsStr::new(&serde_json::to_string(&self.limits)?)])?;
        put(&[OsStr::new(&self.arguments.len().to_string())])?;
        put(&[&self.program])?;
        for argument in &self.arguments {
            put(&[argument])?;
        }
        if let LaunchEnvironment::Exactly(variables) = &self.environment {
            for (name, value) in variables {
                put(&[name, OsStr::new("="), value])?;
            }
        }
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        if length > ENCODED_BYTES {
            return Err(io::Error::other("the command and its environment are too large"));
        }
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        Ok(bytes)
    }

    /// Reads an encoded launch, and nothing that follows it.
    pub fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        reader.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > ENCODED_BYTES {
            return Err(io::Error::other("the launch is too large"));
        }
        let mut bytes = vec![0; length as usize];
        reader.read_exact(&mut bytes)?;
        Self::decode(&bytes).ok_or_else(|| io::Error::other("the launch is not valid"))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let body = bytes.strip_suffix(&[0])?;
        let mut parts = body.split(|byte| *byte == 0).map(|part| OsString::from_vec(part.to_vec()));
        let directory = parts.next()?.into();
        let identity = match parts.next()?.to_str()? {
            "" => None,
            identity => Some(serde_json::from_str(identity).ok()?),
        };
        let streams = match parts.next()?.to_str()? {
            "shell" => Streams::Shell,
            "terminal" => Streams::Terminal,
            "joined" => Streams::Joined,
            "live" => Streams::Live,
            "apart" => Streams::Apart { input: parts.next()? },
            _ => return None,
        };
        let fence = match parts.next()?.to_str()? {
            "" => None,
            fence => Some(serde_json::from_str(fence).ok()?),
        };
        let limits = serde_json::from_str(parts.next()?.to_str()?).ok()?;
        let count: usize = parts.next()?.to_str()?.parse().ok()?;
        let program = parts.next()?;
        let arguments: Vec<OsString> = parts.by_ref().take(count).collect();
        if arguments.len() != count {
            return None;
        }
        let variables = parts.map(|entry| {
            let at = entry.as_bytes().iter().position(|byte| *byte == b'=')?;
            let (name, value) = entry.as_bytes().split_at(at);
            Some((OsStr::from_bytes(name).into(), OsStr::from_bytes(&value[1..]).into()))
        });
        let environment = LaunchEnvironment::Exactly(variables.collect::<Option<Vec<_>>>()?);
        Some(Self { program, arguments, directory, identity, environment, streams, fence, limits })
    }
}

impl Streams {
    /// Whether a shell reports its last directory, and the reaper all else.
    pub(crate) fn is_shell(&self) -> bool {
        matches!(self, Self::Shell | Self::Terminal)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Terminal => "terminal",
            Self::Joined => "joined",
            Self::Apart { .. } => "apart",
            Self::Live => "live",
        }
    }
}

/// The values of variables may be secrets.
impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            program,
            arguments,
            directory,
            identity: _,
            environment: _,
            streams: _,
            fence: _,
            limits: _,
        } = self;
        f.debug_tuple("Launch").field(program).field(arguments).field(directory).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_launch_comes_through_unchanged() {
        let launch = Launch {
            program: "bash".into(),
            arguments: vec!["-c".into(), "".into(), "echo ä\n".into()],
            directory: OsStr::from_bytes(b"/w\xff").into(),
            identity: caliban_rooted::Root::pin(Path::new("/")).ok().map(|root| root.identity()),
            environment: LaunchEnvironment::Exactly(vec![
                ("A".into(), "".into()),
                ("B".into(), "x=y".into()),
            ]),
            streams: Streams::Shell,
            fence: None,
            limits: caliban_contract::tree_limits::TreeLimits::default(),
        };
        let through = |launch: &Launch| Launch::read(&mut &launch.encode().unwrap()[..]).unwrap();
        assert_eq!(through(&launch), launch);
        let typed = Launch { streams: Streams::Terminal, ..launch.clone() };
        assert_eq!(through(&typed), typed);
        let joined = Launch { streams: Streams::Joined, ..launch };
        assert_eq!(through(&joined), joined);
        let mut fence = Fence::new(caliban_core::fence::Profile::Edit, "/home/\u{e4}");
        let root = caliban_rooted::Root::pin(Path::new("/usr")).unwrap();
        fence.show_at(&root, Path::new(OsStr::from_bytes(b"/w\xff\n")), caliban_fence::Access::ReadWrite);
        let fenced = Launch { fence: Some(fence), ..joined };
        assert_eq!(through(&fenced), fenced);
        // Nobody starts it without its fence.
        assert_eq!(fenced.command().unwrap_err().to_string(), "this keeper puts up no fence");
        let hook = Launch::shell("true", "/".into(), Vec::new(), Streams::Apart { input: "{}\n".into() });
        assert_eq!(through(&hook), hook);
        // The bytes after the launch are left for the program.
        let live = Launch { streams: Streams::Live, ..hook };
        let bytes = [live.encode().unwrap(), b"more".to_vec()].concat();
        let mut rest = &bytes[..];
        assert_eq!(Launch::read(&mut rest).unwrap(), live);
        assert_eq!(rest, b"more");
    }

    #[test]
    fn a_broken_launch_is_refused() {
        let nul = Launch::shell("a\0b", "/".into(), Vec::new(), Streams::Joined);
        assert_eq!(nul.encode().unwrap_err().to_string(), "a NUL character in a command");
        for bytes in
            [&b""[..], b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x05/\0", b"\0\0\0\x04/\x002\0", b"\0\0\0\0"]
        {
            assert!(Launch::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
