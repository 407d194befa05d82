//! Which repos the user trusts (a15): a path, and the content that was there when it was trusted.
//!
//! Owns `trusted.toml`, the reading of a repo's files (settings, MCP servers, agent types, commands, skills) and the judgement. A
//! repo that is not in the store has its files neither read nor parsed; one whose files have changed since is
//! judged by their digest alone. Context files (AGENTS.md, CLAUDE.md) are not its business: they are only text for the model.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use caliban_core::{hex, inert};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Paths, SettingPlace, SettingsError,
    definitions::{self, DefinitionFile},
    file,
};

/// So many agent files of one directory are named one by one in a line for people.
const NAMED_AGENT_FILES: usize = 3;

/// A file of a repo that decides what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepoFile {
    /// Settings for everybody.
    Settings,
    /// Settings of one person.
    LocalSettings,
    /// MCP servers in Claude's format.
    McpJson,
    /// Claude Code's settings for everybody.
    ClaudeSettings,
    /// Claude Code's settings of one person.
    ClaudeLocalSettings,
}

impl RepoFile {
    const ALL: [Self; 5] =
        [Self::Settings, Self::LocalSettings, Self::McpJson, Self::ClaudeSettings, Self::ClaudeLocalSettings];

    /// In the order in which they count, the weakest first: what a repo has for us is stronger than what it has for another
    /// program.
    pub const WEAKEST_FIRST: [Self; 5] =
        [Self::ClaudeSettings, Self::ClaudeLocalSettings, Self::McpJson, Self::Settings, Self::LocalSettings];

    /// Those of another program whose denials hold without trust: they only narrow.
    pub const NARROWING: [Self; 2] = [Self::ClaudeSettings, Self::ClaudeLocalSettings];

    /// The path below the root.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => ".caliban/settings.toml",
            Self::LocalSettings => ".caliban/settings.local.toml",
            Self::McpJson => ".mcp.json",
            Self::ClaudeSettings => ".claude/settings.json",
            Self::ClaudeLocalSettings => ".claude/settings.local.json",
        }
    }

    /// Its path in a repo. Where the "repo" is the user's home, Claude's settings in it are the user's own.
    pub fn path(self, paths: &Paths, root: &Path) -> Option<PathBuf> {
        let home = paths.home.as_ref().and_then(|home| home.canonicalize().ok());
        let is_users = Self::NARROWING.contains(&self) && home.is_some_and(|home| home == root);
        (!is_users).then(|| root.join(self.name()))
    }
}

/// What a repo or a user defines in files of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// Agent types.
    Agents,
    /// Slash commands.
    Commands,
    /// Skills.
    Skills,
}

impl DefinitionKind {
    const ALL: [Self; 3] = [Self::Agents, Self::Commands, Self::Skills];

    /// The name of their directories.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Commands => "commands",
            Self::Skills => "skills",
        }
    }

    /// Where a repo has them, the strongest first.
    fn places(self) -> [String; 2] {
        [".caliban", ".claude"].map(|place| format!("{place}/{}", self.directory()))
    }

    /// The directories of a repo that are there. Where the "repo" is the user's home, those of Claude in it are the user's
    /// own and need no trust.
    fn directories(self, paths: &Paths, root: &Path) -> Vec<PathBuf> {
        let own = paths.own_directories(self);
        let own: Vec<PathBuf> = own.iter().filter_map(|dir| dir.canonicalize().ok()).collect();
        let all = self.places().into_iter().map(|name| root.join(name));
        all.filter(|dir| dir.canonicalize().is_ok_and(|dir| !own.contains(&dir))).collect()
    }

    /// The files of a directory.
    pub fn read(self, dir: &Path) -> Vec<DefinitionFile> {
        if self == Self::Skills { definitions::read_skills(dir) } else { definitions::read(dir) }
    }

    /// Their paths.
    fn list(self, dir: &Path) -> Vec<PathBuf> {
        if self == Self::Skills { definitions::list_skills(dir) } else { definitions::list(dir) }
    }
}

/// The files of a repo as they were read, once: what is judged is what is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFiles {
    root: PathBuf,
    settings: Vec<(RepoFile, Vec<u8>)>,
    definitions: Vec<(DefinitionKind, DefinitionFile)>,
}

/// The files of a repo as text, for an agent that starts later. A definition has its text or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptFiles {
    root: PathBuf,
    settings: Vec<(RepoFile, String)>,
    definitions: Vec<(DefinitionKind, PathBuf, Result<String, String>)>,
}

impl RepoFiles {
    /// The files as text; none when one of them is no text.
    pub fn kept(&self) -> Option<KeptFiles> {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
        let settings = self.settings.iter().map(|(kind, bytes)| Some((*kind, text(bytes)?)));
        let definitions = self.definitions.iter().map(|(kind, file)| {
            let content = match &file.content {
                Ok(bytes) => Ok(text(bytes)?),
                Err(why) => Err(why.clone()),
            };
            Some((*kind, file.path.clone(), content))
        });
        Some(KeptFiles {
            root: self.root.clone(),
            settings: settings.collect::<Option<_>>()?,
            definitions: definitions.collect::<Option<_>>()?,
        })
    }

    /// Those that an agent was handed.
    pub fn of_kept(kept: KeptFiles) -> Self {
        let settings = kept.settings.into_iter().map(|(kind, text)| (kind, text.into_bytes()));
        let definitions = kept.definitions.into_iter().map(|(kind, path, content)| {
            (kind, DefinitionFile { path, content: content.map(String::into_bytes) })
        });
        Self { root: kept.root, settings: settings.collect(), definitions: definitions.collect() }
    }

    /// Reads the ones that are there.
    pub fn read(paths: &Paths, root: &Path) -> Result<Self, SettingsError> {
        let mut settings = Vec::new();
        for kind in RepoFile::ALL {
            let Some(path) = kind.path(paths, root) else { continue };
            if let Some(bytes) = file::read(&path)? {
                settings.push((kind, bytes));
            }
        }
        let mut definitions = Vec::new();
        for kind in DefinitionKind::ALL {
            let files = kind.directories(paths, root).into_iter().flat_map(|dir| kind.read(&dir));
            definitions.extend(files.map(|file| (kind, file)));
        }
        Ok(Self { root: root.to_owned(), settings, definitions })
    }

    /// Where they are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The bytes of one of them.
    pub fn get(&self, kind: RepoFile) -> Option<&[u8]> {
        self.settings.iter().find(|(known, _)| *known == kind).map(|(_, bytes)| bytes.as_slice())
    }

    /// The files of a kind.
    pub fn definitions(&self, wanted: DefinitionKind) -> Vec<DefinitionFile> {
        let of_kind = self.definitions.iter().filter(|(kind, _)| *kind == wanted);
        of_kind.map(|(_, file)| file.clone()).collect()
    }

    /// The names of the ones that are there, for people.
    pub fn names(&self) -> Vec<String> {
        let settings = self.settings.iter().map(|(kind, _)| *kind).collect();
        names(&self.root, settings, self.definitions.iter().map(|(_, file)| file.path.as_path()))
    }

    /// A digest over the names, the lengths and the content.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |name: &[u8], content: Option<&[u8]>| {
            digest.update(name);
            digest.update([0]);
            // No file is that long: one that cannot be read is not one of any content.
            let length = content.map_or(u64::MAX, |bytes| bytes.len() as u64);
            digest.update(length.to_le_bytes());
            digest.update(content.unwrap_or_default());
        };
        for (kind, bytes) in &self.settings {
            add(kind.name().as_bytes(), Some(bytes));
        }
        for (_, file) in &self.definitions {
            let name = file.path.strip_prefix(&self.root).unwrap_or(&file.path);
            add(name.as_os_str().as_bytes(), file.content.as_deref().ok());
        }
        hex::encode(&digest.finalize())
    }
}

/// The names of files below the root, in one line's worth: many files of a directory are only counted.
fn names<'a>(root: &Path, settings: Vec<RepoFile>, files: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut names: Vec<String> = settings.into_iter().map(|kind| kind.name().to_owned()).collect();
    let files: Vec<&Path> = files.filter_map(|path| path.strip_prefix(root).ok()).collect();
    for directory in DefinitionKind::ALL.into_iter().flat_map(DefinitionKind::places) {
        let here: Vec<&&Path> = files.iter().filter(|path| path.starts_with(&directory)).collect();
        if here.len() > NAMED_AGENT_FILES {
            names.push(format!("{directory} ({} files)", here.len()));
        } else {
            names.extend(here.iter().map(|path| inert::line(&path.display().to_string()).into_owned()));
        }
    }
    names
}

/// The judgement about a repo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// It has no file that would need trust, and nobody trusted it.
    NoFiles,
    /// Trusted, and this is what it says.
    Trusted(RepoFiles),
    /// Has these files, and nobody trusted it.
    Untrusted(Vec<String>),
    /// Was trusted, and its files have changed since.
    Changed(Vec<String>),
}

impl Trust {
    /// The one line about what is ignored.
    pub fn note(&self, root: &Path) -> Option<String> {
        let (names, why) = match self {
            Self::NoFiles | Self::Trusted(_) => return None,
            Self::Untrusted(names) => (names, "you have not trusted this repo"),
            Self::Changed(names) => (names, "they have changed since you trusted this repo"),
        };
        let (names, root) = (names.join(", "), root.display().to_string().escape_debug().to_string());
        Some(format!("{names} ignored: {why}; look at them, then run: caliban trust {}", quoted(&root)))
    }
}

/// The repos that were trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustStore {
    /// One entry for each root.
    #[serde(default, rename = "repo")]
    pub repos: Vec<TrustedRepo>,
}

/// A repo that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedRepo {
    /// Its canonical root.
    pub path: PathBuf,
    /// The digest of its files at that time.
    pub digest: String,
}

/// What came of asking to forget a repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustRemoval {
    /// It is no longer trusted.
    Yes,
    /// It was not trusted before.
    WasNotThere,
}

impl TrustStore {
    /// Where the store is.
    pub fn path(paths: &Paths) -> PathBuf {
        paths.data.join("trusted.toml")
    }

    /// Reads the store; an absent one is empty.
    pub fn read(paths: &Paths) -> Result<Self, SettingsError> {
        let path = Self::path(paths);
        let Some(bytes) = file::read(&path)? else { return Ok(Self::default()) };
        let text = file::text(&path, &bytes)?;
        toml::from_str(text).map_err(|error| {
            SettingsError::from_toml(path.clone(), text, &error)
                .hint("this file is Caliban's own: remove it, then trust your repos again")
        })
    }

    /// Whether the repo at a canonical root is trusted with some content.
    pub fn lists(&self, root: &Path) -> bool {
        self.repos.iter().any(|repo| repo.path == root)
    }

    /// Judges the repo at a canonical root.
    pub fn judge(&self, paths: &Paths, root: &Path) -> Result<Trust, SettingsError> {
        let Some(entry) = self.repos.iter().find(|repo| repo.path == root) else {
            let there =
                |kind: &RepoFile| kind.path(paths, root).is_some_and(|path| path.symlink_metadata().is_ok());
            let settings = RepoFile::ALL.into_iter().filter(there).collect();
            let list = |kind: DefinitionKind| {
                kind.directories(paths, root).into_iter().flat_map(move |dir| kind.list(&dir))
            };
            let files: Vec<PathBuf> = DefinitionKind::ALL.into_iter().flat_map(list).collect();
            let names = names(root, settings, files.iter().map(PathBuf::as_path));
            return Ok(if names.is_empty() { Trust::NoFiles } else { Trust::Untrusted(names) });
        };
        let files = RepoFiles::read(paths, root)?;
        Ok(match (files.names(), files.digest() == entry.digest) {
            (_, true) => Trust::Trusted(files),
            (names, _) if names.is_empty() => Trust::NoFiles,
            (names, false) => Trust::Changed(names),
        })
    }

    /// Trusts the repo at a canonical root with exactly these files.
    pub fn trust(paths: &Paths, root: &Path, files: &RepoFiles) -> Result<(), SettingsError> {
        if root.to_str().is_none() {
            let message = format!("{} is not UTF-8, so it cannot be remembered as trusted", root.display());
            return Err(SettingsError::new(SettingPlace::Nowhere, message));
        }
        Self::change(paths, |store| {
            store.repos.retain(|repo| repo.path != root);
            store.repos.push(TrustedRepo { path: root.to_owned(), digest: files.digest() });
            store.repos.sort_by(|a, b| a.path.cmp(&b.path));
        })
    }

    /// Forgets the repo at a root.
    pub fn remove(paths: &Paths, root: &Path) -> Result<TrustRemoval, SettingsError> {
        let mut removed = TrustRemoval::WasNotThere;
        Self::change(paths, |store| {
            let before = store.repos.len();
            store.repos.retain(|repo| repo.path != root);
            if store.repos.len() < before {
                removed = TrustRemoval::Yes;
            }
        })?;
        Ok(removed)
    }

    /// Changes the store under a lock, so that two commands at once both take effect, and replaces the
    /// file as a whole, so that nobody reads half of it.
    fn change(paths: &Paths, edit: impl FnOnce(&mut Self)) -> Result<(), SettingsError> {
        let path = Self::path(paths);
        let cannot = |error: &dyn std::fmt::Display| {
            SettingsError::new(SettingPlace::File(path.clone()), format!("cannot be written: {error}"))
        };
        let io = |error: std::io::Error| cannot(&file::words(&error));
        DirBuilder::new().recursive(true).mode(0o700).create(&paths.data).map_err(io)?;
        let lock = File::create(path.with_extension("lock")).map_err(io)?;
        lock.lock().map_err(io)?;
        let mut store = Self::read(paths)?;
        edit(&mut store);
        let text = toml::to_string(&store).map_err(|error| cannot(&error))?;
        let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut out = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(io)?;
        out.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(io)?;
        std::fs::rename(&fresh, &path).map_err(io)
    }
}

/// A path as a shell takes it.
pub fn quoted(path: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'+' | b'@');
    if !path.is_empty() && path.bytes().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}
