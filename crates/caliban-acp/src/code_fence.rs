//! Output of commands inside markdown.

/// Output as a code block, so that a client shows it as it is. The fence is longer than any run of backticks inside.
pub fn fenced(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// The text inside the fence that [`fenced`] puts around output; other text is returned unchanged.
pub fn unfenced(text: &str) -> &str {
    let fence = text.len() - text.trim_start_matches('`').len();
    let inside = (fence >= 3).then(|| {
        let body = text.get(fence..)?.strip_prefix('\n')?;
        body.strip_suffix(&text[..fence])
    });
    inside.flatten().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_fenced_and_comes_out_again() {
        for text in ["", "one", "a\nb\n", "```\ncode\n```", "`````"] {
            let fenced = fenced(text);
            assert_eq!(unfenced(&fenced).trim_end_matches('\n'), text.trim_end_matches('\n'), "{fenced}");
        }
        assert_eq!(unfenced("```not closed"), "```not closed");
    }
}
