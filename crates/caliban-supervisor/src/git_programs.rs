//! Programs that a repo makes git run (a06): named and asked about once, when a worktree is made and when work lands. What was
//! accepted is in the repo's data directory; other programs are asked about again.

use std::io;
use std::path::Path;

use caliban_contract::records;
use caliban_core::inert;
use caliban_worktrees::{Programs, Repo, When};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::landing::words::Words;

/// Digests of the accepted programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Accepted {
    checkout: Option<String>,
    landing: Option<String>,
}

impl Accepted {
    fn of(&mut self, when: When) -> &mut Option<String> {
        match when {
            When::Checkout => &mut self.checkout,
            When::Landing => &mut self.landing,
        }
    }
}

/// The programs that would run then and that nobody has accepted; none when there is nothing to ask. `base` is the repo's data
/// directory.
pub async fn unaccepted(
    repo: &Repo,
    base: &Path,
    when: When,
    cancel: &CancellationToken,
) -> Result<Option<Programs>, caliban_worktrees::Error> {
    let programs = repo.programs(when, cancel).await?;
    let mut accepted: Accepted = records::read(base, records::GIT_PROGRAMS).unwrap_or_default();
    let is_known = programs.is_empty() || accepted.of(when).as_deref() == Some(&programs.digest());
    Ok((!is_known).then_some(programs))
}

/// A person has accepted these.
pub fn accept(base: &Path, when: When, programs: &Programs) -> io::Result<()> {
    let mut accepted: Accepted = records::read(base, records::GIT_PROGRAMS).unwrap_or_default();
    *accepted.of(when) = Some(programs.digest());
    records::write_durably(base, records::GIT_PROGRAMS, &accepted)
}

/// What would run, in a few lines.
#[must_use]
pub fn named(programs: &Programs, when: When) -> String {
    let doing = match when {
        When::Checkout => "when a worktree is made",
        When::Landing => "when work is merged",
    };
    let lines = programs.lines().iter().map(|line| format!("\n  {}", inert::line(line)));
    format!("the git configuration of this repo runs programs {doing}:{}", lines.collect::<String>())
}

/// The refusal where nobody can be asked.
#[must_use]
pub fn refused(programs: &Programs, when: When) -> Words {
    Words::new(named(programs, when)).hint("`caliban trust` accepts them, for this repo and as they are now")
}
