//! How the work of an agent that has stopped stands, and the message that is suggested for a commit of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::inert;

/// The longest first line of a suggested message.
const SUBJECT_CHARS: usize = 72;
/// Files that a suggested message names.
const NAMED_FILES: usize = 3;

/// Whether somebody has to look at what an agent changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// Something of it is on no branch of the user's.
    ToReview,
    /// All of it is on a branch of the user's.
    Merged,
    /// There is nothing to look at.
    NothingChanged,
}

/// What an agent changed against its base, committed or not, and whether that is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// How it stands.
    pub state: ReviewState,
    /// Files that differ.
    pub files: u64,
    /// Lines added.
    pub added: u64,
    /// Lines deleted.
    pub deleted: u64,
}

impl fmt::Display for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, added, deleted, .. } = self;
        match state {
            ReviewState::ToReview => write!(f, "to review +{added} −{deleted}"),
            ReviewState::Merged => write!(f, "merged +{added} −{deleted}"),
            ReviewState::NothingChanged => f.write_str("nothing changed"),
        }
    }
}

/// The message for one commit of an agent's work: what it was asked to do, and what came of it. `only_commit` is the subject of
/// the agent's commit when that one has everything.
#[must_use]
pub fn suggested_message(
    task: &str,
    only_commit: Option<&str>,
    review: Review,
    paths: &[impl AsRef<str>],
) -> String {
    let task = inert::line(task.trim().lines().next().unwrap_or_default().trim()).into_owned();
    let subject = only_commit.map(|subject| inert::line(subject.trim()).into_owned());
    let subject = subject.filter(|subject| !subject.is_empty()).unwrap_or_else(|| task.clone());
    let subject = if subject.is_empty() { "Work of an agent".to_owned() } else { subject };
    let mut message = shortened(&subject);
    if message != task && !task.is_empty() {
        message += &format!("\n\n{task}");
    }
    if !paths.is_empty() {
        message += &format!("\n\n{}", changed(review, paths));
    }
    message + "\n"
}

/// `src/a.rs, src/b.rs and 2 more files: +10 −2`.
fn changed(review: Review, paths: &[impl AsRef<str>]) -> String {
    let named: Vec<String> =
        paths.iter().take(NAMED_FILES).map(|path| inert::line(path.as_ref()).into_owned()).collect();
    let more = match review.files.saturating_sub(named.len() as u64) {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        more => format!(" and {more} more files"),
    };
    format!("{}{more}: +{} −{}", named.join(", "), review.added, review.deleted)
}

/// At most [`SUBJECT_CHARS`], cut between words where there are any.
fn shortened(line: &str) -> String {
    if line.chars().count() <= SUBJECT_CHARS {
        return line.to_owned();
    }
    let cut: String = line.chars().take(SUBJECT_CHARS - 1).collect();
    let at = cut.rfind(' ').filter(|at| *at > cut.len() / 2).unwrap_or(cut.len());
    format!("{}…", cut[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVIEW: Review = Review { state: ReviewState::ToReview, files: 5, added: 10, deleted: 2 };

    #[test]
    fn a_message_has_the_task_and_what_came_of_it() {
        let paths = ["src/a.rs", "src/b.rs", "src/c.rs", "d", "e"];
        let message = suggested_message("  Add the token type\nand more", None, REVIEW, &paths);
        assert_eq!(message, "Add the token type\n\nsrc/a.rs, src/b.rs, src/c.rs and 2 more files: +10 −2\n");
        let one = Review { files: 1, ..REVIEW };
        assert_eq!(suggested_message("x", None, one, &paths[..1]), "x\n\nsrc/a.rs: +10 −2\n");
        assert_eq!(
            suggested_message("do it", Some("auth: a token"), one, &["a"]),
            "auth: a token\n\ndo it\n\na: +10 −2\n"
        );
        assert_eq!(suggested_message("", None, REVIEW, &[] as &[&str]), "Work of an agent\n");
    }

    #[test]
    fn a_long_task_is_cut_between_words_and_told_whole_below() {
        let task = "word ".repeat(30);
        let message = suggested_message(&task, None, REVIEW, &[] as &[&str]);
        let subject = message.lines().next().unwrap();
        assert!(subject.chars().count() <= SUBJECT_CHARS && subject.ends_with("word…"), "{subject}");
        assert_eq!(message.lines().nth(2), Some(task.trim()));
        let message = suggested_message(&"x".repeat(100), None, REVIEW, &[] as &[&str]);
        assert_eq!(message.lines().next().unwrap().chars().count(), SUBJECT_CHARS);
    }

    #[test]
    fn what_an_agent_can_write_is_inert_in_a_message() {
        let message = suggested_message("a\u{1b}[2J", Some("b\u{1b}"), REVIEW, &["\u{1b}c"]);
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
}
