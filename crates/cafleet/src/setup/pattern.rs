//! Claude Code's permission rules for commands: whether a rule matches a command.
//!
//! `Bash` and `Bash(*)` match every command, `Bash(git status)` one, `Bash(git:*)` those that begin with these words,
//! and in `Bash(git * main)` a star matches anything; ` *` at the end also matches nothing.

/// Whether a rule matches the command.
pub(super) fn means(rule: &str, command: &str) -> bool {
    let rule = rule.trim();
    if rule == "Bash" {
        return true;
    }
    let Some(pattern) = rule.strip_prefix("Bash(").and_then(|rest| rest.strip_suffix(')')) else {
        return false;
    };
    let begins = |prefix: &str| {
        command.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    if let Some(prefix) = pattern.strip_suffix(":*") {
        return begins(prefix);
    }
    match pattern.strip_suffix(" *") {
        Some(prefix) if !prefix.contains('*') => begins(prefix),
        _ => fits(pattern, command),
    }
}

/// Whether a pattern with stars matches the whole text.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::means;

    #[test]
    fn a_rule_means_what_claude_takes_it_to_mean() {
        let poll = "cafleet --session-id s message poll --agent-id a";
        for rule in [
            "Bash",
            "Bash(*)",
            "Bash(cafleet:*)",
            "Bash(cafleet *)",
            "Bash(cafleet --session-id:*)",
            "Bash(cafleet --session-id * message *)",
            "Bash(cafleet --session-id s message poll --agent-id a)",
            "Bash(* --agent-id a)",
        ] {
            assert!(means(rule, poll), "{rule}");
        }
        for rule in [
            "Bash(cafleet)",
            "Bash(caf:*)",
            "Bash(cafleet * member exec *)",
            "Edit",
            "Bash(cafleet -*x)",
            "Read(*)",
        ] {
            assert!(!means(rule, poll), "{rule}");
        }
        assert!(means("Bash(cafleet *)", "cafleet"));
    }
}
