//! Where conversations are: `<data>/caliban/repos/<hash>/{sessions,agents,archive}/<id>/`.

use std::{
    fs, io,
    ops::ControlFlow,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use caliban_agent::{event::Event, transcript};
use caliban_contract::{archive, private_tmp, records};
use caliban_core::ids::{AgentId, Candidate, ResolveError, resolve};

use crate::{
    cli::RunFlags,
    report::{Failure, Result},
};

/// The sessions of one repo.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    repo_dir: PathBuf,
}

/// Where conversations of a repo are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shelf {
    /// Those of the foreground.
    Sessions,
    /// Those of background agents that the fleet knows.
    Agents,
    /// Those of background agents that were removed or respawned.
    Archive,
}

impl Shelf {
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Sessions => records::SESSIONS,
            Self::Agents => "agents",
            Self::Archive => archive::DIRECTORY,
        }
    }
}

/// A session on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundSession {
    pub id: AgentId,
    pub directory: PathBuf,
    /// When something was last written.
    pub changed: SystemTime,
}

impl Sessions {
    /// Those of the repo whose files are in `repo_dir`.
    pub(crate) fn new(repo_dir: PathBuf) -> Self {
        Self { repo_dir }
    }

    /// Everything about the repo on disk.
    pub(crate) fn repo_dir(&self) -> &Path {
        &self.repo_dir
    }

    /// The repo that they belong to, by its path.
    pub(crate) fn repo(&self) -> Option<PathBuf> {
        fs::read_to_string(self.repo_dir.join("repo")).ok().map(|text| PathBuf::from(text.trim_end()))
    }

    /// A new id and its directory, which nobody else has. Says in a file which repo this is about.
    pub(crate) fn create(&self, repo: &Path) -> Result<(AgentId, PathBuf)> {
        let parent = self.repo_dir.join(records::SESSIONS);
        let cannot = |error: io::Error| {
            Failure::new(format!("cannot make a session in {}: {error}", parent.display()))
                .hint("sessions are kept below $XDG_DATA_HOME (else ~/.local/share); is it writable?")
        };
        transcript::make_private_directory(&parent).map_err(cannot)?;
        let note = self.repo_dir.join("repo");
        if !note.exists() {
            fs::write(note, format!("{}\n", repo.display())).map_err(cannot)?;
        }
        loop {
            let id = new_id()?;
            let directory = parent.join(id.to_string());
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {
                    let repo_dir = self.repo_dir.clone();
                    // In the background: nobody waits for it.
                    let sweep = move || private_tmp::sweep_seldom(&repo_dir);
                    let _another_time = std::thread::Builder::new().spawn(sweep);
                    return Ok((id, directory));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(error)),
            }
        }
    }

    /// Those of the foreground, the latest first.
    pub(crate) fn list(&self) -> Vec<FoundSession> {
        self.on(Shelf::Sessions)
    }

    /// All in one place, the latest first.
    pub(crate) fn on(&self, shelf: Shelf) -> Vec<FoundSession> {
        let Ok(entries) = fs::read_dir(self.repo_dir.join(shelf.directory())) else { return Vec::new() };
        let mut found: Vec<FoundSession> = entries.filter_map(|entry| found(&entry.ok()?.path())).collect();
        found.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| a.id.cmp(&b.id)));
        found
    }

    /// The latest in which something was said; without one, the latest. One that cannot be read counts: whoever opens it
    /// is told why.
    pub(crate) fn last(&self) -> Option<FoundSession> {
        let is_spoken_in = |found: &&FoundSession| {
            let mut is_spoken_in = false;
            let read = transcript::each(&found.directory, |record| {
                is_spoken_in = matches!(record.event, Event::Prompt { .. });
                if is_spoken_in { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            is_spoken_in || read.is_err()
        };
        let all = self.list();
        all.iter().find(is_spoken_in).or(all.first()).cloned()
    }

    /// The one that a run goes on with; none for a new one. `hint` is how to begin where there is none.
    pub(crate) fn wanted(&self, run: &RunFlags, hint: &str) -> Result<Option<FoundSession>> {
        match &run.resume {
            Some(_) if run.chooses_session() => Err(Failure::usage("--resume needs a session here").hint(
                "`caliban sessions list` shows them; on a terminal `caliban --resume` lets you choose",
            )),
            Some(id) => self.find(id).map(Some),
            None if run.continue_last => Ok(Some(self.last().ok_or_else(|| {
                Failure::new("there is no session to go on with in this directory").hint(hint)
            })?)),
            None => Ok(None),
        }
    }

    /// The one that an id, or the beginning of one, means.
    pub(crate) fn find(&self, query: &str) -> Result<FoundSession> {
        find(self.list(), query)
    }

    /// The same among the background agents, too, whose directories are sessions, also when they are archived.
    pub(crate) fn find_any(&self, query: &str) -> Result<FoundSession> {
        find([Shelf::Sessions, Shelf::Agents, Shelf::Archive].map(|shelf| self.on(shelf)).concat(), query)
    }

    /// The same among those that `sessions rm` may remove: a background agent that the fleet knows is the fleet's.
    pub(crate) fn find_removable(&self, query: &str) -> Result<FoundSession> {
        find([Shelf::Sessions, Shelf::Archive].map(|shelf| self.on(shelf)).concat(), query)
    }

    /// The archived agent that had a label. Of several that had it, each is found by its id.
    pub(crate) fn find_archived(&self, label: &str) -> Result<Option<FoundSession>> {
        let had_it = |found: &FoundSession| label_of(&found.directory).is_some_and(|own| own == label);
        let mut found: Vec<FoundSession> = self.on(Shelf::Archive).into_iter().filter(had_it).collect();
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => {
                let ids: Vec<String> = found.iter().map(|found| found.id.to_string()).collect();
                Err(Failure::usage(format!(
                    "several archived agents were called {label:?}: {}",
                    ids.join(", ")
                ))
                .hint("name one by its id"))
            }
        }
    }
}

/// The label of the background agent in a directory.
pub(crate) fn label_of(directory: &Path) -> Option<String> {
    Some(records::spec_of(directory)?.label?.as_str().to_owned())
}

fn find(sessions: Vec<FoundSession>, query: &str) -> Result<FoundSession> {
    let candidates = sessions.iter().map(|found| Candidate { id: found.id, label: None });
    let id = resolve(query, candidates).map_err(|error| match error {
        ResolveError::Unknown { query } => Failure::new(format!("there is no session {query:?}"))
            .hint("`caliban sessions list` shows the sessions of this repo, with --all those of every repo"),
        ResolveError::Ambiguous { query, candidates } => {
            let ids: Vec<String> = candidates.iter().map(|candidate| candidate.id.to_string()).collect();
            Failure::new(format!("several sessions begin with {query:?}: {}", ids.join(", ")))
                .hint("say which by its id, or enough of it")
        }
    })?;
    let found = sessions.into_iter().find(|found| found.id == id);
    found.ok_or_else(|| Failure::new(format!("session {id} has gone")))
}

/// The directories of all repos that have been worked in.
pub(crate) fn all_repos(data: &Path) -> Vec<Sessions> {
    let Ok(entries) = fs::read_dir(data.join("repos")) else { return Vec::new() };
    let mut repos: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    repos.sort();
    repos.into_iter().map(Sessions::new).collect()
}

fn found(directory: &Path) -> Option<FoundSession> {
    let id = directory.file_name()?.to_str()?.parse().ok()?;
    let meta = fs::metadata(directory.join(transcript::FILE_NAME)).ok()?;
    Some(FoundSession { id, directory: directory.to_owned(), changed: meta.modified().ok()? })
}

fn new_id() -> Result<AgentId> {
    let bytes = caliban_contract::random().map_err(|error| Failure::new(error.to_string()))?;
    Ok(AgentId::from_random(bytes))
}
