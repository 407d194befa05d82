//! What the model is told about the fence that a command ran in.

use std::path::Path;

use caliban_core::fence::Profile;
use caliban_fence::{Fence, SYSTEM};

use super::job::Ending;

/// How a command ran in a fence.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub(super) fence: Fence,
    /// What the steps after it say.
    pub(super) notes: Vec<String>,
}

/// Words of programs that were refused something. The C library's are the same in most of them.
const REFUSED: &[&str] = &[
    "Read-only file system",
    "read-only file system",
    "Permission denied",
    "permission denied",
    "Operation not permitted",
    "operation not permitted",
    "Network is unreachable",
    "network is unreachable",
    "Could not resolve host",
    "could not resolve host",
    "Temporary failure in name resolution",
    "getaddrinfo",
    "ENETUNREACH",
    "EROFS",
    "EAI_AGAIN",
    "Device or resource busy",
    caliban_fence::REFUSED,
    "of [fence] in the settings",
    "CONNECT tunnel failed",
    caliban_fence::REFUSAL,
    "no new privileges",
];

impl Ending {
    /// Lines about the fence: what was done after the command, and whether the fence is why it failed, as far as its output
    /// tells.
    pub(super) fn fence_notes(&self, output: &str, code: Option<i32>) -> Vec<String> {
        let Some(ran) = &self.fenced else { return Vec::new() };
        let mut notes = ran.notes.clone();
        let refused = code != Some(0)
            && (REFUSED.iter().any(|words| output.contains(words)) || misses(output, &ran.fence));
        if refused {
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
}

/// Whether the output complains of a missing file that is there outside of the fence, or could be.
fn misses(output: &str, fence: &Fence) -> bool {
    let complains = output.lines().filter(|line| line.contains("o such file or directory"));
    let mut paths = complains
        .flat_map(|line| line.split(|c: char| c.is_whitespace() || "'\"`:‘’(),".contains(c)))
        .filter(|word| word.starts_with('/'))
        .map(Path::new);
    paths.any(|path| {
        let places = fence.binds.iter().map(|bind| bind.target.path()).chain(SYSTEM.map(Path::new));
        let mut places = places.chain(["/tmp", "/proc", "/dev"].map(Path::new));
        let is_there = |path: &Path| path.parent().is_some() && path.symlink_metadata().is_ok();
        !places.any(|place| path.starts_with(place))
            && (is_there(path) || path.parent().is_some_and(is_there))
    })
}
