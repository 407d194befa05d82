//! Input that is stored: bodies, names, labels. Each has a cap and a rule.
//!
//! Refuses: empty bodies, bodies over [`MAX_TEXT_BYTES`], NUL, bytes that are not UTF-8, and names that could be
//! mistaken for something else on a screen.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use caliban_core::inert;

use crate::failure::{Failure, shown};

/// Maximum size of a body.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Maximum length of an agent's name and a session's label.
pub(crate) const MAX_NAME_CHARS: usize = 100;
/// Maximum length of a description.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;
/// Maximum size of a list of skills.
pub(crate) const MAX_SKILLS_BYTES: usize = 64 * 1024;

/// Where a body comes from.
#[derive(Debug, Clone)]
pub(crate) enum BodySource {
    /// From the command line.
    Text(String),
    /// From a file, or from standard input when it is `-`.
    File(String),
}

/// Reads a body and checks it.
pub(crate) fn body(from: &BodySource) -> Result<String, Failure> {
    let text = match from {
        BodySource::Text(text) => text.clone(),
        BodySource::File(name) => read_bounded(name)?,
    };
    if text.len() > MAX_TEXT_BYTES {
        return Err(too_long(text.len()));
    }
    if text.trim().is_empty() {
        return Err(Failure::refused("empty_text", "the message text is empty; nothing was sent"));
    }
    if text.contains('\0') {
        return Err(Failure::refused(
            "bad_text",
            "the message text contains a NUL character; nothing was sent",
        ));
    }
    Ok(text)
}

/// Checks a name or label.
pub(crate) fn name(what: &str, text: &str) -> Result<String, Failure> {
    let refused = |words: String| Failure::refused("bad_name", words);
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(refused(format!("{what} must not be empty")));
    }
    if trimmed.chars().count() > MAX_NAME_CHARS {
        return Err(refused(format!("{what} is longer than {MAX_NAME_CHARS} characters")));
    }
    if inert::line(trimmed) != trimmed {
        return Err(refused(format!(
            "{what} contains control or invisible characters: {}",
            inert::quoted(trimmed)
        )));
    }
    Ok(trimmed.to_owned())
}

/// Checks a text that is typed into a pane unchanged.
pub(crate) fn harmless(what: &str, text: &str) -> Result<(), Failure> {
    if inert::line(text) == text {
        return Ok(());
    }
    let words = format!("{what} contains control or invisible characters: {}", inert::quoted(text));
    Err(Failure::refused("bad_text", words))
}

/// Checks a description.
pub(crate) fn description(text: &str) -> Result<String, Failure> {
    if text.len() > MAX_DESCRIPTION_BYTES {
        let words = format!("--description is {} bytes; the limit is {MAX_DESCRIPTION_BYTES}", text.len());
        return Err(Failure::refused("bad_description", words));
    }
    Ok(text.to_owned())
}

/// Parses a list of skills.
pub(crate) fn skills(text: Option<&str>) -> Result<Vec<serde_json::Value>, Failure> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let refused =
        |why: &str| Failure::refused("bad_skills", format!("Invalid JSON in --skills: {}", shown(why)));
    if text.len() > MAX_SKILLS_BYTES {
        return Err(refused(&format!("{} bytes; the limit is {MAX_SKILLS_BYTES}", text.len())));
    }
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Array(skills)) => Ok(skills),
        Ok(_) => Err(refused("a list is expected")),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn read_bounded(name: &str) -> Result<String, Failure> {
    let refused = |why: String| Failure::refused("bad_text_file", why);
    let words = |error: std::io::Error| refused(format!("cannot read {}: {error}", shown(name)));
    let limit = MAX_TEXT_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(words)?;
    } else {
        File::open(Path::new(name)).map_err(words)?.take(limit).read_to_end(&mut bytes).map_err(words)?;
    }
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(too_long(bytes.len()));
    }
    String::from_utf8(bytes)
        .map_err(|_| refused(format!("{} is not UTF-8 text; nothing was sent", shown(name))))
}

fn too_long(bytes: usize) -> Failure {
    // A file is read only one byte past the limit, so its real size is unknown.
    let size = if bytes == MAX_TEXT_BYTES + 1 { "larger".to_owned() } else { format!("{bytes} bytes") };
    let words = format!(
        "the message text is too long ({size}); the limit is {MAX_TEXT_BYTES} bytes; nothing was sent"
    );
    Failure::refused("text_too_long", words)
}
