//! Settings: defaults < user < repo < user for this repo < environment < flags, and every value knows its source.
//!
//! Owns reading, checking and merging them, the choice of the model, and the environment that tools get.
//! Nothing of a repo is parsed unless `trust` vouches for it. Everything else in the program receives
//! structs from here; nobody else reads a settings file or the environment.

pub mod agent_types;
mod claude;
pub mod definitions;
pub mod environment;
pub mod error;
pub mod file;
mod files;
mod keep;
pub mod known_models;
pub mod layer;
mod mcp_json;
mod mcp_servers;
mod merge;
mod permissions;
pub mod provider;
pub mod schema;
mod setup;
pub mod show;
mod spending;
pub mod tool_environment;
pub mod tool_names;
pub mod trust;
pub mod values;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use caliban_core::defaults::SEARCH_QUERY;
use caliban_permissions::SourcedRule;
use serde::Deserialize as _;

pub use self::{
    environment::{Environment, Paths},
    error::{SettingPlace, SettingsError},
    files::Files,
    keep::keep,
    layer::{Layer, Source},
    permissions::parse_rule,
    schema::Settings,
};
use crate::definitions::DefinitionFile;
use crate::trust::{DefinitionKind, RepoFile, RepoFiles, Trust};

/// The effective settings, with everything that was found out on the way.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The effective settings.
    pub settings: Settings,
    /// The directories for Caliban's own files.
    pub paths: Paths,
    /// The project's root: the repo's, or the working directory where there is no repo. Canonical.
    pub root: PathBuf,
    /// The permission rules of all layers, parsed, each with its source.
    pub rules: Vec<SourcedRule>,
    /// The user's own settings file, as it was read.
    pub user: Option<Vec<u8>>,
    /// The user's own settings for the repo, as they were read.
    pub own: Option<Vec<u8>>,
    /// Whether the repo's settings are in use.
    pub trust: Trust,
    /// The user's settings of Claude Code, where they are used, as they were read.
    pub claude: Option<Vec<u8>>,
    /// Files of a repo that is not trusted whose denials hold, as they were read.
    pub narrowing: Vec<(PathBuf, Vec<u8>)>,
    /// Lines for stderr: what was left out, and what to do about it.
    pub notes: Vec<String>,
    sources: BTreeMap<layer::KeyPath, Source>,
}

impl Loaded {
    /// The files of a kind: the repo's when it is trusted, then the user's own.
    pub fn definitions(&self, kind: DefinitionKind) -> Vec<DefinitionFile> {
        let mut files = match &self.trust {
            Trust::Trusted(files) => files.definitions(kind),
            Trust::NoFiles | Trust::Untrusted(_) | Trust::Changed(_) => Vec::new(),
        };
        files.extend(self.paths.own_directories(kind).iter().flat_map(|dir| kind.read(dir)));
        files
    }

    /// What they say to a daemon.
    #[must_use]
    pub fn daemon_options(&self) -> caliban_contract::DaemonOptions {
        self.settings.fleet.daemon_options(self.settings.worktrees.keep)
    }

    /// Where a value was set; an element of a list that adds up has its index as last step.
    pub fn source_of(&self, path: &[&str]) -> Source {
        source_of(&self.sources, path)
    }
}

/// Reads and merges everything. `cwd` is the directory the agent works in.
pub fn load(environment: &Environment, cwd: &Path, flags: Layer) -> Result<Loaded, SettingsError> {
    let files = Files::read(&environment.paths()?, &project_root(cwd)?)?;
    load_files(environment, cwd, flags, files)
}

/// From the files that were read before, if there are any.
pub fn load_with(
    environment: &Environment,
    cwd: &Path,
    flags: Layer,
    files: Option<Files>,
) -> Result<Loaded, SettingsError> {
    match files {
        Some(files) => load_files(environment, cwd, flags, files),
        None => load(environment, cwd, flags),
    }
}

/// The same from files that were read before.
pub fn load_files(
    environment: &Environment,
    cwd: &Path,
    flags: Layer,
    files: Files,
) -> Result<Loaded, SettingsError> {
    let Files { user, own, trust, claude, narrowing } = files;
    let paths = environment.paths()?;
    let root = project_root(cwd)?;
    let mut merged = Layer::default();
    let mut foreign = Vec::new();
    if let (Some(bytes), Some(path)) = (&claude, paths.claude_settings()) {
        let claude::Understood { mut layer, note } = claude::parse(&path, bytes);
        layer.resolve_paths(paths.home.as_deref().unwrap_or(&paths.config), paths.home.as_deref());
        merged.add(layer);
        foreign.extend(note);
    }
    if let Some(bytes) = &user {
        let mut layer = Layer::parse(&paths.user_settings(), bytes)?;
        layer.resolve_paths(paths.home.as_deref().unwrap_or(&paths.config), paths.home.as_deref());
        merged.add(layer);
    }
    if let Trust::Trusted(files) = &trust {
        let (layers, notes) = repo_layers(files, &root, paths.home.as_deref())?;
        for mut layer in layers {
            foreign.extend(spending::narrow(&merged, &mut layer));
            merged.add(layer);
        }
        foreign.extend(notes);
    }
    if let Some(bytes) = &own {
        let mut layer = Layer::parse(&paths.repo_settings(&root), bytes)?;
        layer.resolve_paths(&root, paths.home.as_deref());
        merged.add(layer);
    }
    for (path, bytes) in &narrowing {
        let claude::Understood { layer, note } = claude::denials(path, bytes);
        merged.add(layer);
        foreign.extend(note);
    }
    let from_files = typed(&merged)?;
    merged.add(environment.layer(&from_files)?);
    let mut flags = flags;
    flags.resolve_paths(cwd, paths.home.as_deref());
    merged.add(flags);
    let mut settings = typed(&merged)?;
    let sources = merged.sources;
    let mut notes: Vec<String> = trust.note(&root).into_iter().chain(foreign).collect();
    notes.extend(mcp_servers::finish(&mut settings, environment, |name| {
        source_below(&sources, &["mcp", "servers", name])
    })?);
    if let Some(wrong) = settings.web.search_url.as_deref().and_then(wrong_search_url) {
        let source = source_of(&sources, &["web", "search_url"]);
        return Err(SettingsError::new(source.into(), format!("`web.search_url`: {wrong}"))
            .hint("for example https://search.example.org/search?format=json&q={query}"));
    }
    let rules = permissions::rules(&settings, |path| source_of(&sources, path))?;
    Ok(Loaded { settings, paths, root, rules, user, own, trust, claude, narrowing, notes, sources })
}

/// What is wrong with the address of a search service, when something is.
fn wrong_search_url(url: &str) -> Option<String> {
    if !url.contains(SEARCH_QUERY) {
        return Some(format!("found `{url}`, expected an address with {} in it", SEARCH_QUERY));
    }
    values::BaseUrl::parse_any(&url.replace(SEARCH_QUERY, "x")).err()
}

/// The layers of a repo's files, weakest first, and what is to be said about those of other programs.
pub fn repo_layers(
    files: &RepoFiles,
    root: &Path,
    home: Option<&Path>,
) -> Result<(Vec<Layer>, Vec<String>), SettingsError> {
    let (mut layers, mut notes) = (Vec::new(), Vec::new());
    for kind in RepoFile::WEAKEST_FIRST {
        let Some(bytes) = files.get(kind) else { continue };
        let path = root.join(kind.name());
        let mut layer = match kind {
            RepoFile::ClaudeSettings | RepoFile::ClaudeLocalSettings => {
                let understood = claude::parse(&path, bytes);
                notes.extend(understood.note);
                understood.layer
            }
            RepoFile::McpJson => {
                let (layer, left_out) = mcp_json::parse(&path, bytes)?;
                notes.extend(left_out);
                layer
            }
            RepoFile::Settings | RepoFile::LocalSettings => Layer::parse(&path, bytes)?,
        };
        layer.resolve_paths(root, home);
        layers.push(layer);
    }
    Ok((layers, notes))
}

/// The nearest directory upwards that has a `.git`, else `cwd` itself. Canonical.
pub fn project_root(cwd: &Path) -> Result<PathBuf, SettingsError> {
    let cwd = cwd.canonicalize().map_err(|error| {
        SettingsError::new(
            SettingPlace::Nowhere,
            format!("the working directory {} cannot be used: {}", cwd.display(), file::words(&error)),
        )
    })?;
    // Git's answers end with a line, and records are JSON: such a path would be another one there.
    if cwd.to_str().is_none_or(|path| path.contains('\n')) {
        return Err(SettingsError::new(
            SettingPlace::Nowhere,
            format!(
                "the path of the working directory has {}: {}; rename the directory",
                if cwd.to_str().is_none() { "bytes that are not UTF-8" } else { "a line end" },
                caliban_core::inert::line(&cwd.to_string_lossy()),
            ),
        ));
    }
    let root = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).map(Path::to_owned);
    Ok(root.unwrap_or(cwd))
}

/// A merged layer as the typed settings. Each layer was checked by itself, so this fails only where the
/// layers do not fit together.
pub fn typed(layer: &Layer) -> Result<Settings, SettingsError> {
    Settings::deserialize(layer.table.clone())
        .map_err(|error| SettingsError::new(SettingPlace::Nowhere, error.message().to_owned()))
}

/// The source of a value, or of the nearest thing around it that was set as a whole.
fn source_of(sources: &BTreeMap<layer::KeyPath, Source>, path: &[&str]) -> Source {
    let path: layer::KeyPath = path.iter().map(|step| (*step).to_owned()).collect();
    (1..=path.len())
        .rev()
        .find_map(|length| sources.get(path.get(..length)?))
        .cloned()
        .unwrap_or(Source::Default)
}

/// The source of the first thing that was set below a key.
fn source_below(sources: &BTreeMap<layer::KeyPath, Source>, path: &[&str]) -> Source {
    let path: layer::KeyPath = path.iter().map(|step| (*step).to_owned()).collect();
    sources
        .range(path.clone()..)
        .take_while(|(key, _)| key.starts_with(&path))
        .map(|(_, source)| source.clone())
        .next()
        .unwrap_or(Source::Default)
}
