//! Rules that a person keeps with an answer: written into the user's own settings, for one repo or for all.
//!
//! Only a text is put in; comments, order and everything else of the file stay as they are. Never the repo's own files: an agent can write
//! those.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use caliban_core::kept_rules::{KeepFor, KeptRules};
use serde::Deserialize as _;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use super::{Paths, SettingPlace, SettingsError, file, parse_rule};

/// Adds the rules to the file that they are for; which one that is.
pub fn keep(paths: &Paths, root: &Path, kept: &KeptRules) -> Result<PathBuf, SettingsError> {
    let path = match kept.keep {
        KeepFor::Session => {
            let why = "a rule of a session is in no file";
            return Err(SettingsError::new(SettingPlace::Nowhere, why));
        }
        KeepFor::Repo => paths.repo_settings(root),
        KeepFor::Everywhere => paths.user_settings(),
    };
    // A link to a file that is kept elsewhere stays one.
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let wrong = |text: String| SettingsError::new(SettingPlace::File(path.clone()), text);
    let io = |error: std::io::Error| wrong(format!("cannot be written: {}", file::words(&error)));
    let directory = real.parent().unwrap_or(&real);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
    let lock = File::open(directory).map_err(io)?;
    lock.lock().map_err(io)?;
    let bytes = file::read(&real)?;
    let mode = real.metadata().map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let mut text = match &bytes {
        Some(bytes) => file::text(&path, bytes)?.to_owned(),
        None if kept.keep == KeepFor::Repo => {
            format!("# Your own settings for {}\n", caliban_core::inert::line(&root.to_string_lossy()))
        }
        None => String::new(),
    };
    for rule in &kept.rules {
        parse_rule(rule).map_err(|(message, _)| wrong(message))?;
        text = with_rule(&text, rule).ok_or_else(|| {
            wrong("`permissions.allow` cannot be added to".to_owned())
                .hint(format!("add it yourself: [permissions] allow = [{}]", quoted(rule)))
        })?;
    }
    if bytes.as_deref() == Some(text.as_bytes()) {
        return Ok(path);
    }
    let fresh = real.with_extension(format!("{}.tmp", std::process::id()));
    let mut out =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&fresh).map_err(io)?;
    out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(io)?;
    std::fs::rename(&fresh, &real).map_err(io)?;
    Ok(path)
}

/// The text of a settings file with one more rule that allows; none when its `permissions` are written in a way that nothing can be put into.
fn with_rule(text: &str, rule: &str) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let permissions = document.get_ref().get("permissions").map(|value| (value.get_ref(), value.span()));
    let mut out = text.to_owned();
    match permissions {
        None => {
            let apart = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            out.push_str(&format!("{apart}\n[permissions]\nallow = [{}]\n", quoted(rule)));
        }
        Some((DeValue::Table(table), header)) => match table.get("allow") {
            Some(allow) => {
                let DeValue::Array(list) = allow.get_ref() else { return None };
                if list.iter().any(|known| known.get_ref().as_str() == Some(rule)) {
                    return Some(out);
                }
                match list.last() {
                    Some(last) => out.insert_str(last.span().end, &format!(", {}", quoted(rule))),
                    None => out.insert_str(allow.span().start + 1, &quoted(rule)),
                }
            }
            None => {
                let line_end = text[header.end..].find('\n').map_or(text.len(), |at| header.end + at + 1);
                let apart = if text[..line_end].ends_with('\n') { "" } else { "\n" };
                out.insert_str(line_end, &format!("{apart}allow = [{}]\n", quoted(rule)));
            }
        },
        Some(_) => return None,
    }
    // However the file is written: it says what it said, and this rule.
    let read = |text: &str| Table::deserialize(toml::de::Deserializer::parse(text).ok()?).ok();
    let (mut wanted, found) = (read(text)?, read(&out)?);
    let permissions = wanted.entry("permissions").or_insert_with(|| Value::Table(Table::new()));
    let allow = permissions.as_table_mut()?.entry("allow").or_insert_with(|| Value::Array(Vec::new()));
    allow.as_array_mut()?.push(Value::String(rule.to_owned()));
    (wanted == found).then_some(out)
}

/// As TOML writes it.
fn quoted(rule: &str) -> String {
    Value::String(rule.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_put_in_and_all_else_stays() {
        let rule = r#"Bash(git commit -m "it's done")"#;
        for text in [
            "",
            "model = 'x' # mine",
            "# first\n[permissions]\nmode = 'plan' # careful\n\n[limits]\nmax_turns = 3\n",
            "[permissions]",
            "[permissions] # all of it",
            "[permissions]\nallow = []\n",
            "[permissions]\nallow = ['Read'] # these\ndeny = ['Bash(rm *)']\n",
            "[permissions]\nallow = [\n  'Read', # one\n  # none\n]\n[limits]\nmax_turns = 3\n",
            "permissions.mode = 'plan'\npermissions.allow = ['Read',]\n",
            "permissions = { allow = ['Read'], mode = 'plan' }\n",
        ] {
            let with = with_rule(text, rule).unwrap_or_else(|| panic!("{text}"));
            let rest = with.replace(&format!(", {}", quoted(rule)), "");
            let kept = |line: &&str| !line.contains("allow") && !line.is_empty() && *line != "[permissions]";
            for line in text.lines().filter(kept) {
                assert!(rest.lines().any(|other| other == line), "{line} of {text} in {with}");
            }
            assert_eq!(with_rule(&with, rule).as_deref(), Some(with.as_str()), "a second time");
        }
        for strange in
            ["permissions = 3\n", "[permissions]\nallow = 3\n", "permissions.mode = 'plan'\n", "[[["]
        {
            if let Some(with) = with_rule(strange, rule) {
                assert!(with.contains(&quoted(rule)), "{with}");
            }
        }
        assert_eq!(with_rule("permissions = 3\n", rule), None);
        assert_eq!(with_rule("[[[", rule), None);
    }
}
