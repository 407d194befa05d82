//! Layers on top of each other: the last one wins, lists of rules add up, every source is kept.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::layer::{KeyPath, Layer, Source, adds_up};

impl Layer {
    /// Puts a stronger layer on top of this one.
    pub fn add(&mut self, mut over: Layer) {
        if self.changes_provider(&over) {
            self.unset(&["model"]);
        }
        let table = std::mem::take(&mut over.table);
        let mut merge = Merge { sources: &mut self.sources, over: &over.sources };
        merge.tables(&mut self.table, table, &mut Vec::new());
    }

    /// A model belongs to the provider it was chosen with: a stronger layer that changes the provider and
    /// names no model must not send the old provider's model to the new one.
    fn changes_provider(&self, over: &Layer) -> bool {
        match (self.get(&["provider"]), over.get(&["provider"])) {
            (Some(old), Some(new)) => old != new && over.get(&["model"]).is_none(),
            _ => false,
        }
    }
}

struct Merge<'a> {
    sources: &'a mut BTreeMap<KeyPath, Source>,
    over: &'a BTreeMap<KeyPath, Source>,
}

impl Merge<'_> {
    fn tables(&mut self, base: &mut Table, over: Table, path: &mut KeyPath) {
        for (key, value) in over {
            path.push(key.clone());
            match (base.get_mut(&key), value) {
                (Some(Value::Table(old)), Value::Table(new)) if !replaces_whole(path, &new) => {
                    self.tables(old, new, path);
                }
                (Some(Value::Array(old)), Value::Array(new)) if adds_up(path) => self.lists(old, new, path),
                (_, value) => {
                    self.sources.retain(|known, _| !known.starts_with(path));
                    let taken = self.over.iter().filter(|(known, _)| known.starts_with(path));
                    self.sources.extend(taken.map(|(known, source)| (known.clone(), source.clone())));
                    base.insert(key, value);
                }
            }
            path.pop();
        }
    }

    fn lists(&mut self, old: &mut Vec<Value>, new: Vec<Value>, path: &KeyPath) {
        let before = old.len();
        for index in 0..new.len() {
            let at = |index: usize| path.iter().cloned().chain([index.to_string()]).collect::<KeyPath>();
            if let Some(source) = self.over.get(&at(index)) {
                self.sources.insert(at(before + index), source.clone());
            }
        }
        old.extend(new);
    }
}

/// A server that is defined anew takes nothing over from a weaker layer: its variables and headers
/// were meant for another program. A table without `command` and `url` changes the one that is there.
fn replaces_whole(path: &KeyPath, over: &Table) -> bool {
    matches!(path.as_slice(), [mcp, servers, _] if mcp == "mcp" && servers == "servers")
        && (over.contains_key("command") || over.contains_key("url"))
}
