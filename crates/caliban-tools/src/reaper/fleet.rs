//! Who below a command is not the command's: a daemon that it had to start, and the shims of that daemon's agents. They
//! are everybody's: whoever spawned an agent meanwhile, from whatever shell, would lose it with them.
//!
//! Known by the kernel's word alone ([`Keepers`]), below `repos/` of the data directory that `caliban` has in the
//! command's environment. A fleet elsewhere (one that a test of the command's made) is the command's own.

use std::{ffi::OsString, path::PathBuf};

use caliban_process::Keepers;

/// The fleets of the command's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fleet {
    keepers: Option<Keepers>,
}

impl Fleet {
    /// By the environment as the command got it, not as it may change it.
    pub(super) fn of(env: &[(OsString, OsString)]) -> Self {
        let absolute = |name: &str| {
            let (_, value) = env.iter().rfind(|(known, _)| known == name)?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        Self { keepers: data.map(|data| Keepers::in_repos(data.join("caliban/repos"))) }
    }

    /// Whether a process is a daemon or a shim.
    pub(super) fn has(&self, pid: i32) -> bool {
        self.keepers.as_ref().is_some_and(|keepers| keepers.who(pid).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_where_the_commands_caliban_would_look() {
        let of = |env: &[(&str, &str)]| {
            let env: Vec<(OsString, OsString)> =
                env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Fleet::of(&env).keepers
        };
        let in_repos = |repos: &str| Some(Keepers::in_repos(repos.into()));
        assert_eq!(of(&[("HOME", "/h")]), in_repos("/h/.local/share/caliban/repos"));
        assert_eq!(of(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]), in_repos("/d/caliban/repos"));
        assert_eq!(of(&[("XDG_DATA_HOME", "d"), ("HOME", "/h")]), in_repos("/h/.local/share/caliban/repos"));
        assert_eq!(of(&[("PATH", "/bin")]), None);
    }
}
