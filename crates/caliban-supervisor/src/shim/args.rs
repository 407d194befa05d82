//! The shim's arguments: written by the daemon, read by the shim, both from here.

use std::ffi::OsString;
use std::path::PathBuf;

use caliban_contract::tree_limits::TreeLimits;

use crate::daemon_options::GRACE_MS;

/// What a shim is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShimArgs {
    /// The agent's directory.
    pub(crate) dir: PathBuf,
    /// The program of the worker.
    pub(crate) program: PathBuf,
    /// Where the worker starts.
    pub(crate) cwd: PathBuf,
    /// Where the worker listens.
    pub(crate) socket: PathBuf,
    /// The run.
    pub(crate) nonce: String,
    /// How long the tree gets between TERM and KILL.
    pub(crate) grace_ms: u64,
    /// What the tree may take.
    pub(crate) limits: TreeLimits,
}

/// As a command line, after the mode.
pub(crate) fn arguments(args: &ShimArgs) -> Vec<OsString> {
    vec![
        args.dir.clone().into(),
        "--program".into(),
        args.program.clone().into(),
        "--cwd".into(),
        args.cwd.clone().into(),
        "--socket".into(),
        args.socket.clone().into(),
        "--nonce".into(),
        args.nonce.clone().into(),
        "--grace-ms".into(),
        args.grace_ms.to_string().into(),
        "--limits".into(),
        serde_json::to_string(&args.limits).unwrap_or_default().into(),
    ]
}

impl ShimArgs {
    /// The agent: its directory is called like it.
    pub(super) fn agent(&self) -> String {
        self.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let dir = PathBuf::from(args.next().ok_or("no agent directory")?);
        let (mut program, mut cwd, mut socket, mut nonce, mut grace_ms) = (None, None, None, None, GRACE_MS);
        let mut limits = TreeLimits::usual();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("no value for {}", name.display()))?;
            match name.to_str() {
                Some("--program") => program = Some(PathBuf::from(value)),
                Some("--cwd") => cwd = Some(PathBuf::from(value)),
                Some("--socket") => socket = Some(PathBuf::from(value)),
                Some("--nonce") => nonce = value.into_string().ok(),
                Some("--grace-ms") => {
                    let text = value.to_str().unwrap_or_default();
                    grace_ms = text.parse().map_err(|_| format!("--grace-ms {text} is no number"))?;
                }
                Some("--limits") => {
                    let text = value.to_str().unwrap_or_default();
                    limits = serde_json::from_str(text).map_err(|error| format!("--limits: {error}"))?;
                }
                _ => {
                    return Err(format!(
                        "the shim does not know {}; is it older than the daemon?",
                        name.display()
                    ));
                }
            }
        }
        Ok(Self {
            dir,
            program: program.ok_or("no --program")?,
            cwd: cwd.ok_or("no --cwd")?,
            socket: socket.ok_or("no --socket")?,
            nonce: nonce.ok_or("no --nonce")?,
            grace_ms,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_through_unchanged_and_unknown_ones_are_refused() {
        let args = ShimArgs {
            dir: "/a".into(),
            program: "/p".into(),
            cwd: "/c".into(),
            socket: "/s".into(),
            nonce: "n".into(),
            grace_ms: 7,
            limits: TreeLimits { memory: Some(9), ..TreeLimits::default() },
        };
        assert_eq!(ShimArgs::parse(arguments(&args)), Ok(args.clone()));
        let mut later = arguments(&args);
        later.extend(["--new".into(), "1".into()]);
        let refused = ShimArgs::parse(later);
        assert_eq!(refused, Err("the shim does not know --new; is it older than the daemon?".to_owned()));
    }
}
