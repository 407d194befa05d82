//! What programs of others read, held by files: a difference is a change of an interface.
//!
//! A value is compared without what differs from run to run: numbers and times, ids, hashes and paths.

use std::path::PathBuf;

use serde_json::Value;

/// Set, it writes the files instead of comparing.
const BLESS: &str = "CALIBAN_BLESS";
/// A word of so many letters that are all hexadecimal digits may be a hash; one with a number among them is one, or a number.
const HASH: usize = 5;
/// Fields that say something about the machine, or are there on some only.
const MACHINES: [&str; 3] = ["env", "group", "program"];

/// A directory of such files. Compares all, and fails at the end with every difference.
pub struct Golden {
    directory: PathBuf,
    words: Vec<(String, &'static str)>,
    differences: Vec<String>,
}

impl Golden {
    /// In this directory; in what is compared, each of these words is replaced by its name.
    pub fn new(directory: impl Into<PathBuf>, words: Vec<(String, &'static str)>) -> Self {
        Self { directory: directory.into(), words, differences: Vec::new() }
    }

    /// Compares a value with the file of this name.
    pub fn check(&mut self, name: &str, value: &Value) {
        let path = self.directory.join(format!("{name}.json"));
        let now = serde_json::to_string_pretty(&self.plain(value)).unwrap() + "\n";
        if is_blessing() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            return std::fs::write(&path, now).unwrap();
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        if before != now {
            self.differences.push(format!("{}:\n{}", path.display(), differing(&before, &now)));
        }
    }

    /// Fails when something differed.
    pub fn finish(self) {
        assert!(
            self.differences.is_empty(),
            "an interface has changed. If that is wanted: {BLESS}=1 cargo nextest run …\n{}",
            self.differences.join("\n")
        );
    }

    fn plain(&self, value: &Value) -> Value {
        match value {
            Value::Number(_) => 0.into(),
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.plain(item)).collect(),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, _)| !MACHINES.contains(&name.as_str()));
                kept.map(|(name, value)| (self.text(name), self.plain(value))).collect()
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let words = |text: String, (word, name): &(String, &str)| text.replace(word.as_str(), name);
        if text.contains("<environment>") {
            return "ENVIRONMENT".to_owned();
        }
        let text = self.words.iter().fold(text.to_owned(), words);
        let (mut plain, mut word) = (String::new(), String::new());
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_alphanumeric() {
                word.push(c);
                continue;
            }
            let is_hash = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
                && (word.len() >= HASH || word.contains(|c: char| c.is_ascii_digit()));
            match is_hash {
                true => plain.push('0'),
                false => plain.push_str(&without_digits(&word)),
            }
            word.clear();
            plain.push(c);
        }
        plain.pop();
        // A time on the second has no fraction.
        plain.replace(":0.0Z", ":0Z")
    }
}

#[expect(clippy::disallowed_methods, reason = "a switch of the tests, not of the program")]
fn is_blessing() -> bool {
    std::env::var_os(BLESS).is_some()
}

/// Every number is 0.
fn without_digits(word: &str) -> String {
    let mut plain = String::new();
    for c in word.chars() {
        match c.is_ascii_digit() {
            true if plain.ends_with('0') => {}
            true => plain.push('0'),
            false => plain.push(c),
        }
    }
    plain
}

/// The lines that only one of the two has, up to a few.
fn differing(before: &str, now: &str) -> String {
    let only = |of: &str, other: &str, sign: char| -> Vec<String> {
        let other: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !other.contains(line)).take(10);
        lines.map(|line| format!("  {sign} {line}")).collect()
    };
    if before.is_empty() {
        return "  there is no such file".to_owned();
    }
    let lines = [only(before, now, '-'), only(now, before, '+')].concat();
    if lines.is_empty() { "  the same lines in another order or number".to_owned() } else { lines.join("\n") }
}
