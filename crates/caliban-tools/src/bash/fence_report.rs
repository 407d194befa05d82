//! What the model is told about the fence that a command ran in.

use std::path::Path;

use caliban_core::fence::Profile;
use caliban_fence::{Fence, Network, SYSTEM};

use super::job::Ending;
use crate::StoppedByFence;

/// How a command ran in a fence.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub(super) fence: Fence,
    /// What the steps after it say.
    pub(super) notes: Vec<String>,
}

/// Words of programs that may have been refused something by the fence, or by something else. The C library's are the same in most of
/// them.
const PERHAPS: &[&str] = &[
    "Permission denied",
    "permission denied",
    "Operation not permitted",
    "operation not permitted",
    "Device or resource busy",
    caliban_fence::REFUSAL,
];

/// Words of programs that wanted to write what only a fence makes read-only.
const READ_ONLY: &[&str] = &["Read-only file system", "read-only file system", "EROFS"];

/// Words of programs that found no network.
const NO_NETWORK: &[&str] = &[
    "Network is unreachable",
    "network is unreachable",
    "Could not resolve host",
    "could not resolve host",
    "Temporary failure in name resolution",
    "getaddrinfo",
    "ENETUNREACH",
    "EAI_AGAIN",
    caliban_fence::REFUSED,
    "of [fence] in the settings",
    "CONNECT tunnel failed",
];

impl Ending {
    /// Lines about the fence: what was done after the command, and whether the fence is why it failed, as far as its output
    /// tells.
    pub(super) fn fence_notes(&self, output: &str, code: Option<i32>) -> Vec<String> {
        let Some(ran) = &self.fenced else { return Vec::new() };
        let mut notes = ran.notes.clone();
        let could_be = |path: &Path| path.parent().is_some_and(is_there);
        let perhaps = || {
            let has_words = PERHAPS.iter().any(|words| output.contains(words));
            code != Some(0) && (has_words || missed(output, &ran.fence).any(could_be))
        };
        if self.stopped(output, code).is_some() || perhaps() {
            let can = match ran.fence.profile {
                Profile::Read => "in the read fence: it can change nothing but /tmp and has no network",
                Profile::Open => {
                    "in an open fence, because rules keep files from being read or changed: sudo and other programs that get more \
                     rights do not work there"
                }
                Profile::Edit | Profile::None => {
                    "in the edit fence: it can change the project, but not .git and other protected places, not the rest \
                     of the machine, and has no network unless the settings give it some"
                }
            };
            notes.push(format!(
                "[it ran {can}. If that is why it failed, call it again with outside: true and say why in description: the \
                 user is asked]"
            ));
        }
        notes
    }

    /// That the fence is why it failed, when its output says so.
    pub(super) fn stopped(&self, output: &str, code: Option<i32>) -> Option<StoppedByFence> {
        let fence = &self.fenced.as_ref()?.fence;
        let has = |list: &[&str]| list.iter().any(|words| output.contains(words));
        let setting = match missed(output, fence).find(|path| is_there(path)) {
            _ if code == Some(0) || self.timed_out => return None,
            _ if has(NO_NETWORK) && fence.network != Network::On => Some("fence.network = \"on\"".to_owned()),
            Some(path) => Some(format!("fence.show = [{:?}]", path.display().to_string())),
            None if has(READ_ONLY) => None,
            None => return None,
        };
        Some(StoppedByFence { setting })
    }
}

/// Paths outside of what the fence shows that the output calls missing.
fn missed<'a>(output: &'a str, fence: &'a Fence) -> impl Iterator<Item = &'a Path> {
    let complains = output.lines().filter(|line| line.contains("o such file or directory"));
    let words =
        complains.flat_map(|line| line.split(|c: char| c.is_whitespace() || "'\"`:‘’(),".contains(c)));
    let paths = words.filter(|word| word.starts_with('/')).map(Path::new);
    paths.filter(|path| {
        let places = fence.binds.iter().map(|bind| bind.target.path()).chain(SYSTEM.map(Path::new));
        let mut places = places.chain(["/tmp", "/proc", "/dev"].map(Path::new));
        !places.any(|place| path.starts_with(place))
    })
}

#[expect(clippy::disallowed_methods, reason = "for a hint: whether something is there")]
fn is_there(path: &Path) -> bool {
    path.parent().is_some() && path.symlink_metadata().is_ok()
}
