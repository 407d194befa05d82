//! What a fenced program finds: a value that the caller makes and the helper carries out.

use std::path::{Path, PathBuf};

use caliban_core::fence::Profile;
use caliban_rooted::{ByteText, Identity, Root};
use serde::{Deserialize, Serialize};

use caliban_contract::tree_limits::TreeLimits;

use crate::witness::Witness;

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
    /// Other names of what is shown: a link at the first path that leads to the second one.
    #[serde(default)]
    pub links: Vec<(ByteText, ByteText)>,
    /// Places in what can be changed that are held as they were judged.
    #[serde(default)]
    pub held: Vec<HeldPlace>,
    /// Files and directories without their content, by name: where no agent can write. What is not there needs no mask.
    pub masks: Vec<ByteText>,
    /// What the network is.
    pub network: Network,
    /// Settings of git that hold in it, over those of the repository.
    #[serde(default)]
    pub git: Vec<(ByteText, ByteText)>,
    /// Variables that are set in it, over the command's own.
    #[serde(default)]
    pub variables: Vec<(ByteText, ByteText)>,
    /// What the keeper writes down when it had to end the command.
    #[serde(default)]
    pub witness: Option<Witness>,
    /// What it may take of the machine.
    #[serde(default)]
    pub limits: TreeLimits,
    /// The worktree in which nobody but the agent writes, if it has one.
    #[serde(default)]
    pub own_since: Option<OwnSince>,
}

/// A directory in which nobody but the agent writes: what all of its commands left there counts as theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnSince {
    /// Where: a path without links.
    pub place: ByteText,
    /// When its conversation began, in seconds since 1970.
    pub seconds: u64,
}

/// A file or directory of the machine, as a fenced program finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// What is shown: a path without links.
    pub source: ByteText,
    /// What was judged. Something else in its place is not shown: the fence is not put up.
    pub identity: Identity,
    /// Where.
    pub target: ByteText,
    /// Whether it can be changed.
    pub access: Access,
    /// Whether the fence holds without it, when it is not there.
    pub optional: bool,
}

/// A place in a directory that is shown. It cannot be renamed, nor can a directory on the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldPlace {
    /// Where: a path in the fence, without links.
    pub target: ByteText,
    /// What was judged there. When something else is there the fence is not put up.
    pub identity: Identity,
    /// What the program can do with it.
    pub hold: Hold,
}

/// What a program can do with a place that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Read it.
    ReadOnly,
    /// See that it is there.
    Hidden,
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
            links: Vec::new(),
            held: Vec::new(),
            masks: SYSTEM_MASKS.iter().map(|path| ByteText::from(*path)).collect(),
            network: Network::Off,
            git: Vec::new(),
            variables: Vec::new(),
            witness: None,
            limits: TreeLimits::default(),
            own_since: None,
        }
    }

    /// Shows a root where it is.
    pub fn show(&mut self, root: &Root, access: Access) {
        self.show_at(root, root.path(), access);
    }

    /// Shows a root somewhere else.
    pub fn show_at(&mut self, root: &Root, target: &Path, access: Access) {
        self.bind(root, target, access, false);
    }

    /// Shows a root where it is, if it is still there when the command starts.
    pub fn show_if_there(&mut self, root: &Root, access: Access) {
        self.bind(root, root.path(), access, true);
    }

    fn bind(&mut self, root: &Root, target: &Path, access: Access, optional: bool) {
        let (source, identity) = (root.path().into(), root.identity());
        self.binds.push(Bind { source, identity, target: target.into(), access, optional });
    }

    /// Holds a place as it was judged.
    pub fn hold(&mut self, target: &Path, identity: Identity, hold: Hold) {
        self.held.push(HeldPlace { target: target.into(), identity, hold });
    }

    /// Takes the content of a file or directory away, where no agent can write.
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
