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
    let (mut depth, mut deepest) = (0_usize, 0);
    for c in line.chars() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn compound_depth(line: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for word in line.split(|c: char| c.is_ascii_whitespace() || ";&|()".contains(c)) {
        match word {
            "if" | "for" | "while" | "until" | "case" | "select" | "function" | "coproc" | "time" => {
                depth += 1
            }
            "fi" | "done" | "esac" => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
