//! Why a text was not found: the nearest thing to it that is there.

/// Lines of the file that a hint shows.
const LINES_SHOWN: usize = 12;
/// Lines of a file that are searched for a hint.
const LINES_SEARCHED: usize = 200_000;

/// A sentence that helps to send the right text, if there is anything to say.
pub(super) fn hint(content: &[u8], old: &str) -> Option<String> {
    if has_line_numbers(old) {
        return Some("leave out the line numbers that Read puts before each line".into());
    }
    let content = String::from_utf8_lossy(content);
    let lines: Vec<&str> = content.lines().take(LINES_SEARCHED).collect();
    let wanted: Vec<String> = old.lines().map(squeezed).collect();
    let first = wanted.iter().position(|line| !line.is_empty())?;
    let wanted = &wanted[first..];
    let squeezed_lines: Vec<String> = lines.iter().map(|line| squeezed(line)).collect();
    let same = squeezed_lines.windows(wanted.len()).position(|window| window == wanted);
    if let Some(at) = same {
        return Some(format!(
            "lines {}-{} differ from it only in whitespace; they are exactly:\n{}",
            at + 1,
            at + wanted.len(),
            some(&lines[at..at + wanted.len()])
        ));
    }
    let Some((at, long)) = longest_start(&squeezed_lines, wanted) else {
        let at = closest(&squeezed_lines, wanted)?;
        let end = (at + wanted.len()).min(lines.len());
        return Some(format!("the closest lines are {}-{end}:\n{}", at + 1, some(&lines[at..end])));
    };
    let end = (at + wanted.len()).min(lines.len());
    let what = if long == 1 { "its first line is".into() } else { format!("its first {long} lines are") };
    Some(format!("{what} at line {}, but then the file has:\n{}", at + 1, some(&lines[at..end])))
}

/// Where most lines of the start of `wanted` are found, and how many.
fn longest_start(lines: &[String], wanted: &[String]) -> Option<(usize, usize)> {
    // A short line such as `}` is everywhere and says nothing.
    const TELLING: usize = 4;
    if wanted.len() < 2 || wanted[0].len() < TELLING {
        return None;
    }
    (0..lines.len())
        .map(|at| (at, lines[at..].iter().zip(wanted).take_while(|(line, want)| line == want).count()))
        .filter(|(_, long)| *long > 0)
        .max_by_key(|(at, long)| (*long, std::cmp::Reverse(*at)))
}

/// Where the lines begin that are most like `wanted`, if any are like it.
fn closest(lines: &[String], wanted: &[String]) -> Option<usize> {
    /// How alike two texts must be (1 is equal).
    const ALIKE: f64 = 0.6;
    /// Places that are compared line by line.
    const CANDIDATES: usize = 20;
    let alike = |a: &str, b: &str| strsim::sorensen_dice(a, b);
    // The longest line tells most.
    let (anchor, text) = wanted.iter().enumerate().max_by_key(|(_, line)| line.len())?;
    let mut found: Vec<(f64, usize)> = lines
        .iter()
        .enumerate()
        .skip(anchor)
        .filter(|(_, line)| line.len() <= 4 * text.len() && text.len() <= 4 * line.len())
        .map(|(at, line)| (alike(line, text), at - anchor))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let whole = |at: usize| {
        let scores = lines[at..].iter().zip(wanted).map(|(line, want)| alike(line, want));
        scores.sum::<f64>() / wanted.len() as f64
    };
    let places = found.into_iter().take(CANDIDATES).map(|(_, at)| (whole(at), at));
    // The first of equals.
    let best = places.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (best.0 >= ALIKE).then_some(best.1)
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn some(lines: &[&str]) -> String {
    let mut text = lines.iter().take(LINES_SHOWN).copied().collect::<Vec<_>>().join("\n");
    if lines.len() > LINES_SHOWN {
        text.push_str("\n…");
    }
    text
}

fn has_line_numbers(old: &str) -> bool {
    let mut lines = old.lines().filter(|line| !line.is_empty()).peekable();
    lines.peek().is_some()
        && lines.all(|line| {
            let digits = line.trim_start().split('\t').next().unwrap_or_default();
            line.contains('\t') && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_in_whitespace_is_shown() {
        assert_eq!(
            hint(b"fn a() {\n\tlet x = 1;\n}\n", "    let  x = 1;\n}"),
            Some("lines 2-3 differ from it only in whitespace; they are exactly:\n\tlet x = 1;\n}".into())
        );
    }

    #[test]
    fn line_numbers_are_recognised() {
        assert_eq!(
            hint(b"a\nb\n", "     1\ta\n     2\tb"),
            Some("leave out the line numbers that Read puts before each line".into())
        );
    }

    #[test]
    fn where_the_text_begins_to_differ_is_shown() {
        assert_eq!(
            hint(b"x\nfn a() {\n  one();\n}\n", "fn a() {\n  two();\n}"),
            Some("its first line is at line 2, but then the file has:\nfn a() {\n  one();\n}".into())
        );
        assert_eq!(hint(b"x\ny\n", "nothing like it"), None);
    }

    #[test]
    fn a_near_miss_shows_the_closest_lines() {
        let file =
            b"use a;\n\nfn load(path: &Path) -> Config {\n    read(path)\n}\n\nfn save(path: &Path) {}\n";
        assert_eq!(
            hint(file, "fn load(path: &str) -> Config {\n    read(path)\n}"),
            Some("the closest lines are 3-5:\nfn load(path: &Path) -> Config {\n    read(path)\n}".into())
        );
    }
}
