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
        let place = self.opened();
        let mut glance = Glance::default();
        if matches!(place, GitPlace::Tree { .. }) {
            let status = self.git.with_users_rules(place, "status");
            let status = status.args([
                "--short",
                "--untracked-files=normal",
                "--no-renames",
                "--ignore-submodules=all",
            ]);
            let output = status.ok(cancel).await?;
            let lines = lines(&output.stdout);
            glance.more = lines.len().saturating_sub(PATHS);
            glance.changed = lines.into_iter().take(PATHS).collect();
        }
        let log =
            self.git.hardened(place, "log").args(["--format=%h %s", "--no-show-signature", "-n", COMMITS]);
        let output = log.run(cancel).await?;
        if output.status.success() {
            glance.commits = lines(&output.stdout);
        }
        Ok(glance)
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let printable = |line: &str| line.chars().filter(|c| !c.is_control()).take(LINE_CHARS).collect();
    text.lines().filter(|line| !line.trim().is_empty()).map(printable).collect()
}
