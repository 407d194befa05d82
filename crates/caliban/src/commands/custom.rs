//! Commands that people write: `.caliban/commands/*.md` and `.claude/commands/*.md`. The body is a prompt, in which
//! `$ARGUMENTS` and `$1` to `$9` stand for what was typed behind the name.

use caliban_settings::definitions::DefinitionFile;

use crate::{settings::Loaded, trust::DefinitionKind};

/// A command that somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Custom {
    /// Its name: that of the file.
    pub name: String,
    /// What it does.
    pub about: String,
    /// What goes behind its name.
    pub hint: Option<String>,
    body: String,
}

/// The commands of the repo, when it is trusted, and the user's own; of two with one name the first wins. The second list
/// says which files are none, and why.
pub(crate) fn all(loaded: &Loaded) -> (Vec<Custom>, Vec<String>) {
    parse_all(&loaded.definitions(DefinitionKind::Commands))
}

/// The commands in these files, and which are none.
pub(crate) fn parse_all(files: &[DefinitionFile]) -> (Vec<Custom>, Vec<String>) {
    let (mut commands, mut problems) = (Vec::<Custom>::new(), Vec::new());
    for file in files {
        match parse(file) {
            Ok(command) if commands.iter().all(|other| other.name != command.name) => commands.push(command),
            Ok(_) => {}
            Err(problem) => problems.push(format!("{}: {problem}", file.path.display())),
        }
    }
    (commands, problems)
}

/// A prompt that calls one of them (`/fix 12`) is its text; any other stays.
pub(crate) fn expanded(commands: &[Custom], prompt: String) -> String {
    let Some(called) = prompt.trim_start().strip_prefix('/') else { return prompt };
    let (name, arguments) = called.split_once(char::is_whitespace).unwrap_or((called, ""));
    match commands.iter().find(|command| command.name == name) {
        Some(command) => command.prompt(arguments.trim()),
        None => prompt,
    }
}

fn parse(file: &DefinitionFile) -> Result<Custom, String> {
    let bytes = file.content.as_ref().map_err(Clone::clone)?;
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?.trim_start_matches('\u{feff}');
    let name = file.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Err("the name of a command has only letters, digits, - and _".to_owned());
    }
    let text = text.replace("\r\n", "\n");
    let (front, body) = match text.strip_prefix("---\n") {
        Some(rest) => rest.split_once("\n---\n").ok_or("the front matter has no closing `---` line")?,
        None => ("", text.as_str()),
    };
    let field = |name: &str| {
        let line = front.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_matches(['"', '\'']).to_owned()).filter(|text| !text.is_empty())
    };
    let first = body.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let about = field("description").unwrap_or_else(|| first.trim_start_matches('#').trim().to_owned());
    Ok(Custom { name, about, hint: field("argument-hint"), body: body.trim().to_owned() })
}

impl Custom {
    /// The prompt for these arguments. A body that has no place for them gets them behind it.
    pub(crate) fn prompt(&self, arguments: &str) -> String {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let mut out = String::new();
        let mut rest = self.body.as_str();
        let mut has_place = false;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let number = after.chars().next().and_then(|c| c.to_digit(10)).filter(|digit| *digit > 0);
            if let Some(behind) = after.strip_prefix("ARGUMENTS") {
                out.push_str(arguments);
                (rest, has_place) = (behind, true);
            } else if let Some(number) = number.and_then(|number| usize::try_from(number).ok()) {
                out.push_str(words.get(number - 1).copied().unwrap_or_default());
                (rest, has_place) = (&after[1..], true);
            } else {
                out.push('$');
                rest = after;
            }
        }
        out.push_str(rest);
        if !has_place && !arguments.is_empty() {
            out.push_str("\n\n");
            out.push_str(arguments);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Result<Custom, String> {
        parse(&DefinitionFile { path: "/w/.claude/commands/fix.md".into(), content: Ok(text.into()) })
    }

    #[test]
    fn arguments_go_where_the_body_wants_them() {
        let fix = command("---\ndescription: \"Fix an issue\"\nargument-hint: [number]\nmodel: x\n---\nFix $1 ($ARGUMENTS) for $5.\n").unwrap();
        assert_eq!(
            (fix.name.as_str(), fix.about.as_str(), fix.hint.as_deref()),
            ("fix", "Fix an issue", Some("[number]"))
        );
        assert_eq!(fix.prompt("12 now, $1"), "Fix 12 (12 now, $1) for .");
        let plain = command("# Look at it\n\nLook, it costs $x.").unwrap();
        assert_eq!(
            (plain.about.as_str(), plain.prompt("")),
            ("Look at it", "# Look at it\n\nLook, it costs $x.".to_owned())
        );
        assert!(plain.prompt("the tests").ends_with("costs $x.\n\nthe tests"));
    }

    #[test]
    fn a_prompt_that_calls_a_command_is_its_text() {
        let commands = [command("Fix $ARGUMENTS.").unwrap()];
        for (prompt, expected) in [
            ("/fix 12 now", "Fix 12 now."),
            ("  /fix\n12", "Fix 12."),
            ("/fix", "Fix ."),
            ("/fixes 12", "/fixes 12"),
            ("/usr/bin/fix 12", "/usr/bin/fix 12"),
            ("see /fix 12", "see /fix 12"),
        ] {
            assert_eq!(expanded(&commands, prompt.to_owned()), expected);
        }
    }

    #[test]
    fn a_file_that_is_no_command_is_named() {
        assert!(command("---\ndescription: x\n").unwrap_err().contains("closing"));
        let file = DefinitionFile { path: "/w/a b.md".into(), content: Ok(b"x".to_vec()) };
        assert!(parse(&file).unwrap_err().contains("letters"));
    }
}
