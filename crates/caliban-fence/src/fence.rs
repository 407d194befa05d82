//! What a fenced program finds: a value that the caller makes and the helper carries out.

use std::path::{Path, PathBuf};

use caliban_core::fence::Profile;
use serde::{Deserialize, Serialize};

use crate::{byte_text::ByteText, witness::Witness};

/// Directories of the system that every fenced program can read. What is not here and not among the [`Bind`]s is absent.
pub const SYSTEM: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/sys"];

/// Files of the system that root could read, and a fenced program must not.
pub const SYSTEM_MASKS: [&str; 7] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
];

/// A fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fence {
    /// What it is for; said in words, decides nothing else.
    pub profile: Profile,
    /// The home directory: empty and private but for the binds in it.
    pub home: ByteText,
    /// What is there besides the system, and where. A later one covers an earlier one of the same place.
    pub binds: Vec<Bind>,
    /// Files and directories that are there without their content.
    pub masks: Vec<ByteText>,
    /// What the network is.
    pub network: Network,
    /// The directory that is `/tmp`; one that ends with the command when absent.
    pub tmp: Option<ByteText>,
    /// Settings of git that hold in it, over those of the repository.
    #[serde(default)]
    pub git: Vec<(ByteText, ByteText)>,
    /// Variables that are set in it, over the command's own.
    #[serde(default)]
    pub variables: Vec<(ByteText, ByteText)>,
    /// What the keeper writes down when it had to end the command.
    #[serde(default)]
    pub witness: Option<Witness>,
}

/// A file or directory of the machine, as a fenced program finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// What is shown.
    pub source: ByteText,
    /// Where.
    pub target: ByteText,
    /// Whether it can be changed.
    pub access: Access,
    /// Whether the fence holds without it, when it is not there.
    pub optional: bool,
}

/// Whether what is shown can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It can be read.
    ReadOnly,
    /// It can be read and changed.
    ReadWrite,
}

/// What the network is for a fenced program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// A loopback of its own, and nothing else.
    Off,
    /// The machine's.
    On,
    /// A loopback of its own, with an HTTP proxy on it that leads to this socket.
    Proxy(ByteText),
}

impl Fence {
    /// A fence with nothing but the system in it.
    pub fn new(profile: Profile, home: impl Into<PathBuf>) -> Self {
        Self {
            profile,
            home: home.into().into(),
            binds: Vec::new(),
            masks: SYSTEM_MASKS.iter().map(|path| ByteText::from(*path)).collect(),
            network: Network::Off,
            tmp: None,
            git: Vec::new(),
            variables: Vec::new(),
            witness: None,
        }
    }

    /// Shows a file or directory where it is. It has to be there.
    pub fn show(&mut self, path: &Path, access: Access) {
        self.binds.push(Bind { source: path.into(), target: path.into(), access, optional: false });
    }

    /// Shows it if it is there when the command starts.
    pub fn show_if_there(&mut self, path: &Path, access: Access) {
        self.binds.push(Bind { source: path.into(), target: path.into(), access, optional: true });
    }

    /// Takes the content of a file or directory away.
    pub fn mask(&mut self, path: &Path) {
        self.masks.push(path.into());
    }
}

/// A command, and the fence that it runs in: what the helper reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FencedCommand {
    /// The fence.
    pub fence: Fence,
    /// The program; a bare name is looked up in the `PATH` of `environment`.
    pub program: ByteText,
    /// Its arguments.
    pub arguments: Vec<ByteText>,
    /// Its working directory.
    pub directory: ByteText,
    /// Its environment: exactly this.
    pub environment: Vec<(ByteText, ByteText)>,
    /// Descriptors that it gets besides its standard streams.
    pub descriptors: Vec<i32>,
}
