//! Agent definition files: `.caliban/agents/*.md` and `.claude/agents/*.md`.
//!
//! Front matter (name, description, tools, model) and a body that becomes part of the system prompt. Owns the
//! parsing of the small part of YAML that people write there; what it does not understand it names.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A larger file is not a definition.
const MAX_BYTES: u64 = 256 * 1024;
/// More of them in one directory are not read.
const MAX_FILES: usize = 200;

/// A kind of agent that a call can name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Definition {
    /// The name to call it by.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its tools; all of the caller's when absent.
    pub tools: Option<Vec<String>>,
    /// Its model; the caller's when absent.
    pub model: Option<String>,
    /// The body: its part of the system prompt.
    #[serde(skip)]
    pub role: String,
    /// Where it comes from.
    pub path: PathBuf,
}

/// Reads all definitions below these directories; of two with one name the first wins. The second list says which
/// files could not be read, and why.
pub fn load(directories: &[PathBuf]) -> (Vec<Definition>, Vec<String>) {
    let (mut definitions, mut problems) = (Vec::<Definition>::new(), Vec::new());
    for directory in directories {
        for path in markdown_files(directory) {
            match read(&path) {
                Ok(definition) if definitions.iter().all(|other| other.name != definition.name) => {
                    definitions.push(definition);
                }
                Ok(_) => {}
                Err(problem) => problems.push(format!("{}: {problem}", path.display())),
            }
        }
    }
    (definitions, problems)
}

fn markdown_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.sort();
    paths.truncate(MAX_FILES);
    paths
}

fn read(path: &Path) -> Result<Definition, String> {
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return Err(format!("not a file of at most {MAX_BYTES} bytes"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    parse(&text, &stem, path)
}

fn parse(text: &str, stem: &str, path: &Path) -> Result<Definition, String> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (front, body) = match text.strip_prefix("---\n") {
        Some(rest) => rest
            .split_once("\n---\n")
            .or_else(|| rest.strip_suffix("\n---").map(|front| (front, "")))
            .ok_or("the front matter has no closing `---` line")?,
        None => ("", text.as_str()),
    };
    let mut definition = Definition {
        name: stem.to_owned(),
        description: String::new(),
        tools: None,
        model: None,
        role: body.trim().to_owned(),
        path: path.to_owned(),
    };
    let mut lines = front.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let (key, value) = line
            .split_once(':')
            .ok_or_else(|| format!("line {}: expected `key: value`, found `{line}`", index + 2))?;
        let mut items = Vec::new();
        while let Some((_, item)) = lines.next_if(|(_, line)| line.starts_with([' ', '\t', '-'])) {
            items.push(unquote(item.trim().trim_start_matches('-')).to_owned());
        }
        let value = unquote(value);
        match key.trim() {
            "name" if !value.is_empty() => definition.name = value.to_owned(),
            "description" => {
                let folded = if matches!(value, "" | ">" | "|" | ">-" | "|-") {
                    items.join(" ")
                } else {
                    value.to_owned()
                };
                definition.description = folded;
            }
            "tools" if value == "*" => {}
            "tools" => {
                let listed = value.trim_matches(['[', ']']).split(',').map(unquote).map(str::to_owned);
                definition.tools = Some(listed.chain(items).filter(|name| !name.is_empty()).collect());
            }
            // `inherit` is what others write for the caller's model.
            "model" if !value.is_empty() && value != "inherit" => definition.model = Some(value.to_owned()),
            // Fields of other programs (color, …) are none of our business.
            _ => {}
        }
    }
    Ok(definition)
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: (&str, &str, Option<&[&str]>, Option<&str>, &str)) {
        let (name, description, tools, model, role) = expected;
        let tools = tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect());
        let expected = Definition {
            name: name.into(),
            description: description.into(),
            tools,
            model: model.map(str::to_owned),
            role: role.into(),
            path: "x.md".into(),
        };
        assert_eq!(parse(text, "x", Path::new("x.md")), Ok(expected), "{text}");
    }

    #[test]
    fn front_matter_in_the_ways_people_write_it() {
        check("Just a role.", ("x", "", None, None, "Just a role."));
        check(
            "---\nname: reviewer\ndescription: \"Reads, says\"\ntools: Read, Grep\nmodel: haiku\ncolor: red\n---\nBe strict.\n",
            ("reviewer", "Reads, says", Some(&["Read", "Grep"]), Some("haiku"), "Be strict."),
        );
        check(
            "---\r\ntools: [Read, 'Glob']\r\nmodel: inherit\r\n---\r\nHi",
            ("x", "", Some(&["Read", "Glob"]), None, "Hi"),
        );
        check(
            "---\ndescription: >\n  long\n  text\ntools:\n  - Read\n  - Bash\n---\nHi",
            ("x", "long text", Some(&["Read", "Bash"]), None, "Hi"),
        );
    }

    #[test]
    fn an_open_front_matter_is_an_error_in_words() {
        let error = parse("---\nname: x\n", "x", Path::new("x.md")).unwrap_err();
        assert_eq!(error, "the front matter has no closing `---` line");
    }
}
