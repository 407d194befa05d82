//! Settings: defaults < user < repo < environment < flags, and every value knows its source.
//!
//! Owns reading, checking and merging them, the choice of the model, and the environment that tools get.
//! Nothing of a repo is parsed unless `trust` vouches for it. Everything else in the program receives
//! structs from here; nobody else reads a settings file or the environment.

pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod file;
mod files;
pub(crate) mod layer;
mod mcp_json;
mod mcp_servers;
mod merge;
mod permissions;
pub(crate) mod provider;
pub(crate) mod schema;
mod setup;
pub(crate) mod show;
pub(crate) mod tool_environment;
pub(crate) mod values;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use caliban_permissions::SourcedRule;
use serde::Deserialize as _;

pub(crate) use self::{
    environment::{Environment, Paths},
    error::{Place, SettingsError},
    files::Files,
    layer::{Layer, Source},
    schema::Settings,
};
use crate::trust::{RepoFile, RepoFiles, Trust};

/// The effective settings, with everything that was found out on the way.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
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
    /// Whether the repo's settings are in use.
    pub trust: Trust,
    /// Lines for stderr: what was left out, and what to do about it.
    pub notes: Vec<String>,
    sources: BTreeMap<layer::KeyPath, Source>,
}

impl Loaded {
    /// Where a value was set; an element of a list that adds up has its index as last step.
    pub(crate) fn source_of(&self, path: &[&str]) -> Source {
        source_of(&self.sources, path)
    }
}

/// Reads and merges everything. `cwd` is the directory the agent works in.
pub(crate) fn load(environment: &Environment, cwd: &Path, flags: Layer) -> Result<Loaded, SettingsError> {
    let files = Files::read(&environment.paths()?, &project_root(cwd)?)?;
    load_files(environment, cwd, flags, files)
}

/// From the files that were read before, if there are any.
pub(crate) fn load_with(
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
pub(crate) fn load_files(
    environment: &Environment,
    cwd: &Path,
    flags: Layer,
    files: Files,
) -> Result<Loaded, SettingsError> {
    let Files { user, trust } = files;
    let paths = environment.paths()?;
    let root = project_root(cwd)?;
    let mut merged = Layer::default();
    if let Some(bytes) = &user {
        let mut layer = Layer::parse(&paths.user_settings(), bytes)?;
        layer.resolve_paths(paths.home.as_deref().unwrap_or(&paths.config), paths.home.as_deref());
        merged.add(layer);
    }
    if let Trust::Trusted(files) = &trust {
        for layer in repo_layers(files, &root, paths.home.as_deref())? {
            merged.add(layer);
        }
    }
    let from_files = typed(&merged)?;
    merged.add(environment.layer(&from_files)?);
    let mut flags = flags;
    flags.resolve_paths(cwd, paths.home.as_deref());
    merged.add(flags);
    let mut settings = typed(&merged)?;
    let sources = merged.sources;
    let mut notes: Vec<String> = trust.note(&root).into_iter().collect();
    notes.extend(mcp_servers::finish(&mut settings, environment, |name| {
        source_below(&sources, &["mcp", "servers", name])
    })?);
    let rules = permissions::rules(&settings, |path| source_of(&sources, path))?;
    Ok(Loaded { settings, paths, root, rules, user, trust, notes, sources })
}

/// The layers of a repo's files, weakest first.
pub(crate) fn repo_layers(
    files: &RepoFiles,
    root: &Path,
    home: Option<&Path>,
) -> Result<Vec<Layer>, SettingsError> {
    let mut layers = Vec::new();
    // The repo's own settings are stronger than what it has for another program.
    for kind in [RepoFile::McpJson, RepoFile::Settings, RepoFile::LocalSettings] {
        let Some(bytes) = files.get(kind) else { continue };
        let path = root.join(kind.name());
        let mut layer = match kind {
            RepoFile::McpJson => mcp_json::parse(&path, bytes)?,
            RepoFile::Settings | RepoFile::LocalSettings => Layer::parse(&path, bytes)?,
        };
        layer.resolve_paths(root, home);
        layers.push(layer);
    }
    Ok(layers)
}

/// The nearest directory upwards that has a `.git`, else `cwd` itself. Canonical.
pub(crate) fn project_root(cwd: &Path) -> Result<PathBuf, SettingsError> {
    let cwd = cwd.canonicalize().map_err(|error| {
        SettingsError::new(
            Place::Nowhere,
            format!("the working directory {} cannot be used: {}", cwd.display(), file::words(&error)),
        )
    })?;
    let root = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).map(Path::to_owned);
    Ok(root.unwrap_or(cwd))
}

/// A merged layer as the typed settings. Each layer was checked by itself, so this fails only where the
/// layers do not fit together.
pub(crate) fn typed(layer: &Layer) -> Result<Settings, SettingsError> {
    Settings::deserialize(layer.table.clone())
        .map_err(|error| SettingsError::new(Place::Nowhere, error.message().to_owned()))
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
