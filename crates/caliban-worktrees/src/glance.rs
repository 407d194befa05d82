//! What a repository looks like at a glance: what has changed, and the last commits. Nothing of it is trusted or run.

use tokio_util::sync::CancellationToken;

use crate::{error::Result, git::GitPlace, repo::Repo};

/// Changed paths that are named.
const PATHS: usize = 20;
/// Commits that are named.
const COMMITS: &str = "5";
/// Characters of a line.
const LINE_CHARS: usize = 120;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Glance {
    /// The first changed paths, as `git status --short` has them.
    pub changed: Vec<String>,
    /// How many more there are.
    pub more: usize,
    /// The last commits: their short names and titles.
    pub commits: Vec<String>,
}

impl Repo {
    /// Looks at the working tree that this was opened in.
    pub async fn glance(&self, cancel: &CancellationToken) -> Result<Glance> {
        let repo = &self.until(cancel);
        let place = repo.opened();
        let status = async || -> Result<Vec<String>> {
            if !matches!(place, GitPlace::Tree { .. }) {
                return Ok(Vec::new());
            }
            let status = repo.git.with_users_rules(place, "status");
            let status = status.args([
                "--short",
                "--untracked-files=normal",
                "--no-renames",
                "--ignore-submodules=all",
            ]);
            Ok(lines(&status.ok().await?.stdout))
        };
        let log = async || -> Result<Vec<String>> {
            let log = repo.git.hardened(place, "log");
            let log = log.args(["--format=%h %s", "--no-show-signature", "-n", COMMITS]);
            let output = log.run().await?;
            // In a repository without commits there is no log.
            Ok(if output.status.success() { lines(&output.stdout) } else { Vec::new() })
        };
        // Side by side: whoever starts a run waits for the slower one only.
        let (changed, commits) = tokio::try_join!(status(), log())?;
        let more = changed.len().saturating_sub(PATHS);
        Ok(Glance { changed: changed.into_iter().take(PATHS).collect(), more, commits })
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let printable = |line: &str| line.chars().filter(|c| !c.is_control()).take(LINE_CHARS).collect();
    text.lines().filter(|line| !line.trim().is_empty()).map(printable).collect()
}
