//! What is looked at before the parser sees a line: length, depth and odd characters. A line outside these
//! bounds is not parsed at all, so that no input can exhaust the stack or the time of the parser.

/// The longest command line that is judged.
pub(crate) const MAX_LINE: usize = 64 * 1024;
/// The deepest nesting of brackets and of compound commands.
const MAX_NESTING: usize = 10;
/// The most `!` words: the parser recurses on each.
const MAX_NOTS: usize = 32;

pub(crate) fn check(line: &str) -> Result<(), &'static str> {
    if line.len() > MAX_LINE {
        return Err("it is longer than 64 KiB");
    }
    if line.chars().any(odd) {
        return Err("it contains control characters or unusual blanks");
    }
    if huge_descriptor(line) {
        return Err("it has a file descriptor with too many digits");
    }
    if line.split('\n').any(comment_with_backslash) || (line.contains("<<") && line.contains("\\\n")) {
        return Err("it joins lines where shells and parsers differ");
    }
    if line.split('\n').any(open_after_here_document) {
        return Err("there is more behind a here-document than is judged");
    }
    if bracket_depth(line) > MAX_NESTING || compound_depth(line) > MAX_NESTING {
        return Err("it is nested too deep");
    }
    if line.split_ascii_whitespace().filter(|&word| word == "!").count() > MAX_NOTS {
        return Err("it is nested too deep");
    }
    Ok(())
}

/// Shells and parsers differ on what separates words beyond blank, tab and newline.
fn odd(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t') || (c.is_whitespace() && !matches!(c, ' ' | '\n' | '\t'))
}

/// `99999999999>x`: the parser panics on numbers that do not fit.
fn huge_descriptor(line: &str) -> bool {
    let mut digits = 0;
    line.chars().any(|c| {
        if c.is_ascii_digit() {
            digits += 1;
            return false;
        }
        let run = std::mem::take(&mut digits);
        run > 9 && matches!(c, '<' | '>')
    })
}

/// A comment ends with its line; the parser joins the next one to it when it stands in a substitution.
fn comment_with_backslash(line: &str) -> bool {
    line.ends_with('\\') && line.contains('#')
}

/// `cat <<EOF "$(x)"`: the parser takes a substitution behind a here-document apart, and panics on what spans
/// lines there.
fn open_after_here_document(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("<<") else { return false };
    rest.contains(['$', '`', '(', ')', '{', '}'])
        || ['"', '\''].into_iter().any(|quote| rest.chars().filter(|&c| c == quote).count() % 2 == 1)
}

/// Deepest bracket nesting, quotes ignored: too high a count only makes the answer stricter.
fn bracket_depth(line: &str) -> usize {
    deepest(line.chars().map(|c| match c {
        '(' | '{' | '[' => 1,
        ')' | '}' | ']' => -1,
        _ => 0,
    }))
}

fn compound_depth(line: &str) -> usize {
    let words = line.split(|c: char| c.is_ascii_whitespace() || ";&|()".contains(c));
    deepest(words.map(|word| match word {
        "if" | "for" | "while" | "until" | "case" | "select" | "function" | "coproc" | "time" => 1,
        "fi" | "done" | "esac" => -1,
        _ => 0,
    }))
}

fn deepest(steps: impl Iterator<Item = isize>) -> usize {
    let depths = steps.scan(0_usize, |depth, step| {
        *depth = depth.saturating_add_signed(step);
        Some(*depth)
    });
    depths.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(line: &str, why: &str) {
        let found = check(line).expect_err(why);
        assert!(found.contains(why), "{found}");
    }

    #[test]
    fn each_bound_is_where_it_says() {
        assert_eq!(check(&"x".repeat(MAX_LINE)), Ok(()));
        refused(&"x".repeat(MAX_LINE + 1), "longer");
        for (open, close) in [("(", ")"), ("{", "}"), ("[", "]")] {
            let nested = |depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(check(&nested(MAX_NESTING)), Ok(()));
            refused(&nested(MAX_NESTING + 1), "too deep");
            refused(&nested(MAX_NESTING + 2), "too deep");
            // One after the other is not nested.
            assert_eq!(check(&nested(1).repeat(3 * MAX_NESTING)), Ok(()));
        }
        assert_eq!(check(&"if ".repeat(MAX_NESTING)), Ok(()));
        refused(&"if ".repeat(MAX_NESTING + 1), "too deep");
        for one in ["if a; then b; fi\n", "for a in b; do c; done\n", "case a in b) ;; esac\n"] {
            assert_eq!(check(&one.repeat(3 * MAX_NESTING)), Ok(()));
        }
        assert_eq!(check(&"! ".repeat(MAX_NOTS)), Ok(()));
        refused(&"! ".repeat(MAX_NOTS + 1), "too deep");
        assert_eq!(check("x 123456789>y 1 2"), Ok(()));
        for digits in ["1234567890", "12345678901"] {
            refused(&format!("x {digits}>y"), "descriptor");
            refused(&format!("x {digits}<y"), "descriptor");
            assert_eq!(check(&format!("x {digits} >y")), Ok(()));
        }
    }

    #[test]
    fn lines_that_shells_and_parsers_read_differently_are_refused() {
        refused("a # b\\\nc", "joins lines");
        refused("cat <<E\nx\\\nE", "joins lines");
        assert_eq!(check("a \\\nb"), Ok(()));
        assert_eq!(check("a # b\nc"), Ok(()));
        for line in ["cat <<E \"$(x)\"", "cat <<E {", "cat <<E \"a", "cat <<E 'a", "cat <<E `x`"] {
            refused(line, "behind a here-document");
        }
        for line in ["cat <<E", "cat <<'E'", "cat <<E \"a\" 'b'"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }
}
