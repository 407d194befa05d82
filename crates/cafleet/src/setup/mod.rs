//! What claude and codex need in order to run `cafleet` without asking: skills, and rules that allow literal calls.
//!
//! Owns what is installed where, and what prevents it from working. Everything is embedded in this program; nothing is
//! fetched. Refuses: overwriting a person's changes without a copy, guessing at files that cannot be read, blocking any
//! other command.

mod claude;
mod codex;
mod file;
mod pattern;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub(crate) use file::FileState;

/// Commands as our skills spell them, to test rules with.
const SAMPLES: [&str; 3] = [
    "cafleet --session-id 0a1b2c3d-0000-4000-8000-000000000001 message poll --agent-id 0a1b2c3d-0000-4000-8000-000000000002",
    "cafleet --session-id 0a1b2c3d-0000-4000-8000-000000000001 message send --agent-id 0a1b2c3d-0000-4000-8000-000000000002 \
     --to 1 --text done",
    "cafleet --session-id 0a1b2c3d-0000-4000-8000-000000000001 message ack --agent-id 0a1b2c3d-0000-4000-8000-000000000002 \
     --task-id 7",
];

const MEMBER: &str = include_str!("../../skills/member.md");
const DIRECTOR: &str = include_str!("../../skills/director.md");

/// A program that we install files for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SetupClient {
    Claude,
    Codex,
}

impl SetupClient {
    pub(crate) const ALL: [Self; 2] = [Self::Claude, Self::Codex];

    /// The program's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// All paths.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Claude Code's directory.
    pub(crate) claude: PathBuf,
    /// Claude Code's state file, which says which directories are trusted.
    pub(crate) claude_state: PathBuf,
    /// Codex's directory.
    pub(crate) codex: PathBuf,
    /// The directory of the administrator's settings.
    pub(crate) etc: PathBuf,
    /// The project's directory.
    pub(crate) project: PathBuf,
    /// The broker's database.
    pub(crate) database: PathBuf,
}

/// One installed item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SetupItem {
    pub(crate) client: SetupClient,
    pub(crate) what: &'static str,
    pub(crate) file: PathBuf,
    #[serde(flatten)]
    pub(crate) state: FileState,
    /// The result of installing it.
    #[serde(flatten)]
    pub(crate) done: Option<SetupDone>,
}

/// The result of installing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result", content = "copy")]
pub(crate) enum SetupDone {
    /// Nothing to do.
    Nothing,
    /// It was installed.
    Installed,
    /// An older version was replaced, or entries were added.
    Updated,
    /// It was replaced; the person's version was copied to this file.
    Replaced(PathBuf),
    /// Not touched: a person has changed the present version.
    Left,
    /// Failed: it cannot be read or written.
    Failed(String),
}

/// A rule that keeps a call from being allowed without asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Obstacle {
    pub(crate) client: SetupClient,
    pub(crate) effect: RuleEffect,
    pub(crate) file: PathBuf,
    /// The rule as it stands in the file, or the setting.
    pub(crate) rule: String,
    pub(crate) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuleEffect {
    Denies,
    Asks,
}

/// The installed items, and what prevents them from working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SetupReport {
    pub(crate) items: Vec<SetupItem>,
    pub(crate) obstacles: Vec<Obstacle>,
}

impl SetupReport {
    /// Whether literal calls are allowed, and the skills are current.
    pub(crate) fn is_good(&self) -> bool {
        self.obstacles.is_empty()
            && self.items.iter().all(|item| matches!(item.state, FileState::Current | FileState::Changed))
    }

    /// The outdated items, in one line; `None` if there are none. Items that were never installed are not outdated.
    pub(crate) fn old_in_words(&self) -> Option<String> {
        let old = |item: &&SetupItem| matches!(item.state, FileState::Old | FileState::ChangedOld);
        let clients: Vec<&str> = SetupClient::ALL
            .into_iter()
            .filter(|client| self.items.iter().filter(old).any(|item| item.client == *client))
            .map(SetupClient::name)
            .collect();
        if clients.is_empty() {
            return None;
        }
        Some(format!(
            "the cafleet skills of {} are old; 'cafleet setup' brings them up to date",
            clients.join(" and ")
        ))
    }
}

/// Checks, and changes nothing.
pub(crate) fn check(places: &Places, clients: &[SetupClient]) -> SetupReport {
    let mut report = SetupReport { items: Vec::new(), obstacles: Vec::new() };
    for client in clients {
        report.items.extend(files(places, *client).iter().map(file::Ours::look));
        match client {
            SetupClient::Claude => claude::look(places, &mut report),
            SetupClient::Codex => codex::look(places, &mut report),
        }
    }
    report
}

/// Installs what is missing or outdated, and checks again.
pub(crate) fn install(places: &Places, clients: &[SetupClient]) -> SetupReport {
    let mut done: Vec<(PathBuf, SetupDone)> = Vec::new();
    for client in clients {
        for file in files(places, *client) {
            done.push((file.path.clone(), file.install()));
        }
        if *client == SetupClient::Claude {
            done.push((claude::settings_file(places), claude::permit(places)));
        }
    }
    let mut report = check(places, clients);
    for item in &mut report.items {
        item.done = done.iter().find(|(file, _)| *file == item.file).map(|(_, done)| done.clone());
    }
    report
}

/// The files that are entirely ours.
fn files(places: &Places, client: SetupClient) -> Vec<file::Ours> {
    let dir = match client {
        SetupClient::Claude => &places.claude,
        SetupClient::Codex => &places.codex,
    };
    let skill = |name: &str| Path::join(dir, "skills").join(name).join("SKILL.md");
    let mut files = vec![
        file::Ours::skill(client, "member skill", skill("cafleet-member"), MEMBER),
        file::Ours::skill(client, "Director skill", skill("cafleet-director"), DIRECTOR),
    ];
    if client == SetupClient::Codex {
        files.push(codex::rules(places));
    }
    files
}
