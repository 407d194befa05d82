//! The setup command of a new worktree: one shell line of the user's settings, with a time limit. It runs under a reaper, so
//! nothing of it is left when the worktree is handed over.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caliban_fence::{Access, ProgramFence};
use caliban_keeper::{CommandEnd, KeptOutput, Launch, Streams, Supervised};
use caliban_rooted::Root;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::git::DROPPED;

/// How long a setup command may take unless the settings say otherwise.
pub const SETUP_SECONDS: u32 = 600;
/// How much of the end of its output is kept for the error.
const OUTPUT_CAP: usize = 8 * 1024;

/// A command that runs in the new worktree before anybody uses it.
#[derive(Clone, PartialEq, Eq)]
pub struct Setup {
    /// For `sh -c`.
    pub command: String,
    /// Its time limit.
    pub timeout_seconds: u32,
    /// Its environment. Variables that would point git to another repository are removed.
    pub environment: Vec<(OsString, OsString)>,
    /// The program whose hidden mode reaps commands (`caliban_contract::modes::REAP`).
    pub helper: PathBuf,
    /// The fence that it runs in, to which the worktree is added; none when it runs as the user.
    pub fence: Option<ProgramFence>,
}

/// Runs it to its end; an error carries the end of what it printed.
pub(crate) async fn run(
    setup: &Setup,
    worktree: &Path,
    root: &Path,
    cancel: &CancellationToken,
) -> Result<()> {
    let given = setup.environment.iter().filter(|(name, _)| !DROPPED.iter().any(|dropped| name == dropped));
    let ours = [("CALIBAN_WORKTREE", worktree), ("CALIBAN_REPO_ROOT", root)];
    let ours = ours.map(|(name, path)| (name.into(), path.into()));
    let environment = given.cloned().chain(ours).collect();
    let starting = |e| Error::io("starting the setup command", e);
    let mut fence = setup.fence.as_ref().map(ProgramFence::judge).transpose().map_err(starting)?;
    if let Some(fence) = &mut fence {
        // It was made just now, and nothing has run in it.
        let made = Root::pin(worktree).map_err(|e| Error::at("opening", worktree, e))?;
        fence.show(&made, Access::ReadWrite);
    }
    let command = Supervised {
        helper: setup.helper.clone(),
        launch: Launch {
            fence,
            ..Launch::shell(&setup.command, worktree.to_owned(), environment, Streams::Joined)
        },
        limit: Duration::from_secs(setup.timeout_seconds.into()),
        keep: KeptOutput::Last(OUTPUT_CAP),
    };
    let ended = command.run(cancel).await.map_err(starting)?;
    let ending = match (ended.why, ended.code) {
        (CommandEnd::Cancelled, _) => return Err(Error::Cancelled),
        (CommandEnd::Itself, Some(0)) => return Ok(()),
        (CommandEnd::Itself, Some(code)) => format!("failed with exit code {code}"),
        (CommandEnd::Itself, None) => "was killed".to_owned(),
        (CommandEnd::Timeout, _) => format!("took longer than {} s and was ended", setup.timeout_seconds),
    };
    // A command that could not be started has its reason on standard error.
    let output = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).trim_end().to_owned();
    Err(Error::Setup { command: setup.command.clone(), ending, output })
}

/// The values of variables may be secrets.
impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Setup").field(&self.command).field(&self.timeout_seconds).finish()
    }
}
