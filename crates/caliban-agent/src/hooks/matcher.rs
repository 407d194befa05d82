//! Which tools a hook is for. A matcher is a name, names with `*`, alternatives with `|`, or a regular expression, as people
//! know it from Claude Code: a plain name fits exactly, an expression anywhere in the name unless it says `^` and `$`.

use regex_automata::meta::Regex;

/// The largest compiled expression.
const SIZE: usize = 1 << 20;

/// Tools that Claude Code calls differently.
const THEIRS: [(&str, &str); 2] = [("AgentTool", "Task"), ("KillShell", "KillBash")];

/// Whether a matcher fits a tool's name; without one every tool fits.
#[must_use]
pub fn fits(matcher: Option<&str>, tool: &str) -> bool {
    let Some(matcher) = matcher.map(str::trim).filter(|matcher| !matcher.is_empty()) else {
        return true;
    };
    let expression = expression(matcher).and_then(Result::ok);
    let theirs = THEIRS.iter().find(|(ours, _)| *ours == tool).map(|(_, theirs)| *theirs);
    [Some(tool), theirs].into_iter().flatten().any(|name| {
        matcher.split('|').any(|pattern| wildcard(pattern.trim(), name))
            || expression.as_ref().is_some_and(|expression| expression.is_match(name))
    })
}

/// What is wrong with a matcher that is meant for one of these tools. Which tools MCP servers bring is known when they run,
/// so a matcher that speaks of them is not judged.
///
/// # Errors
/// In words, when it fits none of them.
pub fn check(matcher: &str, tools: &[&str]) -> Result<(), String> {
    if matcher.contains("mcp") || tools.iter().any(|tool| fits(Some(matcher), tool)) {
        return Ok(());
    }
    match expression(matcher.trim()) {
        Some(Err(error)) => Err(format!("its matcher `{matcher}` is no regular expression: {error}")),
        Some(Ok(_)) | None => Err(format!("its matcher `{matcher}` fits no tool")),
    }
}

/// The matcher as an expression; none for a plain name.
fn expression(matcher: &str) -> Option<Result<Regex, String>> {
    let is_plain = matcher.chars().all(|c| c.is_alphanumeric() || "_-|* ".contains(c));
    if is_plain {
        return None;
    }
    let config = Regex::config().nfa_size_limit(Some(SIZE));
    let built = Regex::builder().configure(config).build(matcher);
    Some(built.map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned()))
}

fn wildcard(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter_map(|at| tail.get(at..)).any(|tail| wildcard(rest, tail))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_fit_names_alternatives_wildcards_and_expressions() {
        for (matcher, tool, expected) in [
            (None, "Bash", true),
            (Some(""), "Bash", true),
            (Some("*"), "Bash", true),
            (Some("Bash"), "Bash", true),
            (Some("Bash"), "BashOutput", false),
            (Some("Edit|Write"), "Write", true),
            (Some("Edit | Write"), "Write", true),
            (Some("mcp__.*"), "mcp__git__log", true),
            (Some("mcp__*__log"), "mcp__git__log", true),
            (Some("mcp__*__log"), "mcp__git__show", false),
            (Some("^Bash$"), "Bash", true),
            (Some("^Bash$"), "BashOutput", false),
            (Some("^(Edit|Write)$"), "Edit", true),
            (Some("Bash.*"), "BashOutput", true),
            (Some("Notebook.*"), "Bash", false),
            (Some("^Task$"), "AgentTool", true),
            (Some("Task"), "AgentTool", true),
            (Some("(["), "Bash", false),
        ] {
            assert_eq!(fits(matcher, tool), expected, "{matcher:?} {tool}");
        }
    }

    #[test]
    fn a_matcher_that_can_never_fit_is_said() {
        let check = |matcher| check(matcher, &["Bash", "Edit"]);
        assert_eq!(check("^Bash$"), Ok(()));
        assert_eq!(check("mcp__git"), Ok(()));
        assert_eq!(check("Bsh"), Err("its matcher `Bsh` fits no tool".into()));
        assert_eq!(check("^bash$"), Err("its matcher `^bash$` fits no tool".into()));
        assert!(check("(Bash").unwrap_err().starts_with("its matcher `(Bash` is no regular expression: "));
    }
}
