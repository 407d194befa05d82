//! The text of a patch, taken apart: `*** Begin Patch … *** End Patch`, as models of the GPT family write it.

/// What is done to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchChange {
    /// A new file with this content.
    Add {
        path: String,
        content: String,
    },
    Delete {
        path: String,
    },
    /// Pieces that are replaced, in the file's order.
    Update {
        path: String,
        to: Option<String>,
        pieces: Vec<PatchHunk>,
    },
}

/// Lines that are replaced by others; the context is in both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// Lines that stand above it, each behind `@@`: the search goes on below them.
    pub(super) anchors: Vec<String>,
    pub(super) old: Vec<String>,
    pub(super) new: Vec<String>,
    /// Whether it stands at the end of the file.
    pub(super) at_end: bool,
}

impl PatchChange {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Delete { path } | Self::Update { path, .. } => path,
        }
    }
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";

/// The changes of a patch, in its order; the error is worded for the model.
pub(super) fn parse(text: &str) -> Result<Vec<PatchChange>, String> {
    let text = text.trim();
    // Some models send the shell's quotes along.
    let start = text.find(BEGIN).ok_or_else(|| format!("the patch does not begin with `{BEGIN}`"))?;
    let mut lines = text[start..].lines().skip(1).peekable();
    let mut changes: Vec<PatchChange> = Vec::new();
    loop {
        let Some(line) = lines.next() else { return Err(format!("the patch does not end with `{END}`")) };
        if line.trim_end() == END {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let head = |name: &str| line.strip_prefix(name).map(|path| path.trim().to_owned());
        if let Some(path) = head("*** Add File:") {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| !is_head(line)) {
                content.push_str(added(line)?);
                content.push('\n');
            }
            changes.push(PatchChange::Add { path, content });
        } else if let Some(path) = head("*** Delete File:") {
            changes.push(PatchChange::Delete { path });
        } else if let Some(path) = head("*** Update File:") {
            let to = lines.next_if(|line| line.starts_with("*** Move to:"));
            let to = to.and_then(|line| line.split_once(':')).map(|(_, to)| to.trim().to_owned());
            let mut pieces = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_head(line)) {
                take(line, &mut pieces)?;
            }
            if pieces.is_empty() && to.is_none() {
                return Err(format!("the patch changes nothing in {path}"));
            }
            changes.push(PatchChange::Update { path, to, pieces });
        } else {
            return Err(format!(
                "the patch has the line `{line}`, expected `*** Update File: PATH`, `*** Add File: PATH`, `*** Delete \
                 File: PATH` or `{END}`"
            ));
        }
    }
    if changes.is_empty() { Err("the patch is empty".into()) } else { Ok(changes) }
}

fn is_head(line: &str) -> bool {
    line.starts_with("*** ") && line.trim_end() != "*** End of File"
}

fn added(line: &str) -> Result<&str, String> {
    line.strip_prefix('+').ok_or_else(|| {
        format!("the patch has the line `{line}` in a new file, where every line begins with `+`")
    })
}

/// One line of a file's pieces.
fn take(line: &str, pieces: &mut Vec<PatchHunk>) -> Result<(), String> {
    if let Some(anchor) = line.strip_prefix("@@") {
        // Several in a row lead down to one place.
        let is_next = pieces.last().is_none_or(|piece| !piece.old.is_empty() || !piece.new.is_empty());
        if is_next {
            pieces.push(PatchHunk::default());
        }
        let anchor = anchor.trim();
        if let (false, Some(piece)) = (anchor.is_empty(), pieces.last_mut()) {
            piece.anchors.push(anchor.to_owned());
        }
        return Ok(());
    }
    if pieces.is_empty() {
        pieces.push(PatchHunk::default());
    }
    let Some(piece) = pieces.last_mut() else { return Ok(()) };
    if line.trim_end() == "*** End of File" {
        piece.at_end = true;
        return Ok(());
    }
    let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
    match sign {
        " " => {
            piece.old.push(rest.to_owned());
            piece.new.push(rest.to_owned());
        }
        "-" => piece.old.push(rest.to_owned()),
        "+" => piece.new.push(rest.to_owned()),
        _ => {
            return Err(format!(
                "the patch has the line `{line}`, expected one that begins with ` `, `-`, `+` or `@@`"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_taken_apart() {
        let text = "*** Begin Patch\n*** Add File: a\n+one\n+\n*** Update File: b\n*** Move to: c\n@@ class A\n@@ def f\n x\n-y\n+z\n\n@@\n-end\n*** End of File\n*** Delete File: d\n*** End Patch\n";
        let texts = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            parse(text),
            Ok(vec![
                PatchChange::Add { path: "a".into(), content: "one\n\n".into() },
                PatchChange::Update {
                    path: "b".into(),
                    to: Some("c".into()),
                    pieces: vec![
                        PatchHunk {
                            anchors: texts(&["class A", "def f"]),
                            old: texts(&["x", "y", ""]),
                            new: texts(&["x", "z", ""]),
                            at_end: false
                        },
                        PatchHunk { old: texts(&["end"]), at_end: true, ..PatchHunk::default() },
                    ],
                },
                PatchChange::Delete { path: "d".into() },
            ])
        );
    }

    #[test]
    fn what_is_no_patch_is_said() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("diff --git a b"), "the patch does not begin with `*** Begin Patch`");
        assert_eq!(
            error("*** Begin Patch\n*** Delete File: a"),
            "the patch does not end with `*** End Patch`"
        );
        assert_eq!(error("*** Begin Patch\n*** End Patch"), "the patch is empty");
        assert_eq!(
            error("*** Begin Patch\n*** Update File: a\n*** End Patch"),
            "the patch changes nothing in a"
        );
        assert!(error("*** Begin Patch\n*** Update File: a\n?x\n*** End Patch").contains("`?x`"));
        assert!(error("*** Begin Patch\n*** Add File: a\nx\n*** End Patch").contains("begins with `+`"));
        assert!(
            error("*** Begin Patch\nhello\n*** End Patch")
                .contains("`hello`, expected `*** Update File: PATH`")
        );
    }
}
