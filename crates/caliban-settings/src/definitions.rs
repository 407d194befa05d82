//! Agent definition files: `.caliban/agents/*.md` and `.claude/agents/*.md`.
//!
//! Front matter (name, description, tools, model) and a body that becomes part of the system prompt. Owns the
//! parsing of the small part of YAML that people write there; what it does not understand it names.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use caliban_core::definition::Definition;

/// A larger file is not a definition.
const MAX_BYTES: u64 = 256 * 1024;
/// More of them in one directory are not read.
pub const MAX_FILES: usize = 200;

/// A definition file as it was read: what is judged and what is used are the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes, or why there are none.
    pub content: Result<Vec<u8>, String>,
}

/// The definition files in a directory, in order, without a look into them; at most [`MAX_FILES`] and one more.
pub fn list(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths = BTreeSet::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "md") {
            paths.insert(path);
        }
        if paths.len() > MAX_FILES + 1 {
            paths.pop_last();
        }
    }
    paths.into_iter().collect()
}

/// The `SKILL.md` in the directories of a directory, in order, without a look into them; at most [`MAX_FILES`] and one more.
pub fn list_skills(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path().join("SKILL.md")));
    let mut paths: Vec<PathBuf> = files.filter(|path| path.symlink_metadata().is_ok()).collect();
    paths.sort();
    paths.truncate(MAX_FILES + 1);
    paths
}

/// Reads the definition files in a directory.
pub fn read(directory: &Path) -> Vec<DefinitionFile> {
    read_all(list(directory))
}

/// Reads the `SKILL.md` in the directories of a directory.
pub fn read_skills(directory: &Path) -> Vec<DefinitionFile> {
    read_all(list_skills(directory))
}

fn read_all(paths: Vec<PathBuf>) -> Vec<DefinitionFile> {
    let files = paths.into_iter().enumerate().map(|(index, path)| {
        let content = if index < MAX_FILES {
            read_file(&path)
        } else {
            Err(format!("not read, nor any after it: a directory may have {MAX_FILES} agent types"))
        };
        DefinitionFile { path, content }
    });
    files.collect()
}

/// The definitions in these files; of two with one name the first wins. The second list says which files are none, and
/// why.
pub fn parse_all<'a>(files: impl IntoIterator<Item = &'a DefinitionFile>) -> (Vec<Definition>, Vec<String>) {
    let (mut definitions, mut problems) = (Vec::<Definition>::new(), Vec::new());
    for file in files {
        match file.definition() {
            Ok(definition) if definitions.iter().all(|other| other.name != definition.name) => {
                definitions.push(definition);
            }
            Ok(_) => {}
            Err(problem) => problems.push(format!("{}: {problem}", file.path.display())),
        }
    }
    (definitions, problems)
}

impl DefinitionFile {
    /// What the file defines, or why it defines nothing.
    pub fn definition(&self) -> Result<Definition, String> {
        let bytes = self.content.as_ref().map_err(Clone::clone)?;
        let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        parse(text, &stem, &self.path)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let words = |error: std::io::Error| error.to_string();
    // Without NONBLOCK a named pipe would hang the start for ever.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(words)?;
    let is_file = file.metadata().map_err(words)?.is_file();
    let mut bytes = Vec::new();
    if is_file {
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(words)?;
    }
    if !is_file || bytes.len() as u64 > MAX_BYTES {
        return Err(format!("not a file of at most {MAX_BYTES} bytes"));
    }
    Ok(bytes)
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
    fn a14_what_cannot_be_a_definition_is_named_and_hangs_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("a.md"), "Good.").unwrap();
        fs::write(path("b.md"), vec![b'x'; MAX_BYTES as usize + 1]).unwrap();
        fs::create_dir(path("c.md")).unwrap();
        fs::write(path("d.md"), b"\xff").unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path("e.md"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::write(path("other.txt"), "no").unwrap();
        let (definitions, problems) = parse_all(&read(place.path()));
        let names: Vec<_> = definitions.iter().map(|definition| definition.name.as_str()).collect();
        assert_eq!(names, ["a"]);
        let too_large = format!("not a file of at most {MAX_BYTES} bytes");
        let problem = |name: &str, why: &str| format!("{}: {why}", path(name).display());
        assert_eq!(
            problems,
            [
                problem("b.md", &too_large),
                problem("c.md", &too_large),
                problem("d.md", "not UTF-8"),
                problem("e.md", &too_large)
            ]
        );
    }

    #[test]
    fn a14_more_files_than_the_limit_are_left_out_with_one_line() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..MAX_FILES + 20 {
            fs::write(place.path().join(format!("{number:04}.md")), "Role.").unwrap();
        }
        let (definitions, problems) = parse_all(&read(place.path()));
        assert_eq!((definitions.len(), definitions[MAX_FILES - 1].name.as_str()), (MAX_FILES, "0199"));
        let last = place.path().join("0200.md");
        let why = "not read, nor any after it: a directory may have 200 agent types";
        assert_eq!(problems, [format!("{}: {why}", last.display())]);
    }

    #[test]
    fn an_open_front_matter_is_an_error_in_words() {
        let error = parse("---\nname: x\n", "x", Path::new("x.md")).unwrap_err();
        assert_eq!(error, "the front matter has no closing `---` line");
    }
}
