//! The fleets of all repos, as far as they can be told without waking any.
//!
//! A daemon that runs is asked. Where none does, its registry is read ([`crate::offline`]). Starts nothing and changes nothing of
//! them; a fleet that cannot be read is named and hides no other.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use caliban_contract::{PlaceSources, Places};

use crate::{Client, ClientError, offline, protocol::AgentRow, refusal::Refusal};

/// How long a daemon may take to answer before its registry is read instead.
const PATIENCE: Duration = Duration::from_secs(3);

/// The fleet of one repo.
#[derive(Debug)]
pub struct RepoFleet {
    /// The repo.
    pub repo: PathBuf,
    /// Where its fleet is kept.
    pub base: PathBuf,
    /// Who says so.
    pub told_by: FleetSource,
    /// Its agents.
    pub rows: Vec<AgentRow>,
}

/// Who says how its agents stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetSource {
    /// Its daemon, now.
    Daemon,
    /// What it left on the disk.
    Disk,
}

/// Every fleet with agents, or that in this base only, by the paths of the repos. What is to be said goes to `tell`; copies of
/// registries are made in the places of one's own fleet.
pub async fn find(
    sources: &PlaceSources,
    own: &Places,
    only: Option<&Path>,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<RepoFleet>, Refusal> {
    let parent = sources.data.join("repos");
    let mut found = Vec::new();
    let unread = |error| Refusal::new(format!("cannot read {}: {error}", parent.display()));
    for base in offline::bases(&parent).map_err(unread)? {
        if only.is_some_and(|only| only != base) {
            continue;
        }
        let Some(repo) = offline::repo_of(&base) else {
            tell(&format!("left out: {} does not say which repo it is about", base.display()));
            continue;
        };
        match one(own, sources, &base, &repo, tell).await {
            Ok((_, rows)) if rows.is_empty() => {}
            Ok((told_by, rows)) => found.push(RepoFleet { repo, base, told_by, rows }),
            Err(why) => {
                tell(&format!("left out: the agents of {} ({}): {why}", repo.display(), base.display()))
            }
        }
    }
    found.sort_by(|one, other| one.repo.cmp(&other.repo));
    Ok(found)
}

/// The agents of one fleet.
async fn one(
    own: &Places,
    sources: &PlaceSources,
    base: &Path,
    repo: &Path,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<(FleetSource, Vec<AgentRow>), String> {
    let places = Places::of(repo.to_owned(), sources).map_err(|error| error.to_string())?;
    // A directory that is not where this repo's is (a copy, say) has no daemon of its own.
    if places.base() == base {
        match tokio::time::timeout(PATIENCE, ask(&places)).await {
            Ok(Ok(rows)) => return Ok((FleetSource::Daemon, rows)),
            Ok(Err(ClientError::NotRunning(_))) => {}
            Ok(Err(error)) => tell(&format!("the daemon of {} was not asked: {error}", repo.display())),
            Err(_) => tell(&format!("the daemon of {} does not answer", repo.display())),
        }
    }
    let rows = offline::read(base, &places, own).await?;
    Ok((FleetSource::Disk, rows))
}

async fn ask(places: &Places) -> Result<Vec<AgentRow>, ClientError> {
    Client::connect(places).await?.list().await
}
