//! Which programs of a repository's git a person has accepted (a06): asked about once, when a worktree is made and when work
//! lands. The record is in the repo's data directory; other programs are asked about again.

use std::io;
use std::path::Path;

use caliban_contract::records;
use caliban_core::inert;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::programs::{FoundPrograms, GitOccasion};
use crate::repo::Repo;

/// How they are accepted where nobody can be asked.
pub const HOW_TO_ACCEPT: &str = "`caliban trust` accepts them, for this repo and as they are now";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Accepted {
    checkout: Option<String>,
    landing: Option<String>,
}

impl Accepted {
    fn of(&mut self, when: GitOccasion) -> &mut Option<String> {
        match when {
            GitOccasion::Checkout => &mut self.checkout,
            GitOccasion::Landing => &mut self.landing,
        }
    }
}

impl Repo {
    /// The programs that would run then and that nobody has accepted; none when there is nothing to ask. `base` is the repo's
    /// data directory.
    pub async fn unaccepted(
        &self,
        base: &Path,
        when: GitOccasion,
        cancel: &CancellationToken,
    ) -> Result<Option<FoundPrograms>> {
        let programs = self.programs(when, cancel).await?;
        let mut accepted: Accepted = records::read(base, records::GIT_PROGRAMS).unwrap_or_default();
        let is_known = programs.is_empty() || accepted.of(when).as_deref() == Some(&programs.digest());
        Ok((!is_known).then_some(programs))
    }
}

impl FoundPrograms {
    /// A person has accepted these.
    pub fn accept(&self, base: &Path, when: GitOccasion) -> io::Result<()> {
        let mut accepted: Accepted = records::read(base, records::GIT_PROGRAMS).unwrap_or_default();
        *accepted.of(when) = Some(self.digest());
        records::write_durably(base, records::GIT_PROGRAMS, &accepted)
    }

    /// What would run, in a few lines.
    #[must_use]
    pub fn named(&self, when: GitOccasion) -> String {
        let doing = match when {
            GitOccasion::Checkout => "when a worktree is made",
            GitOccasion::Landing => "when work is merged",
        };
        let lines = self.lines().iter().map(|line| format!("\n  {}", inert::line(line)));
        format!("the git configuration of this repo runs programs {doing}:{}", lines.collect::<String>())
    }
}
