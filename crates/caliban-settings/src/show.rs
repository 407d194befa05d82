//! The effective settings as rows, for `config show`: text and JSON come from the same ones.

use serde::Serialize;
use serde_json::Value;

use super::{
    Loaded, Source,
    layer::{KeyPath, adds_up},
    provider::{Choice, ProviderEndpoint},
};

/// One value and where it was set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingRow {
    /// The key with its sections: `limits.max_turns`; elements of lists have an index: `permissions.allow[0]`.
    pub key: String,
    /// The value; `null` when it is not set. Secrets are `"set"`.
    pub value: Value,
    /// Where it was set, in words.
    pub source: String,
}

impl SettingRow {
    /// Whether there is a value to show.
    pub fn is_set(&self) -> bool {
        match &self.value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            _ => true,
        }
    }
}

/// Every row, in the order of the schema. `choice` fills in what the provider's defaults decide.
pub fn rows(loaded: &Loaded, choice: Option<&Choice>) -> Vec<SettingRow> {
    let mut rows = Vec::new();
    if let Ok(Value::Object(sections)) = serde_json::to_value(&loaded.settings) {
        for (key, value) in sections {
            collect(loaded, &mut vec![key], value, &mut rows);
        }
    }
    if let Some(Choice::Use(target)) = choice {
        let mut fill = |key: String, value: &str, source: &Source| {
            if let Some(row) = rows.iter_mut().find(|row| row.key == key) {
                *row = SettingRow { key, value: value.into(), source: source.to_string() };
            }
        };
        fill("provider".to_owned(), target.provider.value.name(), &target.provider.source);
        if let Some(model) = &target.model {
            fill("model".to_owned(), &model.value, &model.source);
        }
        if let ProviderEndpoint::Http { base_url, .. } = &target.endpoint {
            let key = format!("providers.{}.base_url", target.provider.value);
            fill(key, base_url.value.as_str(), &base_url.source);
        }
    }
    rows
}

/// The rows that have a value.
pub fn set_rows(loaded: &Loaded, choice: Option<&Choice>) -> Vec<SettingRow> {
    rows(loaded, choice).into_iter().filter(SettingRow::is_set).collect()
}

fn collect(loaded: &Loaded, path: &mut KeyPath, value: Value, rows: &mut Vec<SettingRow>) {
    let source = |path: &[String]| {
        let steps: Vec<&str> = path.iter().map(String::as_str).collect();
        loaded.source_of(&steps).to_string()
    };
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                path.push(key);
                collect(loaded, path, value, rows);
                path.pop();
            }
        }
        Value::Array(list) if adds_up(path) && !list.is_empty() => {
            for (index, value) in list.into_iter().enumerate() {
                let mut element = path.clone();
                element.push(index.to_string());
                rows.push(SettingRow {
                    key: format!("{}[{index}]", dotted(path)),
                    value,
                    source: source(&element),
                });
            }
        }
        value => rows.push(SettingRow { key: dotted(path), value, source: source(path) }),
    }
}

/// The key as TOML writes it.
fn dotted(path: &[String]) -> String {
    let bare = |step: &String| {
        !step.is_empty()
            && step.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let steps = path.iter().map(|step| if bare(step) { step.clone() } else { format!("{step:?}") });
    steps.collect::<Vec<_>>().join(".")
}

/// A value as TOML writes it in one line.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        Value::Array(list) => format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let fields = table.iter().map(|(key, value)| format!("{key} = {}", inline(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
