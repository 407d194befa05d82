//! One layer of settings: values with the source of each.
//!
//! Owns parsing a file into a layer (checked against the whole schema, with positions) and building one
//! value by value (environment, flags). Merging layers is `merge`'s.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use toml::{Table, Value, de::DeTable, de::DeValue};

use super::{
    error::{SettingPlace, SettingsError, position},
    file,
    schema::Settings,
};

/// A key as the steps to it: `["limits", "max_turns"]`; an element of a list has its index as last step.
pub type KeyPath = Vec<String>;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: it is the default.
    Default,
    /// In this file, on this line; line 0 where the format gives none.
    File {
        /// Which file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// By this variable.
    Environment(String),
    /// By this flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File { path, line: 0 } => write!(out, "{}", path.display()),
            Self::File { path, line } => write!(out, "{}:{line}", path.display()),
            Self::Environment(name) => write!(out, "environment {name}"),
            Self::Flag(name) => write!(out, "flag {name}"),
        }
    }
}

/// A value and where it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it was set.
    pub source: Source,
}

/// Some settings and the source of each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    pub(super) table: Table,
    pub(super) sources: BTreeMap<KeyPath, Source>,
}

impl Layer {
    /// The layer that a TOML file makes. The text has to fit the schema.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, SettingsError> {
        let text = file::text(path, bytes)?;
        let wrong = |error: toml::de::Error| SettingsError::from_toml(path.to_owned(), text, &error);
        let document = DeTable::parse(text).map_err(wrong)?;
        Settings::deserialize(toml::de::Deserializer::from(document.clone())).map_err(wrong)?;
        let mut sources = BTreeMap::new();
        let line = |offset: usize| Source::File { path: path.to_owned(), line: position(text, offset).0 };
        record(document.get_ref(), &mut Vec::new(), &line, &mut sources);
        let table = Table::deserialize(toml::de::Deserializer::from(document)).map_err(wrong)?;
        let layer = Self { table, sources };
        layer.check_names(path)?;
        Ok(layer)
    }

    /// Sets a value.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>, source: Source) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut table = &mut self.table;
        for step in parents {
            let entry = table.entry((*step).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if !entry.is_table() {
                *entry = Value::Table(Table::new());
            }
            let Value::Table(inner) = entry else { return };
            table = inner;
        }
        table.insert((*last).to_owned(), value.into());
        self.sources.insert(owned(path), source);
    }

    /// Adds one element to a list that adds up.
    pub fn push(&mut self, path: &[&str], value: impl Into<Value>, source: Source) {
        let mut list = match self.get(path) {
            Some(Value::Array(list)) => list.clone(),
            _ => Vec::new(),
        };
        let mut element = owned(path);
        element.push(list.len().to_string());
        list.push(value.into());
        self.set(path, list, Source::Default);
        self.sources.remove(&owned(path));
        self.sources.insert(element, source);
    }

    /// Takes one value away.
    pub fn unset(&mut self, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut table = &mut self.table;
        for step in parents {
            let Some(Value::Table(inner)) = table.get_mut(*step) else { return };
            table = inner;
        }
        table.remove(*last);
        self.sources.remove(&owned(path));
    }

    /// The value at a key.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.table.get(*first)?, |value, step| value.as_table()?.get(*step))
    }

    /// Makes the paths of this layer absolute: `~/…` below the home, others below `base`.
    pub fn resolve_paths(&mut self, base: &Path, home: Option<&Path>) {
        let resolve = |value: &mut Value| {
            if let Value::String(text) = value {
                *text = absolute(text, base, home);
            }
        };
        for (table, key) in [("permissions", "add_dirs"), ("fence", "show")] {
            if let Some(Value::Array(paths)) = self.inner_mut(&[table]).and_then(|table| table.get_mut(key)) {
                paths.iter_mut().for_each(resolve);
            }
        }
        if let Some(script) =
            self.inner_mut(&["providers", "scripted"]).and_then(|table| table.get_mut("script"))
        {
            resolve(script);
        }
        if let Some(servers) = self.inner_mut(&["mcp", "servers"]) {
            for (_, server) in servers.iter_mut() {
                if let Some(cwd) = server.as_table_mut().and_then(|server| server.get_mut("cwd")) {
                    resolve(cwd);
                }
            }
        }
    }

    fn inner_mut(&mut self, path: &[&str]) -> Option<&mut Table> {
        path.iter().try_fold(&mut self.table, |table, step| table.get_mut(*step)?.as_table_mut())
    }

    /// A server's name becomes part of its tools' names, which models restrict.
    fn check_names(&self, path: &Path) -> Result<(), SettingsError> {
        let Some(Value::Table(servers)) = self.get(&["mcp", "servers"]) else { return Ok(()) };
        for name in servers.keys() {
            if let Some(message) = bad_server_name(name) {
                let line = self.line_below(&["mcp", "servers", name]).unwrap_or(1);
                return Err(SettingsError::new(SettingPlace::Line { path: path.to_owned(), line }, message));
            }
        }
        Ok(())
    }

    /// The first line on which something below a key was set.
    fn line_below(&self, path: &[&str]) -> Option<usize> {
        let path = owned(path);
        self.sources
            .iter()
            .filter(|(key, _)| key.starts_with(&path))
            .filter_map(|(_, source)| match source {
                Source::File { line, .. } => Some(*line),
                Source::Default | Source::Environment(_) | Source::Flag(_) => None,
            })
            .min()
    }
}

/// Whether the values of a list are kept when a stronger layer brings more of them.
pub fn adds_up<S: AsRef<str>>(path: &[S]) -> bool {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    matches!(
        path.as_slice(),
        ["permissions", "allow" | "ask" | "deny" | "add_dirs"]
            | ["hooks", _]
            | ["bash", "env_allow"]
            | ["fence", "domains" | "show"]
    )
}

/// What is wrong with a server's name, when something is.
pub fn bad_server_name(name: &str) -> Option<String> {
    /// Leaves room for the tool's own name within the 64 characters that models allow.
    const MAX_SERVER_NAME: usize = 32;
    let fits = !name.is_empty()
        && name.len() <= MAX_SERVER_NAME
        && !name.contains("__")
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (!fits).then(|| {
        format!(
            "found the server name `{}`, expected 1 to {MAX_SERVER_NAME} letters, digits, `-` and single `_`",
            name.escape_debug()
        )
    })
}

fn absolute(text: &str, base: &Path, home: Option<&Path>) -> String {
    let path = match (home, text.strip_prefix("~/"), text) {
        (Some(home), Some(rest), _) => home.join(rest),
        (Some(home), None, "~") => home.to_owned(),
        _ => base.join(text),
    };
    // The pieces are UTF-8 except perhaps the base; a base that is not cannot be written in TOML.
    path.to_str().map_or_else(|| text.to_owned(), str::to_owned)
}

fn owned(path: &[&str]) -> KeyPath {
    path.iter().map(|step| (*step).to_owned()).collect()
}

/// Notes the source of each value of a table.
fn record(
    table: &DeTable<'_>,
    path: &mut KeyPath,
    line: &dyn Fn(usize) -> Source,
    sources: &mut BTreeMap<KeyPath, Source>,
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => record(inner, path, line, sources),
            DeValue::Array(list) if adds_up(path) => {
                for (index, element) in list.iter().enumerate() {
                    let mut element_path = path.clone();
                    element_path.push(index.to_string());
                    sources.insert(element_path, line(element.span().start));
                }
            }
            _ => {
                sources.insert(path.clone(), line(key.span().start));
            }
        }
        path.pop();
    }
}
