//! Follows the fleets live: one task per repo listens to the repo's daemon, or reads its registry where no daemon runs.
//! Starts no daemon and changes nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use caliban_contract::Places;
use caliban_fleet::feed::{FleetFeed, FleetNews};
use caliban_fleet::offline;
use caliban_fleet::{Client, ClientError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::hub::{Hub, Repo};
use crate::app::App;

/// The interval at which we look for repos, and read registries without a daemon.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Follows all fleets, including those that appear later. Never returns.
pub(crate) async fn follow(app: Arc<App>) {
    let parent = app.options.sources.data.join("repos");
    let mut followed: BTreeMap<PathBuf, tokio::task::AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    // Each repo of the first scan holds a sender until it has been read.
    let (unread, mut all_read) = mpsc::channel::<Infallible>(1);
    let mut unread = Some(unread);
    let waiting = Arc::clone(&app);
    tasks.spawn(async move {
        let _none = all_read.recv().await;
        waiting.hub.settle();
    });
    loop {
        let parent = parent.clone();
        let bases = tokio::task::spawn_blocking(move || offline::bases(&parent).unwrap_or_default()).await;
        let bases = bases.unwrap_or_default();
        for base in &bases {
            if followed.contains_key(base) {
                continue;
            }
            let Some(repo) = offline::repo_of(base) else { continue };
            let Ok(places) = Places::of(repo, &app.options.sources) else { continue };
            let (app, base, unread) = (Arc::clone(&app), base.clone(), unread.clone());
            followed.insert(base.clone(), tasks.spawn(async move { one(&app, &base, places, unread).await }));
        }
        unread = None;
        let gone: Vec<PathBuf> = followed.keys().filter(|base| !bases.contains(base)).cloned().collect();
        for base in gone {
            if let Some(task) = followed.remove(&base) {
                task.abort();
            }
            app.hub.forget(&hash_of(&base));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The name of a fleet's directory is the hash of its repo.
fn hash_of(base: &Path) -> String {
    base.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Dropped when the repo has been read for the first time.
type Unread = Option<mpsc::Sender<Infallible>>;

/// Follows one fleet.
async fn one(app: &App, base: &Path, places: Places, mut unread: Unread) {
    let hash = hash_of(base);
    let mut repo = Repo::new(&hash, places.repo());
    let mut seen = None;
    loop {
        // A directory that is not at its repo's place (a copy, say) has no daemon of its own.
        let daemon = if places.base() == base {
            listen(&app.hub, &repo, &places, &mut unread).await
        } else {
            FollowEnd::Nobody
        };
        if let FollowEnd::Problem(problem) = &daemon {
            repo.problem = Some(problem.clone());
        }
        // Read again if a daemon has reported meanwhile, or if the files have changed.
        let now = Signature::of(base);
        if daemon != FollowEnd::Nobody || seen.as_ref() != Some(&now) || now.is_moving {
            match offline::read(base, &places, &places).await {
                Ok(rows) => {
                    let is_moving = rows.iter().any(|row| !caliban_fleet::words::has_ended(row.state));
                    seen = Some(Signature { is_moving, ..now });
                    repo = Repo { daemon: false, recorded_at: Some(caliban_contract::wall_ms()), ..repo };
                    if matches!(daemon, FollowEnd::Nobody) {
                        repo.problem = None;
                    }
                    // A fleet that never had an agent is not shown.
                    if !rows.is_empty() || app.hub.repo(&hash).is_some() {
                        app.hub.put_repo(repo.clone(), &places);
                        app.hub.replace(&hash, rows);
                    }
                }
                Err(why) => {
                    repo = Repo { daemon: false, problem: Some(why), ..repo };
                    app.hub.put_repo(repo.clone(), &places);
                }
            }
        }
        unread = None;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The state of a registry's files, to detect a change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signature {
    files: Vec<Option<(u64, std::time::SystemTime)>>,
    /// Whether agents are alive without a daemon; the registry is then read each time.
    is_moving: bool,
}

impl Signature {
    fn of(base: &Path) -> Self {
        let about = |name: &str| {
            let about = std::fs::metadata(base.join(name)).ok()?;
            Some((about.len(), about.modified().ok()?))
        };
        Self {
            files: [offline::REGISTRY, offline::LOG].iter().map(|name| about(name)).collect(),
            is_moving: false,
        }
    }
}

/// How listening to a daemon ended.
#[derive(Debug, PartialEq, Eq)]
enum FollowEnd {
    /// No daemon runs.
    Nobody,
    /// The daemon reported, and has ended.
    Gone,
    /// The daemon runs, but listening failed.
    Problem(String),
}

/// Listens to the daemon of a repo until the daemon ends.
async fn listen(hub: &Hub, repo: &Repo, places: &Places, unread: &mut Unread) -> FollowEnd {
    let events = match Client::connect(places).await {
        Ok(client) => client.events().await,
        Err(error) => Err(error),
    };
    let events = match events {
        Ok(events) => events,
        Err(ClientError::NotRunning(_)) => return FollowEnd::Nobody,
        Err(error) => return FollowEnd::Problem(error.to_string()),
    };
    let told = Repo { daemon: true, recorded_at: None, problem: None, ..repo.clone() };
    take(hub, &told, places, FleetFeed::of(events), unread).await;
    FollowEnd::Gone
}

async fn take(hub: &Hub, repo: &Repo, places: &Places, mut feed: FleetFeed, unread: &mut Unread) {
    let hash = &repo.hash;
    while let Ok(news) = feed.next().await {
        match news {
            FleetNews::All(rows) => {
                if !rows.is_empty() || hub.repo(hash).is_some() {
                    hub.put_repo(repo.clone(), places);
                }
                hub.replace(hash, rows);
                *unread = None;
            }
            FleetNews::Changed(row) => {
                hub.put_repo(repo.clone(), places);
                hub.put(hash, *row);
            }
            FleetNews::Removed(id) => hub.remove(hash, id),
        }
    }
}
